"""Prove a symmetry by acting with it: run the model on theta and on g . theta and compare.

The negative control leaves one weight behind; an error that does not grow then would prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from intertwine.checks import checked
from intertwine.errors import VerificationFailed
from intertwine.graph.example import Example
from intertwine.graph.export import export
from intertwine.results import Result, Table
from intertwine.symmetry.prove import Clock, Stage, assert_finite, distance
from intertwine.symmetry.symmetry import Symmetry
from intertwine.symmetry.tracing import Trial
from intertwine.symmetry.transform import EVERY_PART, Action

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}


@dataclass(frozen=True, repr=False)
class Report(Result):
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
    sizes: tuple[str, ...]
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

    def tables(self) -> Sequence[Table]:
        """A row a number."""
        channels = f"{self.axes} / {self.channels} / {self.frozen_channels}"
        rows = [
            ["verdict", self.verdict],
            [f"error of the output ({self.dtype}, relative)", f"{self.max_error:.1e}"],
            ["sizes", ", ".join(self.sizes)],
            ["error of a wrong action", f"{self.control_error:.1e}"],
            ["share of parameters that moved", f"{self.parameter_coverage:.1%}"],
            ["axes / channels / frozen channels", channels],
            ["seconds: export, infer, verify", ", ".join(f"{s:.2f}" for s in self.seconds.values())],
            *[[f"frozen: {name}", reason] for name, reason in self.frozen.items()],
            *[[f"no rule for {op}", f"first at {place}"] for op, place in self.unknown_ops.items()],
        ]
        return [Table("verify", ["what", "result"], rows)]


@checked
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
    """Act with random elements of the whole group, at several sizes of the inputs, and report the largest
    error.

    symmetry: what to verify, if not what the rules claim (without the proof of `trace`, which would have
    withdrawn what fails here).

    >>> from torch import nn
    >>> mlp = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> verify(mlp, torch.randn(4, 3)).exact
    True
    """
    given = Example.of(inputs, kwargs)
    clock, trial = Clock(), None
    if symmetry is None:
        symmetry = Symmetry(export(model, given.args, given.kwargs), seconds_export=clock.seconds)
        clock = Clock()
        trial = Trial(model, symmetry, given, seed)
        symmetry, stage, examples = trial.symmetry, trial.stage, trial.examples
    if trial is None or trial.stage.dtype != dtype:
        stage = Stage(model, list(symmetry.weights(model)), given, dtype, seed)
        assert_finite(stage, model)
        known = symmetry.proof.examples if symmetry.proof is not None else ()
        same = bool(known) and known[0].shapes == stage.first.shapes  # the model has been asked already
        examples = (stage.first, *known[1:]) if same else stage.examples()
    worst, coverage = 0.0, 0.0
    for k in range(samples):
        element = symmetry.sample(seed + k, EVERY_PART)
        worst = max(worst, *stage.errors(element, examples))
        action = Action(element)
        coverage = max(coverage, _coverage(model, stage, action))
    control = _control(stage, action)
    frozen = {a.name: a.frozen_because for a in symmetry.axes if not a.group.moves}
    return Report(
        max_error=worst,
        control_error=control,
        dtype=str(dtype).removeprefix("torch."),
        axes=len(symmetry.axes),
        channels=sum(a.size for a in symmetry.axes),
        frozen_channels=sum(a.size for a in symmetry.axes if not a.group.moves),
        parameter_coverage=coverage,
        frozen=frozen,
        unknown_ops=symmetry.unknown_ops,
        unused_parameters=tuple(symmetry.structure.inference.unused),
        sizes=tuple(repr(e).removeprefix("Example") for e in examples),
        seconds={**symmetry.seconds, "verify": clock.seconds},
        tolerance=TOLERANCE.get(dtype, 1e-2),
    )


@checked
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


def _coverage(model: nn.Module, stage: Stage, action: Action) -> float:
    """The share of the entries of parameters that an action changes."""
    total = changed = 0
    for name in {name for name, _ in model.named_parameters()}.intersection(stage.names):
        before = stage.weight(name)
        total += before.numel()
        changed += int((before != action.weight(name, stage.weight)).sum())
    return changed / total if total else 0.0


def _control(stage: Stage, action: Action) -> float:
    """The error of a wrong action: one weight is left behind, or, if that does nothing, its entries stirred.

    A few weights spread over the model are tried; an error that stays at 0 proves nothing.
    """

    def moves(name: str) -> bool:
        weight = stage.weight(name)
        return not torch.equal(weight, action.weight(name, stage.weight))

    chosen = _spread([n for n in stage.names if stage.weight(n).dim() > 1], moves)
    chosen = chosen or _spread(stage.names, moves)
    expected, worst = stage.expected(stage.first).outputs, 0.0
    for wrong in (_left_behind, _stirred):
        for name in chosen:

            def weight(n: str, name: str = name, wrong: Any = wrong) -> Tensor:
                return wrong(stage.weight(n), stage.seed) if n == name else action.weight(n, stage.weight)

            (found,) = stage.outcomes(weight, [stage.first])
            pairs = zip(expected, found.outputs, strict=True)
            worst = max([worst, *(distance(a, b) for a, b in pairs)])
            if worst > 1e-3:
                return worst
    return worst


def _spread(names: Sequence[str], moves: Callable[[str], bool]) -> list[str]:
    """The last, the middle and the first of the names that move."""
    last = next((n for n in reversed(names) if moves(n)), None)
    if last is None:
        return []
    first = next(n for n in names if moves(n))
    middle = next(n for n in [*names[len(names) // 2 :], *names] if moves(n))
    return list(dict.fromkeys([last, middle, first]))


def _left_behind(weight: Tensor, seed: int) -> Tensor:
    return weight


def _stirred(weight: Tensor, seed: int) -> Tensor:
    """All entries in another order: more than any permutation of channels does."""
    order = torch.randperm(weight.numel(), generator=torch.Generator().manual_seed(seed)).to(weight.device)
    return weight.reshape(-1)[order].reshape(weight.shape) * 1.5
