"""Which blocks a class lies in, and which blocks may be permuted independently.

A projection says that a label lies in a block, which is a label itself. A class lies in the blocks of its
labels; a block lies in another one if everything it holds does; blocks that hold each other are one. How a
class lies in a block is its *role* there, a hash: in an outer product (i, j) lies in i as a row and in j as
a column.
"""

from __future__ import annotations

from math import perm

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from intertwine.ir.ledger import Ids, Ledger
from intertwine.symmetry.colours import joined, mix, numbered


class Projections:
    """All projections of a ledger as one list of (child label, parent label, record)."""

    def __init__(self, ledger: Ledger) -> None:
        pairs = ledger.projections
        self.child, self.parent = joined([c for c, _ in pairs]), joined([p for _, p in pairs])
        self.record = numbered([c for c, _ in pairs])

    def merged(self, of: Ids) -> Ids:
        """A coarser label -> class, in which blocks that hold each other are one class."""
        while len(self.child):
            inside = self.ancestors(of, np.zeros(len(of), np.uint64))
            mutual = coo_array(inside.multiply(_ones(inside).T))
            pairs = mutual.row < mutual.col
            if not pairs.any():
                break
            edges = (np.ones(int(pairs.sum()), np.int8), (mutual.row[pairs], mutual.col[pairs]))
            graph = coo_array(edges, shape=mutual.shape)
            of = connected_components(graph, directed=False)[1].astype(np.int64)[of]
        return of

    def ancestors(self, of: Ids, colour: np.ndarray) -> csr_array:
        """Class x class: the role of a class in every block that holds it, directly or not."""
        count = int(of.max(initial=-1)) + 1
        if not len(self.child):
            return csr_array((count, count), dtype=np.uint64)
        seen = mix((mix(colour[self.child].view(np.int64)) + mix(self.record)).view(np.int64))
        role = mix((seen + colour[self.parent]).view(np.int64)) | np.uint64(1)
        direct = _summed(of[self.child], of[self.parent], role, count)
        parents, row = np.unique(self.parent, return_inverse=True)
        content = coo_array(
            (np.ones(len(row), np.uint64), (row, of[self.child])), shape=(len(parents), count)
        ).tocsr()
        sizes = np.bincount(row)
        known = direct
        while True:
            votes, roles = content @ _ones(known), content @ known
            votes.sort_indices()
            roles.sort_indices()
            row = np.repeat(np.arange(len(parents)), np.diff(votes.indptr))
            full = votes.data == sizes[row]
            holder = parents[row[full]]
            held = mix((roles.data[full] + colour[holder]).view(np.int64)) | np.uint64(1)
            nested = _summed(of[holder], votes.indices[full].astype(np.int64), held, count)
            # Blocks of blocks; the role there is that of the way.
            way = coo_array(known @ known)
            way.data = mix(way.data.view(np.int64)) | np.uint64(1)
            wider = _with_new(_with_new(known, nested), way)
            if wider.nnz == known.nnz:
                return known
            known = wider


def _summed(row: Ids, col: Ids, data: np.ndarray, count: int) -> csr_array:
    """Sums of data by (row, column), without the diagonal."""
    off = row != col
    return coo_array((data[off], (row[off], col[off])), shape=(count, count)).tocsr()


def _ones(matrix: csr_array) -> csr_array:
    return csr_array((np.ones(matrix.nnz, np.uint64), matrix.indices, matrix.indptr), shape=matrix.shape)


def _with_new(known: csr_array, more: csr_array | coo_array) -> csr_array:
    """`known`, and the entries of `more` where it has none (off the diagonal)."""
    more = coo_array(more)
    count = known.shape[0]
    old = coo_array(known)
    fresh = ~np.isin(more.row * np.int64(count) + more.col, old.row * np.int64(count) + old.col)
    fresh &= more.row != more.col
    data = np.r_[old.data, more.data[fresh]]
    where = (np.r_[old.row, more.row[fresh]], np.r_[old.col, more.col[fresh]])
    out = coo_array((data, where), shape=known.shape).tocsr()
    out.sort_indices()
    return out


def crossed_blocks(ancestors: csr_array, orbit: Ids, frozen: np.ndarray) -> Ids:
    """Classes whose blocks cross without forming a grid, with those blocks: nothing can be permuted there.

    A class may lie in two blocks of which neither holds the other (a head and a position in the head). They
    can be permuted independently only if all combinations of such blocks occur, and all equally often; of k
    blocks of one kind (a row and a column of an outer product) all ordered choices of k different ones.
    """
    bad: list[Ids] = []
    depth = np.diff(ancestors.indptr)
    inside = np.flatnonzero((depth > 0) & ~frozen)
    order = inside[np.lexsort((depth[inside], orbit[inside]))]
    kind = orbit[order] * np.int64(int(depth.max(initial=0)) + 1) + depth[order]
    for members in np.split(order, np.flatnonzero(np.diff(kind)) + 1) if len(order) else []:
        place = ancestors.indptr[members][:, None] + np.arange(depth[members[0]])
        above, role = ancestors.indices[place], ancestors.data[place]
        sort = np.lexsort((role, orbit[above]), axis=1)
        above, role = np.take_along_axis(above, sort, axis=1), np.take_along_axis(role, sort, axis=1)
        kinds = orbit[above]
        if len(members) == 1 and (kinds[0, 1:] != kinds[0, :-1]).all():
            continue  # alone, in one block of each kind: nothing to exchange
        if not _is_grid(ancestors, orbit, above, role):
            bad.append(np.r_[members, np.unique(above)])
    return np.unique(np.concatenate(bad)) if bad else np.zeros(0, np.int64)


def _is_grid(ancestors: csr_array, orbit: Ids, above: Ids, role: np.ndarray) -> bool:
    """Whether blocks (one row of ancestors a class, by orbit and role) can be permuted freely."""
    if (orbit[above] != orbit[above[0]]).any() or (role != role[0]).any():
        return False
    _, fibre = np.unique(_rows(above), return_counts=True)
    if fibre.min() != fibre.max():
        return False
    held = ancestors[above[0]][:, above[0]].toarray() != 0  # held[i, j]: ancestor j holds ancestor i
    lowest = np.flatnonzero(~held.any(axis=0))
    if len(lowest) < 2:
        return True
    shared = above[:, held[lowest].all(axis=0)]
    _, group = np.unique(_rows(shared), return_inverse=True)
    kinds = orbit[above[0, lowest]]
    for g in range(int(group.max()) + 1):
        here = above[group == g][:, lowest]
        free = 1
        for k in np.unique(kinds):
            columns = here[:, kinds == k]
            free *= perm(len(np.unique(columns)), columns.shape[1])
        if len(np.unique(_rows(here))) != free:
            return False
    return True


def _rows(table: Ids) -> np.ndarray:
    """A hash of every row, in which the order counts."""
    result: np.ndarray = mix(table + 7919 * np.arange(table.shape[1])).sum(axis=1, dtype=np.uint64)
    return result
