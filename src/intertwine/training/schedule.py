"""The learning rate and the image size at every moment of a run, and the optimizer that follows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from intertwine.errors import ModelError
from intertwine.training.muon import Muon
from intertwine.training.recipe import Optimizer, Recipe, Resolution, Schedule

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def factor(schedule: Schedule, epoch: float, epochs: int) -> float:
    """The learning rate at a (fractional) epoch, in units of the recipe's.

    >>> drops = Schedule("steps", drops=(80, 120))
    >>> [round(factor(drops, epoch, 150), 3) for epoch in (79.9, 80, 149)]
    [1.0, 0.1, 0.01]
    >>> [factor(Schedule("one-cycle", warmup=0.2), epoch, 10) for epoch in (0, 1, 2, 6, 10)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    if schedule.kind == "constant":
        return 1.0
    if schedule.kind == "steps":
        return float(schedule.factor ** sum(epoch >= drop for drop in schedule.drops))
    share = epoch / epochs
    if share < schedule.warmup:
        return share / schedule.warmup
    left = (1 - share) / (1 - schedule.warmup)
    if schedule.kind == "cosine":
        left = (1 - math.cos(math.pi * left)) / 2
    return schedule.final + (1 - schedule.final) * left


def scale_at(steps: Sequence[Resolution], share: float) -> float:
    """The image scale at a share of the run.

    >>> scale_at([Resolution(0, 0.5), Resolution(0.6, 1.0)], 0.7)
    1.0
    """
    return [1.0, *(step.scale for step in steps if step.start <= share)][-1]


def make_optimizer(model: nn.Module, recipe: Optimizer) -> torch.optim.Optimizer:
    """The recipe's optimizer over the parameters of the model that want a gradient."""
    wanted = [p for p in model.parameters() if p.requires_grad]
    if not all(p.is_leaf for p in wanted):  # as those of a copy of a TorchScript module
        raise ModelError(
            "the model has weights that are computed from others", do="give the module that it was made from"
        )
    convolutions = [m for m in model.modules() if recipe.turn and isinstance(m, _CONVOLUTIONS)]
    kernels = {m.weight for m in convolutions if m.weight.any()}  # on a sphere of radius 0 nothing moves
    turned, moved = [p for p in wanted if p in kernels], [p for p in wanted if p not in kernels]
    decayed = [p for p in moved if recipe.decay_norms or p.ndim > 1]
    spared = [p for p in moved if not (recipe.decay_norms or p.ndim > 1)]
    rate, decay = recipe.learning_rate, recipe.weight_decay
    groups: list[dict[str, Any]] = [
        {"params": decayed, "lr": rate, "weight_decay": decay},
        {"params": spared, "lr": rate, "weight_decay": 0.0},
        {"params": turned, "lr": recipe.turn, "turns": True},
    ]
    groups = [group | {"initial_lr": group["lr"]} for group in groups if group["params"]]
    if recipe.name == "muon":
        return Muon(groups, lr=rate, momentum=recipe.momentum, nesterov=recipe.nesterov)
    if recipe.name == "sgd":
        return torch.optim.SGD(
            groups, lr=rate, momentum=recipe.momentum, nesterov=recipe.nesterov, foreach=True
        )
    kind = torch.optim.Adam if recipe.name == "adam" else torch.optim.AdamW
    return kind(groups, lr=rate, foreach=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, recipe: Recipe, epoch: float) -> float:
    """Set every group's rate at a (fractional) epoch; returns the recipe's."""
    now = factor(recipe.schedule, epoch, recipe.epochs)
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"] * now
    return recipe.optimizer.learning_rate * now
