"""Learn the combined network on the outputs of those it was made of, without labels.

    minimise over theta   E over inputs of  KL(p || f(x, theta)),    p = softmax(sum_k s_k f(x, theta_k))

from the combined weights, with Adam and a rate that falls to zero. Batch norms keep their statistics.
Networks that keep heads of their own are learned each on its own outputs, and the divergences are added.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from intertwine.data.batches import Batches, count_rows
from intertwine.data.evaluation import call, like_inputs, logits_of
from intertwine.errors import DataError
from intertwine.progress import Progress

BATCH = 100


@dataclass(frozen=True)
class Teachers:
    """outputs: what is asked for at every input. widths: how many of them belong to each head."""

    outputs: Tensor
    widths: tuple[int, ...]

    def divergence(self, chosen: Tensor, scores: Tensor) -> Tensor:
        """KL of the chosen inputs, summed over heads."""
        wanted = self.outputs[chosen].to(scores.device).split(self.widths, -1)
        parts = zip(wanted, scores.split(self.widths, -1), strict=True)
        return torch.stack([_divergence(goal, found) for goal, found in parts]).sum()


@torch.no_grad()
def teachers(
    models: Sequence[nn.Module], shares: Sequence[float], inputs: Any, heads: str = "one"
) -> Teachers:
    """sum_k s_k f(x, theta_k) for all inputs, or the outputs side by side where each keeps its head."""
    parts, widths = [], list[int]()
    for batch, _ in Batches(inputs):
        outputs = [scores_of(m, batch) for m in models]
        widths = [y.shape[-1] for y in outputs] if heads == "each" else [outputs[0].shape[-1]]
        if heads == "each":
            parts.append(torch.cat(outputs, -1).cpu())
        else:
            parts.append(torch.stack([s * y for s, y in zip(shares, outputs, strict=True)]).sum(0).cpu())
    if min(widths) < 2:
        raise DataError(
            "the networks have a single output, which is no class score",
            so="how far two of them differ cannot be told by their softmax",
            do="leave out calibrate, epochs and align by loss",
        )
    return Teachers(torch.cat(parts), tuple(widths))


def distilled(
    model: nn.Module,
    taught: Teachers,
    inputs: Any,
    *,
    epochs: int,
    learning_rate: float = 1e-3,
    seed: int = 0,
    progress: Progress | None = None,
) -> nn.Module:
    """A copy of `model` that was trained for `epochs` passes over the inputs."""
    student = copy.deepcopy(model).eval()
    for parameter in student.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    count = count_rows(inputs)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(student.parameters(), lr=learning_rate)
    steps = max(1, epochs * math.ceil(count / BATCH))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for epoch in range(epochs):
        for chosen in torch.randperm(count, generator=generator).split(BATCH):
            optimizer.zero_grad()
            taught.divergence(chosen, scores_of(student, rows_of(inputs, chosen))).backward()
            optimizer.step()
            schedule.step()
        if progress is not None:
            progress(epoch + 1, epochs, "epochs")
    student.zero_grad()
    for old, new in zip(model.parameters(), student.parameters(), strict=True):
        new.requires_grad_(old.requires_grad)
    return student


def scores_of(model: nn.Module, inputs: Any) -> Tensor:
    """The class scores that a model gives for inputs of any form."""
    return logits_of(call(model, inputs, like_inputs(model).dtype))


def rows_of(inputs: Any, chosen: Tensor) -> Any:
    """Some of the inputs."""
    if isinstance(inputs, dict):
        return {name: value[chosen.to(value.device)] for name, value in inputs.items()}
    return inputs[chosen.to(inputs.device)]


def _divergence(wanted: Tensor, scores: Tensor) -> Tensor:
    classes = scores.shape[-1]
    target = wanted.log_softmax(-1).reshape(-1, classes)
    found = scores.log_softmax(-1).reshape(-1, classes)
    return F.kl_div(found, target, reduction="batchmean", log_target=True)
