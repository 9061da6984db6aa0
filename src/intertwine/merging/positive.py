"""Second moments that were summed in finite precision may have eigenvalues just below zero.

regular(C, r) = C + r I with the ridge that was asked for, or as much more as makes it positive definite. A
feature that never changes has no variance at all, and what rounding leaves of it is as often negative.
"""

from __future__ import annotations

import numpy as np
import torch

LEAST = 1e-13  # of the trace: below, float64 itself does not tell eigenvalues from zero


def regular(moment: np.ndarray, ridge: float) -> np.ndarray:
    """C + r I, positive definite.

    >>> bool(regular(np.diag([1.0, -1e-9]), 1e-12).diagonal().min() > 0)
    True
    """
    return regular_factor(torch.from_numpy(moment), ridge)[0].numpy()


def regular_factor(moment: torch.Tensor, ridge: float) -> tuple[torch.Tensor, torch.Tensor, float]:
    """C + r I, its Cholesky factor, and r: the ridge, or what it takes."""
    size = float(moment.diagonal().abs().sum())
    ridge = max(ridge, LEAST * size, 1e-300)
    while True:
        made = moment + ridge * torch.eye(len(moment)).to(moment)
        factor, failed = torch.linalg.cholesky_ex(made)
        if not bool(failed) or not np.isfinite(size):
            return made, factor, ridge
        ridge *= 10
