"""Channels that have little in common in the aligned networks: each follows one network, and not the mean.

    s_k(c) = s_k                        if the networks' channel c correlates at least as asked for
           = 1 for one k, 0 for others  otherwise

The rectified mean of two unlike values is neither network's feature, and no later layer can take it apart;
the feature of one is at least that. Every network has its share of such channels, those that say most to
their reader there (their deviation times the norm of the weights that read them). The reader is solved for
afterwards, and makes what it can of both kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor


def channel_shares(
    parts: Iterable[Sequence[Tensor]], read: Tensor, shares: Sequence[float], least: float
) -> Tensor:
    """(networks, channels), of sum 1 over networks.

    parts: of every network some rows of what the reader sees, (rows, channels). read: (networks, channels),
    how much of a channel the reader takes. least: correlation from which on channels are averaged.

    >>> a, b, c = torch.randn(3, 500, generator=torch.Generator().manual_seed(0))
    >>> left, right = torch.stack([a, b, c], 1), torch.stack([a, c, b], 1)
    >>> channel_shares([[left, right]], torch.tensor([[1.0, 9, 1], [1, 1, 9]]), [0.5, 0.5], 0.4)
    tensor([[0.5000, 1.0000, 0.0000],
            [0.5000, 0.0000, 1.0000]], dtype=torch.float64)
    """
    alike, deviation = _agreement(parts)
    out = torch.tensor(shares, dtype=torch.float64)[:, None].repeat(1, len(alike))
    apart = (alike < least).nonzero().flatten()
    ends = np.round(np.cumsum([0.0, *shares]) * len(apart)).astype(int)
    owner = torch.from_numpy(np.repeat(np.arange(len(shares)), np.diff(ends)))
    worth = (deviation * read.to(deviation))[:, apart].clamp_min(1e-30).log()
    rows, places = linear_sum_assignment(worth.T[:, owner].numpy(), maximize=True)
    out[:, apart] = 0
    out[owner[places], apart[rows]] = 1
    return out


def _agreement(parts: Iterable[Sequence[Tensor]]) -> tuple[Tensor, Tensor]:
    """Of every channel the mean correlation over pairs of networks, and its deviation in each."""
    count, first, second = 0, torch.zeros(()), torch.zeros(())
    for values in parts:
        rows = torch.stack(list(values)).double().cpu()
        count += rows.shape[1]
        first = first + rows.sum(1)
        second = second + torch.einsum("anc,bnc->abc", rows, rows)
    mean = first / count
    covariance = second / count - mean[:, None] * mean[None]
    deviation = torch.einsum("aac->ac", covariance).clamp_min(0).sqrt()
    correlation = covariance / (deviation[:, None] * deviation[None]).clamp_min(1e-30)
    a, b = torch.triu_indices(len(deviation), len(deviation), 1)
    return correlation[a, b].mean(0), deviation
