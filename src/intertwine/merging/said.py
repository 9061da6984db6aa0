"""Which widths the config of a model has words for, and the model that it then says.

merge(uniform=True) of a model of Hugging Face cuts what its config.json can say: the stream, heads, ranks,
experts and channels of all layers alike. Nothing is known about a family: a width can be said if there are
numbers under which the model, built on the device meta, has the shapes that the cut leaves, and if the class
of the config takes these numbers together when it reads them.

A stream is cut in the folded model (plain norms, no tied tables). Its norms come back with gain one, in the
width that is left; an embedding that multiplies its rows, or a head that is scaled where it is tied, is told
by what it computes. The model that is given back is built from the config, and must be the one that was cut.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from intertwine.errors import Unsupported
from intertwine.graph.example import Example
from intertwine.graph.export import named_tensors
from intertwine.merging.config_fields import ConfigNumbers, Shapes, parameters_of
from intertwine.merging.folding import Folding, assert_same, outputs_of_both
from intertwine.merging.limits import Together
from intertwine.merging.lists import entries
from intertwine.merging.plan import STREAM, AxisPlan, Merge, MergePlan, PlacePlan
from intertwine.merging.shrink import find_dropped
from intertwine.merging.torch_modules import as_rms_norm, row_factor
from intertwine.symmetry import Symmetry
from intertwine.vision_shim import offline

UNSAID = "config.json cannot say its width"
TRIED = 4  # widths of a unit, spread over all


class Said:
    """What the config of `given` can say of `base`: the same model, or what `folding` made of it."""

    def __init__(self, given: Any, base: nn.Module, folding: Folding | None, symmetry: Symmetry) -> None:
        self.given, self.base, self.folding = given, base, folding or Folding()
        self.symmetry = symmetry
        self.numbers = ConfigNumbers(given, symmetry.axes)
        self._follow = [f"{path}.{name}" for path in self.folding.norms for name in ("weight", "bias")]
        self._shapes = _shapes_of(base)
        self._aliases = _aliases(base)
        self._steps: dict[tuple[str, ...], int] = {}

    def key(self, axis: AxisPlan) -> str:
        """For `Limits.uniform`: axes that the same numbers set have the same key."""
        return self.numbers.key(axis, {f"{path}.table": f"{path}.weight" for path in self.folding.untied})

    def step(self, unit: Together) -> int:
        """The least number of whose multiples every width of a unit can be said; 0 if there is none."""
        names = tuple(axis.name for axis in unit.axes)
        if names not in self._steps:
            self._steps[names] = next((s for s in self._candidates(unit) if self._says(unit, s)), 0)
        return self._steps[names]

    def says_stream(self) -> bool:
        """Whether the config says a narrower stream of the folded model, with the norms of the given one.

        A layer norm subtracts the mean, which a stream in another basis has. Where an untied head makes a
        table of every embedding that shared one (T5), the config's model is larger than the folded one.
        """
        norms = [self.given.get_submodule(path) for path in self.folding.norms]
        config = next(self._configs(self._shapes, self._follow), None)
        if config is None or not all(isinstance(n, nn.RMSNorm) or as_rms_norm(n) is not None for n in norms):
            return False
        sizes = [sum(p.numel() for p in m.parameters()) for m in (self.base, *norms)]
        if parameters_of(type(self.given), config) > sum(sizes):
            return False
        streams: dict[int, list[AxisPlan]] = {}
        for linear in self.symmetry.structure.linear.values():
            blocks, size = linear.fibres.shape
            if linear.orthogonal and blocks == 1:
                places = tuple(PlacePlan(param, dim, "other") for param, dim in linear.places)
                merges = tuple(Merge(0, size - 1 - k, 0.0, 1.0) for k in range(size - 1))
                streams.setdefault(size, []).append(
                    AxisPlan(f"stream {linear.orbit}", size, merges, False, places, kind=STREAM)
                )
        return any(self.step(Together(tuple(axes))) for axes in streams.values())

    def said(self, small: nn.Module, example: Example) -> nn.Module | None:
        """The model that the config says, if it is `small`: with the norms that the given model has."""
        for config in self._configs(_shapes_of(small), self._follow):
            with suppress(Unsupported):
                return self._built(config, small, example)
        return None

    def _built(self, config: Any, small: nn.Module, example: Example) -> nn.Module:
        """Weights that are rounded on their way are compared as they were before."""
        state, given = named_tensors(small), named_tensors(self.given)
        with offline(), torch.random.fork_rng(devices=[]):
            out: nn.Module = type(self.given)._from_config(config)
        out.train(small.training)
        for name, tensor in named_tensors(out).items():
            # what folding left out (a gain of one) is in the precision that it was in
            tensor.data = state[name].detach().clone() if name in state else tensor.to(given[name].dtype)
        for path in self.folding.norms:
            _bring_back(out.get_submodule(path), state.get(f"{path}.shift"))
        exact: dict[str, Tensor] = {}
        for path in self.folding.untied:
            factor = row_factor(out.get_submodule(path)) or 1.0
            exact[f"{path}.weight"] = state[f"{path}.table"].detach().double() / factor
        _take(out, exact)
        if self.folding.untied:
            head = _head_of(out)
            if head:
                a, b = (found[0] for found in outputs_of_both(small, out, example, exact))
                # T5 scales what a tied head reads: an untied one has to do that itself.
                factor = float((a * b).sum() / b.square().sum())
                exact[head] = named_tensors(out)[head].detach().double() * factor
                _take(out, exact)
        out.to(next(small.parameters()).device)
        if hasattr(self.given, "generation_config"):
            out.generation_config = copy.deepcopy(self.given.generation_config)
        assert_same(small, out, example, exact)
        return out

    def _candidates(self, unit: Together) -> Iterator[int]:
        """Steps to try: those of the unit, times the whole numbers that the config holds."""
        factors = {1, *(n for n in self.numbers.whole if 1 < n < unit.size)}
        return (unit.multiple * factor for factor in sorted(factors))

    def _says(self, unit: Together, step: int) -> bool:
        widths = [w for w in range(step, unit.size, step) if w >= unit.least]
        tried = widths[:: max(1, len(widths) // TRIED)]
        return bool(tried) and all(self._says_width(unit, width) for width in {*tried, widths[-1]})

    def _says_width(self, unit: Together, width: int) -> bool:
        plan = MergePlan(tuple(axis.first(axis.size - width) for axis in unit.axes))
        return next(self._configs(self._cut(plan), self._follow), None) is not None

    def _cut(self, plan: MergePlan) -> Shapes:
        """The shapes of the base model that a plan leaves."""
        gone = {
            (alias, dim): len(places)
            for (param, dim), places in find_dropped(plan).items()
            for alias in self._aliases[param]
        }
        left = tuple(
            f"{path}.{name}."
            for axis in plan.axes
            for path in axis.containers
            for name in entries(self.base.get_submodule(path))[axis.width :]
        )
        return {
            name: tuple(size - gone.get((name, dim), 0) for dim, size in enumerate(shape))
            for name, shape in self._shapes.items()
            if not name.startswith(left)
        }

    def _configs(self, shapes: Shapes, follow: Collection[str]) -> Iterator[Any]:
        """The configs that say these shapes of the base model, in the names of the given one."""
        tables = {f"{path}.weight": shapes[f"{path}.table"] for path in self.folding.untied}
        return self.numbers.configs({**shapes, **tables}, follow, bool(self.folding.untied))


@torch.no_grad()
def _bring_back(norm: nn.Module, shift: Tensor | None) -> None:
    known = as_rms_norm(norm)
    norm.get_parameter("weight").fill_(1.0 - (known[1] if known else 0.0))
    if shift is not None:
        norm.get_parameter("bias").copy_(shift)


def _take(model: nn.Module, exact: Mapping[str, Tensor]) -> None:
    named = named_tensors(model)
    for name, value in exact.items():
        named[name].data = value.to(named[name].dtype)


def _head_of(model: nn.Module) -> str:
    """The name of what gives scores of tokens, of models of Hugging Face."""
    head = getattr(model, "get_output_embeddings", lambda: None)()
    weight = getattr(head, "weight", None)
    return next((name for name, tensor in named_tensors(model).items() if tensor is weight), "")


def _shapes_of(model: nn.Module) -> Shapes:
    return {name: tuple(p.shape) for name, p in model.named_parameters(remove_duplicate=False)}


def _aliases(model: nn.Module) -> dict[str, list[str]]:
    """Name of a tensor -> all its names."""
    names: dict[int, list[str]] = {}
    named = named_tensors(model)
    for name, tensor in named.items():
        names.setdefault(id(tensor), []).append(name)
    return {name: names[id(tensor)] for name, tensor in named.items()}


__all__ = ["UNSAID", "Said"]
