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

from intertwine.ir.ledger import Ids, Ledger, Tie

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
    _tie_blocks(ledger)
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
    flags = _flags(ledger, of, coordinates)
    orbit = _orbits(ledger, of, frozen)
    depth = np.diff(ancestors.indptr)
    return Classes(of, coordinates, ancestors, orbit, frozen, depth, flags)


def _tie_blocks(ledger: Ledger) -> None:
    """Where two arrays are tied row by row, their rows are tied as blocks too."""
    if not ledger.projections:
        return
    labels, records = ledger.labels, len(ledger.projections)
    takes_part = _boolean(
        np.concatenate([c for c, _ in ledger.projections]),
        np.concatenate([np.full(len(c), k) for k, (c, _) in enumerate(ledger.projections)]),
        (labels, records),
    )
    block = np.full(labels, -1, np.int64)
    for tie in list(ledger.ties):
        for k in takes_part[[tie.left[0]]].indices:
            for j in takes_part[[tie.right[0]]].indices:
                pairs = []
                for record, side in ((k, tie.left), (j, tie.right)):
                    child, parent = ledger.projections[record]
                    block[child] = parent
                    pairs.append(block[side])
                    block[child] = -1
                both = (pairs[0] >= 0) & (pairs[1] >= 0)
                left, right = (np.unique(p[both]) for p in pairs)
                joint = np.unique(np.stack([p[both] for p in pairs]), axis=1)
                if len(left) == len(right) == joint.shape[1] and (joint[0] != joint[1]).any():
                    ledger.ties.append(Tie(joint[0], joint[1], tie.site))


def _flags(ledger: Ledger, of: Ids, coordinates: csr_array) -> Ids:
    """Class -> marks of its labels, and of the labels inside it."""
    labels = np.zeros(len(of), dtype=np.int64)
    flags = np.zeros(coordinates.shape[1], dtype=np.int64)
    for ids, mark, blocks in ledger.marks:
        flags[of[ids]] |= mark
        if blocks:
            labels[ids] |= mark
    marked = np.flatnonzero(labels)
    inside = coordinates[marked].tocoo()
    np.bitwise_or.at(flags, inside.col, labels[marked[inside.row]])
    return flags


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


def _orbits(ledger: Ledger, of: Ids, frozen: np.ndarray) -> Ids:
    """Colour refinement: equal colour means equal occurrences, and blocks and contents of equal colours."""
    count = len(frozen)
    colour = np.zeros(count, dtype=np.uint64)
    for k, ids in enumerate(ledger.arrays):
        np.add.at(colour, of[ids], mix(np.array([2 * k + 1]))[0])
    colour[frozen] += mix(np.arange(count, dtype=np.int64) + (1 << 40))[frozen]
    none = np.zeros(0, np.int64)
    child = of[np.concatenate([c for c, _ in ledger.projections] or [none])]
    parent = of[np.concatenate([p for _, p in ledger.projections] or [none])]
    distinct = 0
    while True:
        _, dense = np.unique(colour, return_inverse=True)
        if int(dense.max(initial=-1)) + 1 == distinct or not len(child):
            return dense.astype(np.int64)
        distinct = int(dense.max(initial=-1)) + 1
        fresh = mix(dense)
        np.add.at(fresh, child, mix(dense[parent] + (1 << 41)))
        np.add.at(fresh, parent, mix(dense[child] + (1 << 42)))
        colour = fresh


def ambiguous_labels(ledger: Ledger, classes: Classes, slots: Ids, labels: Ids) -> tuple[np.ndarray, Ids]:
    """Tell apart the positions of one weight dimension that carry the same channel.

    `labels` are all slot positions one after the other, `slots` says which slot each belongs to. Where a
    channel occurs twice in a slot (q and k in a packed weight) the copies must be recognised in every other
    channel: by where their labels occur and what they are tied to. Returns a hash that tells them apart (0
    where there is only one) and the labels for which it cannot.
    """
    key = _hash_rows(classes.coordinates[labels]) + mix(slots + (1 << 46))
    copy = np.zeros(len(labels), np.uint64)
    merged = _merged_blocks(ledger, classes)
    if not merged and not (np.diff(np.sort(key)) == 0).any():
        return copy, np.zeros(0, np.int64)
    _, which, size = np.unique(key, return_inverse=True, return_counts=True)
    twice = size[which] > 1
    chosen = np.concatenate([labels[twice], *(child for child, _ in merged)])
    colour = _label_colours(ledger, classes, np.unique(classes.of[chosen]))
    copy[twice] = colour[labels[twice]]
    _, which, size = np.unique(key + copy, return_inverse=True, return_counts=True)
    unclear = [labels[size[which] > 1]]
    for child, parent in merged:
        kind = (mix(classes.of[parent]) + colour[child]).view(np.int64)
        pairs = np.unique(np.stack([kind, parent]), axis=1)[0]
        several, count = np.unique(pairs, return_counts=True)
        unclear.append(child[np.isin(kind, several[count > 1])])
    same = np.isin(classes.of, classes.of[np.concatenate(unclear)])
    return copy, np.flatnonzero(same & ~classes.frozen[classes.of])


