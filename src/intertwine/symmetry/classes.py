"""Ledger -> which labels move together, which may be exchanged, and how blocks nest.

    class      labels that are tied: one channel, wherever it occurs
    ancestor   a block that contains a class in all its occurrences (the head of a channel)
    orbit      classes that occur alike everywhere, so that a permutation may exchange them
    fibre      the classes of an orbit that have the same ancestors: inside it any permutation is allowed

All of it is array work: ties are connected components, blocks are a sparse matrix, "occurs alike" is colour
refinement with 64-bit hashes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from intertwine.ir.ledger import Ids, Ledger

_MIX = np.uint64(0x9E3779B97F4A7C15)


def mix(x: Ids) -> np.ndarray:
    """A 64-bit hash of integers (splitmix64); sums of hashes identify multisets."""
    z = x.astype(np.uint64) + _MIX
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@dataclass(frozen=True)
class Classes:
    """The solved permutation structure.

    of: label -> class. coordinates: label x class, the label's class and every block it lies in.
    ancestors: class x class, the blocks that hold every label of a class. orbit: class -> orbit number.
    frozen: class -> may not move. depth: class -> number of ancestors. flags: class -> marks.
    """

    of: Ids
    coordinates: csr_array
    ancestors: csr_array
    orbit: Ids
    frozen: np.ndarray
    depth: Ids
    flags: Ids

    @property
    def count(self) -> int:
        """How many classes there are."""
        return len(self.orbit)


def solve_classes(ledger: Ledger) -> Classes:
    """Solve the ledger's ties, blocks and freezes."""
    of = _components(ledger)
    while True:
        coordinates, ancestors, merged = _blocks(ledger, of)
        if merged is None:
            break
        of = merged
    count = int(of.max(initial=-1)) + 1
    frozen = np.zeros(count, dtype=bool)
    for freeze in ledger.freezes:
        frozen[of[freeze.labels]] = True
    flags = np.zeros(count, dtype=np.int64)
    for labels, mark in ledger.marks:
        chosen = of[labels]
        flags[chosen] |= mark
    orbit = _orbits(ledger, of, frozen, ancestors)
    depth = np.diff(ancestors.indptr)
    return Classes(of, coordinates, ancestors, orbit, frozen, depth, flags)


def _components(ledger: Ledger) -> Ids:
    left = np.concatenate([t.left for t in ledger.ties] or [np.zeros(0, np.int64)])
    right = np.concatenate([t.right for t in ledger.ties] or [np.zeros(0, np.int64)])
    n = ledger.labels
    graph = coo_array((np.ones(len(left), np.int8), (left, right)), shape=(n, n))
    return connected_components(graph, directed=False)[1].astype(np.int64)


def _blocks(ledger: Ledger, of: Ids) -> tuple[csr_array, csr_array, Ids | None]:
    """(coordinates, ancestors, None), or a coarser `of` where two blocks turn out to hold the same."""
    n, count = len(of), int(of.max(initial=-1)) + 1
    own = _boolean(np.arange(n), of, (n, count))
    if not ledger.projections:
        return own, csr_array((count, count)), None
    record = np.concatenate([np.full(len(c), k) for k, (c, _) in enumerate(ledger.projections)])
    child = np.concatenate([c for c, _ in ledger.projections])
    parent = of[np.concatenate([p for _, p in ledger.projections])]
    ancestors = csr_array((count, count))
    while True:
        wider = _ancestors(record, child, parent, of, ancestors)
        mutual = wider.multiply(wider.T).tocoo()
        pairs = mutual.row < mutual.col
        if pairs.any():
            row, col = mutual.row[pairs], mutual.col[pairs]
            graph = coo_array((np.ones(len(row), np.int8), (row, col)), shape=(count, count))
            return own, wider, connected_components(graph, directed=False)[1].astype(np.int64)[of]
        if wider.nnz == ancestors.nnz:
            break
        ancestors = wider
    inside = _boolean(child, parent, (n, count))
    coordinates = _sign(own + inside + inside @ ancestors + ancestors[of])
    return coordinates, ancestors, None


