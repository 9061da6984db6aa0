"""Ledger -> which labels move together, which may be exchanged, and how blocks nest.

    class      labels that are tied: one channel, wherever it occurs
    ancestor   a block that holds a class (the head of a channel), and the class's role there
    orbit      classes that occur alike everywhere, so that a permutation may exchange them
    fibre      the classes of an orbit that have the same ancestors in the same roles: inside it any
               permutation is allowed

All of it is array work: ties are connected components, blocks are a sparse matrix, "occurs alike" is colour
refinement with 64-bit hashes (`colours.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from intertwine.ir.ledger import Ids, Ledger
from intertwine.symmetry.blocks import Projections
from intertwine.symmetry.colours import class_colours, doubled, joined, label_colours, mix


@dataclass(frozen=True)
class Classes:
    """The solved permutation structure.

    of: label -> class. colour: label -> hash that tells the labels of a class apart, the same in all classes
    of an orbit. coordinates: label x class, the label's class and every block it lies in. ancestors: class x
    class, the role of a class in the blocks that hold it. orbit: class -> orbit number. frozen: class -> may
    not move. flags: class -> marks. doubtful: labels whose colour another label of their class has too.
    """

    of: Ids
    colour: np.ndarray
    coordinates: csr_array
    ancestors: csr_array
    orbit: Ids
    frozen: np.ndarray
    flags: Ids
    doubtful: Ids

    @property
    def count(self) -> int:
        """How many classes there are."""
        return len(self.orbit)

    @cached_property
    def depth(self) -> Ids:
        """Class -> number of its ancestors."""
        return np.diff(self.ancestors.indptr)

    @cached_property
    def _by_colour(self) -> tuple[Ids, Ids, Ids]:
        """Labels by class and colour, where each class starts, and label -> its place in its class."""
        order = np.lexsort((self.colour, self.of))
        start = np.searchsorted(self.of[order], np.arange(self.count))
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order)) - start[self.of[order]]
        return order, start, rank

    def image(self, relabel: Ids) -> Ids:
        """Label -> the label of the same colour in the class that its own one becomes."""
        order, start, rank = self._by_colour
        image = order[start[relabel[self.of]] + rank]
        if not np.array_equal(self.colour[image], self.colour):
            raise AssertionError("a class takes the place of one of another orbit")
        result: Ids = image
        return result

    def blocks_key(self, relabel: Ids | None = None) -> np.ndarray:
        """Class -> hash of its ancestors and its roles there, once classes are relabelled."""
        up = self.ancestors
        col = up.indices if relabel is None else relabel[up.indices]
        hashes = mix((mix(col) + up.data).view(np.int64))
        total = np.zeros(self.count, np.uint64)
        np.add.at(total, np.repeat(np.arange(self.count), np.diff(up.indptr)), hashes)
        return total


def solve_classes(ledger: Ledger) -> Classes:
    """Solve the ledger's ties, blocks and freezes."""
    projections = Projections(ledger)
    of = projections.merged(_components(ledger))
    count = int(of.max(initial=-1)) + 1
    frozen = np.zeros(count, dtype=bool)
    frozen[of[joined([f.labels for f in ledger.freezes])]] = True
    colour = label_colours(ledger, of, frozen)
    ancestors = projections.ancestors(of, colour)
    coordinates = _coordinates(projections, of, ancestors)
    _, orbit = np.unique(class_colours(colour, of), return_inverse=True)
    flags = _flags(ledger, of, coordinates)
    return Classes(
        of, colour, coordinates, ancestors, orbit.astype(np.int64), frozen, flags, doubled(colour, of, frozen)
    )


def _components(ledger: Ledger) -> Ids:
    left, right = joined([t.left for t in ledger.ties]), joined([t.right for t in ledger.ties])
    n = ledger.labels
    graph = coo_array((np.ones(len(left), np.int8), (left, right)), shape=(n, n))
    result: Ids = connected_components(graph, directed=False)[1].astype(np.int64)
    return result


def _coordinates(projections: Projections, of: Ids, ancestors: csr_array) -> csr_array:
    """Label x class: its own class, the blocks that it lies in, and theirs."""
    n, count = len(of), ancestors.shape[0]
    up = _boolean(coo_array(ancestors), (count, count))
    inside = coo_array(
        (np.ones(len(projections.child)), (projections.child, of[projections.parent])), shape=(n, count)
    )
    own = coo_array((np.ones(n), (np.arange(n), of)), shape=(n, count))
    below = _boolean(inside, (n, count))
    return _boolean(coo_array(_boolean(own, (n, count)) + below + below @ up + up[of]), (n, count))


def _boolean(matrix: coo_array, shape: tuple[int, int]) -> csr_array:
    out = coo_array((np.ones(matrix.nnz), (matrix.row, matrix.col)), shape=shape).tocsr()
    out.data = np.ones_like(out.data)
    out.sort_indices()
    return out


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
