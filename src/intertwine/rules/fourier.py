"""Fourier transforms: linear along their dimensions, whose positions are fixed; all others pass. Complex
numbers: real scales and matrices act on both parts alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from intertwine.ir.value import Value, fixed
from intertwine.rules.registry import Context, dims_of, rule

MIXED = "mixed by a Fourier transform"


def _transformed(ctx: Context, x: Value, dims: Sequence[int]) -> Value:
    x = ctx.fix(x, MIXED, dims)
    sizes = fixed(ctx.shape).dims
    return x.with_dims(sizes[d] if d in dims else dim for d, dim in enumerate(x.dims))


@rule("fft_fft.default", "fft_ifft.default", "fft_rfft.default", "fft_irfft.default")
def fourier(ctx: Context, x: Value, n: int | None = None, dim: int = -1, *args: Any, **kwargs: Any) -> Value:
    """sum_t x[t] exp(i w t): its dimension is fixed, the others are linear."""
    return _transformed(ctx, x, dims_of(x, dim))


@rule("fft_fft2.default", "fft_ifft2.default", "fft_rfft2.default", "fft_irfft2.default")
def fourier_plane(
    ctx: Context, x: Value, s: Any = None, dim: Sequence[int] = (-2, -1), *args: Any, **kwargs: Any
) -> Value:
    """The same along two dimensions."""
    return _transformed(ctx, x, dims_of(x, dim))


@rule("fft_fftn.default", "fft_ifftn.default", "fft_rfftn.default")
def fourier_space(
    ctx: Context, x: Value, s: Any = None, dim: Sequence[int] | None = None, *args: Any, **kwargs: Any
) -> Value:
    """The same along several dimensions: of sizes alone, along as many of the last."""
    last = range(len(x.dims) - len(s), len(x.dims)) if dim is None and s is not None else dim
    return _transformed(ctx, x, dims_of(x, last))


@rule("complex.default")
def complex_of(ctx: Context, real: Value, imaginary: Value) -> Value:
    """a + ib: both are moved and rescaled alike."""
    return ctx.add(real, imaginary)
