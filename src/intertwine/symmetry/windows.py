"""Slices of dimensions that carry labels: what each keeps, at every size that a model was traced at.

A slice may keep other positions at another size (`table[:T]`). What it reads at a size that was not traced is
unknown, and larger than any that was tried it may be; so where it moves, nothing along it may.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from intertwine.ir.ledger import Ids
from intertwine.ir.value import Value

NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Window:
    """A slice. key: the op, the size of the dimension, what is kept of it.

    labels: all that lie along the dimension; kept: those of the slice (and of its other dimensions).
    """

    key: tuple[str, int, bytes]
    value: Value
    dim: int
    labels: Ids
    kept: tuple[Ids, ...]


class Windows:
    """The slices of every graph of one model."""

    def __init__(self) -> None:
        self._graphs: list[list[Window]] = []
        self._along: dict[tuple[int, int], tuple[Value, Ids]] = {}  # values are held, so that ids stay theirs

    def begin(self) -> None:
        """Another graph."""
        self._graphs.append([])

    def note(self, op: str, value: Value, dim: int, index: Ids, out: Value) -> None:
        """`out` is the slices `index` of a dimension of `value`."""
        size, place = value.shape[dim], (id(value), dim)
        if place not in self._along:  # an unbind takes a thousand slices of one value
            self._along[place] = (value, _labels_along(value, dim))
        labels = self._along[place][1]
        if len(labels) and not np.array_equal(index, np.arange(size)):
            key = (op, size, np.asarray(index, np.int64).tobytes())
            kept = tuple(factor.ids for factor in out.factors)
            self._graphs[-1].append(Window(key, value, dim, labels, kept))

    def __len__(self) -> int:
        """How many slices of the last graph are known."""
        return len(self._graphs[-1])

    def keep(self, first: int, used: Iterable[int]) -> None:
        """Of the slices of the last graph from `first` on only some are used."""
        made = self._graphs[-1][first:]
        self._graphs[-1][first:] = [made[k] for k in sorted(used)]

    def moved(self) -> Iterator[tuple[Value, int]]:
        """Values and dimensions of which a slice keeps other positions in some graph than in another."""
        graphs = [_by_labels(windows) for windows in self._graphs]
        counts = [Counter(_shares(group) for group in groups) for groups in graphs]
        found = {
            (id(window.value), window.dim): (window.value, window.dim)
            for own, groups in zip(counts, graphs, strict=True)
            for group in groups
            if any(other[_shares(group)] != own[_shares(group)] for other in counts)
            for window in group
        }
        return iter(found.values())

    def left_out(self) -> Ids:
        """Labels along dimensions that the first graph slices, of which no slice keeps any."""
        labels = {id(window.labels): window.labels for window in self._graphs[0]}
        kept = [ids.reshape(-1) for window in self._graphs[0] for ids in window.kept]
        return np.setdiff1d(np.concatenate([*labels.values(), NONE]), np.concatenate([*kept, NONE]))


def _labels_along(value: Value, dim: int) -> Ids:
    axes = set(value.dims[dim])
    found = [factor.ids.reshape(-1) for factor in value.factors if axes & set(factor.axes)]
    return np.unique(np.concatenate(found)) if found else NONE


def _by_labels(windows: Iterable[Window]) -> list[list[Window]]:
    """The slices of values that carry the same labels: those of every step of a loop over tokens."""
    groups: dict[bytes, list[Window]] = {}
    for window in windows:
        groups.setdefault(window.labels.tobytes(), []).append(window)
    return list(groups.values())


def _shares(group: Iterable[Window]) -> frozenset[tuple[tuple[str, int, bytes], int]]:
    """What is kept, and how often beside the others: a loop of more steps keeps the same, more often."""
    counts = Counter(window.key for window in group)
    steps = math.gcd(*counts.values())
    return frozenset((key, count // steps) for key, count in counts.items())
