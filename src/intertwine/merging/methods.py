"""The ways to choose what to merge, registered with their help and parameters; the first is the default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from intertwine.errors import InputError
from intertwine.merging.budget import uniform_widths
from intertwine.merging.calibration import CALIBRATIONS
from intertwine.merging.cluster import (
    folded_gram,
    kmeans_merges,
    magnitude_merges,
    mean_variances,
    norm_gauge,
    ward_merges,
)
from intertwine.merging.combine import rescale
from intertwine.merging.eliminate import eliminate
from intertwine.merging.ifm import merge_axis, merge_interleaved, merge_layerwise
from intertwine.merging.places import find_places
from intertwine.merging.plan import AxisPlan, Merge, MergePlan
from intertwine.merging.registry import Parameter, Progress, merge_method
from intertwine.merging.sequential import KINDS, plan_sequential
from intertwine.merging.working import Target
from intertwine.symmetry import Axis

if TYPE_CHECKING:
    from intertwine.merging.decide import Planner


@merge_method(
    "moments",
    "remove the channel whose readers can best make up for it, from propagated moments",
    repair="weights",
)
def moments(planner: Planner, axis: Axis, progress: Progress | None) -> AxisPlan:
    """The optimal brain surgeon on an axis."""
    readings = planner.readings[axis.name]
    merges = eliminate(readings, planner.weights, progress)[: planner.most(axis)] if readings else ()
    costs = tuple(m.distance for m in merges)
    return replace(planner.blank_axis(axis), merges=merges, costs=costs, select=True)


def _sequential_at_beta(planner: Planner, beta: float, progress: Progress | None) -> MergePlan:
    raise InputError("sequential has no threshold", do="give target_params or target_flops")


@merge_method(
    "sequential",
    "every kind of axis (MLP channels, heads, ranks, a folded stream, experts), weights refitted by layers",
    parameters=(
        Parameter("kinds", ("all", *KINDS), "every kind of axis, or one of them alone"),
        Parameter(
            "calibrate",
            CALIBRATIONS,
            "on the data (or what serves best without any), on text of its own, or on random inputs",
        ),
    ),
    repair="weights",
    at_beta=_sequential_at_beta,
    at_share=plan_sequential,
    holds_limits=True,
)
def sequential(planner: Planner, axis: Axis, progress: Progress | None) -> AxisPlan:
    """The channels of an axis, by the moments that were measured."""
    return moments(planner, axis, progress)


def _ifm_at_beta(planner: Planner, beta: float, progress: Progress | None) -> MergePlan:
    """In the source's orders a merge changes the distances on the axes that follow."""
    order = planner.options.order
    if order == "independent":
        return planner.whole(progress).cut(beta)
    plans, weights = [planner.canonical_axis(axis) for axis in planner.axes], planner.canonical
    targets = [_target(planner, plan) for plan in plans]
    merge = merge_layerwise if order == "layerwise" else merge_interleaved
    found = merge(targets, dict(weights), beta, planner.options.max_ratio, progress)
    merged = tuple(
        _with(plan, merges, _energy(plan, weights)) for plan, merges in zip(plans, found, strict=True)
    )
    return replace(planner.blank(), axes=merged, beta=beta)


@merge_method(
    "ifm",
    "Iterative Feature Merging, the source's: nearest pair first, until min D > beta max D (eq. 9)",
    parameters=(
        Parameter(
            "order",
            ("layerwise", "interleaved", "independent"),
            "Algorithm 1, the released code, or every axis against the original weights of its neighbours",
        ),
        Parameter(
            "distance", ("paper", "invariant"), "eq. 6, or the same at the canonical point of the orbit"
        ),
        Parameter(
            "norm", ("exact", "sum"), "batch-norm parameters: exact for equal channels, or as released"
        ),
    ),
    at_beta=_ifm_at_beta,
)
def ifm(planner: Planner, axis: Axis, progress: Progress | None) -> AxisPlan:
    """Every merge of one axis while all others stay as they are."""
    plan, weights = planner.canonical_axis(axis), planner.canonical
    own, most = own_weights(plan, weights), planner.options.max_ratio
    merges = merge_axis(_target(planner, plan), own, 1.0, most, progress)
    return _with(plan, merges, _energy(plan, weights))


