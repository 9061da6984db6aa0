"""Measures that read only moments: CKA, CCA and its weighted forms, Procrustes. One function each, float64.

X, Y are centred unless said otherwise; S_xy = X'Y. Sources: Kornblith et al. 2019 (CKA, CCA), Raghu et al.
2017 (SVCCA), Morcos et al. 2018 (PWCCA), Godfrey et al. 2022 (section 5, appendix D.7), Ding et al. 2021
(Procrustes).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from intertwine.comparing.moments import Cross, PairMoments
from intertwine.errors import DataError, InputError

# Variances below this share of the largest are noise: moments in float64 know a variance to about 1e-16 of
# the largest, and a correlation divides by it.
RANK_TOLERANCE = 1e-10


def linear_cka(m: PairMoments) -> float:
    """|X'Y|^2 / (|X'X| |Y'Y|), centred, Frobenius norms (eq. 5 of Kornblith et al.)."""
    xx, yy, xy = _second(m, centre=True)
    return float(xy.norm() ** 2 / (xx.norm() * yy.norm()))


def debiased_linear_cka(m: PairMoments) -> float:
    """HSIC_1(XX', YY') / sqrt(HSIC_1(XX', XX') HSIC_1(YY', YY')), without a kernel matrix."""
    _second(m, centre=True)
    return float(_hsic1(m.xy) / (_hsic1(m.xx) * _hsic1(m.yy)).sqrt())


def _hsic1(cross: Cross) -> Tensor:
    """The unbiased HSIC of two linear kernels, from moments about the mean.

    With rows that sum to zero, row i of the kernel with an empty diagonal sums to -|x_i|^2, so the three
    terms of HSIC_1 are |X'Y|^2 - F, T_x T_y / ((n-1)(n-2)) and -2 F / (n-2), where F = sum |x_i|^2 |y_i|^2
    and T = sum |x_i|^2.
    """
    c, n = cross.centred(), cross.n
    if c.norm_norm is None:
        raise InputError("these moments lack the fourth order", do="accumulate with debiased=True")
    first = c.xy.square().sum() - c.norm_norm
    second = c.norm_x * c.norm_y / ((n - 1) * (n - 2))
    return (first + second - 2 * c.norm_norm / (n - 2)) / (n * (n - 3))


def mean_cca(m: PairMoments, *, centre: bool = True) -> float:
    """sum rho_i / p_1: the mean canonical correlation, p_1 the smaller rank."""
    rho, _ = _canonical(m, centre)
    return float(rho.mean())


def mean_squared_cca(m: PairMoments, *, centre: bool = True) -> float:
    """sum rho_i^2 / p_1 = |Q_Y' Q_X|^2 / p_1 (section 2.1 of Yellapragada)."""
    rho, _ = _canonical(m, centre)
    return float(rho.square().mean())


def svcca(m: PairMoments, *, variance: float = 0.99) -> float:
    """Mean CCA between the leading principal directions that hold `variance` of each side (Raghu et al.)."""
    if not 0 < variance <= 1:
        raise InputError(f"variance is {variance}", do="give a share above 0 and at most 1")
    xx, yy, xy = _second(m, centre=True)
    rho = torch.linalg.svdvals(_leading(xx, variance).T @ xy @ _leading(yy, variance))
    return float(rho.clamp(max=1).mean())


def pwcca(m: PairMoments, *, centre: bool = True) -> float:
    """sum alpha_i rho_i / sum alpha_i with alpha_i = sum_j |<h_i, x_j>| (Morcos et al., eq. 4).

    h_i are the canonical variates of the side of lower rank (X when they are equal) and x_j its columns, as
    in the paper. Published codes weight by other sides or by other norms. Symmetric only when the ranks
    differ.
    """
    rho, weights = _canonical(m, centre)
    return float((weights * rho).sum() / weights.sum())


def orthogonal_procrustes(m: PairMoments, *, centre: bool = False) -> float:
    """1 - delta / 2, delta^2 = 2 - 2 |X'Y|_* with X and Y of unit Frobenius norm; not centred, as in
    D.7.1."""
    xx, yy, xy = _second(m, centre)
    nuclear = torch.linalg.svdvals(xy).sum()
    return _procrustes(nuclear / (xx.trace() * yy.trace()).sqrt(), 1.0, 1.0)


def permutation_procrustes(m: PairMoments, *, centre: bool = False) -> float:
    """1 - delta / 2, delta = min_P |X - Y P| with X and Y of unit Frobenius norm (Williams et al. 2021).

    Channels left over on the wider side stay unmatched, as if the other side had channels of zeros.
    """
    xx, yy, xy = _second(m, centre)
    return _procrustes(_assigned(xy) / (xx.trace() * yy.trace()).sqrt(), 1.0, 1.0)