def _ancestors(record: Ids, child: Ids, parent: Ids, of: Ids, known: csr_array) -> csr_array:
    """One round of: a class lies in a block if, in one projection, all its labels that take part lie in it;
    a block lies in another one if all it holds does.

    Labels that a projection does not see do not matter: the class must respect the blocks all the same.
    """
    n, count = len(of), known.shape[0]
    above = known[parent].tocoo()
    rec = np.r_[record, record[above.row]]
    chd = np.r_[child, child[above.row]]
    par = np.r_[parent, above.col]
    direct = _unanimous(rec * np.int64(count) + of[chd], of[chd], chd, par, count)
    pairs = int(record.max()) + 1
    holds = _boolean(par, chd, (count, n))
    takes = _boolean(chd, rec * np.int64(count) + par, (n, pairs * count))
    among = _boolean(chd, rec, (n, pairs))
    votes, voters = (holds @ takes).tocoo(), (holds @ among).tocsr()
    full = votes.data == np.asarray(voters[votes.row, votes.col // count]).reshape(-1)
    nested = _boolean(votes.row[full], votes.col[full] % count, (count, count))
    # The same for classes: a block whose classes all lie in another block lies in it.
    upper = _sign(known + direct)
    together, content = (upper.T @ upper).tocoo(), np.asarray(upper.sum(axis=0)).reshape(-1)
    full = together.data == content[together.row]
    alike = _boolean(together.row[full], together.col[full], (count, count))
    out = _sign(upper + nested + alike)
    out = _sign(out + out @ out).tocoo()
    off = out.row != out.col
    return _boolean(out.row[off], out.col[off], (count, count))


def _unanimous(key: Ids, group: Ids, voter: Ids, vote: Ids, count: int) -> csr_array:
    """(group, vote) pairs for which every voter of a key votes alike."""
    keys, row = np.unique(key, return_inverse=True)
    who = np.zeros(len(keys), np.int64)
    who[row] = group
    votes = _tally(row, voter, vote, (len(keys), count))
    voters = int(voter.max(initial=0)) + 1
    seen = np.unique(row * np.int64(voters) + voter) // voters
    full = votes.data == np.bincount(seen, minlength=len(keys))[votes.row]
    return _boolean(who[votes.row[full]], votes.col[full], (count, count))


def _tally(row: Ids, voter: Ids, vote: Ids, shape: tuple[int, int]) -> coo_array:
    order = np.lexsort((vote, voter, row))
    row, voter, vote = row[order], voter[order], vote[order]
    new = np.r_[True, (np.diff(row) != 0) | (np.diff(voter) != 0) | (np.diff(vote) != 0)]
    return coo_array((np.ones(int(new.sum())), (row[new], vote[new])), shape=shape).tocsr().tocoo()


def _boolean(row: Ids, col: Ids, shape: tuple[int, int]) -> csr_array:
    return _sign(coo_array((np.ones(len(row)), (row, col)), shape=shape).tocsr())


def _sign(matrix: csr_array) -> csr_array:
    matrix = csr_array(matrix)
    matrix.sum_duplicates()
    matrix.data = np.ones_like(matrix.data)
    matrix.sort_indices()
    return matrix


def _orbits(ledger: Ledger, of: Ids, frozen: np.ndarray, ancestors: csr_array) -> Ids:
    """Colour refinement: equal colour means equal occurrences, equal ancestors' and descendants' colours."""
    count = len(frozen)
    colour = np.zeros(count, dtype=np.uint64)
    for k, ids in enumerate(ledger.arrays):
        np.add.at(colour, of[ids], mix(np.array([2 * k + 1]))[0])
    colour[frozen] += mix(np.arange(count, dtype=np.int64) + (1 << 40))[frozen]
    up = ancestors.tocoo()
    distinct = 0
    while True:
        _, dense = np.unique(colour, return_inverse=True)
        if int(dense.max(initial=-1)) + 1 == distinct or not up.nnz:
            return dense.astype(np.int64)
        distinct = int(dense.max(initial=-1)) + 1
        fresh = mix(dense)
        np.add.at(fresh, up.row, mix(dense[up.col] + (1 << 41)))
        np.add.at(fresh, up.col, mix(dense[up.row] + (1 << 42)))
        colour = fresh
