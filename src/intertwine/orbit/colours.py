"""Colour refinement on the weights: channels of different colours cannot be exchanged by any automorphism.

At the point of least norm only permutations, signs and rotations are left of the group. So the squared
entries of a channel's slices, summed over all channels of one colour along every other dimension, are the
same for two channels that an automorphism exchanges. Channels that differ in such a sum get different
colours, which tells more channels apart, until nothing changes. (Weisfeiler and Leman; the sums over colours
are taken all at once, each colour weighted by a random number.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intertwine.ir.ledger import Ids
from intertwine.orbit.action import GroupAction
from intertwine.orbit.scales import along, apply_factors
from intertwine.orbit.units import Weights

_ALIKE = 1e-5  # relative difference up to which two sums count as equal


def refine_colours(action: GroupAction, weights: Weights, marks: Sequence[int | None]) -> list[Ids]:
    """For every mark the colours of all classes, if the marked class has one of its own.

    Colours of different marks can be compared: an automorphism that sends one marked class to the other keeps
    them.
    """
    colours = np.zeros((len(marks), action.structure.classes.count), np.int64)
    for unit in action.forest.units:
        colours[:, unit.classes] = unit.index + 2
    for side, mark in zip(colours, marks, strict=True):
        if mark is not None:
            side[mark] = 1
    rng, count = np.random.default_rng(0), 0
    while count < (count := len(np.unique(colours))):
        numbers = rng.uniform(0.5, 1.5, int(colours.max()) + 1)
        for sums in _all_sums(action, weights, [numbers[side] for side in colours]):
            colours = _split(colours, sums)
    return list(colours)


def _all_sums(action: GroupAction, weights: Weights, numbers: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    """For every dimension of every weight, (marks, classes): the weighted sum of squares of each class."""
    s, found = action.structure, []
    classes, positions = s.coordinate_class, s.coordinate_slot
    factors = [np.multiply.reduceat(side[classes], s.coordinate_start) for side in numbers]
    for name in sorted(action.params):
        square = weights[name].square()
        slots = [(name, dim) for dim in range(square.dim()) if (name, dim) in s.span]
        for own in slots:
            start, stop = s.span[own]
            inside = (positions >= start) & (positions < stop)
            sums = np.zeros((len(numbers), s.classes.count))
            for factor, row in zip(factors, sums, strict=True):
                held = {name: square}
                for other in slots:
                    if other != own:
                        apply_factors(s, held, other, factor[slice(*s.span[other])])
                values = along(held[name], s.slots[own].ids.shape, own[1]) * factor[start:stop]
                np.add.at(row, classes[inside], values[positions[inside] - start])
            for linear in s.linear.values():  # a rotation mixes the channels of a fibre
                sums[:, linear.fibres] = sums[:, linear.fibres].sum(axis=2, keepdims=True)
            found.append(sums)
    return found


def _split(colours: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Classes of one colour and of equal sums keep one colour, numbered alike for all marks."""
    order = np.lexsort((sums.reshape(-1), colours.reshape(-1)))
    flat, values = colours.reshape(-1)[order], sums.reshape(-1)[order]
    new = np.r_[False, (np.diff(flat) != 0) | (np.diff(values) > _ALIKE * np.abs(values[1:]))]
    out = np.empty(len(flat), np.int64)
    out[order] = np.cumsum(new)
    return out.reshape(colours.shape)