def _merged_blocks(ledger: Ledger, classes: Classes) -> list[tuple[Ids, Ids]]:
    """Projections in which different blocks move as one: their contents must be told apart as well."""
    found = []
    for child, parent in ledger.projections:
        blocks = np.unique(parent)
        if len(np.unique(classes.of[blocks])) < len(blocks):
            found.append((child, parent))
    return found


def _hash_rows(matrix: csr_array) -> np.ndarray:
    if not matrix.shape[0]:
        return np.zeros(0, np.uint64)
    return np.add.reduceat(mix(matrix.indices), matrix.indptr[:-1])


def _label_colours(ledger: Ledger, classes: Classes, chosen: Ids) -> np.ndarray:
    """Refinement of labels inside the chosen classes: by the arrays they occur in and along their ties."""
    inside = np.zeros(classes.count, bool)
    inside[chosen] = True
    alive = inside[classes.of]
    colour = np.zeros(len(alive), np.uint64)
    for k, ids in enumerate(ledger.arrays):
        np.add.at(colour, ids[alive[ids]], mix(np.array([2 * k + 1]))[0])
    kept = [(k, alive[t.left]) for k, t in enumerate(ledger.ties)]
    left = np.concatenate([ledger.ties[k].left[m] for k, m in kept] or [np.zeros(0, np.int64)])
    right = np.concatenate([ledger.ties[k].right[m] for k, m in kept] or [np.zeros(0, np.int64)])
    site = np.concatenate([np.full(int(m.sum()), 2 * k) for k, m in kept] or [np.zeros(0, np.int64)])
    distinct = 0
    while True:
        _, dense = np.unique(colour, return_inverse=True)
        if int(dense.max(initial=-1)) + 1 == distinct:
            return colour
        distinct = int(dense.max(initial=-1)) + 1
        fresh = mix(dense)
        np.add.at(fresh, left, mix((dense[right] << 20) + site))
        np.add.at(fresh, right, mix((dense[left] << 20) + site + 1))
        colour = np.where(alive, fresh, np.uint64(0))


def crossed_blocks(classes: Classes) -> Ids:
    """Classes whose blocks cross without forming a grid, with those blocks: nothing can be permuted there.

    A class may lie in two blocks of which neither holds the other (a head and a position in the head). They
    can be permuted independently only if they are of different kinds, every pair of such blocks meets, and
    all meet in equally many classes.
    """
    bad: list[Ids] = []
    a = classes.ancestors
    inside = np.flatnonzero((classes.depth > 0) & ~classes.frozen)
    order = inside[np.lexsort((classes.depth[inside], classes.orbit[inside]))]
    kind = classes.orbit[order] * np.int64(int(classes.depth.max(initial=0)) + 1) + classes.depth[order]
    for members in np.split(order, np.flatnonzero(np.diff(kind)) + 1) if len(order) else []:
        above = np.stack([a.indices[a.indptr[m] : a.indptr[m + 1]] for m in members])
        above = np.take_along_axis(above, np.argsort(classes.orbit[above], axis=1, kind="stable"), axis=1)
        if not _is_grid(classes, above):
            bad.append(np.r_[members, np.unique(above)])
    return np.unique(np.concatenate(bad)) if bad else np.zeros(0, np.int64)


def _is_grid(classes: Classes, above: Ids) -> bool:
    """Whether blocks (one row of ancestors a class, in the order of their orbits) can be permuted freely."""
    _, fibre = np.unique(mix(above).sum(axis=1, dtype=np.uint64), return_counts=True)
    if fibre.min() != fibre.max():
        return False
    held = classes.ancestors[above[0]][:, above[0]].toarray()  # held[i, j]: ancestor j holds ancestor i
    lowest = np.flatnonzero(~held.any(axis=0))
    if len(lowest) < 2:
        return True
    if len(np.unique(classes.orbit[above[0, lowest]])) < len(lowest):
        return False  # two blocks of one kind: which is which would be lost
    shared = above[:, held[lowest].all(axis=0)]
    _, group = np.unique(mix(shared).sum(axis=1, dtype=np.uint64), return_inverse=True)
    for g in range(int(group.max()) + 1):
        here = above[group == g][:, lowest]
        seen = len(np.unique(mix(here + 7919 * np.arange(len(lowest))).sum(axis=1, dtype=np.uint64)))
        if seen != np.prod([len(np.unique(column)) for column in here.T]):
            return False
    return True
