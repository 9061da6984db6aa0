"""Features as every measure sees them: N x C x (pixels), checked once, never changed in the caller's hands.

The group of a layer acts on channels only (appendix D.7 of Godfrey et al.), so a measure has to say what
becomes of the pixels: `samples` (N*H*W rows of C, eq. D.2), `flatten` (N rows of C*H*W, so a dot product
sums over pixels) or `pool` (N rows of C, the mean over pixels). Two layers of different spatial size meet at
the smaller one: the larger map is average-pooled, which commutes with every action on channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from intertwine.errors import DataError, InputError

Array = Tensor | np.ndarray
Pixels = Literal["samples", "flatten", "pool"]
PIXELS: tuple[Pixels, ...] = ("samples", "flatten", "pool")
FEWEST_INPUTS = 4  # HSIC_1 divides by n (n - 3)
_ROUNDING = 16  # units of the last place that a mean may be off
_FEW = 8  # inputs that tell how large the pixels of a channel are


def as_features(x: Array, name: str = "x") -> Tensor:
    """`x` as a finite floating tensor of shape N x C x (pixels), N >= 4; integers become float64, halves
    float32.

    >>> as_features(np.zeros((5, 3))).shape
    torch.Size([5, 3])
    """
    try:
        value = torch.as_tensor(x).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{type(x).__name__} is no array of features", where=name) from error
    if value.is_meta or value.layout != torch.strided:
        raise DataError("features that are sparse, or on the device meta", where=name)
    if value.ndim < 2:
        raise DataError(
            f"features need at least two dims, got shape {tuple(value.shape)}",
            where=name,
            do="pass inputs x channels, or inputs x channels x height x width",
        )
    if value.shape[0] < FEWEST_INPUTS:
        raise DataError(
            f"{value.shape[0]} inputs are too few",
            where=name,
            so="no measure of similarity is defined (the unbiased HSIC divides by n - 3)",
            do=f"pass at least {FEWEST_INPUTS} inputs",
        )
    if value.numel() == 0:
        raise DataError(f"features are empty, shape {tuple(value.shape)}", where=name)
    if value.is_complex():
        raise DataError("features are complex", where=name, do="pass real and imaginary parts as channels")
    if not value.is_floating_point():
        value = value.double()
    elif value.dtype in (torch.float16, torch.bfloat16):
        value = value.float()
    check_finite(value, name)
    return value


def check_finite(value: Tensor, name: str) -> None:
    """Raise DataError when `value` holds NaN or infinity; looks at 256 rows at a time to spare memory."""
    if value.is_meta:
        raise DataError("features hold no values", where=name, do="load the weights of the model first")
    for start in range(0, value.shape[0], 256):
        if not torch.isfinite(value[start : start + 256]).all():
            raise DataError(
                "features hold NaN or infinity",
                where=f"{name}, inputs {start} to {min(start + 256, value.shape[0]) - 1}",
                so="every similarity would be NaN",
                do="check the model's outputs in this dtype, or leave the layer out",
            )


def check_paired(x: Tensor, y: Tensor) -> None:
    """Raise DataError unless both hold the same number of inputs on the same device."""
    if x.shape[0] != y.shape[0]:
        raise DataError(
            f"{x.shape[0]} inputs on one side, {y.shape[0]} on the other",
            so="rows cannot be paired",
            do="compute both features on the same inputs, in the same order",
        )
    if x.device != y.device:
        raise DataError(f"features live on {x.device} and {y.device}", do="move both to one device")


def check_pixels(pixels: str) -> None:
    """Raise InputError for a treatment of pixels that does not exist."""
    if pixels not in PIXELS:
        raise InputError(f"no pixel treatment named {pixels!r}", do=f"choose one of {', '.join(PIXELS)}")


def common_size(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The spatial size at which two layers meet: the smaller in each dim, or none at all if the ranks differ.

    >>> common_size((32, 32), (8, 8)), common_size((8, 8), (16,))
    ((8, 8), ())
    """
    if a == b:
        return a
    if len(a) != len(b) or not 1 <= len(a) <= 3:
        return ()
    return tuple(min(m, n) for m, n in zip(a, b, strict=True))


def resize(x: Tensor, size: tuple[int, ...]) -> Tensor:
    """N x C x (pixels) average-pooled to `size` and returned as N x C x P; a view where nothing changes."""
    spatial = tuple(x.shape[2:])
    if spatial == size:
        return x.reshape(x.shape[0], x.shape[1], math.prod(size))
    if size == ():
        return _pooled(x.flatten(2))[:, :, None]
    if all(have % want == 0 for have, want in zip(spatial, size, strict=True)) and len(size) == 2:
        window = (
            spatial[0] // size[0],
            spatial[1] // size[1],
        )  # plain pooling is several times the adaptive one
        return functional.avg_pool2d(x, window).flatten(2)
    pools: dict[int, Callable[..., Tensor]] = {
        1: functional.adaptive_avg_pool1d,
        2: functional.adaptive_avg_pool2d,
        3: functional.adaptive_avg_pool3d,
    }
    return pools[len(size)](x, size).flatten(2)


def pool(x: Tensor) -> Tensor:
    """Means over pixels, N x C x (pixels) -> N x C."""
    return resize(x, ())[:, :, 0]


def _pooled(flat: Tensor) -> Tensor:
    """Means over pixels, N x C x P -> N x C. One that is only rounding of what its channel holds is 0: where
    the pixels of every input sum to nothing (a value minus its own mean), there is nothing to compare."""
    mean = flat.mean(2)
    if not mean.numel():
        return mean
    unit = min(torch.finfo(dtype).eps for dtype in (mean.dtype, torch.float32))  # halves are rounded before
    # To read all pixels again costs as much as a layer: first a few inputs say where that could matter.
    some = flat[:: -(-len(flat) // _FEW)].abs().mean(2).amax(0)
    small = (mean != 0) & ((mean.abs() < 4 * _ROUNDING * unit * some) | (some == 0))
    where = small.any(0)
    if where.any():
        size = torch.linalg.vector_norm(flat[:, where], 1, 2).amax(0) / flat.shape[2]
        mean[:, where] = mean[:, where].masked_fill(mean[:, where].abs() < _ROUNDING * unit * size, 0.0)
    return mean


def rows(x: Tensor, pixels: Pixels) -> Tensor:
    """N x C x (pixels) as a matrix whose rows are what the measure calls samples.

    >>> x = torch.zeros(5, 3, 2, 2)
    >>> rows(x, "samples").shape, rows(x, "flatten").shape, rows(x, "pool").shape
    (torch.Size([20, 3]), torch.Size([5, 12]), torch.Size([5, 3]))
    """
    flat = x.flatten(2) if x.ndim > 2 else x.unsqueeze(2)
    if pixels == "flatten":
        return flat.flatten(1)
    if pixels == "pool":
        return _pooled(flat)
    return flat.transpose(1, 2).reshape(-1, flat.shape[1])
