"""Closed-form stitches from second moments: no training, one pass over the data for all layers.

With x the features of A and y those of B at the same inputs (and pixels), and no bias in the stitch:

    full    M = Y X' (X X' + ridge)^-1
    rank R  the best M of rank R in the norm of X: the SVD of M (X X')^(1/2), cut off and mapped back
    group   P by assignment on the normalised cross-covariance, D by least squares
    lasso   min |Y - M X|^2 / 2 + L max|Y X'| |M|_1, by accelerated proximal gradient steps
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from intertwine.errors import InputError
from intertwine.ir.groups import Group
from intertwine.stitching.kinds import Kind

RIDGE = 1e-4  # times the mean square of a channel
EXACT = 1e-12  # of the squares of Y may be missed
THRESHOLD = 1e-3  # tau of eq. D.1


@dataclass
class StitchMoments:
    """Sums of x, y, x x', y x' and the squares of y, over rows of features; in float64."""

    width_a: int
    width_b: int
    count: int = 0
    x: Tensor = field(init=False)
    y: Tensor = field(init=False)
    xx: Tensor = field(init=False)
    yx: Tensor = field(init=False)
    y2: Tensor = field(init=False)

    def __post_init__(self) -> None:
        a, b = self.width_a, self.width_b
        shapes = {"x": (a,), "y": (b,), "xx": (a, a), "yx": (b, a), "y2": (b,)}
        for name, shape in shapes.items():
            setattr(self, name, torch.zeros(shape, dtype=torch.float64))

    def add(self, x: Tensor, y: Tensor) -> None:
        """N x C x (pixels) of A and B, at the same size."""
        rows_x, rows_y = (v.movedim(1, 0).flatten(1).double().cpu() for v in (x, y))
        self.count += rows_x.shape[1]
        self.x += rows_x.sum(1)
        self.y += rows_y.sum(1)
        self.xx += rows_x @ rows_x.T
        self.yx += rows_y @ rows_x.T
        self.y2 += rows_y.square().sum(1)

    def correlation(self) -> Tensor:
        """Normalised cross-covariance, channels of B x channels of A; zero where a channel is constant."""
        n = max(self.count, 1)
        covariance = self.yx / n - self.y[:, None] * self.x[None, :] / n**2
        var_x = (self.xx.diagonal() / n - (self.x / n).square()).clamp_min(0)
        var_y = (self.y2 / n - (self.y / n).square()).clamp_min(0)
        floor_x, floor_y = (1e-12 * m / n for m in (self.xx.diagonal(), self.y2))
        scale = var_y.sqrt()[:, None] * var_x.sqrt()[None, :]
        alive = (var_y > floor_y)[:, None] & (var_x > floor_x)[None, :]
        return torch.where(alive, covariance / torch.where(alive, scale, 1), 0)

    def cosine(self) -> Tensor:
        """Normalised products, channels of B x channels of A; zero where a channel is zero."""
        scale = (self.y2[:, None] * self.xx.diagonal()[None, :]).sqrt()
        return torch.where(scale > 0, self.yx / torch.where(scale > 0, scale, 1), 0)


def closed_form(kind: Kind, moments: StitchMoments, group: Group) -> Tensor:
    """The matrix (channels of B x channels of A, float64) that a kind of stitch starts from."""
    if kind.of.square and moments.width_a != moments.width_b:
        raise InputError(
            f"{moments.width_a} channels of A onto {moments.width_b} of B",
            so=f"no {kind.name} stitch exists between different widths",
            do="use full, rank:R or lasso:L",
        )
    return kind.of.start(moments, group, kind.number)


def least_squares(moments: StitchMoments, ridge: float = RIDGE) -> Tensor:
    """M = Y X' (X X' + ridge)^-1, or without the ridge where Y = M X holds exactly."""
    exact: Tensor = moments.yx @ torch.linalg.pinv(moments.xx, rtol=1e-12, hermitian=True)
    missed = moments.y2.sum() - 2 * (exact * moments.yx).sum() + ((exact @ moments.xx) * exact).sum()
    if missed <= EXACT * moments.y2.sum():
        return exact
    size = moments.xx.diagonal().mean().clamp_min(torch.finfo(torch.float64).tiny)
    regular = moments.xx + ridge * size * torch.eye(moments.width_a, dtype=torch.float64)
    result: Tensor = torch.linalg.solve(regular, moments.yx.T).T
    return result


def reduced_rank(moments: StitchMoments, rank: int, ridge: float = RIDGE) -> Tensor:
    """The matrix of rank R nearest to Y in least squares: U U' M, U the top directions of M X."""
    full = least_squares(moments, ridge)
    _, directions = torch.linalg.eigh(full @ moments.xx @ full.T)
    top = directions[:, -min(rank, *full.shape) :]
    result: Tensor = top @ (top.T @ full)
    return result