def grelu_procrustes(m: PairMoments, *, centre: bool = False) -> float:
    """1 - delta / (2 sqrt d), delta = min_P |X~ - Y~ P|, channels divided by their norms (Definition 5.2).

    A dead channel (zero norm) stays zero and is not counted in d; for widths d and d' the bound of delta is
    sqrt d + sqrt d'.
    """
    xx, yy, xy = _second(m, centre)
    norm_x, norm_y = xx.diagonal().sqrt(), yy.diagonal().sqrt()
    live_x, live_y = norm_x > 0, norm_y > 0
    scaled = xy[live_x][:, live_y] / torch.outer(norm_x[live_x], norm_y[live_y])
    return _procrustes(_assigned(scaled), float(live_x.sum()), float(live_y.sum()))


def _second(m: PairMoments, centre: bool) -> tuple[Tensor, Tensor, Tensor]:
    """X'X, Y'Y, X'Y, about the means or as the features came, with exact zeros for dead channels.

    Centring leaves rounding of about 1e-32 of the squared norm on a constant channel; it must not pass for
    signal.
    """
    raw_x, raw_y = m.xx.second(centre=False), m.yy.second(centre=False)
    xx, yy = (m.xx.second(centre=True), m.yy.second(centre=True)) if centre else (raw_x, raw_y)
    xy = m.xy.second(centre=centre)
    live_x, live_y = (s.diagonal() > 1e-24 * r.diagonal() for s, r in ((xx, raw_x), (yy, raw_y)))
    for live, side in ((live_x, "first"), (live_y, "second")):
        if not live.any():
            raise constant_features(side)
    return (
        xx * torch.outer(live_x, live_x),
        yy * torch.outer(live_y, live_y),
        xy * torch.outer(live_x, live_y),
    )


def constant_features(side: str) -> DataError:
    """The error for features that do not vary."""
    return DataError(
        f"the {side} features are constant",
        so="no similarity is defined: they carry no information to compare",
        do="leave the layer out, or check that it is alive on these inputs",
    )


def _procrustes(trace: Tensor, square_x: float, square_y: float) -> float:
    """1 - delta / (|X| + |Y|), delta^2 = |X|^2 + |Y|^2 - 2 trace."""
    delta = math.sqrt(max(square_x + square_y - 2 * float(trace), 0.0))
    return 1 - delta / (math.sqrt(square_x) + math.sqrt(square_y))


def _assigned(gains: Tensor) -> Tensor:
    """max over permutations P of tr(gains P); with unequal sides, every channel of the narrower one is
    matched."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(gains.cpu().numpy(), maximize=True)
    return gains[torch.as_tensor(rows), torch.as_tensor(columns)].sum()


def _canonical(m: PairMoments, centre: bool) -> tuple[Tensor, Tensor]:
    """Canonical correlations, and for each the weight of Morcos et al. on the side of lower rank."""
    xx, yy, xy = _second(m, centre)
    white_x, white_y = _whiten(xx), _whiten(yy)
    left, rho, right = torch.linalg.svd(white_x.T @ xy @ white_y, full_matrices=False)
    if white_x.shape[1] <= white_y.shape[1]:
        weights = (xx @ white_x @ left).abs().sum(0)
    else:
        weights = (yy @ white_y @ right.T).abs().sum(0)
    return rho.clamp(max=1), weights


def _whiten(s: Tensor) -> Tensor:
    """W with W' S W = 1, as many columns as S has rank. Unit variances first: it makes the rank independent
    of scale."""
    scale = s.diagonal().sqrt()
    live = scale > 0
    inverse = torch.where(live, 1 / scale.where(live, torch.ones_like(scale)), torch.zeros_like(scale))
    values, vectors = torch.linalg.eigh(s * torch.outer(inverse, inverse))
    keep = values > RANK_TOLERANCE * values.max()
    result: Tensor = inverse[:, None] * vectors[:, keep] / values[keep].sqrt()
    return result


def _leading(s: Tensor, variance: float) -> Tensor:
    """W with W' S W = 1 over the fewest leading eigenvectors of S that hold `variance` of its trace."""
    values, vectors = torch.linalg.eigh(s)
    values, vectors = values.flip(0), vectors.flip(1)
    share = values.clamp(min=0).cumsum(0) / values.clamp(min=0).sum()
    count = int((share < variance * (1 - 1e-12)).sum()) + 1
    keep = (torch.arange(len(values), device=s.device) < count) & (values > RANK_TOLERANCE * values[0])
    result: Tensor = vectors[:, keep] / values[keep].sqrt()
    return result
