"""Iterative Feature Merging: D_mn = |W_m - W_n|^2 + |V_m - V_n|^2; merge while min D <= beta max D.

Algorithm 1 of Chen, Zhou and Yan (ICLR 2024), on every mergeable axis of any model. Three orders:

    layerwise     finish an axis, then the next (Algorithm 1)
    interleaved   one merge on every axis a round, until no axis merges (the released code)
    independent   every axis against the original weights of its neighbours; one pass serves every beta

Each axis keeps two Gram matrices, of what makes it and of what reads it; a merge costs O(d). In the
interleaved order a merge changes the Gram matrices of neighbouring axes by a product of the two slices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from intertwine.merging.pairs import MovingTable, Pair, PairTable
from intertwine.merging.places import Place
from intertwine.merging.plan import Merge, classes_of
from intertwine.merging.working import Target, Working, gram

Progress = Callable[[int], None]
Weights = dict[str, Tensor]


def coefficients(sums_first: bool, keep: float, drop: float) -> list[Pair]:
    """(a, b) for what makes the axis and for what reads it, from the numbers of channels held (eq. 7, 10)."""
    mean = (keep / (keep + drop), drop / (keep + drop))
    return [(1.0, 1.0), mean] if sums_first else [mean, (1.0, 1.0)]


def compared(target: Target, keep: float, drop: float) -> list[Pair]:
    """The same for the slices that the distance compares."""
    if target.literal:
        return coefficients(target.sums_first, keep, drop)
    mean = (keep / (keep + drop), drop / (keep + drop))
    return [mean, mean]


def merge_axis(
    target: Target,
    weights: dict[str, Tensor],
    beta: float,
    max_ratio: float,
    progress: Progress | None = None,
) -> tuple[Merge, ...]:
    """The merges of one axis while everything else stays as it is."""
    return _merge_one(target, Working([target], weights), 0, beta, max_ratio, progress)


def _merge_one(
    target: Target, working: Working, k: int, beta: float, max_ratio: float, progress: Progress | None
) -> tuple[Merge, ...]:
    if working.coupled(k):
        return _merge_coupled(target, working.weights, beta, max_ratio)
    table = PairTable(working.grams(k))
    held = np.ones(target.size)
    merges: list[Merge] = []
    while len(table) > 1 and len(merges) < max_ratio * target.size:
        keep, drop, distance = table.nearest()
        largest = table.largest()
        if distance > beta * largest:
            break
        merges.append(Merge(keep, drop, distance, largest))
        table.merge(keep, drop, compared(target, held[keep], held[drop]))
        held[keep] += held[drop]
        if progress is not None:
            progress(1)
    return tuple(merges)


def _merge_coupled(
    target: Target, weights: dict[str, Tensor], beta: float, max_ratio: float
) -> tuple[Merge, ...]:
    """An axis that one weight both reads and makes (a recurrence): every merge changes every distance."""
    engine = Interleaved([target], weights)
    merges: list[Merge] = []
    while len(merges) < max_ratio * target.size:
        merge = engine.step(0, beta)
        if merge is None:
            break
        merges.append(merge)
    return tuple(merges)


class Interleaved:
    """The state of all axes in the interleaved order: weights, distances, and which axes have settled."""

    def __init__(self, targets: Sequence[Target], weights: dict[str, Tensor]) -> None:
        self.targets = list(targets)
        self.working = Working(targets, weights)
        self.weights = {n: w.to(torch.float64, copy=True) for n, w in self.working.weights.items()}
        self.tables = [MovingTable(self.working.grams(k)) for k in range(len(targets))]
        self.shared: dict[str, list[tuple[int, int, Place]]] = {}
        for k, sides in enumerate(self.working.sides):
            for side, places in enumerate(sides):
                for place in places:
                    self.shared.setdefault(place.param, []).append((k, side, place))
        self.channels = {
            (name, place.dim): np.moveaxis(self.weights[name].numpy(), place.dim, 0)
            for name, uses in self.shared.items()
            for _, _, place in uses
        }
        self.held = [np.ones(t.size) for t in self.targets]
        self.settled = [False] * len(self.targets)

    def step(self, k: int, beta: float) -> Merge | None:
        """One merge on axis k, or None where eq. 9 stops it."""
        table = self.tables[k]
        if self.settled[k] or len(table) < 2:
            return None
        first, second, distance, largest = table.extremes()
        if distance > beta * largest:
            self.settled[k] = True
            return None
        keep, drop = int(table.order[first]), int(table.order[second])
        self._apply(k, keep, drop, (first, second))
        return Merge(keep, drop, distance, largest)

    def _apply(self, k: int, keep: int, drop: int, rows: tuple[int, int]) -> None:
        target, held = self.targets[k], self.held[k]
        pairs = coefficients(target.sums_first, held[keep], held[drop])
        for side, places in enumerate(self.working.sides[k]):
            for place in places:
                self._update_weight(k, place, keep, drop, pairs[side])
        seen = compared(target, held[keep], held[drop])
        held[keep] += held[drop]
        self.tables[k].merge(*rows, seen)
        if self.working.coupled(k):
            self.tables[k] = self._fresh_table(k, self.tables[k].order)
        self.settled[k] = False

    def _fresh_table(self, k: int, order: np.ndarray) -> MovingTable:
        living = np.ix_(order, order)
        grams = []
        for side, places in enumerate(self.working.sides[k]):
            share = self._shares(k, side)
            fresh = gram(places, self.weights, self.targets[k].size) * share[:, None] * share[None, :]
            grams.append(fresh[living])
        return MovingTable(grams, order)

    def _shares(self, k: int, side: int) -> np.ndarray:
        """What turns the slices in the weights into those that the distance compares."""
        summed = (side == 0) == self.targets[k].sums_first
        plain = self.targets[k].literal or not summed
        return np.ones(self.targets[k].size) if plain else 1.0 / self.held[k]

    def _update_weight(self, k: int, place: Place, keep: int, drop: int, pair: Pair) -> None:
        channels, where = self.channels[place.param, place.dim], place.where[[keep, drop]]
        merging = channels[where]  # (2, copies, the other dims)
        for other, side, seen in self.shared[place.param]:
            if other != k and seen.dim != place.dim:  # on the same dim it lies elsewhere (a concatenation)
                dim = seen.dim + (2 if seen.dim < place.dim else 1)
                self._update_neighbour(other, side, seen, (merging, dim), pair)
        channels[where[0]] = pair[0] * merging[0] + pair[1] * merging[1]
        channels[where[1]] = 0.0

    def _update_neighbour(
        self, k: int, side: int, place: Place, change: tuple[np.ndarray, int], pair: Pair
    ) -> None:
        """(a m + b n)(a m + b n)^T - m m^T - n n^T: all that a neighbour's Gram matrix changes by.

        change: m and n along the first dim of an array, and its dim that has the neighbour's channels.
        """
        (merging, dim), (a, b) = change, pair
        living = self.tables[k].order
        rows = merging.swapaxes(0, dim)[place.where[living]]  # (living, copies, ..., 2, ...)
        both = rows.swapaxes(1, dim + 1).reshape(len(living), 2, -1)
        if not self.targets[k].literal:
            both *= self._shares(k, side)[living, None, None]
        mixed = np.empty_like(both)
        if a == b == 1.0:
            mixed[:, 0], mixed[:, 1] = both[:, 1], both[:, 0]
        else:
            mixed[:, 0] = (a * a - 1) * both[:, 0] + a * b * both[:, 1]
            mixed[:, 1] = a * b * both[:, 0] + (b * b - 1) * both[:, 1]
        self.tables[k].change(side, both.reshape(len(living), -1), mixed.reshape(len(living), -1))
        self.settled[k] = False


def merge_interleaved(
    targets: Sequence[Target], weights: Weights, beta: float, max_ratio: float,
    progress: Progress | None = None,
) -> list[tuple[Merge, ...]]:  # fmt: skip
    """One merge on every axis a round; an axis stops for good in round max_ratio times its width."""
    engine = Interleaved(targets, weights)
    merges: list[list[Merge]] = [[] for _ in targets]
    rounds, moving = 0, True
    while moving:
        moving = False
        for k, target in enumerate(targets):
            merge = engine.step(k, beta) if rounds < max_ratio * target.size else None
            if merge is not None:
                merges[k].append(merge)
                moving = True
                if progress is not None:
                    progress(1)
        rounds += 1
    return [tuple(m) for m in merges]


def merge_layerwise(
    targets: Sequence[Target], weights: Weights, beta: float, max_ratio: float,
    progress: Progress | None = None,
) -> list[tuple[Merge, ...]]:  # fmt: skip
    """Algorithm 1: finish an axis, change the weights, go to the next."""
    working, found = Working(targets, weights), []
    for k, target in enumerate(targets):
        merges = _merge_one(target, working, k, beta, max_ratio, progress)
        found.append(merges)
        if merges:
            working.fold(k, classes_of(target.size, merges), target.sums_first)
    return found
