"""align(A, B): the group element that brings B onto A, for any architecture.

For models of one orbit it is the element that `intertwine.orbit` finds. For others the search is made in the
gauge of least norm and in the gauges that the models have, by the whole group and by parts of it; the element
that brings B closest to A is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import nn

from intertwine.aligning._activations import correlations
from intertwine.checks import checked
from intertwine.errors import InputError
from intertwine.orbit import SAME, Matcher, Pairing, Unit, Weights, inner_products, search
from intertwine.results import Result, Table
from intertwine.symmetry import Element, Symmetry

By = Literal["weights", "activations", "both"]
GroupName = Literal["full", "permutation"]
_WHOLE, _PLAIN = "whole group", "permutations"
_WORTH = 0.99  # distance, relative to that after permutations, below which more of the group is used
_NOT_BALANCED = (
    "the models are too large to be brought to their points of least norm: rescalings were left alone"
)


@dataclass(frozen=True)
class AxisMatch:
    """What was done to one axis. moved: channels that changed place. cosine: mean cosine of the slices of
    matched channels, before and after."""

    name: str
    size: int
    group: str
    moved: int
    cosine_before: float
    cosine_after: float


@dataclass(frozen=True, repr=False)
class Alignment(Result):
    """element: g, which brings B onto A. Distances are |A - B| and |A - g B| relative to |A|, over all
    parameters. candidates: the distance that each part of the group led to; the best is kept."""

    element: Element
    by: str
    group: str
    distance_before: float
    distance_after: float
    axes: tuple[AxisMatch, ...]
    candidates: tuple[tuple[str, float], ...]
    seed: int
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `intertwine align --json` prints it."""
        return {
            "by": self.by,
            "group": self.group,
            "seed": self.seed,
            "distance_before": self.distance_before,
            "distance_after": self.distance_after,
            "candidates": [{"moved by": name, "distance": value} for name, value in self.candidates],
            "axes": [vars(axis) for axis in self.axes],
            "notes": list(self.notes),
        }

    def tables(self) -> Sequence[Table]:
        """A row an axis."""
        columns = ["axis", "channels", "group", "moved", "cosine before", "after"]
        rows = [[a.name, a.size, a.group, a.moved, a.cosine_before, a.cosine_after] for a in self.axes]
        return [Table(f"B onto A, by {self.by}", columns, rows, columns[1:2] + columns[3:])]

    def remarks(self) -> list[str]:
        """The distances."""
        first = f"distance relative to A: {self.distance_before:.4g} before, {self.distance_after:.4g} after"
        return [first, *(f"  by {name}: {distance:.4g}" for name, distance in self.candidates)]

    def save(self, path: str | Path) -> Path:
        """The element (.safetensors), the page (.html) or the numbers (.json)."""
        if Path(path).suffix == ".safetensors":
            self.element.save(path)
            return Path(path)
        return super().save(path)


@checked
def align(
    model_a: nn.Module,
    model_b: nn.Module,
    symmetry: Symmetry,
    *,
    by: By = "weights",
    group: GroupName = "full",
    data: Any = None,
    restarts: int = 3,
    seed: int = 0,
) -> Alignment:
    """The element g of the symmetry group for which g . B is closest to A.

    by: compare channels by their weights, by their activations on `data`, or by both. group: "permutation"
    leaves scales, signs and matrices alone (matrices become permutations). restarts: random starts besides
    the first guesses. `act(model_b, result.element)` is the aligned model.

    >>> import torch
    >>> from intertwine import act, trace
    >>> mlp = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> symmetry = trace(mlp, torch.zeros(1, 3))
    >>> align(mlp, act(mlp, symmetry.sample(0)), symmetry).distance_after < 1e-5
    True
    """
    _check(by, group, restarts)
    pair = Pairing(symmetry, model_a, model_b)
    extra: Mapping[int, np.ndarray] = {}
    if by != "weights":
        if data is None:
            raise InputError(f"aligning by {by} needs data", do="give inputs of the models")
        extra = correlations(symmetry, pair.action.forest, (model_a, model_b), data)
    return _Candidates(pair, by, extra, restarts, seed).best(group)


