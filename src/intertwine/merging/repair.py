"""Batch-norm statistics of a merged model from a few unlabelled inputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from intertwine.graph.copying import copy_model
from intertwine.merging.contractions import calls
from intertwine.merging.plan import MergePlan
from intertwine.merging.shrink import find_dropped


def reestimate_norms(
    model: nn.Module,
    batches: Iterable[Any],
    original: nn.Module | None = None,
    plan: MergePlan | None = None,
) -> nn.Module:
    """A copy of `model` whose batch norms hold the mean and variance of these inputs (batches of images).

    A few hundred images say less than the training set did. With the original of a merged model and its plan
    only what merging changed is measured, both models on the same inputs: relative to the measured ones, the
    new statistics lie where the original's lie. Where nothing was merged before a norm, it stays as it was.

    >>> net = nn.Sequential(nn.BatchNorm1d(2, affine=False)).eval()
    >>> new = reestimate_norms(net, [torch.tensor([[0.0, 1.0], [2.0, 3.0]])])
    >>> new[0].running_mean.tolist(), net[0].running_mean.tolist()
    ([1.0, 2.0], [0.0, 0.0])
    """
    if original is None or plan is None:
        return _measured(model, batches)
    if not norms_of(model):
        return copy_model(model)
    batches = list(batches)
    renewed = _measured(model, batches)
    before, stored = norms_of(_measured(original, batches)), norms_of(original)
    dropped = find_dropped(plan)
    for path, norm in norms_of(renewed).items():
        size = len(_tensor(stored[path].running_mean))
        gone = dropped.get((f"{path}.running_mean", 0), np.array([], np.int64))
        kept = torch.from_numpy(np.setdiff1d(np.arange(size), gone))
        mean, var, old_mean, old_var = (
            _tensor(part)[kept.to(_tensor(part).device)]
            for at in (stored[path], before[path])
            for part in (at.running_mean, at.running_var)
        )
        spread = (old_var + norm.eps).sqrt()
        now = _tensor(norm.running_var)
        _tensor(norm.running_mean).add_((mean - old_mean) / spread * (now + norm.eps).sqrt())
        now.copy_((var + norm.eps) / (old_var + norm.eps) * (now + norm.eps) - norm.eps)
    return renewed


def norms_of(model: nn.Module) -> dict[str, nn.modules.batchnorm._BatchNorm]:
    """The batch norms that keep statistics, by path."""
    kind = nn.modules.batchnorm._BatchNorm
    return {p: m for p, m in model.named_modules() if isinstance(m, kind) and m.track_running_stats}


def _measured(model: nn.Module, batches: Iterable[Any]) -> nn.Module:
    renewed = copy_model(model).eval()
    norms = norms_of(renewed).values()
    momenta = [m.momentum for m in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain average over all batches
        norm.train()
    like = next(renewed.parameters(), torch.zeros(1))
    with torch.no_grad():
        for args, kwargs in calls(batches, like):
            renewed(*args, **kwargs)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    return renewed.train(model.training)


def _tensor(statistic: Tensor | None) -> Tensor:
    assert statistic is not None  # `norms_of` picks the norms that have them
    return statistic
