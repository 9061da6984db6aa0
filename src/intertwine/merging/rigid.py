"""Which axes can a model's forward really shrink? Found out by running it, never assumed.

A forward may have a size written into it (`view(-1, 64, 7, 7)`, padding by a fixed number of channels). Each
axis is narrowed by one channel; the smaller model must run and compute what the original graph computes on
weights in which the merged channels are equal. Where it does not, the axes at fault are found by bisection.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

from intertwine.graph.eager import run_module
from intertwine.graph.example import Example
from intertwine.graph.export import eval_copy, named_tensors
from intertwine.graph.run import raised, run
from intertwine.merging.combine import fold_parts
from intertwine.merging.places import find_places
from intertwine.merging.plan import AxisPlan, Merge, MergePlan, PlacePlan
from intertwine.merging.shrink import find_dropped, shrink
from intertwine.orbit import is_large
from intertwine.symmetry import Axis, Symmetry

TOLERANCE = 1e-4  # float64; loose because some forwards cast to float32 inside


Inputs = tuple[tuple[Any, ...], dict[str, Any]]


def find_rigid(
    model: nn.Module, symmetry: Symmetry, axes: Sequence[Axis], inputs: Inputs | None = None
) -> dict[str, str]:
    """Axis -> why the model cannot be narrowed along it; empty where all of them can be.

    inputs: (args, kwargs) of one call; without them, random ones of the shapes that were traced.
    """
    plans = {a.name: _narrowed(symmetry, a) for a in axes if a.size > 1}
    prober = _Prober(model, symmetry, inputs)
    reasons: dict[str, str] = {}

    def good(names: Sequence[str]) -> list[str]:
        reason = prober.failure([plans[n] for n in names]) if names else ""
        if not reason:
            return list(names)
        if len(names) == 1:
            reasons[names[0]] = reason
            return []
        half = len(names) // 2
        left, right = good(names[:half]), good(names[half:])
        if not prober.failure([plans[n] for n in left + right]):
            return left + right
        # Each half works, not both: keep what can be added one by one.
        kept = left
        for name in right:
            reason = prober.failure([plans[n] for n in [*kept, name]])
            if reason:
                reasons[name] = reason
            else:
                kept = [*kept, name]
        return kept

    good(list(plans))
    return reasons


def _narrowed(symmetry: Symmetry, axis: Axis) -> AxisPlan:
    places = tuple(PlacePlan.of(p) for p in find_places(symmetry, axis))
    return AxisPlan(axis.name, axis.size, (Merge(0, 1, 0.0, 1.0),), False, places)


def finest(model: nn.Module, inputs: Inputs) -> tuple[nn.Module, Inputs]:
    """A copy of the model in float64 with inputs for it; as it is where its kernels refuse float64.

    Of a large model there is no copy: `outputs_of` raises what an op reads.
    """
    raised_inputs: Inputs = tree_map(lambda x: raised(x, torch.float64), inputs)
    if is_large(model.parameters()):
        return eval_copy(model, share=True), raised_inputs
    copied = eval_copy(model).double()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            copied(*raised_inputs[0], **raised_inputs[1])
    except Exception:  # kernels complain in their own ways
        dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float64)
        return eval_copy(model), tree_map(lambda x: raised(x, dtype), inputs)
    return copied, raised_inputs


def outputs_of(model: nn.Module, inputs: Inputs) -> list[Tensor]:
    """The real outputs of a model that `finest` made, or of one that was cut from it."""
    args, kwargs = inputs
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the model's own, about sizes that it guesses
        if is_large(model.parameters()):
            return run_module(model, Example(args, kwargs)).outputs
        return floating(model(*args, **kwargs))


class _Prober:
    """Runs narrowed models on an example made from the shapes in the graph."""

    def __init__(self, model: nn.Module, symmetry: Symmetry, inputs: Inputs | None) -> None:
        self.symmetry = symmetry
        self.model, self.inputs = finest(model, inputs if inputs is not None else example_inputs(symmetry))
        state = named_tensors(self.model)
        self.weights = {n: state[n].detach() for n in symmetry.traced.weights.values()}
        # `generate` keeps states from token to token, in sizes of their own; `eval_copy` switches that off
        keeps = getattr(getattr(model, "config", None), "use_cache", None) is True
        takes = "use_cache" in inspect.signature(model.forward).parameters
        self.kept = {"use_cache": True} if keeps and takes else {}

    def failure(self, axes: Sequence[AxisPlan]) -> str:
        """ "" if the narrowed model runs and is right, otherwise the reason."""
        plan = MergePlan(tuple(axes))
        parts = self._parts(plan)
        try:
            got = self._narrow_outputs(plan, parts)
        except Exception as error:  # whatever a forward raises on a size that it does not expect
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            return f"its size is written into the forward: {first[:120]}"
        again = parts if isinstance(parts, list) else self._parts(plan)
        folded = {name: tensor for part in again for name, tensor in part.items()}
        expand(plan, folded)
        expected = run(self.symmetry.traced, {**self.weights, **folded}, *self.inputs)
        if not alike(got, expected):
            return "the narrower model runs but computes something else"
        return ""

    def _parts(self, plan: MergePlan) -> Iterable[dict[str, Tensor]]:
        """The narrowed weights, in the precision that the model keeps them in: both sides are rounded alike.

        Of a large model they are made anew each time they are asked for, so that one copy is held at a time.
        """
        parts = (
            {n: t.to(self.weights[n].dtype) for n, t in part.items()}
            for part in fold_parts(plan, self.weights)
        )
        return parts if is_large(self.weights.values()) else list(parts)

    def _narrow_outputs(self, plan: MergePlan, parts: Iterable[dict[str, Tensor]]) -> list[Tensor]:
        narrow = shrink(self.model, parts, find_dropped(plan))
        got = outputs_of(narrow, self.inputs)
        if self.kept:
            outputs_of(narrow, (self.inputs[0], {**self.inputs[1], **self.kept}))
        return got


def floating(output: Any) -> list[Tensor]:
    """The real tensors of a model's output; Hugging Face outputs are mappings that pytree may not know."""
    leaves = tree_flatten(dict(output) if isinstance(output, Mapping) else output)[0]
    return [x for x in leaves if isinstance(x, Tensor) and x.is_floating_point()]


