"""method="sequential": every kind of axis under one budget, then all weights fitted layer after layer.

1. Moments of what every weight reads, on `data` or on inputs that need none (`calibration`).
2. For every axis what each width costs there: channels of an MLP by elimination, linear axes and the stream
   by their spectra (`spectral`).
3. One run an axis, cut by a quarter, says how much of the *output* that costs: relative errors of different
   kinds become comparable.
4. The cuts with the least cost for each parameter (or FLOP) saved, until the budget is met.
5. The smaller model is fitted to the original, layer after layer (`refit`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import torch
from torch import nn

from intertwine.graph.export import eval_copy
from intertwine.graph.run import raised, run
from intertwine.merging.budget import Sizes, fit_budget
from intertwine.merging.combine import turned
from intertwine.merging.contractions import Call, first_rows
from intertwine.merging.eliminate import make_up
from intertwine.merging.measured import Seen
from intertwine.merging.plan import AxisPlan, MergePlan
from intertwine.merging.refit import refit
from intertwine.merging.rigid import alike, floating
from intertwine.merging.shrink import apply_merge, find_dropped, named_tensors
from intertwine.merging.spectral import RANK, STREAM, join, plan_linear

if TYPE_CHECKING:
    from intertwine.merging.decide import Planner

TRIAL = 16  # rows that say how much of the output an axis is worth
KINDS = ("channels", RANK, STREAM)


def plan_sequential(planner: Planner, share: float, what: str) -> MergePlan:
    """The plan that leaves at most `share` of the parameters or FLOPs, with its weights fitted."""
    whole = planner.weighed
    plan = fit_budget(whole, Sizes(planner.model, planner.symmetry, whole, what), share, what)
    plan = replace(plan, axes=tuple(_made_up(planner, a) for a in plan.axes))
    if not plan.merges:
        return plan
    weights = refit(apply_merge(planner.model, plan), planner.model, plan, planner.calibration)
    return replace(plan, weights=weights)


def weigh(planner: Planner) -> MergePlan:
    """Every axis of every kind cut as far as it goes, with costs that can be compared."""
    kinds = KINDS if planner.options.get("kinds") == "all" else (planner.options.get("kinds"),)
    axes = [*planner.whole().axes] if "channels" in kinds else []
    axes += [a for a in _linear(planner, planner.measured) if a.kind in kinds]
    some = first_rows(planner.calibration, TRIAL, 1)
    weighed = tuple(_weighed(planner, axis, some) for axis in axes)
    return replace(planner.blank(), axes=weighed)


def _made_up(planner: Planner, axis: AxisPlan) -> AxisPlan:
    return axis if axis.turns else make_up(axis, planner.readings[axis.name])


def _linear(planner: Planner, seen: Mapping[str, Seen]) -> list[AxisPlan]:
    """The linear axes that the forward can narrow; those that it keeps at one width are joined."""
    trial = _Trial(planner)
    good: list[AxisPlan] = []
    waiting: list[AxisPlan] = []
    patterns = planner.patterns
    for plan in plan_linear(planner.symmetry, planner.weights, seen):
        if patterns is not None and not any(fnmatchcase(plan.name, p) for p in patterns):
            continue
        fitted = trial.fitted(plan)
        (good if fitted is not None else waiting).append(fitted or plan)
    while waiting:
        plan = waiting.pop(0)
        for other in [p for p in waiting if p.size == plan.size and p.kind == plan.kind and _meet(p, plan)]:
            fitted = trial.fitted(plan, other)
            if fitted is not None:
                good.append(fitted)
                waiting.remove(other)
                break
        else:
            planner.rigid[plan.name] = "its size is written into the forward"
    return good


def _meet(a: AxisPlan, b: AxisPlan) -> bool:
    """Whether two axes belong to one module: their weights lie under one parent."""

    def parents(plan: AxisPlan) -> set[str]:
        return {p.param.rpartition(".")[0].rpartition(".")[0] for p in plan.places} | {
            p.param for p in plan.places
        }

    return bool(parents(a) & parents(b))


class _Trial:
    """Whether a model with a linear axis cut by one runs, and computes what the whole graph does."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.model = eval_copy(planner.model).double()
        args, kwargs = planner.example()
        self.args = tuple(raised(x, torch.float64) for x in args)
        self.kwargs = {k: raised(x, torch.float64) for k, x in kwargs.items()}
        state = named_tensors(self.model)
        self.weights = {n: state[n].detach() for n in planner.symmetry.structure.inference.shapes}

    def fitted(self, *plans: AxisPlan) -> AxisPlan | None:
        """The plans as one, or None if the forward cannot be narrowed there.

        Softmax may be told the width, q . k / sqrt(width), or not: that is found out too.
        """
        if plans[0].size < 2:
            return None
        options = [plans, tuple(map(_scaled, plans))]
        return next((p for option in options if self._runs(p := join(list(option)))), None)

    def _runs(self, plan: AxisPlan) -> bool:
        cut = MergePlan((plan.first(1),))
        plain = dict(self.weights)
        for turn in plan.turns:
            plain[turn.param] = turned(plain[turn.param], turn, 1.0)
        for (param, dim), places in find_dropped(cut).items():
            plain[param] = plain[param].index_fill(dim, torch.from_numpy(places), 0.0)
        try:
            small = apply_merge(self.model, cut)
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                got = floating(small(*self.args, **self.kwargs))
        except Exception:  # whatever a forward raises on a size that it does not expect
            return False
        expected = run(self.planner.symmetry.traced, plain, self.args, self.kwargs)
        return alike(got, expected)


def _scaled(plan: AxisPlan) -> AxisPlan:
    """Products of two values take on (width / size)^1/2, half of it on each side."""
    if plan.kind != RANK or any(p.role == "in" for p in plan.places):
        return plan
    return replace(plan, turns=tuple(replace(t, power=0.25) for t in plan.turns))


def _weighed(planner: Planner, axis: AxisPlan, call: Call) -> AxisPlan:
    """The axis with its costs in relative error of the model's output."""
    count = max(1, axis.size // 4)
    if len(axis.merges) < count:
        return axis
    cut = _made_up(planner, axis.first(count))
    small = apply_merge(planner.model, replace(planner.blank(), axes=(cut,)))
    error = _difference(planner.model, small, call)
    scale = error / max(axis.costs[count - 1], 1e-12)
    return replace(axis, costs=tuple(scale * c for c in axis.costs))


@torch.no_grad()
def _difference(model: nn.Module, small: nn.Module, call: Call) -> float:
    before, after = (floating(eval_copy(m, share=True)(*call[0], **call[1]))[0] for m in (model, small))
    spread = before - before.mean(-1, keepdim=True)
    off = after - before
    off = off - off.mean(-1, keepdim=True)
    return float(off.square().sum() / spread.square().sum().clamp_min(1e-30))


__all__ = ["KINDS", "plan_sequential", "weigh"]
