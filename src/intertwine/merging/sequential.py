"""method="sequential": every kind of axis under one budget, then all weights fitted layer after layer.

1. Moments of what every weight reads, on `data` or on inputs that need none (`calibration`).
2. For every axis what each width costs there: channels of an MLP and heads by elimination, linear axes and
   the stream by their spectra (`spectral`), experts by running without them (`experts`).
3. One run an axis, cut by a quarter, says how much of the *output* that costs, on rows that are no padding:
   relative errors of different kinds become comparable.
4. The cuts with the least cost for each parameter (or FLOP) saved, until the budget is met.
5. The smaller model is fitted to the original, layer after layer (`refit`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from intertwine.errors import InputError, ModelError
from intertwine.graph.export import eval_copy
from intertwine.merging.budget import Sizes, fit_budget
from intertwine.merging.contractions import Call, first_rows, real_rows, trimmed
from intertwine.merging.eliminate import make_up
from intertwine.merging.experts import find_mixtures, plan_experts
from intertwine.merging.heads import make_up_heads, plan_heads
from intertwine.merging.limits import Together, find_units, matches
from intertwine.merging.plan import CHANNELS, EXPERTS, HEADS, RANK, STREAM, AxisPlan, MergePlan
from intertwine.merging.refit import refit
from intertwine.merging.rigid import floating
from intertwine.merging.said import UNSAID
from intertwine.merging.shrink import apply_plan, replace_tensors
from intertwine.merging.spectral import plan_linear
from intertwine.merging.trial import Narrowing
from intertwine.orbit import is_large

if TYPE_CHECKING:
    from intertwine.merging.decide import Planner

TRIAL, TOKENS = 16, 1024  # inputs, and their tokens at most, that say how much of the output an axis is worth
NOTHING = 1e-9  # relative error of an axis below which its duplicates are exact
ROTARY = (
    "only complex numbers on pairs of channels commute with the rotation, so there is no rank to cut; "
    "a pair could go only from every head of every layer at once, with its frequency"
)
KINDS = (CHANNELS, HEADS, RANK, STREAM, EXPERTS)


def plan_sequential(planner: Planner, share: float, what: str) -> MergePlan:
    """The plan that leaves at most `share` of the parameters or FLOPs, with its weights fitted."""
    whole, units = _sayable_units(planner)
    sizes = Sizes(planner.model, planner.symmetry, whole, what)
    return fitted(planner, fit_budget(whole, sizes, share, what, units))


def _sayable_units(planner: Planner) -> tuple[MergePlan, list[Together]]:
    """What is narrowed together, to widths that a config can say where one has to."""
    whole, limits = planner.weighed, planner.options.limits
    units = find_units(whole, limits)
    if limits.said is not None:
        sayable = []
        for unit in units:
            step = unit.multiple if unit.fixed is not None else limits.said.step(unit)
            planner.rigid |= {} if step else {axis.name: UNSAID for axis in unit.axes}
            sayable += [replace(unit, multiple=step)] if step else []
        units = sayable
        whole = replace(whole, axes=tuple(axis for unit in units for axis in unit.axes))
    return whole, units


def _sayable(planner: Planner, plans: list[AxisPlan]) -> list[AxisPlan]:
    """Those that may be narrowed: to weigh what no config can say would cost for nothing."""
    limits = planner.options.limits
    if limits.said is None:
        return plans
    units = find_units(replace(planner.blank(), axes=tuple(plans)), limits)
    unsaid = {a.name for u in units if u.fixed is None and not limits.said.step(u) for a in u.axes}
    planner.rigid |= dict.fromkeys(sorted(unsaid), UNSAID)
    return [p for p in plans if p.name not in unsaid]


def fitted(planner: Planner, plan: MergePlan) -> MergePlan:
    """A plan of widths with the weights of its model fitted to the original's."""
    plan = replace(plan, axes=tuple(_made_up(planner, a) for a in plan.axes))
    if not plan.merges:
        return plan
    shapes = {name: tuple(p.shape) for name, p in planner.model.named_parameters()}
    small = apply_plan(planner.model, plan, share=True)
    # What an expert gives are rows of tokens that were sent to it, and others may be sent to it now.
    mixtures = find_mixtures(planner.symmetry, planner.model)
    inside = tuple(f"{path}." for mixture in mixtures for path in mixture.containers)
    targets = {n: t for n, t in planner.observed.outputs.items() if not n.startswith(inside)}
    outputs = planner.outputs
    cut = outputs.error(small)
    weights = refit(small, plan, planner.calibration, targets, shapes)
    replace_tensors(small, {name: torch.from_numpy(values) for name, values in weights.items()})
    # Every weight is fitted to what it gave, which need not be best for what the model gives.
    return replace(plan, weights=weights) if outputs.error(small) <= cut else plan


