"""Maps of channels as directions of the weights, tried one by one where the group is known to lack them.

    length    the sum of all E_ii on what makes the channels, or some of it, and on some of what reads them: a
              norm that stands before the other readers takes it out
    rotary    E_ij - E_ji between the two places of a channel of q and k that a rotary embedding ties
    mixing    E_ij: what makes i gets some of j, and what reads j loses as much of i; and E_ij - E_ji, where a
              norm sees the length. Inside the groups of a grouped layer, between the parts of a split
    scale     one channel that is alone: what makes it grows, what reads it shrinks
    exponential    what is added to a channel grows, what reads it shrinks by a factor: f' is a multiple of f

Anywhere else such a map is one that the rules should have found, and gets no name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from intertwine.ir.ledger import Ids
from intertwine.symmetry import Axis, Symmetry
from intertwine.tangent.coordinates import Coordinates

Key = tuple[str, int]
Places = dict[Key, Ids]  # a dimension of a weight -> the coordinates of one channel there
FEW = 5  # readers or makers of an axis, up to which every choice of them is tried
Candidates = tuple[str, np.ndarray]  # a kind, and directions as columns over all coordinates


class ChannelMaps:
    """Axes that lie in the same dimensions of the same weights (the parts of a split, say), taken as one."""

    def __init__(self, symmetry: Symmetry, at: Coordinates, axes: Sequence[Axis]) -> None:
        self.at, self.axes = at, axes
        self.roles = symmetry.inference.roles
        self.places = [p for axis in axes for p in places_of(symmetry, at, axis)]
        slots = [symmetry.structure.slots[m.param, m.dim] for m in axes[0].members]
        self.parts = len(axes) > 1 or any(slot.ids.ndim > 1 for slot in slots)
        self.block = [(k, b) for k, axis in enumerate(axes) for b in _blocks(axis)]

    def candidates(self, most: int) -> Iterator[Candidates]:
        """Directions in small batches; pairs only of up to `most` channels."""
        n = len(self.places)
        blocks = [[i for i in range(n) if self.block[i] == b] for b in dict.fromkeys(self.block)]
        yield "length", np.stack([v for b in (*blocks, range(n)) for v in self._lengths(b)], axis=1)
        if len(self.axes) == 1 and self.axes[0].group.linear:
            return  # matrices are in the group
        twice = [self._turned(i) for i in range(n) if self._paired(i)]
        if twice:
            yield "rotary", np.stack(twice, axis=1)
        for i in range(n if n <= most and self.parts else 0):
            others = [j for j in range(n) if j != i and self._alike(i, j)]
            if others:
                yield "mixing", np.stack([self._mixed(i, j) for j in others], axis=1)
                yield "mixing", np.stack([self._mixed(i, j) - self._mixed(j, i) for j in others], axis=1)

    def _paired(self, i: int) -> bool:
        """Whether a channel has two places in every weight, and none that reads it: one of q and k."""
        places = self.places[i]
        return all(len(p) == 2 for p in places.values()) and not any(map(self._reads, places))

    def _alike(self, i: int, j: int) -> bool:
        a, b = self.places[i], self.places[j]
        return a.keys() == b.keys() and all(a[key].shape == b[key].shape for key in a)

    def _reads(self, key: Key) -> bool:
        return self.roles.get(key) == "in"

    def _lengths(self, channels: Sequence[int] | range) -> Iterator[np.ndarray]:
        """All that makes some channels grows; any of what reads them shrinks, but not all of it. If all of it
        did, that were a scale, which the rules should have found. Or some of what makes them grows: one of
        two that a cosine compares.
        """
        made, read = dict[Key, np.ndarray](), dict[Key, np.ndarray]()
        for i in channels:
            for key, ids in self.places[i].items():
                if self._reads(key):
                    read.setdefault(key, np.zeros(self.at.size))[ids] = self.at.theta[ids]
                elif self.roles.get(key) in ("out", "bias"):
                    made.setdefault(key, np.zeros(self.at.size))[ids] = self.at.theta[ids]
        nothing = np.zeros(self.at.size)
        whole = sum(made.values(), nothing)
        yield whole
        for some in _some(list(read.values())):
            yield whole - sum(some, nothing)
        for some in _some(list(made.values())):
            yield sum(some, nothing)

    def _mixed(self, i: int, j: int) -> np.ndarray:
        out = np.zeros(self.at.size)
        for key, here in self.places[i].items():
            there = self.places[j][key]
            if self._reads(key):
                out[there] -= self.at.theta[here]
            else:
                out[here] += self.at.theta[there]
        return out

    def _turned(self, i: int) -> np.ndarray:
        """The two places of a channel against each other: a rotary embedding holds them together."""
        out = np.zeros(self.at.size)
        for here, there in self.places[i].values():
            out[here] += self.at.theta[there]
            out[there] -= self.at.theta[here]
        return out


def _some(vectors: Sequence[np.ndarray]) -> Iterator[tuple[np.ndarray, ...]]:
    """Every choice of some of a few, but not all."""
    for count in range(1, len(vectors) if len(vectors) <= FEW else 0):
        yield from combinations(vectors, count)


def _blocks(axis: Axis) -> list[int]:
    blocks, width = axis.classes.shape
    return np.repeat(np.arange(blocks), width).tolist()


def places_of(symmetry: Symmetry, at: Coordinates, axis: Axis) -> list[Places]:
    """For every channel and dimension of a weight that has it: (places along it, coordinates there)."""
    s = symmetry.structure
    keys, found = list(s.span), []
    for cls in axis.classes.reshape(-1):
        position, _ = s.occurrences(np.array([cls]))
        slot = np.searchsorted(s.slot_starts, position, side="right") - 1
        found.append(
            {
                keys[k]: np.stack(
                    [at.positions(symmetry, keys[k], p[None]) for p in position[slot == k] - s.slot_starts[k]]
                )
                for k in np.unique(slot)
                if keys[k][0] in at.values
            }
        )
    return found


def channel_maps(symmetry: Symmetry, at: Coordinates) -> Iterator[tuple[str, ChannelMaps]]:
    """Every axis with its name, those in the same places together."""
    together: dict[frozenset[Key], list[Axis]] = {}
    for axis in symmetry.axes:
        together.setdefault(frozenset((m.param, m.dim) for m in axis.members), []).append(axis)
    for axes in together.values():
        if any(m.role == "out" for m in axes[0].members):
            yield axes[0].name, ChannelMaps(symmetry, at, axes)


def lone_scales(symmetry: Symmetry, at: Coordinates, most: int) -> Iterator[np.ndarray]:
    """Directions whose combinations may be the scale of a channel that has no axis of its own, as columns:
    the growth of all that one dimension of a weight has of it.

    A channel that is picked out by its index loses its name there: what makes it and what reads it are two,
    and all such are taken together. One that is alone in its group has a dimension of size 1; one that is
    alone in its layer is all of a weight.
    """
    lone = [
        _growth(at, at.of(name)) for name, w in at.values.items() if 1 in w.shape[:1] or w.shape[1:] == (1,)
    ]
    for axis in symmetry.axes:
        for places in places_of(symmetry, at, axis):
            columns = [_growth(at, ids) for ids in places.values()]
            if axis.classes.size == 1:
                lone += columns
            elif columns and any(1 in at.values[name].shape for name, _ in places):
                yield np.stack(columns, axis=1)
    if lone and len(lone) <= most**2:
        yield np.stack(lone, axis=1)


def statistic_scales(symmetry: Symmetry, at: Coordinates) -> Iterator[tuple[str, np.ndarray]]:
    """For every axis with a running variance: its name, and as columns the growth of the variance of each
    channel (with the eps that is added to it) and of what reads the channel."""
    roles, shifts = symmetry.inference.roles, symmetry.inference.shifts
    for axis in symmetry.axes:
        if any(m.role == "var" for m in axis.members):
            columns = [
                _growth(at, ids, shifts.get(key[0], 0.0))
                for places in places_of(symmetry, at, axis)
                for key, ids in places.items()
                if roles.get(key) in ("var", "in")
            ]
            yield axis.name, np.stack(columns, axis=1)


def shifts_and_scales(
    symmetry: Symmetry, at: Coordinates, constants: Sequence[str]
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """For every axis with constants that are added: its name, and as columns a step of each constant, and the
    growth of what reads each channel in each place."""
    roles = symmetry.inference.roles
    for axis in symmetry.axes:
        steps, growths = list[np.ndarray](), list[np.ndarray]()
        for places in places_of(symmetry, at, axis):
            for (name, dim), ids in places.items():
                if name in constants:
                    steps.append(np.zeros(at.size))
                    steps[-1][ids.reshape(-1)] = 1.0
                elif roles.get((name, dim)) == "in":
                    growths.append(_growth(at, ids))
        if steps and growths:
            yield axis.name, np.stack(steps, axis=1), np.stack(growths, axis=1)


def _growth(at: Coordinates, ids: Ids, shift: float = 0.0) -> np.ndarray:
    """What changes where some entries grow by a factor."""
    column = np.zeros(at.size)
    column[ids.reshape(-1)] = at.theta[ids.reshape(-1)] + shift
    return column
