"""plan_merge: model + symmetry -> MergePlan, by any method and for a threshold or a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from intertwine.errors import InputError
from intertwine.merge.budget import Sizes, fit_budget, uniform_widths
from intertwine.merge.cluster import (
    folded_gram,
    kmeans_merges,
    magnitude_merges,
    mean_variances,
    norm_gauge,
    ward_merges,
)
from intertwine.merge.combine import rescale
from intertwine.merge.eliminate import eliminate, make_up
from intertwine.merge.gauge import find_gauge
from intertwine.merge.ifm import merge_axis, merge_interleaved, merge_layerwise
from intertwine.merge.places import check_beta, find_axes, find_places, float64_weights, sums_first
from intertwine.merge.plan import AxisPlan, Merge, MergePlan, PlacePlan
from intertwine.merge.readers import Reading, find_readings, measure_moments, propagate_moments
from intertwine.merge.rigid import Inputs, find_rigid
from intertwine.merge.working import Target
from intertwine.symmetry import Axis, Symmetry

METHODS = ("moments", "ifm", "ward", "folding", "magnitude")
ORDERS = ("layerwise", "interleaved", "independent")
DISTANCES = ("paper", "invariant")
NORMS = ("exact", "sum")
REPAIRS = ("none", "weights", "data")
PAPER_BETAS = (0.01, 0.03, 0.05, 0.07, 0.1, 0.12, 0.14, 0.15, 0.18, 0.2)
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Options:
    """How to merge; see `plan_merge`."""

    method: str = "moments"
    order: str = "layerwise"
    distance: str = "paper"
    norm: str = "exact"
    repair: str = "weights"
    max_ratio: float = 1.0

    def checked(self) -> Options:
        """Itself, or `InputError` for a choice that does not exist."""
        for name, allowed in (
            ("method", METHODS),
            ("order", ORDERS),
            ("distance", DISTANCES),
            ("norm", NORMS),
            ("repair", REPAIRS),
        ):
            if getattr(self, name) not in allowed:
                raise InputError(
                    f"unknown {name} {getattr(self, name)!r}", do=f"use one of {', '.join(allowed)}"
                )
        if not 0 < self.max_ratio <= 1:
            raise InputError(f"max_ratio is {self.max_ratio}, not a number above 0 and up to 1")
        return self


def plan_merge(
    model: nn.Module,
    symmetry: Symmetry,
    *,
    beta: float | None = None,
    target_params: float | None = None,
    target_flops: float | None = None,
    method: str | None = None,
    order: str = "layerwise",
    max_ratio: float = 1.0,
    distance: str = "paper",
    norm: str = "exact",
    repair: str | None = None,
    axes: Sequence[str] | None = None,
    data: Iterable[Any] | None = None,
    check: bool = True,
    inputs: Inputs | None = None,
    progress: Progress | None = None,
) -> MergePlan:
    """What to merge in `model`, on every mergeable axis or on those that match `axes`.

    Give one of beta, target_params and target_flops. Methods:

        moments    remove the channel whose readers can best make up for it, from propagated moments (default)
        ifm        Iterative Feature Merging, the source's; stops when min D > beta max D (eq. 9)
        ward       Ward clustering of channels with their batch norm folded in
        folding    k-means of what makes a channel, the same share on every axis
        magnitude  drop the smallest channels

    repair: none, weights (readers refitted to propagated moments) or data (to moments measured on `data`,
    batches of inputs). check: leave alone the axes that the forward cannot narrow, found by running it on
    `inputs`. With method="ifm" and norm="sum", order="layerwise" is Algorithm 1 of the source to the letter
    and order="interleaved" its released code; norm="exact" repairs their batch norms, and compares a merged
    channel by the average of its channels, so that any number of equal ones is merged.

    >>> from intertwine import trace
    >>> mlp = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    >>> plan = plan_merge(mlp, trace(mlp, torch.zeros(1, 4)), target_params=0.5)
    >>> plan.complexity["0"] <= 8
    True
    """
    chosen_method = method or "moments"
    repair = repair or ("weights" if chosen_method == "moments" else "none")
    options = Options(chosen_method, order, distance, norm, repair, max_ratio).checked()
    if (beta is not None) + (target_params is not None) + (target_flops is not None) != 1:
        raise InputError("give one of beta, target_params and target_flops")
    if beta is not None:
        check_beta(beta)
    if repair == "data" and data is None:
        raise InputError('repair="data" needs data', do="give batches of inputs")
    planner = Planner(model, symmetry, options, axes, data, check, inputs)
    if beta is not None:
        return planner.at_beta(beta, progress)
    if target_params is not None:
        return planner.at_share(target_params, "parameters", progress)
    assert target_flops is not None
    return planner.at_share(target_flops, "flops", progress)


class Planner:
    """Plans for one model: what does not depend on the threshold is computed once."""

    def __init__(
        self,
        model: nn.Module,
        symmetry: Symmetry,
        options: Options,
        axes: Sequence[str] | None = None,
        data: Iterable[Any] | None = None,
        check: bool = True,
        inputs: Inputs | None = None,
    ) -> None:
        self.model, self.symmetry, self.options = model, symmetry, options
        chosen = find_axes(symmetry, axes)
        self.rigid = find_rigid(model, symmetry, chosen, inputs) if check else {}
        self.axes = [a for a in chosen if a.name not in self.rigid]
        self.weights = float64_weights(symmetry, model)
        self.readings: dict[str, list[Reading]] = {}
        if options.method == "moments" or options.repair != "none":
            self._read(data)
        self._whole: MergePlan | None = None

    def _read(self, data: Iterable[Any] | None) -> None:
        moments = propagate_moments(self.symmetry, self.weights)
        if self.options.repair == "data" and data is not None:
            moments = {**moments, **measure_moments(self.model, self.symmetry, data)}
        for axis in self.axes:
            places = find_places(self.symmetry, axis)
            self.readings[axis.name] = find_readings(self.symmetry, places, self.weights, moments)

    def at_beta(self, beta: float, progress: Progress | None = None) -> MergePlan:
        """Every axis merged up to beta."""
        if self.options.method == "folding":
            raise InputError("folding has no threshold", do="give target_params or target_flops")
        if self.options.method == "ifm" and self.options.order != "independent":
            return self.finish(self._ifm(beta, self.options.order, progress))
        return self.finish(self.whole(progress).cut(beta))

    def at_share(self, share: float, what: str, progress: Progress | None = None) -> MergePlan:
        """At most `share` of the parameters or FLOPs left."""
        if self.options.method == "folding":
            return self.finish(self._fold(share, what))
        plan = self.whole(progress)
        return self.finish(fit_budget(plan, Sizes(self.model, self.symmetry, plan, what), share, what))

    def sizes(self, what: str) -> Sizes:
        """The size of the model by widths."""
        return Sizes(self.model, self.symmetry, self._blank(), what)

    def finish(self, plan: MergePlan) -> MergePlan:
        """The plan with its readers refitted, if so asked."""
        if self.options.repair == "none":
            return plan
        return replace(plan, axes=tuple(make_up(a, self.readings[a.name]) for a in plan.axes))

    def whole(self, progress: Progress | None = None) -> MergePlan:
        """Every axis merged as far as it goes; computed once, and cut at any threshold or budget."""
        if self._whole is None:
            if self.options.method == "ifm":
                plan = self._ifm(1.0, "independent", progress)
            else:
                plan = replace(self._blank(), axes=tuple(self._sequence(a, progress) for a in self.axes))
            self._whole = plan
        return self._whole

    def _blank(self) -> MergePlan:
        o = self.options
        axes = tuple(self._blank_axis(a) for a in self.axes)
        return MergePlan(axes, o.method, o.order, o.distance, o.norm, o.repair, None, self.rigid)

    def _blank_axis(self, axis: Axis, scales: Sequence[np.ndarray] | None = None) -> AxisPlan:
        places = find_places(self.symmetry, axis)
        factors: Sequence[np.ndarray | None] = scales if scales is not None else [None] * len(places)
        parts = tuple(PlacePlan.of(p, s) for p, s in zip(places, factors, strict=True))
        form = self.options.method == "ifm" and sums_first(
            self.symmetry, places, norms=self.options.norm == "exact"
        )
        return AxisPlan(axis.name, axis.size, (), form, parts)

    def _ifm(self, beta: float, order: str, progress: Progress | None) -> MergePlan:
        weights = dict(self.weights)
        plans = []
        for axis in self.axes:
            places = find_places(self.symmetry, axis)
            invariant = self.options.distance == "invariant"
            plans.append(
                self._blank_axis(axis, find_gauge(self.symmetry, places, self.weights) if invariant else None)
            )
        for plan in plans:
            rescale(plan, weights)
        literal = self.options.norm == "sum"
        targets = [
            Target(p.name, p.size, tuple(q.place(p.size) for q in p.places), p.sums_first, literal)
            for p in plans
        ]
        ratio = self.options.max_ratio
        if order == "independent":
            found = [merge_axis(t, weights, beta, ratio, progress) for t in targets]
        else:
            merge = merge_layerwise if order == "layerwise" else merge_interleaved
            found = merge(targets, weights, beta, ratio, progress)
        merged = tuple(
            replace(p, merges=m, costs=_running(m, _energy(p, weights)))
            for p, m in zip(plans, found, strict=True)
        )
        return replace(self._blank(), axes=merged, order=order, beta=beta)

    def _sequence(self, axis: Axis, progress: Progress | None) -> AxisPlan:
        places = find_places(self.symmetry, axis)
        limit = int(np.ceil(self.options.max_ratio * axis.size))
        if self.options.method == "moments":
            readings = self.readings[axis.name]
            merges = eliminate(readings, self.weights, progress)[:limit] if readings else ()
            costs = tuple(m.distance for m in merges)
            return replace(self._blank_axis(axis), merges=merges, costs=costs, select=True)
        if self.options.method == "magnitude":
            merges = magnitude_merges(places, self.weights)[:limit]
            plan = replace(self._blank_axis(axis), merges=merges, select=True)
            return replace(plan, costs=_running(merges, sum(m.distance for m in merges) + merges[-1].largest))
        plan, weights = self._folded(axis)
        gram = folded_gram(places, weights)
        merges = ward_merges(gram)[:limit]
        if progress is not None:
            progress(len(merges))
        return replace(plan, merges=merges, costs=_running(merges, float(np.trace(gram))))

    def _folded(self, axis: Axis) -> tuple[AxisPlan, dict[str, Tensor]]:
        """The axis with its batch norm folded in where its group allows it, and the weights in that gauge."""
        places = find_places(self.symmetry, axis)
        plan = self._blank_axis(axis, norm_gauge(self.symmetry, axis, places, self.weights))
        weights = dict(self.weights)
        rescale(plan, weights)
        return plan, weights

    def _fold(self, share: float, what: str) -> MergePlan:
        """Model folding: the largest common share of channels that meets the budget."""
        blank, sizes = self._blank(), self.sizes(what)
        full = sizes.total({})
        low, high = 0.0, 1.0
        for _ in range(20):
            middle = (low + high) / 2
            widths = uniform_widths(blank.axes, middle)
            left = sizes.total({a.name: a.size - widths[a.name] for a in blank.axes})
            low, high = (middle, high) if left <= share * full else (low, middle)
        widths = uniform_widths(blank.axes, low)
        axes = []
        for axis in self.axes:
            plan, weights = self._folded(axis)
            making = [
                p for p in find_places(self.symmetry, axis) if not p.consumes and weights[p.param].dim() > 1
            ]
            if making:
                rows = torch.cat([p.rows(weights[p.param]) for p in making], 1).cpu().numpy()
                plan = replace(plan, merges=kmeans_merges(rows, widths[axis.name]))
                if self.options.repair == "none":
                    plan = replace(plan, variances=mean_variances(rows, plan.classes()))
            axes.append(plan)
        return replace(blank, axes=tuple(axes))


def _energy(plan: AxisPlan, weights: Mapping[str, Tensor]) -> float:
    """The squared norm of all slices of an axis: what makes distances of different axes comparable."""
    parts = [p.place(plan.size) for p in plan.places if weights[p.param].dim() > 1]
    return float(sum(p.rows(weights[p.param]).square().sum() for p in parts))


def _running(merges: Sequence[Merge], whole: float) -> tuple[float, ...]:
    return tuple((np.cumsum([m.distance for m in merges]) / max(whole, 1e-300)).tolist())
