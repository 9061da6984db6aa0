"""Learn the combined network on the outputs of those it was made of, without labels.

    minimise over theta   E over inputs of  KL(p || f(x, theta)),    p = softmax(sum_k s_k f(x, theta_k))

from the combined weights, with Adam and a rate that falls to zero. Batch norms keep their statistics.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from intertwine.data.batches import Batches, arguments, count_rows
from intertwine.data.evaluation import logits_of

BATCH = 100


def distilled(
    model: nn.Module,
    models: Sequence[nn.Module],
    shares: Sequence[float],
    inputs: Any,
    *,
    epochs: int,
    learning_rate: float = 1e-3,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> nn.Module:
    """A copy of `model` that was trained for `epochs` passes over the inputs."""
    student = copy.deepcopy(model).eval()
    for parameter in student.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    count = count_rows(inputs)
    teachers = _mean_outputs(models, shares, inputs)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(student.parameters(), lr=learning_rate)
    steps = max(1, epochs * math.ceil(count / BATCH))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for epoch in range(epochs):
        for chosen in torch.randperm(count, generator=generator).split(BATCH):
            optimizer.zero_grad()
            loss = _divergence(teachers[chosen], _scores(student, _rows(inputs, chosen)))
            loss.backward()
            optimizer.step()
            schedule.step()
        if progress is not None:
            progress(f"epoch {epoch + 1} of {epochs}")
    student.zero_grad()
    for old, new in zip(model.parameters(), student.parameters(), strict=True):
        new.requires_grad_(old.requires_grad)
    return student


@torch.no_grad()
def _mean_outputs(models: Sequence[nn.Module], shares: Sequence[float], inputs: Any) -> Tensor:
    """sum_k s_k f(x, theta_k) for all inputs, on the CPU."""
    parts = []
    for batch, _ in Batches(inputs):
        outputs = [share * _scores(m, batch) for share, m in zip(shares, models, strict=True)]
        parts.append(torch.stack(outputs).sum(0).cpu())
    return torch.cat(parts)


def _scores(model: nn.Module, inputs: Any) -> Tensor:
    args, kwargs = arguments(inputs)
    return logits_of(model(*args, **kwargs))


def _divergence(wanted: Tensor, scores: Tensor) -> Tensor:
    classes = scores.shape[-1]
    target = wanted.to(scores.device).log_softmax(-1).reshape(-1, classes)
    return F.kl_div(
        scores.log_softmax(-1).reshape(-1, classes), target, reduction="batchmean", log_target=True
    )


def _rows(inputs: Any, chosen: Tensor) -> Any:
    if isinstance(inputs, dict):
        return {name: value[chosen.to(value.device)] for name, value in inputs.items()}
    return inputs[chosen.to(inputs.device)]
