"""After merging, statistics of batch norms can be measured again on a few batches of unlabelled data."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn


def reestimate_norms(model: nn.Module, batches: Iterable[Any]) -> nn.Module:
    """A copy of `model` whose batch norms hold the mean and variance of these inputs (batches of images).

    >>> net = nn.Sequential(nn.BatchNorm1d(2, affine=False)).eval()
    >>> new = reestimate_norms(net, [torch.tensor([[0.0, 1.0], [2.0, 3.0]])])
    >>> new[0].running_mean.tolist(), net[0].running_mean.tolist()
    ([1.0, 2.0], [0.0, 0.0])
    """
    renewed = copy.deepcopy(model).eval()
    norms = [m for m in renewed.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    norms = [m for m in norms if m.track_running_stats]
    momenta = [m.momentum for m in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain average over all batches
        norm.train()
    like = next(renewed.parameters(), torch.zeros(1))
    with torch.no_grad():
        for batch in batches:
            images = batch[0] if isinstance(batch, (tuple, list)) else batch
            renewed(images.to(like.device, like.dtype))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    return renewed.train(model.training)
