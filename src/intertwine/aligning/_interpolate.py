"""Along the line between models: loss, accuracy and barrier, with statistics repaired or not.

    barrier = max over t of  loss((1 - t) A + t B) - (1 - t) loss(A) - t loss(B)

Frankle et al. 2020; batch-norm statistics as in `repair`. Several models are each connected with the first,
and their mean is evaluated (a merge of all).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from intertwine.aligning._repair import REPAIRS, Repair, inputs_of, layer_statistics, repaired
from intertwine.data import evaluate
from intertwine.data.batches import Batches
from intertwine.errors import InputError
from intertwine.graph.copying import copy_model
from intertwine.merging.repair import norms_of, reestimate_norms
from intertwine.orbit.same_graph import assert_same_shapes

TS = tuple(k / 10 for k in range(11))


@dataclass(frozen=True)
class Score:
    """loss: mean cross entropy in nats; accuracy in [0, 1]."""

    loss: float
    accuracy: float


@dataclass(frozen=True)
class Line:
    """Scores along the line from the first model (t = 0) to model number `other` (t = 1)."""

    other: int
    ts: tuple[float, ...]
    scores: tuple[Score, ...]

    @property
    def barrier(self) -> float:
        """How far the loss rises above the straight line between the end points."""
        ends = self.scores[0].loss, self.scores[-1].loss
        return max(
            s.loss - (1 - t) * ends[0] - t * ends[1] for t, s in zip(self.ts, self.scores, strict=True)
        )

    @property
    def accuracy_barrier(self) -> float:
        """How far the accuracy falls below the straight line between the end points."""
        ends = self.scores[0].accuracy, self.scores[-1].accuracy
        return max(
            (1 - t) * ends[0] + t * ends[1] - s.accuracy for t, s in zip(self.ts, self.scores, strict=True)
        )


@dataclass(frozen=True)
class InterpolationCurve:
    """label: how the models were aligned. repair: what was done about statistics, and said in words.

    mean: the average of all models, under the same repair.
    """

    label: str
    repair: str
    lines: tuple[Line, ...]
    mean: Score
    inputs: int

    @property
    def barrier(self) -> float:
        """The largest barrier of all lines."""
        return max(line.barrier for line in self.lines)

    @property
    def accuracy_barrier(self) -> float:
        """The same of accuracy."""
        return max(line.accuracy_barrier for line in self.lines)

    @property
    def statistics(self) -> str:
        """What `repair` means."""
        return REPAIRS[self.repair]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `intertwine interpolate --json` prints it."""
        lines = [
            {**asdict(line), "barrier": line.barrier, "accuracy_barrier": line.accuracy_barrier}
            for line in self.lines
        ]
        return {
            "label": self.label, "repair": self.repair, "statistics": self.statistics, "inputs": self.inputs,
            "barrier": self.barrier, "accuracy_barrier": self.accuracy_barrier, "mean": asdict(self.mean),
            "lines": lines,
        }  # fmt: skip


def interpolation_curve(
    models: Sequence[nn.Module],
    data: Any,
    ts: Sequence[float] = TS,
    *,
    repair: Repair = "none",
    train_data: Any = None,
    label: str = "none",
    mixer: Mixer | None = None,
    progress: Callable[[int], None] | None = None,
) -> InterpolationCurve:
    """Loss and accuracy from the first model to each other one, on labelled `data`.

    train_data: the inputs on which statistics are measured (`data` without it; training inputs are better).
    mixer: what makes the networks along the line, if it is more than their mean with repaired statistics.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> data = (torch.randn(20, 4), torch.randint(3, (20,)))
    >>> round(interpolation_curve([net, net], data).barrier, 6)
    0.0
    """
    times = tuple(sorted({0.0, 1.0, *map(float, ts)}))
    if repair not in REPAIRS:
        raise InputError(f"unknown repair {repair!r}", do=f"use one of {', '.join(REPAIRS)}")
    if times[0] < 0 or times[-1] > 1:
        raise InputError("every t must lie from 0 to 1")
    if len(models) < 2:
        raise InputError("one model makes no line", do="give at least two models")
    assert_same_shapes(models)
    mixer = mixer or Mixer(models, repair, data if train_data is None else train_data)
    lines = []
    known: dict[tuple[int, float], Score] = {}
    for other in range(1, len(models)):
        scores = []
        for t in times:
            key = (0 if t == 0 else other, t)
            if key not in known:
                shares = [0.0] * len(models)
                shares[0], shares[other] = 1 - t, t
                known[key] = _score(mixer.mixed(shares), data)
                if progress is not None:
                    progress(1)
            scores.append(known[key])
        lines.append(Line(other, times, tuple(scores)))
    mean = _score(mixer.mixed([1 / len(models)] * len(models)), data)
    return InterpolationCurve(label, repair, tuple(lines), mean, _count(data))


class Mixer:
    """Makes weighted means of models, with statistics repaired on the inputs of `data`."""

    def __init__(self, models: Sequence[nn.Module], repair: Repair = "none", data: Any = None) -> None:
        self.models, self.repair, self.data = models, repair, data
        self.ends = [layer_statistics(m, data) for m in models] if repair == "repair" else []

    def mixed(self, shares: Sequence[float]) -> nn.Module:
        """A new model in eval mode with weights sum_k shares_k theta_k."""
        plain = mix(self.models, shares)
        if self.repair == "repair":
            return repaired(plain, self.ends, shares, self.data)
        if self.repair == "reset" and norms_of(plain):
            return reestimate_norms(plain, inputs_of(self.data))
        return plain


def mix(models: Sequence[nn.Module], shares: Sequence[float]) -> nn.Module:
    """A new model in eval mode with weights sum_k shares_k theta_k; integers are those of the first."""
    mixed = copy_model(models[0]).eval()
    states = [{**dict(m.named_parameters()), **dict(m.named_buffers())} for m in models]
    with torch.no_grad():
        for name, tensor in {**dict(mixed.named_parameters()), **dict(mixed.named_buffers())}.items():
            if tensor.is_floating_point():
                total = torch.zeros_like(tensor, dtype=torch.float64)
                for share, state in zip(shares, states, strict=True):
                    if share:  # 0 times infinity is not 0
                        total += share * state[name]
                tensor.copy_(total)
    return mixed


def _score(model: nn.Module, data: Any) -> Score:
    found = evaluate(model, data)
    return Score(found.loss, found.accuracy)


def _count(data: Any) -> int:
    return sum(len(labels) for _, labels in Batches(data) if labels is not None)
