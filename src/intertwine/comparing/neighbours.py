"""Measures of which inputs lie near which: representational similarity analysis and mutual nearest
neighbours."""

from __future__ import annotations

import torch
from torch import Tensor

from intertwine.comparing.covariance import constant_features
from intertwine.comparing.kernels import squared_distances
from intertwine.errors import InputError
from intertwine.progress import Progress

NEIGHBOURS = 10


def distance_ranks(x: Tensor, *, progress: Progress | None = None) -> Tensor:
    """Ranks of the Euclidean distances of all pairs of inputs, centred and of unit norm; ties share a
    rank."""
    from scipy.stats import rankdata

    distances = squared_distances(x, progress=progress)
    upper = torch.triu_indices(len(distances), len(distances), offset=1, device=x.device)
    ranks = torch.from_numpy(rankdata(distances[upper[0], upper[1]].cpu().numpy())).to(x.device)
    ranks -= ranks.mean()
    norm = ranks.norm()
    if not norm > 0:
        raise constant_features("given")
    result: Tensor = ranks / norm
    return result


def rank_correlation(ranks_x: Tensor, ranks_y: Tensor) -> float:
    """Spearman correlation of the two sets of distances (RSA, Kriegeskorte et al. 2008)."""
    return float((ranks_x @ ranks_y).clamp(-1, 1))


def nearest(x: Tensor, *, k: int | None = None, progress: Progress | None = None) -> Tensor:
    """For each input a boolean row marking its k nearest others by Euclidean distance, ties to the lower
    index.

    k is 10, or as many as half of the other inputs when there are fewer than 21.
    """
    n = x.shape[0]
    k = min(NEIGHBOURS, (n - 1) // 2) if k is None else k
    if not 1 <= k < n:
        raise InputError(f"{k} neighbours among {n} inputs", do=f"choose k between 1 and {n - 1}")
    distances = squared_distances(x, progress=progress)
    if not distances.max() > 0:
        raise constant_features("given")
    order = distances.fill_diagonal_(torch.inf).argsort(dim=1, stable=True)[:, :k]
    return torch.zeros(n, n, dtype=torch.bool, device=x.device).scatter_(1, order, True)


def overlap(near_x: Tensor, near_y: Tensor) -> float:
    """Mean over inputs of |N_k(x_i) and N_k(y_i)| / k (Huh et al. 2024); chance is k / (n - 1)."""
    shared = (near_x & near_y).sum(1, dtype=torch.float64)
    return float((shared / near_x.sum(1)).mean())