def weigh(planner: Planner) -> MergePlan:
    """Every axis of every kind cut as far as it goes, with costs that can be compared."""
    kinds = KINDS if planner.options.get("kinds") == "all" else (planner.options.get("kinds"),)
    if is_large(planner.model.parameters()):
        raise InputError(
            "sequential holds the whole model in float64, and this one has more than 250 million weights",
            do="take --method magnitude",
        )
    trial = Narrowing(planner)
    linear = _asked(planner, plan_linear(planner.symmetry, planner.weights, planner.measured))
    linear = _sayable(planner, [a for a in linear if a.kind in kinds])
    turned = _running(planner, trial, linear)
    axes: list[AxisPlan] = []
    if CHANNELS in kinds:  # an axis in a basis of its own is not cut by single channels as well
        taken = {a.name for a in linear} - planner.rigid.keys()
        axes += [a for a in planner.whole().axes if a.name not in taken]
    if HEADS in kinds:  # before linear axes: what makes up for heads is in the basis that they had
        known = planner.weights, planner.measured, planner.rigid
        heads = _asked(planner, plan_heads(planner.symmetry, *known))
        heads = _running(planner, trial, _sayable(planner, heads))
        axes += sorted(heads, key=lambda a: a.groups > 1)  # what makes up for a group is in all its heads
    if RANK in kinds and planner.symmetry.structure.turns.count:
        planner.rigid["queries and keys with rotary embeddings"] = ROTARY
    outputs = planner.outputs
    weighed = [in_output_error(planner, axis, outputs.error) for axis in (*axes, *turned)]
    if EXPERTS in kinds:
        own = eval_copy(planner.model, share=True)
        mixtures, rigid = plan_experts(planner.symmetry, trial, own, outputs.error)
        weighed += _asked(planner, mixtures)
        planner.rigid |= rigid
    return replace(planner.blank(), axes=tuple(weighed))


def _made_up(planner: Planner, axis: AxisPlan) -> AxisPlan:
    if axis.kind == HEADS:
        return make_up_heads(axis, planner.measured)
    return axis if axis.turns or axis.kind == EXPERTS else make_up(axis, planner.readings[axis.name])


def _asked(planner: Planner, plans: list[AxisPlan]) -> list[AxisPlan]:
    """Those that the caller's patterns do not leave out."""
    patterns = planner.patterns
    chosen = [p for p in plans if patterns is None or any(fnmatchcase(p.name, q) for q in patterns)]
    return [p for p in chosen if not any(matches(q, p.name) for q in planner.options.limits.ignore)]


