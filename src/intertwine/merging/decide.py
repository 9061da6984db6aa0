"""plan_merge: model + symmetry -> MergePlan, by any method and for a threshold or a budget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from intertwine.checks import checked
from intertwine.data.evaluation import like_inputs
from intertwine.errors import InputError, WrongKind
from intertwine.graph.export import check_values, eval_copy
from intertwine.merging.budget import Sizes, fit_budget
from intertwine.merging.calibration import DATA, WRITTEN, random_inputs
from intertwine.merging.contractions import Call, calls, held_rows, trimmed
from intertwine.merging.eliminate import make_up
from intertwine.merging.limits import Limits, find_units, hold
from intertwine.merging.measured import Seen, measure
from intertwine.merging.places import check_beta, find_axes, find_places, float64_weights, sums_first
from intertwine.merging.plan import AxisPlan, MergePlan, PlacePlan
from intertwine.merging.readers import Reading, find_readings, propagate_moments
from intertwine.merging.refit import Observed, joined, observe
from intertwine.merging.registry import Progress, all_parameters, find_method
from intertwine.merging.rigid import Inputs, example_inputs, find_rigid
from intertwine.orbit import GroupAction, State, double, find_gauge
from intertwine.symmetry import Axis, Symmetry
from intertwine.symmetry.subgroup import find_subgroup

if TYPE_CHECKING:
    from intertwine.merging.sequential import KnownOutputs

REPAIRS = ("none", "weights", "data")
PAPER_BETAS = (0.01, 0.03, 0.05, 0.07, 0.1, 0.12, 0.14, 0.15, 0.18, 0.2)


@dataclass(frozen=True)
class Options:
    """How to merge; see `plan_merge`."""

    method: str = "moments"
    order: str = "layerwise"
    distance: str = "paper"
    norm: str = "exact"
    repair: str = "weights"
    max_ratio: float = 1.0
    parameters: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)

    def get(self, name: str) -> str:
        """The value of a parameter of the method (see `merge_method`)."""
        if name in self.parameters:
            return self.parameters[name]
        return str(getattr(self, name, all_parameters()[name][0].default))

    @property
    def invariant(self) -> bool:
        """Whether distances are those at the canonical point of the orbit."""
        declared = {parameter.name for parameter in find_method(self.method).parameters}
        return "distance" in declared and self.distance == "invariant"

    def checked(self) -> Options:
        """Itself, or `InputError` for a choice that does not exist."""
        method = find_method(self.method)
        for name in self.parameters:
            if name not in {parameter.name for parameter in method.parameters}:
                raise InputError(f"{method.name} has no parameter {name!r}", do="`merge --help` lists them")
        for parameter, _ in all_parameters().values():
            parameter.checked(self.get(parameter.name))
        if self.repair not in REPAIRS:
            raise InputError(f"unknown repair {self.repair!r}", do=f"use one of {', '.join(REPAIRS)}")
        if not 0 < self.max_ratio <= 1:
            raise InputError(f"max_ratio is {self.max_ratio}, not a number above 0 and up to 1")
        return self


@checked
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
    parameters: Mapping[str, str] | None = None,
    axes: Sequence[str] | None = None,
    data: Iterable[Any] | None = None,
    check: bool = True,
    inputs: Inputs | None = None,
    progress: Progress | None = None,
) -> MergePlan:
    """What to merge in `model`, on every mergeable axis or on those that match `axes`.

    Give one of beta, target_params and target_flops. method: a name in `intertwine.merging.METHODS`, each
    with its help; parameters: what a method of one's own takes (`merge_method`).

    repair: none, weights (readers refitted to propagated moments) or data (to moments measured on `data`,
    batches of inputs). check: leave alone the axes that the forward cannot narrow, found by running it on
    `inputs`. With method="ifm" and norm="sum", order="layerwise" is Algorithm 1 of the source to the letter
    and order="interleaved" its released code; norm="exact" repairs their batch norms, and compares a merged
    channel by the average of its channels, so that any number of equal ones is merged.

    >>> import torch
    >>> from intertwine import trace
    >>> mlp = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    >>> plan = plan_merge(mlp, trace(mlp, torch.zeros(1, 4)), target_params=0.5)
    >>> plan.complexity["0"] <= 8
    True
    """
    check_values(model)
    if inputs is not None and not (isinstance(inputs, tuple) and list(map(type, inputs)) == [tuple, dict]):
        raise WrongKind("the argument inputs of plan_merge is no pair of arguments and named arguments")
    chosen = find_method(method)
    repair = repair or chosen.repair
    options = Options(chosen.name, order, distance, norm, repair, max_ratio, parameters or {}).checked()
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
        symmetry = symmetry.alike
        self.model, self.symmetry, self.options = model, symmetry, options
        symmetry.weights(model)  # refuses a symmetry of another model
        everything = find_axes(symmetry, axes)
        chosen = options.limits.kept(everything)
        self.data = list(data) if isinstance(data, Iterator) else data
        self.inputs, self.patterns = inputs, [axes] if isinstance(axes, str) else axes
        self.method = find_method(options.method)
        bare = [a for a in chosen if a.group.linear and options.invariant]
        self.rigid = {a.name: "any basis of it does as well, so its channels have no distance" for a in bare}
        self.rigid |= {a.name: "left alone, as asked" for a in everything if a not in chosen}
        chosen = [a for a in chosen if a not in bare]
        self.rigid |= find_rigid(model, symmetry, chosen, inputs) if check else {}
        self.axes = [a for a in chosen if a.name not in self.rigid]
        self.weights = float64_weights(symmetry, model)
        self.readings: dict[str, list[Reading]] = {}
        if self.method.repair != "none" or options.repair != "none":
            self._read()
        self._whole: MergePlan | None = None

    def _read(self) -> None:
        sequential = self.options.method == "sequential"  # measures all that is multiplied by a weight
        moments = {} if sequential else propagate_moments(self.symmetry, self.weights)
        measured: Mapping[str, Seen] = self.measured if sequential else {}
        if not sequential and self.options.repair == "data" and self.data is not None:
            measured = measure(self.model, self.data)
        for axis in self.axes:
            places = find_places(self.symmetry, axis)
            self.readings[axis.name] = find_readings(self.symmetry, places, self.weights, moments, measured)

    @cached_property
    def calibration(self) -> Call:
        """All inputs to measure and fit on: the data, or inputs that need none."""
        on = self.options.get("calibrate") if self.options.method == "sequential" else DATA
        if on != DATA or self.data is None:
            writes = None if on == DATA else on == WRITTEN
            made = random_inputs(self.model, self.symmetry, writes=writes)
        else:
            given = calls(self.data, like_inputs(self.model))
            if not given:
                raise InputError("there are no inputs to measure on", do="give some batches, or none at all")
            made = joined(given)
        return trimmed(held_rows(eval_copy(self.model, share=True), made))

    @cached_property
    def measured(self) -> dict[str, Seen]:
        """What every weight reads on them."""
        return self.observed.seen

    @cached_property
    def observed(self) -> Observed:
        """What every weight reads and gives on them, from one run."""
        return observe(self.model, self.calibration)

    @cached_property
    def weighed(self) -> MergePlan:
        """Every kind of axis with comparable costs, for `sequential`; computed once."""
        from intertwine.merging.sequential import weigh

        return weigh(self)

    @cached_property
    def outputs(self) -> KnownOutputs:
        """What the model gives on a few of the inputs that are measured on, for `sequential`."""
        from intertwine.merging.sequential import KnownOutputs

        return KnownOutputs.of(self)

    def example(self) -> Inputs:
        """(args, kwargs) of one call."""
        return self.inputs if self.inputs is not None else example_inputs(self.symmetry)

    def at_beta(self, beta: float, progress: Progress | None = None) -> MergePlan:
        """Every axis merged up to beta."""
        at_beta = self.method.at_beta
        if at_beta:
            self._check_limits()
            return self.finish(at_beta(self, beta, progress))
        whole = self.whole(progress)
        return self.finish(hold(whole.cut(beta), self.options.limits, whole))

    def at_share(self, share: float, what: str, progress: Progress | None = None) -> MergePlan:
        """At most `share` of the parameters or FLOPs left."""
        if self.method.at_share:
            if not self.method.holds_limits:
                self._check_limits()
            plan = self.method.at_share(self, share, what)
            return plan if plan.weights else self.finish(plan)
        plan = self.whole(progress)
        units = find_units(plan, self.options.limits)
        sizes = Sizes(self.model, self.symmetry, plan, what)
        return self.finish(fit_budget(plan, sizes, share, what, units))

    def _check_limits(self) -> None:
        """A method that merges all axes in turn has no widths to choose from."""
        if self.options.limits.bind:
            raise InputError(
                f"the method {self.options.method} merges all axes in turn and cannot hold widths together",
                do="use --method moments for --uniform, --multiple and --ratio",
            )

    def sizes(self, what: str) -> Sizes:
        """The size of the model by widths."""
        return Sizes(self.model, self.symmetry, self.blank(), what)

    def finish(self, plan: MergePlan) -> MergePlan:
        """The plan with its readers refitted, if so asked."""
        if self.options.repair == "none":
            return plan
        return replace(plan, axes=tuple(make_up(a, self.readings.get(a.name, [])) for a in plan.axes))

    def whole(self, progress: Progress | None = None) -> MergePlan:
        """Every axis merged as far as it goes; computed once, and cut at any threshold or budget."""
        if self._whole is None:
            axes = tuple(self.method.on_axis(self, axis, progress) for axis in self.axes)
            self._whole = replace(self.blank(), axes=axes, order="independent")
        return self._whole

    def most(self, axis: Axis) -> int:
        """How many merges an axis may have."""
        return int(np.ceil(self.options.max_ratio * axis.size))

    def blank(self) -> MergePlan:
        """The plan that merges nothing."""
        o = self.options
        axes = tuple(self.blank_axis(a) for a in self.axes)
        return MergePlan(axes, o.method, o.order, o.distance, o.norm, o.repair, None, self.rigid)

    def blank_axis(self, axis: Axis, scales: Sequence[np.ndarray] | None = None) -> AxisPlan:
        """The plan of one axis that merges nothing; scales: what its places are multiplied by before."""
        places = find_places(self.symmetry, axis)
        factors: Sequence[np.ndarray | None] = scales if scales is not None else [None] * len(places)
        parts = tuple(PlacePlan.of(p, s) for p, s in zip(places, factors, strict=True))
        form = self.options.method == "ifm" and sums_first(
            self.symmetry, places, norms=self.options.norm == "exact"
        )
        return AxisPlan(axis.name, axis.size, (), form, parts)

    @cached_property
    def _gauge(self) -> State:
        """The model at its canonical point, where distances are invariant."""
        params = {name for name, _ in self.model.named_parameters()} & set(self.weights)
        return find_gauge(GroupAction(find_subgroup(self.symmetry), params), double(self.weights))

    @cached_property
    def canonical(self) -> Mapping[str, Tensor]:
        """The weights that distances are measured on."""
        return {**self.weights, **self._gauge.weights} if self.options.invariant else self.weights

    def canonical_axis(self, axis: Axis) -> AxisPlan:
        """The blank plan of an axis that brings its channels to where distances are measured."""
        return self.blank_axis(axis, self._factors[axis.name] if self.options.invariant else None)

    @cached_property
    def _factors(self) -> dict[str, list[np.ndarray]]:
        """Axis -> what brings each of its places there; where axes cross, the first of them does it."""
        gauge, span = self._gauge.element, self.symmetry.structure.span
        left = np.exp(gauge.log_scale) * gauge.sign
        found = {}
        for axis in self.axes:
            at = [span[p.param, p.dim][0] + p.where for p in find_places(self.symmetry, axis)]
            found[axis.name] = [left[where] for where in at]
            for where in at:
                left[where] = 1.0
        return found
