"""Which dimensions of stacked weights have an order of their own in every slice.

A stack [E, h, d] holds E matrices. Run on labels, its second dimension has h of them, in one order for all
slices; yet what is computed with one matrix may know nothing of the others (experts, heads, channels of a
state space). Then every slice has an order of its own, and E h labels say so (`Slot` has them in two
dimensions, as the groups of a convolution do). Which dimensions these are is read off the plain run:

    channels that lie in stacks alone, along a dimension after the first, in stacks whose first dimensions
    move together, or stand still together, and are no inputs or outputs of a product

may be such. A second run with labels for each slice tells: where it leaves them free within every slice they
are, and where it does not, the plain labels stay.
"""

from __future__ import annotations

import numpy as np

from intertwine.ir.ledger import Ids
from intertwine.symmetry.sampling import fibre_keys
from intertwine.symmetry.structure import Structure

Place = tuple[str, int]  # a weight and one of its dimensions


def find_stacks(structure: Structure) -> frozenset[Place]:
    """The dimensions of weights that may have an order of their own in every slice of dimension 0."""
    classes, keys = structure.classes, list(structure.span)
    own = classes.of[structure.labels]
    moves = _moving(structure)
    slot = np.repeat(np.arange(len(keys)), np.diff(np.r_[structure.slot_starts, len(own)]))
    pairs = np.unique(np.stack([classes.orbit[own], slot])[:, moves[own]], axis=1)
    places: dict[int, list[Place]] = {}  # of every orbit
    for orbit, place in pairs.T.tolist():
        places.setdefault(orbit, []).append(keys[place])
    fit = {orbit for orbit, found in places.items() if _stacked_alike(structure, found)}
    unfit = {place for orbit, found in places.items() if orbit not in fit for place in found}
    return frozenset(place for orbit in fit if unfit.isdisjoint(places[orbit]) for place in places[orbit])


def _moving(structure: Structure) -> np.ndarray:
    """Class -> whether it may change places with others inside its blocks."""
    _, fibre, width = np.unique(fibre_keys(structure), return_inverse=True, return_counts=True)
    moves: np.ndarray = ~structure.classes.frozen & (width[fibre] > 1)
    return moves


def _stacked_alike(structure: Structure, places: list[Place]) -> bool:
    """Whether all these dimensions belong to stacks, whose slices move together or stand still."""
    hosts = [_slices(structure, place) for place in places]
    first, frozen = hosts[0], structure.classes.frozen
    return first is not None and all(
        host is not None
        and (
            np.array_equal(host, first)
            or (len(host) == len(first) and bool(frozen[host].all() and frozen[first].all()))
        )
        for host in hosts
    )


def _slices(structure: Structure, place: Place) -> Ids | None:
    """The classes along dimension 0 of the stack that a dimension belongs to; None where it is none."""
    name, dim = place
    first, shape = structure.slots.get((name, 0)), structure.inference.shapes[name]
    if dim == 0 or first is None or max(first.ids.ndim, structure.slots[place].ids.ndim) > 1:
        return None
    slices: Ids = structure.classes.of[first.ids]
    role = structure.inference.roles.get((name, 0))
    if len(shape) == 2:  # a matrix, or one vector a slice
        return slices if role is None and not structure.classes.frozen[slices].any() else None
    return slices if role != "out" else None


def kept_stacks(structure: Structure, stacks: frozenset[Place]) -> frozenset[Place]:
    """Of the dimensions that have labels in every slice, those whose labels move freely within each (those of
    a slice that nobody reads stand still)."""
    of, moves, fibre = structure.classes.of, _moving(structure), fibre_keys(structure)

    def free(place: Place) -> bool:
        rows = of[structure.slots[place].ids]
        still = structure.classes.frozen[rows].all(axis=1)
        inside = [np.unique(fibre[row]) for row in rows]
        apart = len(np.unique(np.concatenate(inside))) == sum(map(len, inside))
        return apart and not still.all() and bool(moves[rows[~still]].all())

    return frozenset(place for place in stacks if free(place))