def _running(planner: Planner, trial: Narrowing, plans: list[AxisPlan]) -> list[AxisPlan]:
    """The axes that the forward can narrow; those that it keeps at one width are joined."""
    good: list[AxisPlan] = []
    waiting: list[AxisPlan] = []
    for plan, fitting in zip(plans, trial.fitted_alone(plans), strict=True):
        (good if fitting is not None else waiting).append(fitting or plan)
    while waiting:
        plan = waiting.pop(0)
        for other in [p for p in waiting if _alike(p, plan) and _meet(p, plan)]:
            fitting = trial.fitted(plan, other)
            if fitting is not None:
                good.append(fitting)
                waiting.remove(other)
                break
        else:
            planner.rigid[plan.name] = trial.why(plan)
    cut = {name for plan in good for name in plan.name.split(" + ")}
    planner.rigid = {name: why for name, why in planner.rigid.items() if name not in cut}
    return good


def _alike(a: AxisPlan, b: AxisPlan) -> bool:
    return (a.size, a.kind, a.groups) == (b.size, b.kind, b.groups)


def _meet(a: AxisPlan, b: AxisPlan) -> bool:
    """Whether two axes belong to one module: their weights lie under one parent."""

    def parents(plan: AxisPlan) -> set[str]:
        return {p.param.rpartition(".")[0].rpartition(".")[0] for p in plan.places} | {
            p.param for p in plan.places
        }

    return bool(parents(a) & parents(b))


def in_output_error(
    planner: Planner, axis: AxisPlan, error: Callable[[nn.Module], float], share: float = 0.25
) -> AxisPlan:
    """The axis with its costs in what `error` says of the model that has lost a share of the axis alone.

    What costs nothing says nothing about the rest (duplicates inside, channels that are dead on the inputs):
    then more of the axis goes.
    """
    count = max(1, int(share * axis.size))
    while count < len(axis.merges) and axis.costs[count - 1] < NOTHING:
        count += 1
    if len(axis.merges) < count:
        return axis
    while True:
        cut = _made_up(planner, axis.first(count))
        off = error(apply_plan(planner.model, replace(planner.blank(), axes=(cut,)), share=True))
        if off >= NOTHING or count == len(axis.merges):
            break
        count += -(-(len(axis.merges) - count) // 2)
    scale = off / max(axis.costs[count - 1], 1e-12)
    return replace(axis, costs=tuple(scale * c for c in axis.costs))


class KnownOutputs:
    """What a model gives on a few inputs, where they are no padding, and how far another is from that.

    What comes of padding is read by nobody, and may be far off: tokens that fill up are not measured.
    """

    @classmethod
    def of(cls, planner: Planner) -> KnownOutputs:
        """On the first inputs that the planner measures on."""
        few = first_rows(first_rows(planner.calibration, TRIAL, 1), TOKENS)
        return cls(planner.model, trimmed(few))

    def __init__(self, model: nn.Module, call: Call) -> None:
        self.call = call
        self.before = self._rows(eval_copy(model, share=True))
        spread = self.before - self.before.mean(-1, keepdim=True)
        self.whole = float(spread.square().sum().clamp_min(1e-30))

    @torch.no_grad()
    def _rows(self, model: nn.Module) -> Tensor:
        found = floating(model(*self.call[0], **self.call[1]))
        if not found:
            raise ModelError("the model's output holds no real numbers", do="return scores, not their order")
        out = found[0].to(torch.promote_types(found[0].dtype, torch.float32))  # squares overflow float16
        rows = out.reshape(-1, out.shape[-1]) if out.dim() else out.reshape(1, 1)
        kept = real_rows(self.call, len(rows))
        return rows if kept is None else rows[kept]

    def error(self, small: nn.Module) -> float:
        """Relative square error; what is the same for all coordinates of a row does not count.

        small: a copy of our own, since it is put into eval mode; through train mode, which clears caches.
        """
        rows = self._rows(small.train().eval())
        if rows.shape != self.before.shape:
            raise ModelError(
                "the outputs of the model change their shape from call to call",
                so="what a merge changes in them cannot be measured",
            )
        off = rows - self.before
        return float((off - off.mean(-1, keepdim=True)).square().sum()) / self.whole


__all__ = ["KINDS", "KnownOutputs", "fitted", "plan_sequential", "weigh"]
