"""e g e^-1: what becomes of an element when whole modules change places.

An exchange e takes every position of a weight to a position of another one; what lies on these positions goes
along: classes, the blocks that they lie in, the matrices of linear axes, the pairs of rotary embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intertwine.ir.ledger import Ids
from intertwine.symmetry.members import Exchanges, Family
from intertwine.symmetry.structure import Linear, Structure


class NotCarried(Exception):
    """What one member has, another one does not."""


class Conjugation:
    """Where an exchange takes what lies on positions. Raises `NotCarried` where the structure is not kept."""

    def __init__(self, structure: Structure, exchanges: Exchanges, exchange: Ids) -> None:
        self.structure = structure
        self.position = exchanges.moved(structure, exchange)
        self.classes = self._classes()
        self.linear = {orbit: self._matrices(axis) for orbit, axis in structure.linear.items()}
        self.pairs = structure.turns.moved(structure.span, self.position)
        scaled = structure.turns.scaled
        if (self.pairs < 0).any() or (scaled[self.pairs] != scaled).any():
            raise NotCarried
        self._check_exponents()

    def _classes(self) -> Ids:
        """Class -> class; where no position of a weight carries one, it stays."""
        s = self.structure
        own = s.classes.of[s.labels]
        out = np.full(s.classes.count, -1)
        out[own] = own[self.position]
        if (out[own] != own[self.position]).any():
            raise NotCarried
        # A channel may lie on a slot twice: its copies are told by their colours.
        colours = np.stack([s.copy, s.copy[self.position]])
        if np.unique(colours, axis=1).shape[1] != len(np.unique(s.copy)):
            raise NotCarried
        still = self.position == np.arange(len(own))
        kept = s.coordinate_class[still[s.coordinate_slot]]
        if (out[kept] != np.where(out[kept] < 0, -1, kept)).any():
            raise NotCarried
        out[kept] = kept
        for here in np.flatnonzero(~still & (s.coordinate_end - s.coordinate_start > 1)):
            blocks, there = (self._blocks(int(p), own) for p in (here, self.position[here]))
            if len(blocks) != len(there) or ((out[blocks] >= 0) & (out[blocks] != there)).any():
                raise NotCarried
            out[blocks] = there
        unseen = np.flatnonzero(out < 0)
        out[unseen] = unseen
        orbit = s.classes.orbit
        if len(np.unique(out)) < len(out) or (s.classes.frozen[out] != s.classes.frozen).any():
            raise NotCarried
        pairs = np.unique(np.stack([orbit, orbit[out]]), axis=1)
        if pairs.shape[1] != len(np.unique(orbit)) or (s.rescaled[self.position] != s.rescaled).any():
            raise NotCarried
        return out

    def _blocks(self, position: int, own: Ids) -> Ids:
        """The blocks that a position lies in, outer ones first; NotCarried where their order is open."""
        s = self.structure
        found = s.coordinate_class[s.coordinate_start[position] : s.coordinate_end[position]]
        found = found[found != own[position]]
        depth = s.classes.depth[found]
        if len(np.unique(depth)) < len(depth):
            raise NotCarried
        result: Ids = found[np.argsort(depth)]
        return result

    def _matrices(self, axis: Linear) -> tuple[int, Ids, Ids]:
        """Of a linear axis: (its image, block -> block there, (blocks, n) channel -> channel there)."""
        goal = self.structure.linear.get(int(self.structure.classes.orbit[self.classes[axis.fibres[0, 0]]]))
        if goal is None or goal.orthogonal != axis.orthogonal or goal.fibres.shape != axis.fibres.shape:
            raise NotCarried
        at = np.full(self.structure.classes.count, -1)
        at[goal.fibres.reshape(-1)] = np.arange(goal.fibres.size)
        there = at[self.classes[axis.fibres]]
        block, channel = np.divmod(there, axis.fibres.shape[1])
        if (there < 0).any() or (block != block[:, :1]).any():
            raise NotCarried
        fibre: Ids = block[:, 0]
        for known, mapped in ((axis, True), (goal, False)):
            rows = self._rows(known, fibre if mapped else None, channel if mapped else None)
            if mapped:
                expected = rows
            elif rows != expected:
                raise NotCarried
        return goal.orbit, fibre, channel

    def _rows(self, axis: Linear, fibre: Ids | None, channel: Ids | None) -> set[tuple[int, int, int, int]]:
        """(position, block, channel, exponent) of every place of an axis; fibre, channel: where to."""
        found = set[tuple[int, int, int, int]]()
        for slot, (where, block, exponent) in axis.places.items():
            at = self.structure.span[slot][0] + where
            rank = np.tile(np.arange(where.shape[1]), (len(where), 1))
            if fibre is not None and channel is not None:
                at, rank, block = self.position[at], channel[block], fibre[block]
            columns = np.broadcast_arrays(at, block[:, None], rank, exponent[:, None])
            found.update(zip(*(c.reshape(-1).tolist() for c in columns), strict=True))
        return found

    def _check_exponents(self) -> None:
        exponents = np.zeros(len(self.position), np.int64)
        for slot, (where, _, exponent) in self.structure.turns.places.items():
            exponents[self.structure.span[slot][0] + where] = exponent[:, None]
        if (exponents[self.position] != exponents).any():
            raise NotCarried


def kept_families(structure: Structure, families: Sequence[Family]) -> Exchanges:
    """Those of the families whose exchanges take the rest of the group to itself."""
    return Exchanges([family for family in families if _is_kept(structure, family)])


def _is_kept(structure: Structure, family: Family) -> bool:
    alone = Exchanges([family])
    shifts, slots = structure.inference.shifts, structure.slots
    for names in zip(*family.tensors, strict=True):
        rank = len(structure.inference.shapes.get(names[0], ()))
        kinds = {tuple((d, slots[n, d].ids.shape) for d in range(rank) if (n, d) in slots) for n in names}
        if len(kinds) > 1 or len({shifts.get(n, 0.0) for n in names}) > 1:
            return False
    # What moves along does so position by position.
    for name, dim in family.beside:
        if (name, dim) not in slots or any(s.ids.ndim > 1 for key, s in slots.items() if key[0] == name):
            return False
    try:
        for k in range(1, family.size):
            order = alone.identity()
            order[[0, k]] = [k, 0]
            Conjugation(structure, alone, order)
    except NotCarried:
        return False
    return True
