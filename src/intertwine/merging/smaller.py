"""merge: plan, shrink, measure; for a threshold, a budget or an accuracy that may be lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from glob import escape
from typing import Any

from torch import nn

from intertwine.checks import checked
from intertwine.data import Evaluation, evaluate
from intertwine.data.batches import Batches, arguments
from intertwine.data.evaluation import Embeddings, like_inputs
from intertwine.errors import InputError
from intertwine.graph.example import Example
from intertwine.graph.export import assert_runs, check_model, export, stored_tensors
from intertwine.merging.budget import Sizes
from intertwine.merging.calibration import DATA
from intertwine.merging.config_fields import ConfigNumbers
from intertwine.merging.contractions import first_rows
from intertwine.merging.decide import PAPER_BETAS, Options, Planner
from intertwine.merging.folding import Folding
from intertwine.merging.limits import Limits, grouped_weights, layer_key, matches
from intertwine.merging.merged import MergeCurve, Merged, accuracy_of
from intertwine.merging.places import check_beta, find_axes, find_places
from intertwine.merging.plan import AxisPlan, MergePlan
from intertwine.merging.registry import all_parameters, find_method
from intertwine.merging.repair import norms_of, reestimate_norms
from intertwine.merging.rewriting import has_attention, rewrite, wanted_rewritings, why_it_stays
from intertwine.merging.said import UNSAID, Said
from intertwine.merging.shrink import apply_merge
from intertwine.merging.storage import flops_of
from intertwine.orbit import is_large
from intertwine.progress import Progress, counted
from intertwine.symmetry import Symmetry, trace
from intertwine.symmetry.tracing import proved

_MAX_DROP_STEPS = 7
_AS_RELEASED = {"order": "interleaved", "norm": "sum"}
STREAM_OF, UNSAID_STREAM = "the residual stream", "config.json cannot say a narrower one"
_MEASURED = 2000  # inputs that statistics are measured on


@checked
def merge(
    model: nn.Module,
    inputs: Any,
    *,
    kwargs: Mapping[str, Any] | None = None,
    data: Any = None,
    train_data: Any = None,
    symmetry: Symmetry | None = None,
    beta: float | None = None,
    target_params: float | None = None,
    target_flops: float | None = None,
    max_drop: float | None = None,
    method: str | None = None,
    paper: bool = False,
    repair: str | None = None,
    max_ratio: float = 1.0,
    axes: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
    ratio: Mapping[str, float] | None = None,
    uniform: bool = False,
    multiple: int = 1,
    fold: bool | None = None,
    factor: bool | None = None,
    finetune: Callable[[nn.Module], nn.Module] | None = None,
    progress: Progress | None = None,
    **parameters: str | None,
) -> Merged:
    """A smaller model: channels merged on every axis that the symmetry allows.

    Give one of beta (default: 0.1), target_params, target_flops, and max_drop: the fewest parameters whose
    accuracy on `data` is within max_drop of the model's, by bisection. inputs: an example for one call.
    method: without one, "sequential" where there is attention (and no beta), else "moments".
    repair="data" measures on `train_data` (or on `data`; labels are not used), and so does "sequential"
    where they are given (calibrate="random": on inputs that need no data all the same). fold: fold the norms
    of a pre-norm network first, so that its stream can be cut too; factor: make products of its tables of
    tokens, so that their rank can be cut; by default "sequential" does both where they add few parameters
    (and a config can say what comes of it, where uniform is asked for). Shares are still those of the model
    given. parameters: those of the method, such as order, kinds and norm. paper: the source's method as
    released. The caller's model is not touched.

    ignore: patterns of axes to leave alone. ratio: pattern -> the share of an axis to merge away, whatever
    the goal. multiple: widths are multiples of it. uniform: one width for all layers that share a number of
    the model's config (of layers of one kind, where there is no config), chosen by what all of them cost.
    What the config has no words for stays.

    Of a model whose weights take more than 2 GB in float64 (250 million) magnitude is the default: nothing
    but the weights of one layer is held in float64.

    finetune: what makes the smaller model better, `training.Finetune("digits", epochs=5, out="run")`: any
    function from a model to the model of the same shapes. It is measured before and after.

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> mlp = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    >>> small = merge(mlp, torch.zeros(1, 4), target_params=0.5)
    >>> small.model[0].out_features <= 8 and small.parameters_after <= 0.5 * small.parameters_before
    True
    """
    goals = {"beta": beta, "target_params": target_params, "target_flops": target_flops, "max_drop": max_drop}
    given = {name: value for name, value in goals.items() if value is not None}
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} are several goals", do="give one of them")
    if max_drop is not None and data is None:
        raise InputError("max_drop needs data to measure accuracy on", do="give data")
    if beta is not None:
        check_beta(beta)
    if ratio and not given:
        given = {"target_params": 1.0}  # the ratios are the goal
    check_model(model)  # before its weights are counted: those of a lazy one have no size
    example, claimed = Example.of(inputs, kwargs), symmetry
    if method is None and not paper:
        method = _named_by(parameters) or ("magnitude" if is_large(model.parameters()) else None)
        if method is None and given and beta is None:
            claimed = symmetry or Symmetry(export(model, example.args, example.kwargs))
            method = "sequential" if has_attention(claimed) else None
    options = _options(method, paper, repair, max_ratio, parameters)
    limits = Limits(None, multiple, tuple(ignore), dict(ratio or {}))
    held = limits, uniform, fold, factor
    job = _Job(model, example, data, train_data, symmetry, options, axes, progress, *held, claimed)
    job.finetune = finetune
    return job.measured(job.plan(**given))


@checked
def merge_betas(
    model: nn.Module, inputs: Any, betas: Sequence[float] = PAPER_BETAS, *, data: Any = None,
    train_data: Any = None, kwargs: Mapping[str, Any] | None = None, symmetry: Symmetry | None = None,
    method: str | None = None, paper: bool = False, repair: str | None = None, max_ratio: float = 1.0,
    axes: Sequence[str] | None = None, ignore: Sequence[str] = (), ratio: Mapping[str, float] | None = None,
    uniform: bool = False, multiple: int = 1, progress: Progress | None = None, **parameters: str | None,
) -> MergeCurve:  # fmt: skip
    """`merge` at every threshold; what does not depend on it is computed once."""
    for beta in betas:
        check_beta(beta)
    options = _options(method, paper, repair, max_ratio, parameters)
    limits = Limits(None, multiple, tuple(ignore), dict(ratio or {}))
    example = Example.of(inputs, kwargs)
    job = _Job(model, example, data, train_data, symmetry, options, axes, progress, limits, uniform)
    return MergeCurve(tuple(betas), tuple(job.measured(job.plan(beta=beta)) for beta in betas))


def _named_by(parameters: Mapping[str, str | None]) -> str | None:
    """The one method that has the parameters that were given; None where that says nothing."""
    known = all_parameters()
    own = [n for n, v in parameters.items() if v is not None and n not in Options.__dataclass_fields__]
    found = {known[name][1] for name in own if name in known}
    return found.pop() if len(found) == 1 else None


def _options(
    method: str | None,
    paper: bool,
    repair: str | None,
    max_ratio: float,
    parameters: Mapping[str, str | None],
) -> Options:
    chosen = find_method("ifm" if paper and not method else method)
    given = {**(_AS_RELEASED if paper else {}), **{k: v for k, v in parameters.items() if v is not None}}
    for name in given:
        if name not in all_parameters():
            raise InputError(f"no parameter {name!r}", do=f"there are {', '.join(all_parameters())}")
    fields = {name: given.pop(name) for name in list(given) if name in Options.__dataclass_fields__}
    known: dict[str, Any] = {**fields, "parameters": given, "max_ratio": max_ratio}
    return Options(chosen.name, repair=repair or chosen.repair, **known).checked()


class _Job:
    """One model with its planner and its data."""

    def __init__(
        self, model: nn.Module, example: Example, data: Any, train_data: Any,
        symmetry: Symmetry | None, options: Options, axes: Sequence[str] | None, progress: Progress | None,
        limits: Limits, uniform: bool, fold: bool | None = None, factor: bool | None = None,
        claimed: Symmetry | None = None,
    ) -> None:  # fmt: skip
        self.start = time.perf_counter()
        self.finetune: Callable[[nn.Module], nn.Module] | None = None
        self.model, self.data, self.progress = model, data, progress
        self._embeddings = Embeddings(model)
        self.call = (tuple(example.args), dict(example.kwargs))
        self.batches: list[Any] | None = None
        calibration = data if train_data is None else train_data
        sequential = options.method == "sequential"
        by_config = uniform and hasattr(model, "config") and hasattr(type(model), "_from_config")
        measures = sequential and calibration is not None and options.get("calibrate") == DATA
        if options.repair == "data" or measures:
            if calibration is None:
                raise InputError("repair by data needs data", do="give data or train_data")
            place = like_inputs(model).device
            self.batches = [x for x, _ in Batches(calibration, batch=100, limit=_MEASURED, device=place)]
            for batch in self.batches[:1]:
                assert_runs(model, *first_rows(arguments(batch), 2, 1), what="the data")
        wanted: Sequence[bool | None] = (bool(fold), bool(factor))
        if sequential:
            could = wanted_rewritings(options.get("kinds"), by_config)
            wanted = [a if a or can else False for a, can in zip((fold, factor), could, strict=True)]
        self.folding, self.base, why = rewrite(model, self.call, wanted[0], wanted[1], claimed)
        if self.base is not model:
            symmetry, claimed = None, Symmetry(export(self.base, *self.call))
            if (
                by_config
                and sequential
                and not fold
                and not Said(model, self.base, self.folding, claimed).says_stream()
            ):
                self.folding, self.base, claimed, why = None, model, None, UNSAID_STREAM
        if symmetry is None:
            symmetry = (
                trace(self.base, *self.call) if claimed is None else proved(self.base, claimed, example)
            )
        if self.folding is not None and self.folding.norms:
            why = why_it_stays(symmetry.alike)
        self.kept = {STREAM_OF: why} if why and wanted[0] is not False else {}
        self.unsaid: set[str] = set()
        self.uniform = uniform
        self.said: Said | None = None
        if by_config and sequential:
            self.said = Said(model, self.base, self.folding, symmetry.alike)
            limits = replace(limits, uniform=self.said.key, said=self.said)
        elif uniform:
            key = self._by_config(symmetry.alike, axes) if by_config else layer_key
            limits = replace(limits, uniform=key)
            asked = (*limits.ignore, *limits.ratios)
            self.unsaid = {n for n in self.unsaid if not any(matches(pattern, n) for pattern in asked)}
        self.options = replace(options, limits=replace(limits, grouped=grouped_weights(self.base)))
        self.axes = axes
        self.planner = self._planner(symmetry.alike)

    def _by_config(self, symmetry: Symmetry, axes: Sequence[str] | None) -> Callable[[AxisPlan], str]:
        """Axes of one number of the config are one; those that it cannot narrow alone go last (`unsaid`)."""
        mergeable = find_axes(symmetry, axes)
        numbers = ConfigNumbers(self.model, mergeable)
        said = numbers.say({a.name: [(p.param, p.dim) for p in find_places(symmetry, a)] for a in mergeable})
        self.unsaid = {a.name for a in mergeable if a.name not in said} if said else set()
        return numbers.key

    def _planner(self, symmetry: Symmetry) -> Planner:
        axes = self.axes
        if self.unsaid:
            axes = [escape(a.name) for a in find_axes(symmetry, axes) if a.name not in self.unsaid]
        planner = Planner(self.base, symmetry, self.options, axes, self.batches, True, self.call)
        planner.rigid |= self.kept | dict.fromkeys(sorted(self.unsaid), UNSAID)
        return planner

    def plan(
        self, beta: float = 0.1, target_params: float | None = None, target_flops: float | None = None,
        max_drop: float | None = None,
    ) -> MergePlan:  # fmt: skip
        """The plan for the goal."""
        advance = self._advance(sum(a.size for a in self.planner.axes), "merging")
        if target_params is not None:
            return self._at_share(target_params, advance)
        if target_flops is not None:
            return self._reach(target_flops, "flops", advance)
        if max_drop is not None:
            return self._within_drop(max_drop)
        return self.planner.at_beta(beta, advance)

    def _within_drop(self, drop: float) -> MergePlan:
        """The fewest parameters, by bisection, whose accuracy is within `drop` of the original's."""
        low, high, best = 0.0, 1.0, self._at_share(1.0)
        whole = accuracy_of(self.evaluation)
        if whole is None:
            raise InputError("max_drop is about accuracy, and this model predicts nothing of these data")
        for _ in range(_MAX_DROP_STEPS):
            middle = (low + high) / 2
            try:
                plan = self._at_share(middle)
            except InputError:  # cannot be reached
                low = middle
                continue
            found = self._evaluate(self._build(plan), f"{middle:.1%} of the parameters")
            if (accuracy_of(found) or 0.0) >= whole - drop:
                high, best = middle, plan
            else:
                low = middle
        return best

    def _at_share(self, share: float, advance: Callable[[int], None] | None = None) -> MergePlan:
        """A share of the parameters of the model that was given; folding may have added some."""
        if not _size(self.base):
            raise InputError("the model has no parameters", so="there is nothing to make smaller")
        goal = share * _size(self.model) - self._coming_back()
        of_base = min(1.0, max(goal, 1.0) / _size(self.base))
        return self._reach(of_base, "parameters", advance)

    def _coming_back(self) -> int:
        """At most how many parameters the norms have that a config says and the folded model has not."""
        if self.said is None or self.folding is None:
            return 0
        return sum(_size(self.model.get_submodule(path)) for path in self.folding.norms)

    def _reach(self, share: float, what: str, advance: Callable[[int], None] | None) -> MergePlan:
        """With the widths that the config says, if they are enough."""
        try:
            return self.planner.at_share(share, what, advance)
        except InputError as error:
            if not self._free():
                raise self._with_hint(error) from None
        try:
            return self.planner.at_share(share, what, advance)
        except InputError as error:
            raise self._with_hint(error) from None

    def _free(self) -> bool:
        """What the config cannot say is cut too, if there is any."""
        planner = self.planner
        if self.unsaid:
            self.unsaid = set()
            self.planner = self._planner(planner.symmetry)
        elif planner.options.limits.said is not None and UNSAID in planner.rigid.values():
            planner.options = replace(planner.options, limits=replace(planner.options.limits, said=None))
            planner.rigid = {name: why for name, why in planner.rigid.items() if why != UNSAID}
        else:
            return False
        return True

    def _with_hint(self, error: InputError) -> InputError:
        """Where one width for all layers is asked for, much is left as it is."""
        if self.uniform and self.options.method == "sequential":
            error.do += ", or leave out --uniform: every layer has widths of its own then"
        return error

    def measured(self, plan: MergePlan) -> Merged:
        """The smaller model, and its numbers from running it."""
        small, cut = self._build(plan), None
        if self.finetune is not None:
            cut, small = self._evaluate(small, "the smaller model"), self._finetuned(small)
        return Merged(
            small, plan, _size(self.model), _size(small), flops_of(self.model, *self.call),
            flops_of(small, *self.call), self.evaluation, self._evaluate(small, "the smaller model"),
            time.perf_counter() - self.start, self._folding_of(small), self._taken(plan), cut,
        )  # fmt: skip

    def _taken(self, plan: MergePlan) -> dict[str, int]:
        """Axis -> the parameters that go with it once those before it are gone."""
        sizes = Sizes(self.base, self.planner.symmetry, plan)
        removed: dict[str, int] = {}
        found: dict[str, int] = {}
        for axis in plan.axes:
            found[axis.name] = round(sizes.saved([axis.name], axis.size - axis.width, removed))
            removed[axis.name] = axis.size - axis.width
        return found

    def _finetuned(self, small: nn.Module) -> nn.Module:
        assert self.finetune is not None
        better = self.finetune(small)
        if not isinstance(better, nn.Module):
            raise InputError(
                f"finetune returned a {type(better).__name__}", do="return the model it was given"
            )
        shapes = [{n: t.shape for n, t in stored_tensors(m).items()} for m in (small, better)]
        if shapes[0] != shapes[1]:
            raise InputError("finetune returned a model of other shapes", do="return the model it was given")
        return better

    def _build(self, plan: MergePlan) -> nn.Module:
        """The smaller model, with statistics measured again if repair is data."""
        small = apply_merge(self.base, plan)
        if self.said is not None and self.folding is not None:
            said = self.said.said(small, Example.of(*self.call))
            if said is not None:
                return said
        if self.batches is None or not norms_of(small):
            return small
        return reestimate_norms(small, self.batches, self.base, plan)

    def _folding_of(self, small: nn.Module) -> Folding | None:
        """How the smaller model is folded: not at all where the config says it with the norms it had."""
        norms = self.folding.norms if self.said is not None and self.folding is not None else ()
        own = [type(small.get_submodule(p)) is type(self.model.get_submodule(p)) for p in norms]
        return None if own and all(own) else self.folding

    @cached_property
    def evaluation(self) -> Evaluation | None:
        """Of the model itself."""
        return self._evaluate(self.model, "the model")

    def _evaluate(self, model: nn.Module, what: str) -> Evaluation | None:
        if self.data is None:
            return None
        try:
            total = len(self.data)
        except TypeError:  # an iterable without a length; a number, which `evaluate` refuses in words
            total = 0
        advance = self._advance(total, f"evaluating {what}")
        return evaluate(model, self.data, progress=advance, reference=self._embeddings)

    def _advance(self, total: int, what: str) -> Callable[[int], None] | None:
        return counted(self.progress, total, what)


def _size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())