class _Candidates:
    """Elements that bring B onto A, each by a part of the group. extra: gains by activations, by units."""

    def __init__(
        self, pair: Pairing, by: By, extra: Mapping[int, np.ndarray], restarts: int, seed: int
    ) -> None:
        self.pair, self.by, self.restarts, self.seed = pair, by, restarts, seed
        self.action, self.units = pair.action, pair.action.forest.units
        self.alone = by == "activations"
        self.extra = extra

    def best(self, group: GroupName) -> Alignment:
        """The element that brings B closest to A."""
        found: list[tuple[str, float, Element]] = []
        for name, candidate in self._elements(group):
            found.append((name, self.pair.distance(candidate), candidate))
            if found[-1][1] < SAME:
                break
        # A larger part of the group must be worth it: single signs of ill-matched channels only add noise.
        _, least, best = next((row for row in found if row[0] == _PLAIN), found[0])
        for _, distance, candidate in found:
            if distance < _WORTH * least:
                least, best = distance, candidate
        return self._result(best, least, group, [(name, value) for name, value, _ in found])

    def _elements(self, group: GroupName) -> Iterator[tuple[str, Element]]:
        """Elements to choose from. Rescaling makes trained models that are not of one orbit more alike only
        where their channels differ in scale, so doing without is always a candidate."""
        pair = self.pair
        if group == "full":
            element = None if self.alone else pair.on_orbit()
            if element is None and not pair.is_large:
                element = pair.searched(self._matcher, self.restarts, self.seed)
            if element is not None:
                yield _WHOLE, element
            # What activations say of a unit is about the module that it lies in.
            if self.by == "weights" and pair.exchange is not None:
                found = pair.searched(self._matcher, self.restarts, self.seed, first=pair.exchange)
                yield "the whole group, modules exchanged", found
        yield _PLAIN, self._search(signs=False, rotations=False)
        turning = self.action.structure.linear or any(k.sign.any() for k in self.action.scales.kinds)
        if group == "full" and turning:
            yield "permutations, signs and rotations", self._search()

    def _search(self, signs: bool = True, rotations: bool = True) -> Element:
        matcher = self._matcher(self.pair.a, signs, rotations)
        return search(matcher, self.pair.b, self.restarts, self.seed)

    def _matcher(self, target: Weights, signs: bool = True, rotations: bool = True) -> Matcher:
        extra = self.extra
        if not self.alone:
            extra = {unit: self._energy(self.units[unit], target) * table for unit, table in extra.items()}
        return Matcher(self.action, target, signs=signs, rotations=rotations, extra=extra, alone=self.alone)

    def _energy(self, unit: Unit, target: Weights) -> float:
        """Mean squared norm of the slices of a channel: what a correlation of 1 is worth beside weights."""
        spots = [s for s in unit.spots if s.param in self.action.params]
        return sum(float(s.slices(target[s.param]).square().sum()) for s in spots) / unit.size

    def _result(
        self, element: Element, distance: float, group: str, candidates: list[tuple[str, float]]
    ) -> Alignment:
        pair = self.pair
        cosines = zip(self._cosines(pair.b), self._cosines(pair.moved(element)), strict=True)
        axes = tuple(
            AxisMatch(
                unit.name, unit.size, str(pair.symmetry.axis(unit.name).group),
                int((element.relabel[unit.classes] != unit.classes).sum()), before, after,
            )
            for unit, (before, after) in zip(self.units, cosines, strict=True)
        )  # fmt: skip
        return Alignment(
            element, self.by, group, pair.distance(), distance, axes, tuple(candidates),
            self.seed, self._notes(group, candidates),
        )  # fmt: skip

    def _notes(self, group: str, candidates: list[tuple[str, float]]) -> tuple[str, ...]:
        left_out = group == "full" and all(name != _WHOLE for name, _ in candidates)
        return (_NOT_BALANCED,) if left_out else ()

    def _cosines(self, weights: Weights) -> list[float]:
        """For every unit the mean over channels of the cosine between slices of A and of `weights`."""
        names = sorted(self.action.params)
        sums = {slot: rows for name in names for slot, rows in self._products(name, weights)}
        found = []
        for unit in self.units:
            spots = [spot for spot in unit.spots if spot.param in self.action.params]
            both = sum((sums[s.slot][:, s.where].sum(2) for s in spots), start=np.zeros((3, unit.size)))
            norm = np.sqrt(both[0] * both[1])
            seen = norm > 0
            found.append(float((both[2][seen] / norm[seen]).mean()) if seen.any() else float("nan"))
        return found

    def _products(self, name: str, weights: Weights) -> list[tuple[tuple[str, int], np.ndarray]]:
        """<a, a>, <b, b> and <a, b> along the dimensions of a weight; nothing of it is held afterwards."""
        structure = self.action.structure
        b = weights[name]  # first: moving it takes more than holding it
        a = self.pair.a[name]
        dims = [d for d in range(a.dim()) if (name, d) in structure.span]
        found = inner_products(a, b, [(structure.slots[name, d].ids.shape, d) for d in dims])
        return [((name, d), np.stack(rows)) for d, rows in zip(dims, found, strict=True)]


def _check(by: str, group: str, restarts: int) -> None:
    if by not in ("weights", "activations", "both"):
        raise InputError(f"cannot align by {by!r}", do="use weights, activations or both")
    if group not in ("full", "permutation"):
        raise InputError(f"unknown group {group!r}", do="use full or permutation")
    if restarts < 0:
        raise InputError(f"{restarts} restarts", do="give 0 or more")
