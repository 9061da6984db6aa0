"""N x N kernels and the HSIC of two of them; tiled, so that ten thousand images fit.

Linear and RBF: Kornblith et al. 2019. Max kernel and Laplace kernel: Definition 5.3, eq. 5.6 and appendix
D.7.2 of Godfrey et al. 2022. A kernel needs all inputs of one layer at once, in memory or memory-mapped, and
works on two tiles of it at a time; the diagonal is kept, and emptied by HSIC_1 only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from intertwine.comparing.covariance import constant_features
from intertwine.comparing.features import rows
from intertwine.errors import InputError
from intertwine.progress import Progress

TILE_BYTES = 2**27  # at most, for a tile of normalised features; two are in memory at a time
_BLOCK = 256  # rows of a block whose running maximum stays in the second-level cache
TILE = 1024  # inputs a tile: a tile of the kernel is 4 MB, a product of two tiles keeps every core busy
# Linear and RBF kernels of features up to 1 GB run in float64, larger ones in their own dtype.
DOUBLE_LIMIT = 2**27


def linear_kernel(x: Tensor, *, progress: Progress | None = None) -> Tensor:
    """K[m, n] = sum over channels and pixels of x_m x_n, with the mean input taken away (HSIC would
    anyway)."""
    flat = _precise(rows(x, "flatten"))
    flat = flat - flat.mean(0)
    return _tiled(flat, lambda a, b: a @ b.T, progress)


def squared_distances(x: Tensor, *, progress: Progress | None = None) -> Tensor:
    """D[m, n] = |x_m - x_n|^2 over channels and pixels, zero on the diagonal, never negative."""
    kernel = linear_kernel(x, progress=progress)
    squares = kernel.diagonal().clone()
    kernel.mul_(-2).add_(squares[:, None]).add_(squares[None, :]).clamp_(min=0)
    return kernel.fill_diagonal_(0)


def rbf_kernel(x: Tensor, *, threshold: float = 1.0, progress: Progress | None = None) -> Tensor:
    """exp(-|x_m - x_n|^2 / (2 threshold^2 median)), median of all N^2 squared distances as in Kornblith et
    al."""
    if not threshold > 0:
        raise InputError(f"threshold is {threshold}", do="give a share of the median distance above 0")
    distances = squared_distances(x, progress=progress)
    median = _median(distances)
    if not median > 0:
        raise constant_features("given")
    return distances.div_(-2 * threshold**2 * median).exp_()


def max_kernel(x: Tensor, *, progress: Progress | None = None) -> Tensor:
    """K[m, n] = max_c sum_hw x~[m, c, h, w] x~[n, c, h, w], channels centred and of unit norm (D.7.2).

    One matrix product for each channel and pair of tiles, folded into a running maximum: no N x N x C tensor.
    """
    channels = _Normalised(x)

    return _tiled(channels, _max_tile, progress)


def _max_tile(a: Tensor, b: Tensor) -> Tensor:
    """max over channels of a[c] b[c]', in blocks that stay in the cache; half of them if a is b."""
    best = a.new_empty(a.shape[1], b.shape[1])
    for i in range(0, a.shape[1], _BLOCK):
        for j in range(i if a is b else 0, b.shape[1], _BLOCK):
            block = torch.mm(a[0, i : i + _BLOCK], b[0, j : j + _BLOCK].T)
            product = torch.empty_like(block)
            for c in range(1, a.shape[0]):
                torch.mm(a[c, i : i + _BLOCK], b[c, j : j + _BLOCK].T, out=product)
                torch.maximum(block, product, out=block)
            best[i : i + _BLOCK, j : j + _BLOCK] = block
            if a is b and i != j:
                best[j : j + _BLOCK, i : i + _BLOCK] = block.T
    return best


def laplace_kernel(x: Tensor, *, c: float | None = None, progress: Progress | None = None) -> Tensor:
    """K[m, n] = exp(-c |x~_m - x~_n|_1) (eq. 5.6), channels of unit norm; positive semi-definite, unlike the
    max kernel.

    The source leaves c free; by default it is 1 / (median distance), which makes the kernel independent of
    scale.
    """
    if c is not None and not c > 0:
        raise InputError(f"c is {c}", do="give a rate above 0")
    channels = _Normalised(x)

    def tile(a: Tensor, b: Tensor) -> Tensor:
        return torch.cdist(a.transpose(0, 1).flatten(1), b.transpose(0, 1).flatten(1), p=1)

    distances = _tiled(channels, tile, progress).fill_diagonal_(0)
    if c is None:
        median = _median(distances)
        if not median > 0:  # most inputs have the same features
            raise constant_features("given")
        c = 1 / median
    return distances.mul_(-c).exp_()


