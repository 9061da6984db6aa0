"""Prove a symmetry by acting with it: run the model on theta and on g . theta and compare.

The negative control leaves one weight behind; an error that does not grow then would prove nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from intertwine.errors import ModelError, VerificationFailed
from intertwine.symmetry.symmetry import Symmetry, trace
from intertwine.symmetry.transform import apply_element
from intertwine.trace.run import run

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}


@dataclass(frozen=True)
class Report:
    """max_error: largest |f(g theta) - f(theta)| relative to the output; control_error: the same for a
    deliberately wrong action; parameter_coverage: share of parameter elements that g moved.
    """

    max_error: float
    control_error: float
    dtype: str
    axes: int
    channels: int
    frozen_channels: int
    parameter_coverage: float
    frozen: dict[str, str]
    unknown_ops: dict[str, str]
    unused_parameters: tuple[str, ...]
    seconds: dict[str, float]
    tolerance: float

    @property
    def exact(self) -> bool:
        """Whether the claimed symmetry held, and the control would have shown a wrong one."""
        return self.verdict == "exact"

    @property
    def verdict(self) -> str:
        """exact; wrong: the output changed; unproved: it did not, but not under a wrong action either."""
        if self.max_error > self.tolerance:
            return "wrong"
        sensitive = self.control_error > 100 * self.tolerance
        return "exact" if sensitive or self.parameter_coverage == 0 else "unproved"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `intertwine verify --json` prints it."""
        return {**asdict(self), "exact": self.exact, "verdict": self.verdict}


def verify(
    model: nn.Module,
    inputs: Any,
    dtype: torch.dtype = torch.float64,
    *,
    kwargs: Mapping[str, Any] | None = None,
    symmetry: Symmetry | None = None,
    seed: int = 0,
    samples: int = 1,
) -> Report:
    """Act with random elements of the whole group and report the largest error.

    Weights that are constant (zero-initialised heads, unit gains) are replaced by random ones first, because
    every permutation looks right on them.

    >>> from torch import nn
    >>> mlp = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> verify(mlp, torch.randn(4, 3)).exact
    True
    """
    args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    if symmetry is None:
        symmetry = trace(model, args, kwargs)
    start = time.perf_counter()
    generator = torch.Generator().manual_seed(seed)
    weights = make_generic(symmetry.weights(model), generator)
    reference = run(symmetry.traced, weights, args, kwargs, dtype)
    if not any(torch.isfinite(out).any() for out in reference):
        raise ModelError(
            "the output of the model is not finite",
            where=f"{type(model).__name__} in {dtype}, weights that were constant replaced by random ones",
            so="nothing can be proved on this example",
            do="give another example or other weights",
        )
    worst, coverage = 0.0, 0.0
    for k in range(samples):
        moved = apply_element(symmetry.sample(seed + k), weights)
        worst = max(worst, _distance(reference, run(symmetry.traced, moved, args, kwargs, dtype)))
        coverage = max(coverage, _coverage(model, weights, moved))
    control = _control(symmetry, weights, moved, reference, (args, kwargs, dtype))
    frozen = {a.name: a.frozen_because for a in symmetry.axes if a.group.name == "trivial"}
    return Report(
        max_error=worst,
        control_error=control,
        dtype=str(dtype).removeprefix("torch."),
        axes=len(symmetry.axes),
        channels=sum(a.size for a in symmetry.axes),
        frozen_channels=sum(a.size for a in symmetry.axes if a.group.name == "trivial"),
        parameter_coverage=coverage,
        frozen=frozen,
        unknown_ops=symmetry.unknown_ops,
        unused_parameters=tuple(symmetry.structure.inference.unused),
        seconds={**symmetry.seconds, "verify": time.perf_counter() - start},
        tolerance=TOLERANCE.get(dtype, 1e-2),
    )


def assert_symmetric(model: nn.Module, inputs: Any, dtype: torch.dtype = torch.float64) -> Report:
    """`verify`, raising `VerificationFailed` where the claimed symmetry does not hold."""
    report = verify(model, inputs, dtype)
    if report.verdict == "wrong":
        raise VerificationFailed(
            f"a claimed symmetry changes the output by {report.max_error:.2e} (relative)",
            where=type(model).__name__,
            so="the inference is wrong for this model; please report it",
        )
    if report.verdict == "unproved":
        raise VerificationFailed(
            "a deliberately wrong action does not change the output either",
            where=type(model).__name__,
            so="nothing is proved: the output does not depend on the weights here",
            do="give an input on which it does",
        )
    return report


def make_generic(weights: Mapping[str, Tensor], generator: torch.Generator) -> dict[str, Tensor]:
    """float64 copies of the weights, constant ones replaced by random ones."""
    out = {}
    for name, tensor in weights.items():
        value = tensor.detach().to(torch.float64)
        if value.numel() > 1 and bool((value == value.reshape(-1)[0]).all()):
            noise = torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value.device)
            # A constant that is not 0 keeps its sign: it may be a variance.
            value = torch.where(value == 0, 0.3 * noise, value * (0.3 * noise).exp())
        out[name] = value
    return out


def _distance(left: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    """Largest difference of two outputs, relative to the largest entry of each tensor."""
    worst = 0.0
    for a, b in zip(left, right, strict=True):
        finite = torch.isfinite(a)
        if not torch.equal(finite, torch.isfinite(b)):
            return float("inf")
        if finite.any():
            scale = a[finite].abs().max().clamp_min(1e-300)
            worst = max(worst, float((a[finite] - b[finite]).abs().max() / scale))
    return worst


def _coverage(model: nn.Module, before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> float:
    names = {name for name, _ in model.named_parameters()} & set(before)
    total = sum(before[n].numel() for n in names)
    return sum(int((before[n] != after[n]).sum()) for n in names) / total if total else 0.0


def _control(
    symmetry: Symmetry,
    weights: Mapping[str, Tensor],
    moved: Mapping[str, Tensor],
    reference: Sequence[Tensor],
    call: tuple[Any, Any, torch.dtype],
) -> float:
    """The error when one weight is left behind: the largest over a few weights spread over the model."""
    changed = [n for n in weights if weights[n].dim() > 1 and not torch.equal(weights[n], moved[n])]
    changed = changed or [n for n in weights if not torch.equal(weights[n], moved[n])]
    if not changed:
        return 0.0
    worst = 0.0
    args, kwargs, dtype = call
    for name in dict.fromkeys([changed[-1], changed[len(changed) // 2], changed[0]]):
        wrong = {**moved, name: weights[name]}
        worst = max(worst, _distance(reference, run(symmetry.traced, wrong, args, kwargs, dtype)))
        if worst > 1e-3:
            break
    return worst
