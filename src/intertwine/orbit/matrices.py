"""Matrices of linear axes: a canonical form up to rotations, and the matrix that brings one onto another.

A matrix X acts on what makes the axis as M -> X M and on what reads it as R -> X^-T R. All functions take one
matrix for each block (head) at once, in float64.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from intertwine.orbit.units import Unit, Weights

_UNTOLD = 1e-12  # squared singular values below this share of the largest are rounding


def stacked(unit: Unit, weights: Weights, params: frozenset[str]) -> tuple[Tensor, Tensor]:
    """(M, R), each (blocks, channels, everything else): all that X acts on, and all that X^-T acts on."""
    shape = unit.classes.shape
    sides: dict[int, list[Tensor]] = {1: [], -1: []}
    for spot in unit.spots:
        if spot.param in params:
            sides[spot.exponent].append(spot.slices(weights[spot.param]).reshape(*shape, -1))
    empty = torch.zeros(*shape, 0, dtype=torch.float64)
    make, read = (torch.cat(side, dim=2) if side else empty for side in (sides[1], sides[-1]))
    return make, read


def least_norm(make: Tensor, read: Tensor) -> tuple[Tensor, Tensor]:
    """(X, Y), each (blocks, n, n): X M = sqrt(S) V' and Y R = sqrt(S) U', where R'M = U S V'.

    This is the least |X M|^2 + |Y R|^2 with the product R'M, twice its nuclear norm. Y is X^-T; but where the
    product has a smaller rank than the axis, both end in rows of zeros: a limit of the orbit, which computes
    the same function.

    >>> m, r = torch.tensor([[[4.0, 0.0], [1.0, 1.0]]]), torch.tensor([[[1.0], [0.0]]])
    >>> x, y = least_norm(m, r)
    >>> (x @ m).abs().tolist(), (y @ r).abs().tolist()
    ([[[2.0, 0.0], [0.0, 0.0]]], [[[2.0], [0.0]]])
    """
    made, used = (torch.linalg.qr(side.mT, mode="r").R for side in (make, read))
    u, values, vt = torch.linalg.svd(used @ made.mT, full_matrices=False)
    # What is zero but for rounding would leave the square root of the rounding behind.
    told = values > 1e-14 * make.shape[1] * values[:, :1]
    back = torch.where(told, values.clamp_min(1e-300) ** -0.5, 0.0)[:, :, None]
    x, y = (torch.zeros(*make.shape[:2], make.shape[1], dtype=make.dtype) for _ in range(2))
    x[:, : back.shape[1]], y[:, : back.shape[1]] = back * (u.mT @ used), back * (vt @ made)
    return x, y


def balancing(make: Tensor, read: Tensor) -> Tensor:
    """(blocks, n, n): X with X M M' X' = X^-T R R' X^-1, the point of least norm; X is symmetric.

    Outside of the range that M and R share X is the identity. Where only one of the two has full rank, there
    is no least norm on the orbit; then that one is made orthonormal.
    """
    x, _ = least_norm(make, read)
    _, stretch, basis = torch.linalg.svd(x)
    told = torch.arange(x.shape[1]) < (x != 0).any(dim=2).sum(dim=1, keepdim=True)
    if not told.all():
        for side, exponent in ((make, -1), (read, 1)):
            left, values, _ = torch.linalg.svd(side, full_matrices=False)
            if values.shape[1] == x.shape[1] and (values[:, -1] > 1e-4 * values[:, 0]).all():
                stretched: Tensor = (left * values[:, None, :] ** exponent) @ left.mT
                return stretched
    answer: Tensor = (basis.mT * torch.where(told, stretch, 1.0)[:, None, :]) @ basis
    return answer


def rotations(cross: Tensor) -> tuple[Tensor, Tensor]:
    """The rotations O with the largest traces of O' C (Procrustes), and these traces, the nuclear norms.

    >>> turn = torch.tensor([[[0.0, 1.0], [-1.0, 0.0]]])
    >>> bool(torch.allclose(rotations(3 * turn)[0], turn)), rotations(3 * turn)[1].tolist()
    (True, [6.0])
    """
    left, values, right = torch.linalg.svd(cross)
    return left @ right, values.sum(dim=-1)


def best_matrices(make: tuple[Tensor, Tensor], read: tuple[Tensor, Tensor], orthogonal: bool) -> Tensor:
    """X that brings the second of each pair onto the first.

    Orthogonal: Procrustes. Otherwise X minimises |M_a - X M_b|^2 / |M_a|^2 + |X' R_a - R_b|^2 / |R_b|^2,
    which is linear in X: D X + X U = C with D and U symmetric, solved in their eigenvectors. Between the null
    spaces of D and U nothing tells what X is; there it is completed by the nearest isometry, so that it can
    be inverted.

    >>> a = torch.tensor([[[1.0], [0.0]]], dtype=torch.float64)
    >>> x = best_matrices((a, 2 * a), (a[..., :0], a[..., :0]), False)
    >>> bool(torch.allclose(x @ (2 * a), a)), round(float(torch.linalg.det(x).abs()), 6)
    (True, 0.25)
    """
    (ma, mb), (ra, rb) = make, read
    if orthogonal:
        return rotations(ma @ mb.mT + ra @ rb.mT)[0]
    up, down = (1 / x.square().sum(dim=(1, 2), keepdim=True).clamp_min(1e-300) for x in (ma, rb))
    right, v = torch.linalg.eigh(up * (mb @ mb.mT))
    left, u = torch.linalg.eigh(down * (ra @ ra.mT))
    sums = left[:, :, None] + right[:, None, :]
    told = sums > _UNTOLD * sums.amax(dim=(1, 2), keepdim=True)
    wanted = u.mT @ (up * (ma @ mb.mT) + down * (ra @ rb.mT)) @ v
    inside = torch.where(told, wanted / sums.clamp_min(1e-300), 0.0)
    if not told.all():
        a, values, b = torch.linalg.svd(inside)
        typical = values.sum(dim=1) / (values > 1e-9 * values[:, :1]).sum(dim=1).clamp_min(1)
        typical = torch.where(typical > 0, typical, 1.0)[:, None, None]
        inside = torch.where(told, inside, typical * (a @ b))
    answer: Tensor = u @ inside @ v.mT
    return answer


def ranges(rows: Tensor) -> np.ndarray:
    """(blocks, n, n): the orthogonal projections onto the ranges of (blocks, n, k) matrices."""
    values, vectors = torch.linalg.eigh(rows @ rows.mT)
    kept = (values > _UNTOLD * values[:, -1:].clamp_min(1e-300)).to(rows.dtype)
    answer: np.ndarray = ((vectors * kept[:, None, :]) @ vectors.mT).numpy()
    return answer


def whitened(rows: Tensor) -> Tensor:
    """(blocks, n, k): an orthonormal basis of the row space of each block, and rows of zeros."""
    values, vectors = torch.linalg.eigh(rows @ rows.mT)
    kept = values > _UNTOLD * values[:, -1:].clamp_min(1e-300)
    answer: Tensor = torch.where(kept, values.clamp_min(1e-300) ** -0.5, 0.0)[:, :, None] * (
        vectors.mT @ rows
    )
    return answer
