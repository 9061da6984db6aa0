"""Colour refinement on labels: equal colour means equal occurrences, ties and blocks, all the way down.

A symmetry moves labels so that every fact of the ledger stays true: labels of an array stay in it, tied
labels stay tied by the same tie, a label's block becomes the block of its image. All of that is invariant
under any symmetry, so labels of different colours are never exchanged. The other way round, where every
label of a class has a colour of its own (`doubled` names those that have not), the colours say which label
of another class each one becomes: ties and arrays hold by themselves.
"""

from __future__ import annotations

import numpy as np

from intertwine.ir.ledger import Ids, Ledger

_MIX = np.uint64(0x9E3779B97F4A7C15)
_NONE = np.zeros(0, np.int64)


def mix(x: Ids) -> np.ndarray:
    """A 64-bit hash of integers (splitmix64); sums of hashes identify multisets."""
    z = x.astype(np.uint64) + _MIX
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def numbered(pieces: list[Ids]) -> Ids:
    """For the concatenation of `pieces`, the number of the piece that each entry comes from."""
    return np.repeat(np.arange(len(pieces)), [len(p) for p in pieces])


def joined(pieces: list[Ids]) -> Ids:
    """The concatenation of `pieces`, which may be none."""
    return np.concatenate(pieces) if pieces else _NONE


def label_colours(ledger: Ledger, of: Ids, frozen: np.ndarray) -> np.ndarray:
    """The coarsest stable colouring of labels, as hashes; of: label -> class, frozen: class -> stays."""
    arrays, edges = ledger.arrays, _Edges(ledger)
    colour = np.zeros(len(of), np.uint64)
    np.add.at(colour, joined(arrays), mix(2 * numbered(arrays) + 1))
    alone = frozen[of]
    colour[alone] += mix(np.flatnonzero(alone) + (1 << 40))
    distinct = 0
    while True:
        values, dense = np.unique(colour, return_inverse=True)
        if len(values) == distinct:
            return colour
        distinct = len(values)
        colour = mix(dense) + mix(_summed(mix(dense), of)[of].view(np.int64) ^ np.int64(1 << 41))
        edges.spread(mix(dense), colour)


def class_colours(colour: np.ndarray, of: Ids) -> np.ndarray:
    """Class -> hash of the colours of its labels."""
    return _summed(mix(colour.view(np.int64)), of)


def doubled(colour: np.ndarray, of: Ids, frozen: np.ndarray) -> Ids:
    """Labels that share their colour with another label of the same class, which is not frozen."""
    key = mix(of) + colour
    _, which, count = np.unique(key, return_inverse=True, return_counts=True)
    return np.flatnonzero((count[which] > 1) & ~frozen[of])


def _summed(hashes: np.ndarray, of: Ids) -> np.ndarray:
    total = np.zeros(int(of.max(initial=-1)) + 1, np.uint64)
    np.add.at(total, of, hashes)
    return total


class _Edges:
    """Ties and projections as typed edges between labels."""

    def __init__(self, ledger: Ledger) -> None:
        ties, blocks = ledger.ties, ledger.projections
        left = [t.left for t in ties] + [child for child, _ in blocks]
        right = [t.right for t in ties] + [parent for _, parent in blocks]
        self.left, self.right, kind = joined(left), joined(right), numbered(left)
        self.down, self.up = mix(2 * kind + (1 << 42)), mix(2 * kind + (1 << 42) + 1)

    def spread(self, old: np.ndarray, new: np.ndarray) -> None:
        """Add to `new` what every label sees of its neighbours' `old` colours."""
        np.add.at(new, self.left, mix((old[self.right] + self.down).view(np.int64)))
        np.add.at(new, self.right, mix((old[self.left] + self.up).view(np.int64)))
