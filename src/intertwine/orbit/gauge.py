"""A canonical gauge: weights brought to scales of least norm and to signs that they decide themselves.

For two models of one orbit the results differ only by permutations, and by rotations of linear axes:
distances between channels of any other axis are then the same in both. A sign is decided by what no
permutation and no rotation of the other axes changes: the entry of a vector, or the sum of the cubes of a
slice whose other axes have their signs already.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from intertwine.orbit.action import GroupAction
from intertwine.orbit.balance import Balance
from intertwine.orbit.scales import Slot, along
from intertwine.orbit.state import State
from intertwine.orbit.units import Unit, Weights
from intertwine.symmetry.scales import invert_gf2


def find_gauge(action: GroupAction, weights: Weights) -> State:
    """The canonical point of the orbit or of its limit, up to permutations and rotations, with its scales."""
    state = action.state(weights)
    Balance(action, limit=True)(state)
    done: set[int] = set()
    for unit in action.forest.units:
        if unit.linear is None:
            _choose_signs(action, state, unit, done)
            done.add(unit.index)
    return state


def _choose_signs(action: GroupAction, state: State, unit: Unit, done: set[int]) -> None:
    """Make positive what decides, one slot after the other as long as signs are free."""
    s, scales = action.structure, action.scales
    which = scales.components(unit.classes)
    sides, first = np.zeros(len(s.scalings.kind_of)), np.full(len(s.scalings.kind_of), len(s.span))
    for number, slot in enumerate(_deciding(action, unit, done)):
        here = slice(*s.span[slot])
        odd = along(state.weights[slot[0]] ** 3, s.slots[slot].ids.shape, slot[1])
        found = np.zeros(len(sides))
        np.add.at(found, s.scales[here], np.where(scales.free[here], odd, 0.0))
        new = (sides == 0) & (found != 0)
        sides[new], first[new] = found[new], number
    sign = np.ones(len(sides))
    for kind in scales.kinds:
        rows = kind.scales[which[s.scalings.component[kind.scales[:, 0]]]]
        bits = kind.sign % 2
        if not bits.any() or not len(rows):
            continue
        ranks, alike = np.unique(first[rows], axis=0, return_inverse=True)
        for number, rank in enumerate(ranks):
            order = np.argsort(rank, kind="stable")[: int((rank < len(s.span)).sum())]
            chosen, inverse = invert_gf2(bits[order])
            own = rows[alike.reshape(-1) == number]
            x = (sides[own][:, order[chosen]] < 0) @ inverse.T
            sign[own] = 1 - 2 * (x @ bits.T % 2)
    if (sign < 0).any():
        at = np.where(scales.free, sign[s.scales], 1.0)
        state.rescale(np.zeros(len(at)), at, unit.slots)


def _deciding(action: GroupAction, unit: Unit, done: set[int]) -> Iterator[Slot]:
    """The dimensions that may decide the signs of a unit: vectors first, then settled matrices."""
    slots = [slot for slot in sorted(unit.slots) if slot[0] in action.params]
    shapes = action.structure.inference.shapes
    for matrices in (False, True):
        for slot in slots:
            if (len(shapes[slot[0]]) > 1) == matrices and action.forest.settled(slot, done):
                yield slot