def _target(planner: Planner, plan: AxisPlan) -> Target:
    places = tuple(part.place(plan.size) for part in plan.places)
    return Target(plan.name, plan.size, places, plan.sums_first, planner.options.norm == "sum")


@merge_method("ward", "Ward clustering of channels with their batch norm folded in")
def ward(planner: Planner, axis: Axis, progress: Progress | None) -> AxisPlan:
    """Ward's tree on what makes and what reads a channel."""
    plan, weights = _folded(planner, axis)
    gram = folded_gram(find_places(planner.symmetry, axis), weights)
    merges = ward_merges(gram)[: planner.most(axis)]
    if progress is not None:
        progress(len(merges))
    return _with(plan, merges, float(np.trace(gram)))


def _fold_at_share(planner: Planner, share: float, what: str) -> MergePlan:
    """Model folding: the largest common share of channels that meets the budget."""
    blank, sizes = planner.blank(), planner.sizes(what)
    full = sizes.total({})
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        widths = uniform_widths(blank.axes, middle)
        left = sizes.total({a.name: a.size - widths[a.name] for a in blank.axes})
        low, high = (middle, high) if left <= share * full else (low, middle)
    widths = uniform_widths(blank.axes, low)
    return replace(blank, axes=tuple(_fold_axis(planner, axis, widths[axis.name]) for axis in planner.axes))


def _fold_at_beta(planner: Planner, beta: float, progress: Progress | None) -> MergePlan:
    raise InputError("folding has no threshold", do="give target_params or target_flops")


@merge_method(
    "folding",
    "k-means of what makes a channel, the same share on every axis",
    at_beta=_fold_at_beta,
    at_share=_fold_at_share,
)
def folding(planner: Planner, axis: Axis, progress: Progress | None) -> AxisPlan:
    """Half of the channels of an axis."""
    return _fold_axis(planner, axis, max(axis.size // 2, 1))


def _fold_axis(planner: Planner, axis: Axis, width: int) -> AxisPlan:
    plan, weights = _folded(planner, axis)
    places = find_places(planner.symmetry, axis)
    making = [p for p in places if not p.consumes and weights[p.param].dim() > 1]
    if not making:
        return plan
    rows = torch.cat([p.rows(weights[p.param]) for p in making], 1).cpu().numpy()
    plan = replace(plan, merges=kmeans_merges(rows, width))
    if planner.options.repair == "none":
        plan = replace(plan, variances=mean_variances(rows, plan.classes()))
    return plan


@merge_method("magnitude", "drop the smallest channels")
def magnitude(planner: Planner, axis: Axis, progress: Progress | None) -> AxisPlan:
    """The channels with the least |in|^2 |out|^2 first."""
    merges = magnitude_merges(find_places(planner.symmetry, axis), planner.weights)[: planner.most(axis)]
    whole = sum(m.distance for m in merges) + merges[-1].largest
    return replace(_with(planner.blank_axis(axis), merges, whole), select=True)


def _folded(planner: Planner, axis: Axis) -> tuple[AxisPlan, dict[str, Tensor]]:
    """The axis with its batch norm folded in where its group allows it, and the weights in that gauge."""
    places = find_places(planner.symmetry, axis)
    plan = planner.blank_axis(axis, norm_gauge(planner.symmetry, axis, places, planner.weights))
    weights = own_weights(plan, planner.weights)
    rescale(plan, weights)
    return plan, weights


def own_weights(plan: AxisPlan, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those that carry the axis."""
    return {part.param: weights[part.param] for part in plan.places}


def _energy(plan: AxisPlan, weights: Mapping[str, Tensor]) -> float:
    """The squared norm of all slices of an axis: what makes distances of different axes comparable."""
    parts = [p.place(plan.size) for p in plan.places if weights[p.param].dim() > 1]
    return float(sum(p.rows(weights[p.param]).square().sum() for p in parts))


def _with(plan: AxisPlan, merges: Sequence[Merge], whole: float) -> AxisPlan:
    """The merges and, after each, the share of the whole that they cost."""
    costs = np.cumsum([m.distance for m in merges]) / max(whole, 1e-300)
    return replace(plan, merges=tuple(merges), costs=tuple(costs.tolist()))
