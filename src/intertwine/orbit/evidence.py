"""What is known of an element while it is being found: which positions of the weights are in place already.

A weight tells something about one of its dimensions as far as its other dimensions are in place. `Known.seen`
gives that part of it: positions that are not yet matched or not yet rescaled are left out, and along a linear
axis whose matrix is known only on a subspace (X M_b = M_a with M of deficient rank) it is projected onto what
the matrix cannot change any more:

    X -> (I + N) X  with  N M_a = 0  and  N' R_a = 0     leaves  P_R (X M)  and  P_M (X^-T R)  as they are,

where P_M and P_R are the projections onto the ranges of M_a and R_a.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from intertwine.orbit.action import GroupAction
from intertwine.orbit.angles import Compared, find_angles, without_angles
from intertwine.orbit.matrices import best_matrices, ranges
from intertwine.orbit.scales import Slot, apply_factors, inner_products, solve_from
from intertwine.orbit.state import State
from intertwine.orbit.units import Spot, Unit, Weights
from intertwine.symmetry.colours import mix
from intertwine.symmetry.positions import in_front, put_back


class Known:
    """Knowledge about the element that brings the weights of `state` onto `target`; grows unit by unit."""

    def __init__(self, action: GroupAction, target: Weights, state: State, *, angles: bool = False) -> None:
        self.scales, self.params, self.target, self.state = action.scales, action.params, target, state
        s = self.structure = action.structure
        self._shapes = s.inference.shapes  # of weights that may be costly to look at
        self.placed = np.ones(s.classes.count, bool)
        for unit in action.forest.units:
            self.placed[unit.classes] = not unit.moves  # what only lies in others is where they are
        self.rescaled = np.ones(len(s.scalings.kind_of), bool)
        for kind in action.scales.kinds:
            free = (kind.real != 0).any(axis=1) | (kind.sign % 2 != 0).any(axis=1)
            self.rescaled[kind.scales[:, free]] = False
        # Linear axis -> projections of each block, where X acts and where X^-T acts.
        self.partial: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        for orbit, axis in s.linear.items():
            nothing = np.zeros((len(axis.fibres), axis.fibres.shape[1], axis.fibres.shape[1]))
            self.partial[orbit] = (nothing, nothing)
        self.unturned = np.full(s.turns.count, angles)  # pairs that may still be turned
        self._refresh()

    def _refresh(self) -> None:
        s = self.structure
        # For every position, how many of the channels and blocks that it lies in are not matched.
        absent = ~self.placed[s.coordinate_class]
        self._absent = np.add.reduceat(absent, s.coordinate_start, dtype=np.int64) if len(absent) else absent
        self.in_place = self._absent == 0
        self.sized = self.rescaled[s.scales] | ~self.scales.free  # positions whose scales are known
        self.positions = self.in_place & self.sized
        for slot, (where, pair, _) in s.turns.places.items():
            self.positions[s.span[slot][0] + where[self.unturned[pair]]] = False

    def place(self, units: Iterable[Unit]) -> None:
        """The channels of these units are matched."""
        for unit in units:
            self.placed[unit.classes] = True
        self._refresh()

    def share(self, unit: Unit) -> float:
        """How much of the best weight that carries the unit is known along its other dimensions, 0 to 1."""
        spots = [spot for spot in unit.spots if spot.param in self.params]
        # One number for each channel tells little, and nothing if it may be rescaled.
        matrices = [spot for spot in spots if spot.has_several(self._shapes[spot.param])]
        usable = [spot for spot in matrices or spots if self._clear(unit, spot)]
        return max((self._share(unit, spot.slot) for spot in usable), default=0.0)

    def spots(self, unit: Unit) -> Iterator[tuple[Spot, Tensor, Tensor]]:
        """The spots that describe a unit, with what is seen of their slices in A and in B."""
        for spot in unit.spots:
            if spot.param in self.params and self._clear(unit, spot):
                pair = self._both(unit, spot.slot)
                if pair is not None:
                    yield spot, spot.slices(pair[0]), spot.slices(pair[1])

    def _clear(self, unit: Unit, spot: Spot) -> bool:
        """Whether no unknown unit crosses this one there, as heads do that share the axis of their keys."""
        own = sum(not self.placed[u.classes.flat[0]] for u in unit.lineage())
        at = self.structure.span[spot.slot][0] + spot.where
        mine = unit.linear.orbit if unit.linear is not None else -1
        if (self._absent[at] != own).any():
            return False
        others = [self.structure.linear[orbit].places for orbit in self.partial if orbit != mine]
        return not any(np.isin(spot.where, p[spot.slot][0]).any() for p in others if spot.slot in p)

    def _share(self, unit: Unit, slot: Slot) -> float:
        share = 1.0
        for other in self.others(slot):
            share *= float(self.told(unit, slot, other).mean())
            for _, matrices in self._projections(other):
                share *= float(np.trace(matrices, axis1=1, axis2=2).mean()) / matrices.shape[1]
        return share

    def _projections(self, slot: Slot) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For the linear axes along a dimension that are known in part: their places, and projections."""
        for orbit, (plus, minus) in self.partial.items():
            if slot in self.structure.linear[orbit].places:
                where, fibre, exponent = self.structure.linear[orbit].places[slot]
                yield where, np.where(exponent[:, None, None] > 0, plus[fibre], minus[fibre])

    def others(self, slot: Slot) -> list[Slot]:
        param, own = slot
        dims = range(len(self._shapes[param]))
        return [(param, dim) for dim in dims if dim != own and (param, dim) in self.structure.span]

    def told(self, unit: Unit | None, slot: Slot, other: Slot) -> np.ndarray:
        """Mask of the positions along another dimension that are known, as far as they are compared.

        A position of a stack is a slice and a place in it, so that slices are compared with slices: along
        dimension 0 nothing may be unknown but the blocks that the unit's channels in the slice lie in.
        """
        s = self.structure
        (start, stop), (first, last) = s.span[other], s.span[slot]
        mask: np.ndarray = self.positions[start:stop]
        shape = s.slots[slot].ids.shape
        if unit is None or other[1] or len(shape) == 1 or mask.all():
            return mask
        own = s.classes.of[s.labels[first:last]]
        ours = np.isin(own, unit.classes)
        around = self._unknown(first, last) - np.where(self.placed[own], np.uint64(0), mix(own))
        around, ours = around.reshape(shape), ours.reshape(shape)
        block = around[np.arange(shape[0]), ours.argmax(axis=1)]
        alike = ours.any(axis=1) & ((around == block[:, None]) | ~ours).all(axis=1)
        inside = (self._unknown(start, stop).reshape(shape[0], -1) == block[:, None]) & alike[:, None]
        answer: np.ndarray = mask | (inside.reshape(-1) & self.sized[start:stop])
        return answer

    def _unknown(self, start: int, stop: int) -> np.ndarray:
        """A hash of the channels and blocks that are not matched, for each of some positions."""
        s = self.structure
        starts = np.append(s.coordinate_start, len(s.coordinate_class))
        classes = s.coordinate_class[starts[start] : starts[stop]]
        left = np.where(self.placed[classes], np.uint64(0), mix(classes))
        answer: np.ndarray = np.add.reduceat(left, s.coordinate_start[start:stop] - starts[start])
        return answer

    def seen(
        self, weights: Weights, unit: Unit | None, slot: Slot, others: Iterable[Slot] | None = None
    ) -> Tensor | None:
        """The weight, with all that is not known along its other dimensions left out; None if nothing is.

        unit: what is compared along the dimension itself; None if that is in place. others: those of the
        other dimensions that count, if not all.
        """
        others = self.others(slot) if others is None else others
        masks = {other: self.told(unit, slot, other) for other in others}
        if not all(mask.any() for mask in masks.values()):
            return None  # before the weight is made
        held = {slot[0]: weights[slot[0]]}
        for other, mask in masks.items():
            if not mask.all():
                apply_factors(self.structure, held, other, mask.astype(np.float64))
            for where, matrices in self._projections(other):
                shape = self.structure.slots[other].ids.shape
                front = in_front(held[slot[0]], shape, other[1]).clone()
                index = torch.from_numpy(where)
                front[..., index] = torch.einsum(
                    "...bn,bmn->...bm", front[..., index], torch.from_numpy(matrices)
                )
                held[slot[0]] = put_back(front, shape, other[1], held[slot[0]].shape)
        return held[slot[0]]

    def _both(self, unit: Unit | None, slot: Slot) -> tuple[Tensor, Tensor] | None:
        """What is seen of the target and of the weights."""
        # The one that may be moved first: that takes more than holding it.
        right = self._looked_at(self.state.weights, unit, slot)
        left = None if right is None else self._looked_at(self.target, unit, slot)
        return None if left is None or right is None else (left, right)

    def _looked_at(self, weights: Weights, unit: Unit | None, slot: Slot) -> Tensor | None:
        seen = self.seen(weights, unit, slot)
        if seen is None or unit is None:
            return seen
        return without_angles(self.structure.turns, self.unturned, seen, slot)

    # -- rescalings ------------------------------------------------------------------------------------------

    def rescale(self, unit: Unit) -> bool:
        """Rescalings and signs of a unit from what is known; whether they are all known now."""
        s, scales = self.structure, self.scales
        which = scales.components(unit.classes)
        log_scale, sign = np.zeros(len(self.rescaled)), np.ones(len(self.rescaled))
        complete, evidence = True, None
        for kind in scales.kinds:
            rows = kind.scales[which[s.scalings.component[kind.scales[:, 0]]]]
            if len(rows) and not self.rescaled[rows].all():
                evidence = self._evidence(unit) if evidence is None else evidence
                log_scale[rows], sign[rows], self.rescaled[rows] = solve_from(
                    kind, *(e[rows] for e in evidence)
                )
                complete &= bool(self.rescaled[rows].all())
        if evidence is not None:
            at = np.where(scales.free, sign[s.scales], 1.0)
            self.state.rescale(scales.positions(log_scale), at, unit.slots)
            self._refresh()
        return complete

    def _evidence(self, unit: Unit) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For every scale <a, a>, <b, b> and <a, b> over what is seen of the weights that carry it."""
        s, total = self.structure, np.zeros((3, len(self.rescaled)))
        for slot in sorted(unit.slots):
            if slot[0] not in self.params or slot not in s.span:
                continue
            found = self._products(unit, slot)
            if found is not None:
                start, stop = s.span[slot]
                usable = self.in_place[start:stop] & self.scales.free[start:stop]
                for where, _ in self._projections(slot):
                    usable[where] = False  # a matrix that is not known may be larger or smaller
                for row, values in zip(total, found, strict=True):
                    np.add.at(row, s.scales[start:stop], np.where(usable, values, 0.0))
        return total[0], total[1], total[2]

    def _products(self, unit: Unit, slot: Slot) -> list[np.ndarray] | None:
        """<a, a>, <b, b> and <a, b> along a dimension; no weight is held when they are known."""
        pair = self._both(unit, slot)
        if pair is None:
            return None
        (found,) = inner_products(*pair, [(self.structure.slots[slot].ids.shape, slot[1])])
        return found

    # -- matrices --------------------------------------------------------------------------------------------

    def turn(self, unit: Unit) -> bool:
        """The matrices of a linear unit from what is known; whether they are determined now."""
        assert unit.linear is not None
        make, read = (pair for _, sized, pair in self.parts(unit) if sized)
        if make[0].shape[2] or read[0].shape[2]:
            matrices = best_matrices(make, read, unit.linear.orthogonal).numpy()
            self.state.turn(unit.linear.orbit, matrices)
        p, q = ranges(make[0]), ranges(read[0])
        if unit.linear.orthogonal:
            p = q = ranges(torch.cat([make[0], read[0]], dim=2))
        eye = np.eye(p.shape[1])
        full = [np.isclose(np.trace(x, axis1=1, axis2=2), len(eye)) for x in (p, q)]
        determined = (full[0] | full[1])[:, None, None]
        self.partial[unit.linear.orbit] = (np.where(determined, eye, q), np.where(determined, eye, p))
        if determined.all():
            del self.partial[unit.linear.orbit]
        return bool(determined.all())

    def turn_pairs(self) -> None:
        """The angles of those pairs that something tells."""
        if not self.unturned.any():
            return
        found, told = find_angles(self.structure.turns, self._pairs())
        told &= self.unturned
        if told.any():
            self.state.turn_pairs(np.where(told, found, 0.0))
            self.unturned &= ~told
            self._refresh()

    def _pairs(self) -> Iterator[Compared]:
        """The dimensions along which all pairs lie where they belong, with what is seen of them."""
        for slot, (where, _, _) in self.structure.turns.places.items():
            at = self.structure.span[slot][0] + where
            if slot[0] in self.params and (self.in_place & self.sized)[at].all():
                pair = self._both(None, slot)
                if pair is not None:
                    yield slot, *pair

    def settle(self, unit: Unit) -> None:
        """Take the matrices of a linear unit as they are: what nothing tells is a matter of choice."""
        assert unit.linear is not None
        del self.partial[unit.linear.orbit]

    @property
    def extent(self) -> float:
        """How much is known; grows with every unit that tells something."""
        parts = [p for pair in self.partial.values() for p in pair]
        return float(self.positions.sum() + sum(np.trace(p, axis1=1, axis2=2).sum() - p.size for p in parts))

    def parts(self, unit: Unit) -> Iterator[tuple[int, bool, tuple[Tensor, Tensor]]]:
        """What X (exponent 1) and X^-T (-1) act on, in A and in B, each (blocks, channels, everything else):
        what is scaled as it has to be, joined; then (False) each that a scale acts on that is not known."""
        shape = unit.classes.shape
        empty = torch.zeros(*shape, 0, dtype=torch.float64)
        sized: dict[int, list[tuple[Tensor, Tensor]]] = {1: [(empty, empty)], -1: [(empty, empty)]}
        rest: list[tuple[int, bool, tuple[Tensor, Tensor]]] = []
        for spot, *slices in self.spots(unit):
            a, b = (x.reshape(*shape, -1) for x in slices)
            if self.sized[self.structure.span[spot.slot][0] + spot.where].all():
                sized[spot.exponent].append((a, b))
            else:
                rest.append((spot.exponent, False, (a, b)))
        for exponent, found in sized.items():
            left, right = (torch.cat(x, dim=2) for x in zip(*found, strict=True))
            yield exponent, True, (left, right)
        yield from rest
