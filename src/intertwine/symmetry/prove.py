"""Prove a symmetry by acting: f(x; g theta) = f(x; theta) for random g, in float64, at several sizes of x.

The module itself runs, not its exported graph, with the same random numbers on both sides; buffers that it
writes must come out as g moves them. A claim that acting refutes is narrowed down to the axes at fault, by
halving, so that a wrong rule costs coverage and never correctness.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from intertwine.errors import ModelError
from intertwine.graph.eager import CallOutcome, fresh_copy, run_module, runner
from intertwine.graph.example import Example, one_row, other_sizes
from intertwine.graph.export import eval_copy
from intertwine.graph.run import raised
from intertwine.graph.side_by_side import Make, run_side_by_side
from intertwine.symmetry.axes import Axis
from intertwine.symmetry.sampling import sample_parts
from intertwine.symmetry.structure import Structure
from intertwine.symmetry.transform import Action, Element

MEMORY = 2_200_000_000  # bytes that copies in float64 may take: the weights, moved ones, and one to work on
REFUTED = {torch.float64: 1e-8, torch.float32: 1e-2}


@dataclass(frozen=True)
class Proof:
    """What was tried: the sizes, in which precision, with how many elements, and the largest error.

    alone: the model takes no other size than the example's. refuted: axis -> size at which it failed.
    """

    examples: tuple[Example, ...]
    dtype: torch.dtype
    samples: int
    max_error: float
    refuted: Mapping[str, str]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `intertwine inspect --json` prints it."""
        return {
            "sizes": [repr(e).removeprefix("Example") for e in self.examples],
            "dtype": str(self.dtype).removeprefix("torch."),
            "samples": self.samples,
            "max_error": self.max_error,
            "refuted": dict(self.refuted),
            "seconds": self.seconds,
        }

    @property
    def alone(self) -> bool:
        """Whether the example's size is the only one that the model takes."""
        return len(self.examples) == 1

    def __str__(self) -> str:
        sizes = ", ".join(repr(e).removeprefix("Example") for e in self.examples)
        only = " (it runs at no other size that was tried)" if self.alone else ""
        precision = str(self.dtype).removeprefix("torch.")
        return f"proved at {sizes}{only} in {precision}, error {self.max_error:.0e}"


class Stage:
    """A copy of a model in float64 with generic weights, on which elements are tried at several sizes.

    Weights that are constant (zero-initialised heads, unit gains) are replaced by random ones first, because
    every permutation looks right on them. Where the weights in float64 take more than `memory` bytes, there
    is no copy: each one is raised and moved when an op reads it, for all sizes at once, and forgotten.
    """

    def __init__(
        self,
        model: nn.Module,
        names: Sequence[str],
        example: Example,
        dtype: torch.dtype = torch.float64,
        seed: int = 0,
        memory: int = MEMORY,
    ) -> None:
        self.dtype, self.seed, self.first = dtype, seed, example
        total = sum(p.numel() for p in model.parameters()) * torch.finfo(dtype).bits // 8
        self.frugal = 3 * total > memory
        self.module = eval_copy(model, share=self.frugal)
        # Buffers are copies of the module's own in any case; parameters that are shared are not touched.
        for tensor in (*self.module.buffers(), *(() if self.frugal else self.module.parameters())):
            tensor.data = raised(tensor.data, dtype)
        parameters = dict(self.module.named_parameters())
        buffers = {n: b for n, b in self.module.named_buffers() if n in names}
        self._live = buffers if self.frugal else {**parameters, **buffers}
        self._live = {name: self._live[name] for name in names if name in self._live}
        self._read = {name: parameters[name] for name in names if name in parameters and self.frugal}
        self._held = {n: make_generic(t, self._noise(n)) for n, t in self._live.items()}
        for name, value in self._held.items():
            self._live[name].data = value
        self._known: list[tuple[Example, CallOutcome]] = []

    def _noise(self, name: str) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed + zlib.crc32(name.encode()))

    @property
    def names(self) -> list[str]:
        """The weights that may be acted on."""
        return [*self._live, *self._read]

    def weight(self, name: str) -> Tensor:
        """A weight in the precision of the stage, made generic."""
        if name in self._held:
            return self._held[name]
        return make_generic(self._read[name].to(self.dtype, copy=True), self._noise(name))

    def examples(self, sizes: Sequence[int] = (), cuts: bool = False) -> tuple[Example, ...]:
        """The example and others of other sizes; `sizes`: those that occur in the model; `cuts`: whether its
        views cut channels."""
        return (self.first, *other_sizes(runner(self.expected), self.first, sizes=sizes, cuts=cuts))

    def expected(self, example: Example) -> CallOutcome:
        """What the model does before anything acts on it."""
        return self._all_expected([example])[0]

    def _all_expected(self, examples: Sequence[Example]) -> list[CallOutcome]:
        new = [example for example in examples if all(example is not e for e, _ in self._known)]
        self._known += zip(new, self.outcomes(self.weight, new), strict=True)
        return [next(outcome for e, outcome in self._known if e is example) for example in examples]

    def outcomes(self, weight: Callable[[str], Tensor], examples: Sequence[Example]) -> Iterator[CallOutcome]:
        """What the model does with the weights that a function returns by name."""
        loaded = {name: weight(name) for name in self._live}
        if self.frugal:
            makers = {id(p): partial(weight, name) for name, p in self._read.items()}
            yield from run_side_by_side([partial(self._alone, e, loaded) for e in examples], makers)
            return
        for example in examples:
            try:
                for name, live in self._live.items():
                    own = isinstance(live, nn.Parameter)
                    live.data = loaded[name] if own else loaded[name].clone()  # a buffer may be written
                outcome = run_module(self._fresh(), example, self.dtype, self.seed)
            finally:
                for name, live in self._live.items():
                    live.data = self._held[name]
            yield outcome

    def _alone(
        self, example: Example, loaded: Mapping[str, Tensor], instead: Mapping[int, Make]
    ) -> CallOutcome:
        """A run that shares nothing that is written with those beside it."""
        module = fresh_copy(self.module, own_buffers=True)
        buffers = dict(module.named_buffers())
        for name, value in loaded.items():
            buffers[name].data = value.clone()
        return run_module(module, example, self.dtype, self.seed, instead)

    def refutes(self, error: float, example: Example) -> bool:
        """Whether an error is more than rounding: also in a model that blows up what rounding does."""
        return error > REFUTED[self.dtype] and error > 1e3 * self._rounding(example)

    def _rounding(self, example: Example) -> float:
        """The error when every weight changes by a few units in its last place."""
        unit = 4 * torch.finfo(self.dtype).eps

        def weight(name: str) -> Tensor:
            old = self.weight(name)
            noise = torch.randn(old.shape, generator=self._noise(name), dtype=self.dtype).to(old.device)
            return old * (1 + unit * noise)

        (found,) = self.outcomes(weight, [example])
        pairs = zip(self.expected(example).outputs, found.outputs, strict=True)
        return max((distance(a, b) for a, b in pairs), default=0.0)

    def _fresh(self) -> nn.Module:
        """The module with its own tensors and nothing that an earlier run may have left in it."""
        return fresh_copy(self.module)

    def errors(self, element: Element, examples: Sequence[Example]) -> Iterator[float]:
        """At every size, the largest difference of outputs and written buffers, relative to each tensor."""
        action = Action(element)
        before = self._all_expected(examples)
        found = self.outcomes(lambda name: action.weight(name, self.weight), examples)
        for expected, outcome in zip(before, found, strict=True):
            if (outcome.written.keys(), len(outcome.outputs)) != (
                expected.written.keys(),
                len(expected.outputs),
            ):
                yield float("inf")
                continue
            pairs = [*zip(expected.outputs, outcome.outputs, strict=True)]
            before_it = expected.written.__getitem__
            pairs += [(action.weight(n, before_it), outcome.written[n]) for n in expected.written]
            yield max((distance(a, b) for a, b in pairs), default=0.0)


