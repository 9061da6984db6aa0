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
from intertwine.orbit.matrices import best_matrices, ranges
from intertwine.orbit.scales import Slot, along, apply_factors
from intertwine.orbit.state import State
from intertwine.orbit.units import Spot, Unit, Weights
from intertwine.symmetry.colours import mix
from intertwine.symmetry.positions import in_front, put_back
from intertwine.symmetry.scales import ScaleKind, invert_gf2

_NOTHING = 1e-20  # squared norms below this share of the largest hold no information


class Known:
    """Knowledge about the element that brings the weights of `state` onto `target`; grows unit by unit."""

    def __init__(self, action: GroupAction, target: Weights, state: State) -> None:
        self.scales, self.params, self.target, self.state = action.scales, action.params, target, state
        s = self.structure = action.structure
        self._shapes = s.inference.shapes  # of weights that may be costly to look at
        self._placed = np.ones(s.classes.count, bool)
        for unit in action.forest.units:
            self._placed[unit.classes] = False
        self.rescaled = np.ones(len(s.scalings.kind_of), bool)
        for kind in action.scales.kinds:
            free = (kind.real != 0).any(axis=1) | (kind.sign % 2 != 0).any(axis=1)
            self.rescaled[kind.scales[:, free]] = False
        # Linear axis -> projections of each block, where X acts and where X^-T acts.
        self._partial: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        for orbit, axis in s.linear.items():
            nothing = np.zeros((len(axis.fibres), axis.fibres.shape[1], axis.fibres.shape[1]))
            self._partial[orbit] = (nothing, nothing)
        self._refresh()

    def _refresh(self) -> None:
        s = self.structure
        # For every position, how many of the channels and blocks that it lies in are not matched.
        absent = ~self._placed[s.coordinate_class]
        self._absent = np.add.reduceat(absent, s.coordinate_start, dtype=np.int64) if len(absent) else absent
        self.in_place = self._absent == 0
        self.positions = self.in_place & (self.rescaled[s.scales] | ~self.scales.free)

    def place(self, units: Iterable[Unit]) -> None:
        """The channels of these units are matched."""
        for unit in units:
            self._placed[unit.classes] = True
        self._refresh()

    def share(self, unit: Unit) -> float:
        """How much of the best weight that carries the unit is known along its other dimensions, 0 to 1."""
        spots = [spot for spot in unit.spots if spot.param in self.params]
        matrices = [spot for spot in spots if len(self._shapes[spot.param]) > 1]
        usable = [spot for spot in matrices or spots if self._clear(unit, spot)]
        return max((self._share(spot.slot) for spot in usable), default=0.0)

    def crossed_share(self, unit: Unit) -> float:
        """The same for a unit that unknown ones cross wherever it lies: how much of it no order changes."""
        spots = [spot for spot in unit.spots if spot.param in self.params]
        kept = ((spot, self._unordered(unit, spot)) for spot in spots)
        shares = (self._share(s.slot) * (g.max() + 1) / g.shape[1] for s, g in kept if g is not None)
        return float(max(shares, default=0.0))

    def unordered(self, unit: Unit) -> Iterator[tuple[Tensor, Tensor]]:
        """Slices of a unit that unknown ones cross: sums, and sums of squares, over what they exchange."""
        for spot in unit.spots:
            groups = self._unordered(unit, spot) if spot.param in self.params else None
            pair = self._both(spot.slot) if groups is not None else None
            if pair is not None and groups is not None:
                index = torch.from_numpy(groups)[:, :, None]
                sums = []
                for tensor in pair:
                    slices = spot.slices(tensor).reshape(*groups.shape, -1)
                    zero = slices.new_zeros(len(slices), int(groups.max()) + 1, slices.shape[2])
                    both = (zero.scatter_add(1, index.expand_as(x), x) for x in (slices, slices.square()))
                    sums.append(torch.cat([x.flatten(1) for x in both], dim=1))
                yield sums[0], sums[1]

    def _unordered(self, unit: Unit, spot: Spot) -> np.ndarray | None:
        """(channels, copies): which copies of a channel nothing tells apart but blocks that are unknown.

        None where the unknown may also be rescaled or turned.
        """
        s, start = self.structure, self.structure.span[spot.slot][0]
        at = start + spot.where
        turned = [s.linear[orbit].places.get(spot.slot) for orbit in self._partial]
        if not (self.rescaled[s.scales[at]] | ~self.scales.free[at]).all() or any(
            np.isin(spot.where, place[0]).any() for place in turned if place is not None
        ):
            return None
        # What lies in an unknown block moves with it.
        fixed = self._placed & (s.classes.ancestors @ (~self._placed).astype(np.float64) == 0)
        fixed[unit.classes] = False
        told = np.where(fixed[s.coordinate_class], mix(s.coordinate_class), np.uint64(0))
        keys = (np.add.reduceat(told, s.coordinate_start) + s.copy)[at]
        known, groups = np.unique(keys, return_inverse=True)
        groups = groups.reshape(keys.shape)
        counts = [np.bincount(row, minlength=len(known)) for row in groups]
        return groups if all(np.array_equal(row, counts[0]) for row in counts) else None

    def spots(self, unit: Unit) -> Iterator[tuple[Spot, Tensor, Tensor]]:
        """The spots that describe a unit, with what is seen of their slices in A and in B."""
        for spot in unit.spots:
            if spot.param in self.params and self._clear(unit, spot):
                pair = self._both(spot.slot)
                if pair is not None:
                    yield spot, spot.slices(pair[0]), spot.slices(pair[1])

    def _clear(self, unit: Unit, spot: Spot) -> bool:
        """Whether no unknown unit crosses this one there, as heads do that share the axis of their keys."""
        own = sum(not self._placed[u.classes.flat[0]] for u in unit.lineage())
        at = self.structure.span[spot.slot][0] + spot.where
        mine = unit.linear.orbit if unit.linear is not None else -1
        if (self._absent[at] != own).any():
            return False
        others = [self.structure.linear[orbit].places for orbit in self._partial if orbit != mine]
        return not any(np.isin(spot.where, p[spot.slot][0]).any() for p in others if spot.slot in p)

    def _share(self, slot: Slot) -> float:
        share = 1.0
        for other in self._others(slot):
            start, stop = self.structure.span[other]
            share *= float(self.positions[start:stop].mean())
            for _, matrices in self._projections(other):
                share *= float(np.trace(matrices, axis1=1, axis2=2).mean()) / matrices.shape[1]
        return share

    def _projections(self, slot: Slot) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For the linear axes along a dimension that are known in part: their places, and projections."""
        for orbit, (plus, minus) in self._partial.items():
            if slot in self.structure.linear[orbit].places:
                where, fibre, exponent = self.structure.linear[orbit].places[slot]
                yield where, np.where(exponent[:, None, None] > 0, plus[fibre], minus[fibre])

    def _others(self, slot: Slot) -> list[Slot]:
        param, own = slot
        dims = range(len(self._shapes[param]))
        return [(param, dim) for dim in dims if dim != own and (param, dim) in self.structure.span]

    def seen(self, weights: Weights, slot: Slot) -> Tensor | None:
        """The weight, with all that is not known along its other dimensions left out; None if nothing is."""
        spans = {other: self.structure.span[other] for other in self._others(slot)}
        masks = {other: self.positions[start:stop] for other, (start, stop) in spans.items()}
        if not all(mask.any() for mask in masks.values()):
            return None
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

    def _both(self, slot: Slot) -> tuple[Tensor, Tensor] | None:
        """What is seen of the target and of the weights."""
        left, right = self.seen(self.target, slot), self.seen(self.state.weights, slot)
        return None if left is None or right is None else (left, right)

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
                log_scale[rows], sign[rows], self.rescaled[rows] = _solve(kind, *(e[rows] for e in evidence))
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
            pair = self._both(slot) if slot[0] in self.params and slot in s.span else None
            if pair is not None:
                start, stop = s.span[slot]
                usable = self.in_place[start:stop] & self.scales.free[start:stop]
                a, b = pair
                for row, product in zip(total, (a * a, b * b, a * b), strict=True):
                    values = along(product, s.slots[slot].ids.shape, slot[1])
                    np.add.at(row, s.scales[start:stop], np.where(usable, values, 0.0))
        return total[0], total[1], total[2]

    # -- matrices --------------------------------------------------------------------------------------------

    def turn(self, unit: Unit) -> bool:
        """The matrices of a linear unit from what is known; whether they are determined now."""
        assert unit.linear is not None
        make, read = self.stacked(unit)
        if make[0].shape[2] or read[0].shape[2]:
            matrices = best_matrices(make, read, unit.linear.orthogonal).numpy()
            self.state.turn(unit.linear.orbit, matrices)
        p, q = ranges(make[0]), ranges(read[0])
        if unit.linear.orthogonal:
            p = q = ranges(torch.cat([make[0], read[0]], dim=2))
        eye = np.eye(p.shape[1])
        full = [np.isclose(np.trace(x, axis1=1, axis2=2), len(eye)) for x in (p, q)]
        determined = (full[0] | full[1])[:, None, None]
        self._partial[unit.linear.orbit] = (np.where(determined, eye, q), np.where(determined, eye, p))
        if determined.all():
            del self._partial[unit.linear.orbit]
        return bool(determined.all())

    def settle(self, unit: Unit) -> None:
        """Take the matrices of a linear unit as they are: what nothing tells is a matter of choice."""
        assert unit.linear is not None
        del self._partial[unit.linear.orbit]

    @property
    def extent(self) -> float:
        """How much is known; grows with every unit that tells something."""
        parts = [p for pair in self._partial.values() for p in pair]
        return float(self.positions.sum() + sum(np.trace(p, axis1=1, axis2=2).sum() - p.size for p in parts))

    def stacked(self, unit: Unit) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """(M_a, M_b), (R_a, R_b), each (blocks, channels, everything else): what X and X^-T act on."""
        shape = unit.classes.shape
        empty = torch.zeros(*shape, 0, dtype=torch.float64)
        sides: dict[int, list[tuple[Tensor, Tensor]]] = {1: [(empty, empty)], -1: [(empty, empty)]}
        for spot, a, b in self.spots(unit):
            sides[spot.exponent].append((a.reshape(*shape, -1), b.reshape(*shape, -1)))
        make, read = (tuple(torch.cat(x, dim=2) for x in zip(*sides[e], strict=True)) for e in (1, -1))
        return (make[0], make[1]), (read[0], read[1])


def _solve(
    kind: ScaleKind, a: np.ndarray, b: np.ndarray, ab: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(components, unknowns): log-scales, signs, and which of them the evidence determines.

    With |a_i| = exp(E_i t) |b_i| and sign <a_i, b_i> = (-1)^(S_i x) for the unknowns that have evidence, t is
    a least-squares solution and x a solution over GF(2); those of the others follow if E_i and S_i lie in the
    row spaces of these.
    """
    floor = _NOTHING * max(float(a.max(initial=0.0)), float(b.max(initial=0.0)))
    have = (a > floor) & (b > floor)
    ratio = np.where(have, 0.5 * np.log(np.where(have, a, 1.0) / np.where(have, b, 1.0)), 0.0)
    log_scale, sign, known = np.zeros(a.shape), np.ones(a.shape), np.zeros(a.shape, bool)
    for pattern in np.unique(have, axis=0):
        rows = (have == pattern).all(axis=1)
        back = np.linalg.pinv(kind.real[pattern])
        log_scale[rows] = ratio[rows][:, pattern] @ back.T @ kind.real.T
        reached = np.abs(kind.real @ back @ kind.real[pattern] - kind.real).max(axis=1, initial=0.0) < 1e-9
        bits = kind.sign % 2
        chosen, inverse = invert_gf2(bits[pattern])
        x = (ab[rows][:, pattern][:, chosen] < 0) @ inverse.T
        sign[rows] = 1 - 2 * (x @ bits.T % 2)
        signs = (bits @ inverse @ bits[pattern][chosen] % 2 == bits).all(axis=1)
        known[rows] = reached & signs
    return log_scale, sign, known
