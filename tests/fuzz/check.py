"""One program -> a verdict: trace it, act with random elements, run the module itself, compare.

    ok           something moves, and every output (and buffer that forward writes) stays
    frozen       nothing moves
    wrong        a claimed symmetry changes the output
    unstable     the output changes, but it does so as well when the weights change by 1e-12
    unsupported  torch.export cannot trace the module
    refused      another error of intertwine, although the module runs
    crash        any other exception
    slow         the run gave it up (`chunk.LIMIT`)

The module runs in float64, at the traced size and at every other size that it takes, both runs after the
same torch seed.
"""

from __future__ import annotations

import copy
import inspect
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import intertwine
from intertwine import Element, Symmetry
from intertwine.errors import ExportFailed, IntertwineError
from intertwine.symmetry.transform import EVERY_PART

TOLERANCE = 1e-9
NOISE = 1e-12
FAILURES = ("wrong", "crash", "refused", "slow")
_CAN_SKIP_PROOF = "prove" in inspect.signature(intertwine.trace).parameters


@dataclass
class Result:
    """A verdict and what led to it."""

    verdict: str
    error: float = 0.0
    size: tuple[int, ...] = ()
    detail: str = ""
    groups: list[str] = field(default_factory=list)
    sizes_run: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether the program is a finding."""
        return self.verdict in FAILURES


def trace(model: nn.Module, example: Tensor) -> Symmetry:
    """The symmetry as the rules claim it, without the proof."""
    if _CAN_SKIP_PROOF:
        return intertwine.trace(model, example, prove=False)  # type: ignore[call-arg]
    return intertwine.trace(model, example)


def check(model: nn.Module, inputs: Sequence[Tensor], elements: int = 2) -> Result:
    """Trace on the first input, compare on all of them."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        start = perf_counter()
        try:
            symmetry = trace(model, inputs[0])
        except ExportFailed as error:
            return Result("unsupported", detail=str(error).splitlines()[0])
        except IntertwineError as error:
            return Result("refused", detail=str(error).splitlines()[0])
        except Exception as error:
            return Result("crash", detail=_where(error))
        seconds = {"trace": perf_counter() - start, **symmetry.seconds}
        start = perf_counter()
        try:
            result = compare(model, symmetry, inputs, elements)
        except Exception as error:
            result = Result("crash", detail=_where(error))
        result.groups = [axis.group.name for axis in symmetry.axes]
        result.seconds = {**seconds, "compare": perf_counter() - start}
        return result


def compare(model: nn.Module, symmetry: Symmetry, inputs: Sequence[Tensor], elements: int) -> Result:
    """Act with random elements and run the moved modules."""
    before = {}
    for i, x in enumerate(inputs):
        try:
            before[i] = run(model, x)
        except Exception:  # the program does not take this size
            if not i:
                raise
    moves = False
    for seed in range(elements):
        element = symmetry.sample(seed, parts=EVERY_PART)
        moved = intertwine.act(model, element)
        if not moves:
            moves = any(not torch.equal(a, b) for a, b in zip(_state(model), _state(moved), strict=True))
            if not moves:
                return Result("frozen", sizes_run=len(before))
        for i, reference in before.items():
            error, detail = _distance(model, reference, moved, element, inputs[i])
            if not error <= TOLERANCE:
                noise = _noise(model, inputs[i], reference)
                verdict = "unstable" if noise > 1e-2 * error else "wrong"
                return Result(verdict, error, tuple(inputs[i].shape), detail, sizes_run=len(before))
    return Result("ok", sizes_run=len(before))


@dataclass
class Run:
    """The outputs of one run, and the module after it (buffers may have been written)."""

    outputs: list[Tensor]
    after: nn.Module


def run(model: nn.Module, x: Tensor) -> Run:
    """Run a copy, from a fixed random state."""
    after = copy.deepcopy(model)
    torch.default_generator.manual_seed(7)
    out = after(x.clone())
    return Run([t.detach().clone() for t in tree_leaves(out) if isinstance(t, Tensor)], after)


def _distance(
    model: nn.Module, reference: Run, moved: nn.Module, element: Element, x: Tensor
) -> tuple[float, str]:
    """f(g theta) against f(theta); the buffers after f(g theta) against g times those after f(theta)."""
    try:
        found = run(moved, x)
    except Exception as error:
        return float("inf"), f"the moved model raises {type(error).__name__}"
    worst = difference(reference.outputs, found.outputs)
    written = [
        name
        for (name, a), b in zip(reference.after.named_buffers(), model.buffers(), strict=True)
        if not torch.equal(a, b)
    ]
    if written and worst <= TOLERANCE:
        expected = dict(intertwine.act(reference.after, element).named_buffers())
        got = dict(found.after.named_buffers())
        worst = difference([expected[n] for n in written], [got[n] for n in written])
        return worst, f"buffers {', '.join(written)}"
    return worst, "outputs"


def difference(left: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    """Largest difference, relative to the largest finite entry of each tensor."""
    worst = 0.0
    for a, b in zip(left, right, strict=True):
        if a.shape != b.shape:
            return float("inf")
        a, b = (t.abs() if t.is_complex() else t for t in (a, b))
        a, b = a.double(), b.double()
        finite = torch.isfinite(a)
        if not torch.equal(finite, torch.isfinite(b)):
            return float("inf")
        if finite.any():
            gap = float((a[finite] - b[finite]).abs().max())
            if gap:
                worst = max(worst, gap / max(float(a[finite].abs().max()), 1e-300))
    return worst


def _noise(model: nn.Module, x: Tensor, reference: Run) -> float:
    """How far the output goes when the weights change in their last digits: ties and cancellation show."""
    worst = 0.0
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        shaken = copy.deepcopy(model)
        for tensor in _state(shaken):
            if tensor.is_floating_point():
                noise = torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)
                tensor.mul_(1 + NOISE * noise)
        found = run(shaken, x)
        worst = max(worst, difference(reference.outputs, found.outputs))
        buffers = [list(r.after.buffers()) for r in (reference, found)]
        worst = max(worst, difference(*buffers))
    return worst


def _state(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/intertwine/" in f.filename.replace("\\", "/")] or list(frames)
    last = ours[-1] if ours else None
    place = f"{last.filename.rsplit('/', 1)[-1]}:{last.name}" if last else "?"
    text = (str(error).splitlines() or [""])[0][:160]
    return f"{type(error).__name__} in {place}: {text}"