def hsic(k: Tensor, l: Tensor, *, debiased: bool) -> float:
    """tr(KHLH) (biased), or HSIC_1 up to no factor: (tr KL + 1'K1 1'L1/((n-1)(n-2)) - 2/(n-2) 1'KL1) /
    (n(n-3)).

    For HSIC_1 the diagonals count as zero. Sums run in float64 over bands of rows, with no N x N copy.
    """
    n = k.shape[0]
    product = sum(float((a.double() * b.double()).sum()) for a, b in _bands(k, l))
    rows_k, rows_l = k.sum(1, dtype=torch.float64), l.sum(1, dtype=torch.float64)
    if debiased:
        diagonal_k, diagonal_l = k.diagonal().double(), l.diagonal().double()
        product -= float(diagonal_k @ diagonal_l)
        rows_k, rows_l = rows_k - diagonal_k, rows_l - diagonal_l
        middle = float(rows_k.sum() * rows_l.sum()) / ((n - 1) * (n - 2))
        return (product + middle - 2 / (n - 2) * float(rows_k @ rows_l)) / (n * (n - 3))
    return product - 2 / n * float(rows_k @ rows_l) + float(rows_k.sum() * rows_l.sum()) / n**2


def kernel_cka(k: Tensor, l: Tensor, *, debiased: bool = False) -> float:
    """HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L)) (eq. 5.4 when debiased).

    >>> k = torch.eye(5) + torch.ones(5, 5)
    >>> kernel_cka(k, 2 * k)
    1.0
    """
    own_k, own_l = hsic(k, k, debiased=debiased), hsic(l, l, debiased=debiased)
    for own, kernel, side in ((own_k, k, "first"), (own_l, l, "second")):
        if not own > 1e-24 * float(kernel.double().square().mean()):
            raise constant_features(side)
    result: float = hsic(k, l, debiased=debiased) / (own_k * own_l) ** 0.5
    return result


class _Normalised:
    """Features by channel (C x N x P), centred, over their norms; made tile by tile, so x is never copied."""

    def __init__(self, x: Tensor) -> None:
        self.x = x.unsqueeze(2).flatten(2)  # also of a layer that has no channels left
        rows = self.x.shape[0] * self.x.shape[2]
        self.mean = sum(band.sum(2).sum(0, dtype=torch.float64) for band in self.x.split(256)) / rows
        origin = self.mean.to(x.dtype)[:, None]
        norms = (torch.linalg.vector_norm(band - origin, dim=2) for band in self.x.split(256))
        square = sum(norm.double().square().sum(0) for norm in norms)
        # centring leaves rounding on a constant channel
        rounding = max(1e-12, 8 * torch.finfo(x.dtype).eps)
        live = square > rounding**2 * (square + rows * self.mean.square())
        if not live.any():
            raise constant_features("given")
        self.scale = torch.where(
            live, square.where(live, torch.ones_like(square)).rsqrt(), torch.zeros_like(square)
        )

    @property
    def row_bytes(self) -> int:
        """Memory of one normalised input."""
        return self.x.shape[1] * self.x.shape[2] * self.x.element_size()

    def __len__(self) -> int:
        return self.x.shape[0]

    def __getitem__(self, where: slice) -> Tensor:
        mean, scale = (v.to(self.x.dtype)[:, None, None] for v in (self.mean, self.scale))
        part = self.x[where].transpose(0, 1)
        return torch.sub(part, mean, out=part.new_empty(part.shape)).mul_(scale)


def _tiled(
    x: Tensor | _Normalised, tile: Callable[[Tensor, Tensor], Tensor], progress: Progress | None
) -> Tensor:
    """A symmetric N x N matrix from tile(x[a], x[b]) over the upper triangle of tiles."""
    n = len(x)
    size = max(1, min(TILE, TILE_BYTES // x.row_bytes)) if isinstance(x, _Normalised) else TILE
    starts = range(0, n, size)
    total, done = len(starts) * (len(starts) + 1) // 2, 0
    out: Tensor | None = None
    for i in starts:
        left = x[i : i + size]
        for j in range(i, n, size):
            block = tile(left, left if j == i else x[j : j + size])
            if out is None:
                out = block.new_empty(n, n)
            out[i : i + size, j : j + size] = block
            if j != i:
                out[j : j + size, i : i + size] = block.T
            done += 1
            if progress is not None:
                progress(done, total, "tiles")
    assert out is not None  # features have at least four inputs
    return out


def _precise(x: Tensor) -> Tensor:
    return x.double() if x.numel() <= DOUBLE_LIMIT else x


def _median(matrix: Tensor) -> float:
    """The median of all entries, the mean of the middle two; by numpy, whose partition is in linear time."""
    import numpy

    return float(numpy.median(matrix.cpu().numpy()))


def _bands(k: Tensor, l: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(k.split(TILE), l.split(TILE), strict=True)