def staged(model: nn.Module, names: Sequence[str], example: Example, seed: int = 0) -> Stage:
    """A stage in float64, or in float32 for models with kernels that know nothing else.

    Of a large example one row will do, where the model takes it: the other sizes have other batches.
    """
    for dtype in (torch.float64, torch.float32):
        stage = Stage(model, names, example, dtype, seed)
        for first in one_row(example):
            with suppress(Exception):  # whatever a forward raises on what it does not take
                stage.expected(first)
                stage.first = first
                return stage
    stage.expected(example)
    return stage


def find_fault(
    stage: Stage, structure: Structure, axes: Sequence[Axis], example: Example, samples: int, seed: int = 0
) -> list[Axis]:
    """The axes whose action changes what the model does, by halving; all of them if only their sum does."""

    def holds(chosen: Sequence[Axis]) -> bool:
        classes = np.unique(np.concatenate([a.classes.reshape(-1) for a in chosen]))
        elements = (sample_parts(structure, np.random.default_rng(seed + k), classes) for k in range(samples))
        errors = (error for element in elements for error in stage.errors(element, [example]))
        return not any(stage.refutes(error, example) for error in errors)

    return _halve(list(axes), holds)


def _halve(axes: list[Axis], holds: Callable[[Sequence[Axis]], bool]) -> list[Axis]:
    if not axes or holds(axes):
        return []
    if len(axes) == 1:
        return axes
    half = len(axes) // 2
    found = _halve(axes[:half], holds) + _halve(axes[half:], holds)
    return found or axes


def make_generic(weight: Tensor, generator: torch.Generator) -> Tensor:
    """A weight as it is, a random one if it is constant."""
    value = weight.detach()
    few = value.reshape(-1)[:16]  # seen at once for most weights
    if value.numel() > 1 and bool((few == few[0]).all()) and bool((value == few[0]).all()):
        noise = torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value)
        # A constant that is not 0 keeps its sign: it may be a variance.
        value = torch.where(value == 0, 0.3 * noise, value * (0.3 * noise).exp())
    return value


def distance(left: Tensor, right: Tensor) -> float:
    """Largest difference, relative to the largest entry; infinite where one is finite and the other is
    not."""
    if left.shape != right.shape:
        return float("inf")
    finite = torch.isfinite(left)
    if not torch.equal(finite, torch.isfinite(right)):
        return float("inf")
    if not finite.any():
        return 0.0
    scale = left[finite].abs().max().clamp_min(1e-300)
    return float((left[finite] - right[finite]).abs().max() / scale)


def assert_finite(stage: Stage, model: nn.Module) -> None:
    """Nothing can be proved where no output has entries, or none of them is finite."""
    outputs = stage.expected(stage.first).outputs
    if outputs and not any(out.numel() for out in outputs):
        raise ModelError(
            f"an example without entries proves nothing: {repr(stage.first).removeprefix('Example')}",
            where=f"{type(model).__name__}, whose outputs are all empty for it",
            so="a wrong symmetry would change nothing either",
            do="give an example of one row at least, or infer without the proof: trace(..., prove=False)",
        )
    if outputs and not any(torch.isfinite(out).any() for out in outputs):
        raise ModelError(
            "the output of the model is not finite",
            where=f"{type(model).__name__} in {stage.dtype}, constant weights replaced by random ones",
            so="nothing can be proved on this example",
            do="give another example or other weights",
        )


class Clock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds so far."""
        return time.perf_counter() - self._start
