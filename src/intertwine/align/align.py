"""align(A, B): the group element that brings B onto A, for any architecture.

    g = c_A^-1 . k . c_B

c_A and c_B bring the models to a canonical gauge (`balance`), in which only permutations, signs and rotations
are left between models of one orbit; k is found by coordinate descent over axes from several starts
(`search`). For models of one orbit, rescalings and matrices are then made exact (`refine`). For others the
same descent is made in the gauges that the models have, and the element that brings B closest to A is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from intertwine.align.activations import correlations
from intertwine.align.balance import Balance
from intertwine.align.graphs import assert_same_ops, exported, inputs_of
from intertwine.align.match import Matcher
from intertwine.align.move import Mover
from intertwine.align.orbit import find_orbit
from intertwine.align.refine import refine, squared_distance
from intertwine.align.scales import Scales, along
from intertwine.align.search import State, agreement, descend, propagate, random_start, total
from intertwine.align.units import Forest, Unit, find_units
from intertwine.errors import InputError
from intertwine.symmetry import Element, Symmetry
from intertwine.symmetry.subgroup import find_subgroup
from intertwine.symmetry.transform import apply_element, identity

By = Literal["weights", "activations", "both"]
GroupName = Literal["full", "permutation"]
_PLAIN = "permutations"
_WORTH = 0.99  # distance, relative to that after permutations, below which more of the group is used
_SAME = 0.05  # relative distance below which B is taken for a model on the orbit of A


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


@dataclass(frozen=True)
class Alignment:
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
    graphs = exported((model_a, model_b), *inputs_of(symmetry.traced, model_a))
    if graphs is not None:
        assert_same_ops(graphs)
    problem = Problem(symmetry, model_a, model_b)
    if graphs is not None:
        assert_same_ops(graphs, settings=True)  # after the widths, which are settings of views
    return problem.solve(by, group, data, restarts, seed)


class Problem:
    """Two models of one architecture, ready to be matched."""

    def __init__(self, symmetry: Symmetry, model_a: nn.Module, model_b: nn.Module) -> None:
        self.symmetry, self.models = symmetry, (model_a, model_b)
        raw = [_weights(symmetry, model, side) for model, side in ((model_a, "A"), (model_b, "B"))]
        self.a, self.b = (
            {n: t.detach().to("cpu", torch.float64, copy=True) for n, t in w.items()} for w in raw
        )
        self.rounding = 2 * max(torch.finfo(t.dtype).eps for w in raw for t in w.values())
        named = {name for name, _ in model_a.named_parameters()}
        group = find_subgroup(symmetry)
        self.forest: Forest = find_units(group)
        self._moved: tuple[Element, dict[str, Tensor]] | None = None
        self.mover = Mover(self.forest.structure)
        self.scales = Scales(group, named & set(self.a))

    def solve(self, by: By, group: GroupName, data: Any, restarts: int, seed: int) -> Alignment:
        """The best of all starts."""
        self.alone = by == "activations"
        self.extra = {} if by == "weights" else self._correlations(by, data)
        found: list[tuple[str, float, Element]] = []
        for name, candidate in self._candidates(group, restarts, seed):
            found.append((name, self.distance(candidate), candidate))
            if found[-1][1] < _SAME:
                break
        # A larger part of the group must be worth it: single signs of ill-matched channels only add noise.
        _, least, best = next((row for row in found if row[0] == _PLAIN), found[0])
        for _, distance, candidate in found:
            if distance < _WORTH * least:
                least, best = distance, candidate
        return self._result(best, by, group, [(name, value) for name, value, _ in found], seed)

    def _candidates(self, group: GroupName, restarts: int, seed: int) -> Iterator[tuple[str, Element]]:
        """Elements to choose from. Rescaling makes trained models that are not of one orbit more alike only
        where their channels differ in scale, so doing without is always a candidate."""
        if group == "full":
            orbit = None if self.alone else self.orbit()
            yield "whole group", self.whole_group(restarts, seed) if orbit is None else orbit
        matcher = self._matcher(self.a, signs=False, rotations=False)
        yield _PLAIN, self._descend(matcher, self.b, restarts, seed)
        turning = self.forest.structure.linear or any(kind.sign.any() for kind in self.scales.kinds)
        if group == "full" and turning:
            matcher = self._matcher(self.a)
            yield "permutations, signs and rotations", self._descend(matcher, self.b, restarts, seed)

    def _correlations(self, by: By, data: Any) -> dict[int, np.ndarray]:
        """Gains by activations; beside those of weights, in their units."""
        if data is None:
            raise InputError(f"aligning by {by} needs data", do="give inputs of the models")
        return correlations(self.symmetry, self.forest, self.models, data)

    def orbit(self) -> Element | None:
        """The element that brings B onto A exactly, if B lies on the orbit of A."""
        state = self._state(self.b)
        if not find_orbit(self.forest, self.scales, self.a, state):
            return None
        element = state.element
        distance = self.distance(element)
        if distance > _SAME:
            return None
        return element if distance <= self.rounding else self.polished(element)

    def whole_group(self, restarts: int, seed: int) -> Element:
        """c_A^-1 k c_B for the best k."""
        gauge_a, gauge_b = (self._state(w) for w in (self.a, self.b))
        balance = Balance(self.forest, self.scales)
        for state in (gauge_a, gauge_b):
            balance(state, exact=1e-5)
        best = self._descend(self._matcher(gauge_a.weights), gauge_b.weights, restarts, seed)
        element = gauge_a.element.inverse() @ best @ gauge_b.element
        return self.polished(element) if self.distance(element) < _SAME else element

    def polished(self, element: Element) -> Element:
        """For models of one orbit: rescalings and matrices by least squares, exact to rounding."""
        state = self._state(self.moved(element))
        refine(Matcher(self.forest, self.scales, self.a), state)
        return state.element @ element

    def _matcher(self, target: dict[str, Tensor], signs: bool = True, rotations: bool = True) -> Matcher:
        extra = self.extra
        if not self.alone:
            extra = {
                unit: self._energy(self.forest.units[unit], target) * table for unit, table in extra.items()
            }
        return Matcher(
            self.forest, self.scales, target, signs=signs, rotations=rotations, extra=extra, alone=self.alone
        )

    def _energy(self, unit: Unit, target: dict[str, Tensor]) -> float:
        """Mean squared norm of the slices of a channel: what a correlation of 1 is worth beside weights."""
        spots = [s for s in unit.spots if s.param in self.scales.params]
        return sum(float(s.slices(target[s.param]).square().sum()) for s in spots) / unit.size

    def _descend(self, matcher: Matcher, start: dict[str, Tensor], restarts: int, seed: int) -> Element:
        rng = np.random.default_rng(seed)
        starts: list[Callable[[State], None]] = [lambda s: propagate(matcher, s), lambda s: None]
        if self.alone:
            starts, restarts = starts[:1], 0  # activations decide at once
        starts += [lambda s: random_start(s, rng)] * restarts
        best, value = identity(self.forest.structure), -np.inf
        norms = [sum(float(w[n].square().sum()) for n in self.scales.params) for w in (matcher.target, start)]
        exact = (1 - 1e-8) * float(np.sqrt(norms[0] * norms[1]))
        for begin in starts:
            state = self._state(start)
            begin(state)
            if agreement(matcher, state.weights) < exact:
                descend(matcher, state, rng)
            now = total(matcher, state)
            if now > value:
                best, value = state.element, now
            if agreement(matcher, state.weights) >= exact:
                break  # nothing can be better
        return best

    def _state(self, weights: dict[str, Tensor]) -> State:
        return State(self.forest, self.mover, {name: weights[name] for name in self.scales.params})

    def moved(self, element: Element) -> dict[str, Tensor]:
        """g . B, kept until another element is asked for."""
        if self._moved is None or self._moved[0] is not element:
            self._moved = (element, apply_element(element, self.b))
        return self._moved[1]

    def distance(self, element: Element | None = None) -> float:
        """|A - g B| / |A| over the parameters."""
        moved = self.b if element is None else self.moved(element)
        norm = float(sum(self.a[n].square().sum() for n in self.scales.params))
        return float(np.sqrt(squared_distance(self.a, moved, self.scales.params) / max(norm, 1e-300)))

    def _result(
        self, element: Element, by: str, group: str, starts: list[tuple[str, float]], seed: int
    ) -> Alignment:
        cosines = zip(self._cosines(self.b), self._cosines(self.moved(element)), strict=True)
        axes = tuple(
            AxisMatch(
                unit.name, unit.size, str(self.symmetry.axis(unit.name).group),
                int((element.relabel[unit.classes] != unit.classes).sum()), before, after,
            )
            for unit, (before, after) in zip(self.forest.units, cosines, strict=True)
        )  # fmt: skip
        return Alignment(
            element, by, group, self.distance(), self.distance(element), axes, tuple(starts), seed
        )

    def _cosines(self, weights: dict[str, Tensor]) -> list[float]:
        """For every unit the mean over channels of the cosine between slices of A and of `weights`."""
        sums: dict[tuple[str, int], np.ndarray] = {}
        structure = self.forest.structure
        for name in sorted(self.scales.params):
            a, b = self.a[name], weights[name]
            for product in (a * b, a * a, b * b):
                for dim in (d for d in range(a.dim()) if (name, d) in structure.span):
                    row = along(product, structure.slots[name, dim].ids.shape, dim)
                    sums[name, dim] = np.vstack([sums[name, dim], row]) if (name, dim) in sums else row[None]
        found = []
        for unit in self.forest.units:
            spots = [spot for spot in unit.spots if spot.param in self.scales.params]
            both = sum((sums[s.slot][:, s.where].sum(2) for s in spots), start=np.zeros((3, unit.size)))
            norm = np.sqrt(both[1] * both[2])
            seen = norm > 0
            found.append(float((both[0][seen] / norm[seen]).mean()) if seen.any() else float("nan"))
        return found


def _check(by: str, group: str, restarts: int) -> None:
    if by not in ("weights", "activations", "both"):
        raise InputError(f"cannot align by {by!r}", do="use weights, activations or both")
    if group not in ("full", "permutation"):
        raise InputError(f"unknown group {group!r}", do="use full or permutation")
    if restarts < 0:
        raise InputError(f"{restarts} restarts", do="give 0 or more")


def _weights(symmetry: Symmetry, model: nn.Module, side: str) -> dict[str, Tensor]:
    try:
        return symmetry.weights(model)
    except InputError as error:
        raise InputError(
            f"{side} does not fit: {error.what}",
            so="only models of one architecture and of equal widths can be aligned",
            do="trace the architecture of both models, or compare them with `intertwine compare`",
        ) from error
