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
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from intertwine.merge.combine import fold_matrices
from intertwine.merge.pairs import Matrix, PairTable, combine_gram, extremes
from intertwine.merge.places import Place
from intertwine.merge.plan import Merge, classes_of

CHUNK = 1 << 24  # entries of a slice matrix that are converted to float64 at a time
Progress = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class Target:
    """An axis to merge: its name, size, places, and the form of its merges.

    literal: compare merged channels by their sums and means, as eq. 6 and 7 say. Then three equal channels
    are not all merged (w + w is far from w); otherwise a merged channel is compared by what it stands for,
    the average of its channels.
    """

    name: str
    size: int
    places: tuple[Place, ...]
    sums_first: bool
    literal: bool = True

    def matrices(self, weights: dict[str, Tensor]) -> tuple[list[Place], list[Place]]:
        """The places that count for the distance: matrices that make the axis, and that read it (eq. 6)."""
        counted = [p for p in self.places if p.param in weights and weights[p.param].dim() > 1]
        return [p for p in counted if not p.consumes], [p for p in counted if p.consumes]


def gram(places: Sequence[Place], weights: dict[str, Tensor], size: int) -> Matrix:
    """sum over the places of R R^T in float64, R the slices of all channels; converted by chunks."""
    total = torch.zeros(size, size, dtype=torch.float64)
    for place in places:
        rows = place.rows(weights[place.param])
        step = max(1, CHUNK // size)
        for start in range(0, rows.shape[1], step):
            part = rows[:, start : start + step].to(torch.float64)
            total += (part @ part.T).to("cpu")
    return total.numpy()


def coefficients(sums_first: bool, keep: float, drop: float) -> list[tuple[float, float]]:
    """(a, b) for what makes the axis and for what reads it, from the numbers of channels held (eq. 7, 10)."""
    mean = (keep / (keep + drop), drop / (keep + drop))
    return [(1.0, 1.0), mean] if sums_first else [mean, (1.0, 1.0)]


def compared(target: Target, keep: float, drop: float) -> list[tuple[float, float]]:
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
    making, reading = target.matrices(weights)
    if any(a.param == b.param for a in making for b in reading):
        return _merge_coupled(target, weights, beta, max_ratio)
    table = PairTable([gram(making, weights, target.size), gram(reading, weights, target.size)])
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
    engine = Interleaved([target], dict(weights))
    merges: list[Merge] = []
    while len(merges) < max_ratio * target.size:
        merge = engine.step(0, beta)
        if merge is None:
            break
        merges.append(merge)
    return tuple(merges)


class Interleaved:
    """The state of all axes in the interleaved order: weights, Gram matrices, and what is dirty."""

    def __init__(self, targets: Sequence[Target], weights: dict[str, Tensor]) -> None:
        self.targets = list(targets)
        named = {p.param for t in targets for p in t.places if weights[p.param].dim() > 1}
        self.weights = {n: weights[n].to(torch.float64, copy=True) for n in named}
        self.shared: dict[str, list[tuple[int, int, Place]]] = {}
        self.grams: list[list[Matrix]] = []
        for k, target in enumerate(self.targets):
            sides = target.matrices(weights)
            self.grams.append([gram(side, weights, target.size) for side in sides])
            for side, places in enumerate(sides):
                for place in places:
                    self.shared.setdefault(place.param, []).append((k, side, place))
        self.alive = [np.ones(t.size, bool) for t in self.targets]
        self.held = [np.ones(t.size) for t in self.targets]
        self.settled = [False] * len(self.targets)

    def step(self, k: int, beta: float) -> Merge | None:
        """One merge on axis k, or None where eq. 9 stops it."""
        if self.settled[k] or self.alive[k].sum() < 2:
            return None
        keep, drop, distance, largest = extremes(self.grams[k], self.alive[k])
        if distance > beta * largest:
            self.settled[k] = True
            return None
        self._apply(k, keep, drop)
        return Merge(keep, drop, distance, largest)

    def _apply(self, k: int, keep: int, drop: int) -> None:
        target, held = self.targets[k], self.held[k]
        pairs = coefficients(target.sums_first, held[keep], held[drop])
        sides = target.matrices(self.weights)
        coupled = {p.param for p in sides[0]} & {p.param for p in sides[1]}
        for side, places in enumerate(sides):
            for place in places:
                self._update_weight(k, place, keep, drop, pairs[side])
        seen = compared(target, held[keep], held[drop])
        held[keep] += held[drop]
        for side, places in enumerate(sides):
            if not coupled:
                combine_gram(self.grams[k][side], keep, drop, *seen[side])
                continue
            fresh = gram(places, self.weights, target.size)
            scale = self._shares(k, side)
            self.grams[k][side] = fresh * scale[:, None] * scale[None, :]
        self.alive[k][drop] = False
        self.settled[k] = False

    def _shares(self, k: int, side: int) -> np.ndarray:
        """What turns the slices in the weights into those that the distance compares."""
        summed = (side == 0) == self.targets[k].sums_first
        plain = self.targets[k].literal or not summed
        return np.ones(self.targets[k].size) if plain else 1.0 / self.held[k]

    def _update_weight(self, k: int, place: Place, keep: int, drop: int, pair: tuple[float, float]) -> None:
        weight, (a, b) = self.weights[place.param], pair
        at = [torch.from_numpy(place.where[c]) for c in (keep, drop)]
        left, right = (weight.index_select(place.dim, i) for i in at)
        for other, side, seen in self.shared[place.param]:
            if other != k:
                self._update_gram(other, side, seen, left, right, (a, b))
        weight.index_copy_(place.dim, at[0], a * left + b * right)
        weight.index_fill_(place.dim, at[1], 0.0)

    def _update_gram(
        self, k: int, side: int, place: Place, left: Tensor, right: Tensor, pair: tuple[float, float]
    ) -> None:
        """(a m + b n)(a m + b n)^T - m m^T - n n^T: all that a neighbour's Gram matrix changes by."""
        a, b = pair
        share = torch.from_numpy(self._shares(k, side))[:, None]
        m, n = place.rows(left) * share, place.rows(right) * share
        if a == b == 1.0:
            self.grams[k][side] += (torch.cat([m, n], 1) @ torch.cat([n, m], 1).T).numpy()
        else:
            mixed = torch.cat([(a * a - 1) * m + a * b * n, a * b * m + (b * b - 1) * n], 1)
            change = (torch.cat([m, n], 1) @ mixed.T).numpy()
            self.grams[k][side] += (change + change.T) / 2
        self.settled[k] = False


def merge_interleaved(
    targets: Sequence[Target],
    weights: dict[str, Tensor],
    beta: float,
    max_ratio: float,
    progress: Progress | None = None,
) -> list[tuple[Merge, ...]]:
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
    targets: Sequence[Target],
    weights: dict[str, Tensor],
    beta: float,
    max_ratio: float,
    progress: Progress | None = None,
) -> list[tuple[Merge, ...]]:
    """Algorithm 1: finish an axis, change the weights, go to the next."""
    current, found = dict(weights), []
    for target in targets:
        merges = merge_axis(target, current, beta, max_ratio, progress)
        found.append(merges)
        if merges:
            current.update(
                fold_matrices(target.places, classes_of(target.size, merges), current, target.sums_first)
            )
    return found