def alike(left: Sequence[Tensor], right: Sequence[Tensor]) -> bool:
    """Whether two lists of outputs agree up to `TOLERANCE` of their largest entry."""
    if [t.shape for t in left] != [t.shape for t in right]:
        return False
    for a, b in zip(left, right, strict=True):
        scale = b.abs().max().clamp_min(1e-30)
        if not bool(((a.to(b.dtype) - b).abs().max() <= TOLERANCE * scale).item()):
            return False
    return True


def expand(plan: MergePlan, weights: dict[str, Tensor]) -> None:
    """Merged weights back at the old widths: every channel of a class is the merged one, readers 1/N."""
    for axis in plan.axes:
        classes = axis.classes()
        for part in axis.places:
            place, tensor = part.place(axis.size), weights.pop(part.param).clone()
            for members in classes:
                if len(members) == 1:
                    continue
                first = torch.from_numpy(place.where[members[0]]).to(tensor.device)
                value = tensor.index_select(place.dim, first)
                if place.consumes:
                    value = value / len(members)
                for c in members:
                    index = torch.from_numpy(place.where[c]).to(tensor.device)
                    tensor.index_copy_(place.dim, index, value)
            weights[part.param] = tensor


def example_inputs(symmetry: Symmetry) -> Inputs:
    """Random arguments of the shapes and dtypes that the graph was traced with, by position and by name.

    Whole numbers stay where they say something: places for images among tokens must be as many as before.
    """
    generator = torch.Generator().manual_seed(0)
    made = symmetry.traced.example.map(lambda x: _random(x, generator))
    return made.args, dict(made.kwargs)


def _random(value: Tensor, generator: torch.Generator) -> Tensor:
    if value.dtype.is_floating_point:
        return torch.randn(value.shape, generator=generator, dtype=torch.float64)
    if value.numel() and bool((value != value.reshape(-1)[0]).any()):
        return value
    return torch.randint(0, 2, value.shape, generator=generator).to(value.dtype)
