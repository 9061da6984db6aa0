"""Convolutions and pooling: channels contract, pixels are fixed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from intertwine.activations import intertwiner
from intertwine.ir.ledger import WINDOW
from intertwine.ir.value import Extent, Value, fixed
from intertwine.rules import moments
from intertwine.rules.registry import Context, rule


def _channels(*args: Any, **kwargs: Any) -> dict[int, tuple[int, ...]]:
    """Dimensions of weight and bias that are channels, even if a single one; those of a group are not."""
    groups = kwargs.get("groups", args[6] if len(args) > 6 else 1)
    return {1: (0, 1), 2: (0,)} if groups == 1 else {}


@rule(
    "conv1d.default", "conv2d.default", "conv3d.default",
    "conv1d.padding", "conv2d.padding", "conv3d.padding",
    contracts=True, product=(1, 2, 1), channels_last=True, moments=moments.convolution, rows=1,
    thin=True, channels=_channels,
)  # fmt: skip
def conv(
    ctx: Context, x: Value, weight: Value, bias: Value | None = None,
    stride: object = 1, padding: object = 0, dilation: object = 1, groups: int = 1,
) -> Value:  # fmt: skip
    """sum_i w[o, i, window] x[n, i, window] + b[o], within each group."""
    return _conv(ctx, x, weight, bias, groups, transposed=False)


@rule("conv_transpose1d.default", "conv_transpose2d.input", "conv_transpose3d.input", contracts=True, rows=1)
def conv_transpose(
    ctx: Context, x: Value, weight: Value, bias: Value | None = None,
    stride: object = 1, padding: object = 0, output_padding: object = 0, groups: int = 1,
    dilation: object = 1,
) -> Value:  # fmt: skip
    """sum_i w[i, o, window] x[n, i, window] + b[o], within each group."""
    return _conv(ctx, x, weight, bias, groups, transposed=True)


@rule("convolution.default", contracts=True, channels_last=True, moments=moments.convolution, rows=1)
def convolution(
    ctx: Context,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: object,
    padding: object,
    dilation: object,
    transposed: bool,
    output_padding: object,
    groups: int,
) -> Value:
    """The general convolution."""
    return _conv(ctx, x, weight, bias, groups, transposed)


def _conv(ctx: Context, x: Value, weight: Value, bias: Value | None, groups: int, transposed: bool) -> Value:
    spatial = len(weight.dims) - 2
    if groups > 1:
        x = ctx.plain(x)
    ctx.role(weight, int(transposed), "out")
    ctx.role(weight, int(not transposed), "in")
    kernel = range(2, 2 + spatial)
    unbatched = len(x.dims) == spatial + 1
    if unbatched:
        x = x.with_dims(((), *x.dims))
    x = _without(ctx.fix(x, WINDOW, kernel), spatial)
    if groups == 1:
        bare = _without(ctx.fix(weight, WINDOW, kernel), spatial)
        out = ctx.einsum("ni,io->no" if transposed else "ni,oi->no", x, bare)
    else:
        split = ctx.grouped_weight(weight, groups)
        bare = _without(ctx.fix(split, WINDOW, range(3, 3 + spatial)), spatial)
        x = ctx.reshape(x, (x.shape[0], groups, x.shape[1] // groups))
        out = ctx.einsum("ngi,gio->ngo" if transposed else "ngi,goi->ngo", x, bare)
        out = ctx.reshape(out, (out.shape[0], groups * out.shape[2]))
    if bias is not None:
        ctx.role(bias, 0, "bias")
        out = ctx.add(out, bias)
    pixels = tuple((Extent(s),) if s != 1 else () for s in ctx.shape[len(ctx.shape) - spatial :])
    return out.with_dims((*(out.dims[1:] if unbatched else out.dims), *pixels))


def _without(value: Value, spatial: int) -> Value:
    """Drop trailing dimensions that carry no label."""
    return value.with_dims(value.dims[: len(value.dims) - spatial])


def _pool(ctx: Context, x: Value, spatial: int) -> Value:
    rank = len(x.dims)
    x = _without(ctx.fix(x, WINDOW, range(rank - spatial, rank)), spatial)
    pixels = tuple((Extent(s),) if s != 1 else () for s in ctx.shape[len(ctx.shape) - spatial :])
    return x.with_dims((*x.dims, *pixels))


@rule(
    "max_pool1d.default",
    "max_pool2d.default",
    "max_pool3d.default",
    "max_pool2d_with_indices.default",
    "max_pool3d_with_indices.default",
    "adaptive_max_pool1d.default",
    "adaptive_max_pool2d.default",
    "adaptive_max_pool3d.default",
    summarizes=True,
    thin=True,
    moments=moments.same,
)
def max_pool(ctx: Context, x: Value, *args: object, **kwargs: object) -> Value | tuple[Value, ...]:
    """max over a window: commutes with positive scales of a channel, not with signs."""
    spatial = _spatial(ctx, x)
    out = ctx.pointwise(_pool(ctx, x, spatial), intertwiner("relu"))
    if len(ctx.shapes) == 1:
        return out
    return out, ctx.opaque(out)


@rule(
    "avg_pool1d.default",
    "avg_pool2d.default",
    "avg_pool3d.default",
    "adaptive_avg_pool1d.default",
    "adaptive_avg_pool2d.default",
    "_adaptive_avg_pool2d.default",
    "adaptive_avg_pool3d.default",
    summarizes=True,
    thin=True,
    moments=moments.same,
)
@rule(
    "upsample_nearest1d.default",
    "upsample_nearest2d.default",
    "upsample_nearest3d.default",
    "upsample_nearest1d.vec",
    "upsample_nearest2d.vec",
    "upsample_nearest3d.vec",
    "upsample_bilinear2d.vec",
    "upsample_bicubic2d.vec",
    "upsample_linear1d.vec",
    "upsample_linear1d.default",
    "upsample_trilinear3d.vec",
    "upsample_trilinear3d.default",
    "_upsample_nearest_exact2d.default",
    "_upsample_nearest_exact2d.vec",
    "_upsample_bilinear2d_aa.default",
    "_upsample_bilinear2d_aa.vec",
    "_upsample_bicubic2d_aa.default",
    "_upsample_bicubic2d_aa.vec",
    "reflection_pad1d.default",
    "reflection_pad2d.default",
    "reflection_pad3d.default",
    "replication_pad1d.default",
    "replication_pad2d.default",
    "replication_pad3d.default",
)
def resample(ctx: Context, x: Value, *args: object, **kwargs: object) -> Value:
    """Averages and interpolation: linear in every channel, pixels are fixed."""
    return _pool(ctx, x, _spatial(ctx, x))


def _spatial(ctx: Context, x: Value) -> int:
    """How many trailing dimensions are pixels: the digit in `avg_pool2d`."""
    found = re.search(r"(\d)d", ctx.op)
    return int(found.group(1)) if found else len(x.dims) - 2


@rule("im2col.default")
def im2col(ctx: Context, x: Value, kernel: Sequence[int], *args: object) -> Value:
    """unfold: (n, c, h, w) -> (n, c * window, places); linear in c."""
    rank = len(x.dims)
    x = _without(ctx.fix(x, WINDOW, (rank - 2, rank - 1)), 2)
    window = int(np.prod(list(kernel)))
    inner = (Extent(window),) if window > 1 else ()
    return x.with_dims((*x.dims[:-1], x.dims[-1] + inner, (Extent(ctx.shape[-1]),)))


@rule("col2im.default")
def col2im(ctx: Context, x: Value, size: Sequence[int], kernel: Sequence[int], *args: object) -> Value:
    """fold: (n, c * window, places) -> (n, c, h, w), windows summed; linear in c."""
    window = int(np.prod(list(kernel)))
    *batch, wide, places = x.shape
    k = len(batch)
    x = ctx.fix(ctx.reshape(x, (*batch, wide // window, window, places)), WINDOW, (k + 1, k + 2))
    return x.with_dims((*x.dims[: k + 1], *fixed(tuple(ctx.shape[-2:])).dims))


@rule("grid_sampler.default", "grid_sampler_2d.default", "grid_sampler_3d.default")
def grid_sampler(ctx: Context, x: Value, grid: Value, *args: object) -> Value:
    """Pixels at places that a grid says: linear in every channel."""
    ctx.fix(grid, "places of pixels")
    x = ctx.fix(x, WINDOW, [0, *range(2, len(x.dims))])
    return x.with_dims((*fixed(ctx.shape[:1]).dims, x.dims[1], *fixed(ctx.shape[2:]).dims))


@rule("pixel_shuffle.default")
def pixel_shuffle(ctx: Context, x: Value, factor: int) -> Value:
    """(c r r, h, w) -> (c, h r, w r)."""
    *batch, c, h, w = x.shape
    k = len(batch)
    x = ctx.reshape(x, (*batch, c // factor**2, factor, factor, h, w))
    x = x.permuted([*range(k), k, k + 3, k + 1, k + 4, k + 2])
    return ctx.reshape(x, (*batch, c // factor**2, h * factor, w * factor))


@rule("pixel_unshuffle.default")
def pixel_unshuffle(ctx: Context, x: Value, factor: int) -> Value:
    """(c, h r, w r) -> (c r r, h, w)."""
    *batch, c, h, w = x.shape
    k = len(batch)
    x = ctx.reshape(x, (*batch, c, h // factor, factor, w // factor, factor))
    x = x.permuted([*range(k), k, k + 2, k + 4, k + 1, k + 3])
    return ctx.reshape(x, (*batch, c * factor**2, h // factor, w // factor))


@rule("channel_shuffle.default")
def channel_shuffle(ctx: Context, x: Value, groups: int) -> Value:
    """(g c) -> (c g)."""
    n, c, *rest = x.shape
    x = ctx.reshape(x, (n, groups, c // groups, *rest))
    x = x.permuted([0, 2, 1, *range(3, len(x.dims))])
    return ctx.reshape(x, (n, c, *rest))