def procrustes(moments: StitchMoments) -> Tensor:
    """The rotation Q with the least |Y - Q X|: the polar factor of Y X'."""
    u, _, v = torch.linalg.svd(moments.yx)
    result: Tensor = u @ v
    return result


def monomial(moments: StitchMoments, group: Group) -> Tensor:
    """P D: assignment on the normalised cross-covariance (its size where signs are free), then scales. Where
    channels are affine images of each other the covariance ties, and the cosine says which P D is exact."""
    if not group.positive:  # no scale makes up for a difference of size: min |Y - P D X| itself
        return _scaled(moments, group, moments.yx)
    found = _scaled(moments, group, moments.correlation())
    if group.permutation and not _is_exact(moments, found):
        other = _scaled(moments, group, moments.cosine())
        return other if _is_exact(moments, other) else found
    return found


def _scaled(moments: StitchMoments, group: Group, score: Tensor) -> Tensor:
    """The best permutation by the score, and for each of its pairs the scale of least squares."""
    order = torch.arange(len(score))
    if group.permutation:
        order = assign(score.abs() if group.sign else score)
    rows = torch.arange(len(order))
    sizes, products = moments.xx.diagonal()[order], moments.yx[rows, order]
    scales = torch.where(sizes > 0, products / torch.where(sizes > 0, sizes, 1), 1)
    matrix = torch.zeros(len(order), len(order), dtype=torch.float64)
    matrix[rows, order] = into_group(scales, group)
    return matrix


def _is_exact(moments: StitchMoments, matrix: Tensor) -> bool:
    """Whether Y = P D X up to 1e-6 of every channel, from |y - d x|^2 = |y|^2 - 2 d x y + d^2 |x|^2."""
    crossed = (matrix * moments.yx).sum(1)
    rest = moments.y2 - 2 * crossed + matrix.square() @ moments.xx.diagonal()
    return bool((rest <= 1e-12 * moments.y2).all())


def into_group(scales: Tensor, group: Group) -> Tensor:
    """The nearest diagonal that belongs to the group; a positive one keeps a little of a dead channel.

    >>> into_group(torch.tensor([0.5, -2.0]), Group(permutation=True, sign=1))
    tensor([ 1., -1.])
    """
    if not group.positive:
        return torch.where((scales < 0) & bool(group.sign), -1.0, 1.0).to(scales)
    if not group.sign:
        return scales.clamp_min(1e-6)
    return torch.where(scales.abs() < 1e-6, torch.full_like(scales, 1e-6), scales)


def assign(score: Tensor) -> Tensor:
    """The permutation that maximises sum_i score[i, order[i]] (Hungarian algorithm)."""
    from scipy.optimize import linear_sum_assignment

    _, columns = linear_sum_assignment(score.detach().double().cpu().numpy(), maximize=True)
    return torch.from_numpy(columns)


def lasso(moments: StitchMoments, penalty: float, steps: int = 500) -> Tensor:
    """min |Y - M X|^2 / 2 + penalty max|Y X'| |M|_1: at penalty 1 the map is zero."""
    weight = penalty * float(moments.yx.abs().max())
    step = 1 / float(torch.linalg.matrix_norm(moments.xx, 2).clamp_min(1e-300))
    current = ahead = torch.zeros_like(moments.yx)
    momentum = 1.0
    for _ in range(steps):
        gradient = ahead @ moments.xx - moments.yx
        moved = shrink(ahead - step * gradient, step * weight)
        grown = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead = moved + (momentum - 1) / grown * (moved - current)
        if float((moved - current).abs().max()) <= 1e-9 * float(moved.abs().max() + 1e-300):
            return moved
        current, momentum = moved, grown
    return current


def shrink(matrix: Tensor, by: float) -> Tensor:
    """The proximal map of |.|_1: every entry moves towards zero by `by`.

    >>> shrink(torch.tensor([3.0, -0.5]), 1.0)
    tensor([2., -0.])
    """
    return matrix.sign() * (matrix.abs() - by).clamp_min(0)


def sparsity(matrix: Tensor, threshold: float = THRESHOLD) -> float:
    """The share of entries with |W_ij| <= tau (eq. D.1); 1 - 1/n for a monomial matrix.

    >>> sparsity(torch.eye(4))
    0.75
    """
    return float((matrix.abs() <= threshold).double().mean())
