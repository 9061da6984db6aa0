"""Norms. Those with stored statistics are affine in each channel; the others mix what they normalise over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from intertwine.activations import intertwiner
from intertwine.ir.value import Factor, Value, zero_scale
from intertwine.rules import moments
from intertwine.rules.registry import Context, rule


def _channelwise(value: Value, rank: int) -> Value:
    """A vector over channels, shaped to meet dimension 1 of a value of this rank."""
    return value.with_dims(((), *value.dims, *((),) * (rank - 2))) if rank > 1 else value


def _affine(ctx: Context, x: Value, gain: Value | None, shift: Value | None, channelwise: bool) -> Value:
    for weight, role in ((gain, "gain"), (shift, "shift")):
        if weight is not None:
            for dim in range(len(weight.dims)):
                ctx.role(weight, dim, role)
    if gain is not None:
        x = ctx.multiply(x, _channelwise(gain, len(x.dims)) if channelwise else gain)
    if shift is not None:
        x = ctx.add(x, _channelwise(shift, len(x.dims)) if channelwise else shift)
    return x


def stored_norm(
    x: Tensor,
    gain: Tensor | None,
    shift: Tensor | None,
    mean: Tensor,
    var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """Batch norm in eval mode, with gradients for its statistics too, which torch's own does not give."""
    shape = (1, -1, *(1,) * (x.dim() - 2))
    scale = (var + eps).rsqrt() if gain is None else gain * (var + eps).rsqrt()
    out = (x - mean.reshape(shape)) * scale.reshape(shape)
    return (out if shift is None else out + shift.reshape(shape)), x.new_zeros(0), x.new_zeros(0)


@rule(
    "_native_batch_norm_legit_no_training.default",
    finishes=True,
    statistics=(3, 4, 6),
    moments=moments.batch_norm,
    differentiable=stored_norm,
    thin=True,
    channels=lambda *_: dict.fromkeys((1, 2, 3, 4), (0,)),
)
def batch_norm(
    ctx: Context,
    x: Value,
    gain: Value | None,
    shift: Value | None,
    mean: Value,
    var: Value,
    momentum: float,
    eps: float,
) -> tuple[Value, ...]:
    """gain (x - mean) / sqrt(var + eps) + shift: mean and sqrt(var + eps) scale as x (eq. E.47)."""
    rank = len(x.dims)
    ctx.role(mean, 0, "mean")
    if not ctx.role(var, 0, "var", shift=eps):
        var = ctx.unscaled(var)
    centred = ctx.add(x, _channelwise(mean, rank))
    deviation = ctx.pointwise(_channelwise(var, rank), intertwiner("rsqrt"))
    normal = ctx.multiply(centred, deviation)
    # The statistics follow the data, so what comes out of the division has no scale left, only a sign.
    for factor in normal.factors:
        ctx.ledger.zero(factor.scale, sign=False)
    out = _affine(ctx, normal, gain, shift, channelwise=True)
    return out, Value(((),)), Value(((),))


@rule("_native_batch_norm_legit.no_stats", "_native_batch_norm_legit_functional.default", finishes=True)
def batch_norm_training(
    ctx: Context, x: Value, gain: Value | None, shift: Value | None, *args: Any
) -> tuple[Value, ...]:
    """Normalise every channel over the batch (also how weights are standardised); statistics move with it."""
    others = [d for d in range(len(x.dims)) if d != 1]
    x = ctx.normalize(x, others, odd=True)
    out = _affine(ctx, x, gain, shift, channelwise=True)
    statistics = _statistics(ctx, x)
    return (out, *statistics, *_stored(ctx, args[:2], statistics))[: len(ctx.shapes)]


def _statistics(ctx: Context, x: Value) -> tuple[Value, Value]:
    """Mean and variance of every channel: a variance is that of the channel negated."""
    mean = ctx.reduce(x, [d for d in range(len(x.dims)) if d != 1], keepdim=False)
    unsigned = tuple(Factor(f.axes, f.ids, zero_scale(f.ids.shape)) for f in mean.factors)
    return mean, replace(mean, factors=unsigned)


def _stored(ctx: Context, before: Sequence[Any], statistics: Sequence[Value]) -> list[Value]:
    """The running statistics after a step towards those of the batch."""
    return [ctx.add(old, new) for old, new in zip(before, statistics, strict=True) if isinstance(old, Value)]


@rule("layer_norm.default", centres=True, moments=moments.layer_norm)
def layer_norm(
    ctx: Context,
    x: Value,
    shape: Sequence[int],
    gain: Value | None = None,
    shift: Value | None = None,
    eps: float = 1e-5,
    cudnn: bool = False,
) -> Value:
    """(x - mean) / std over the last dimensions: permutations only."""
    rank = len(x.dims)
    x = ctx.normalize(x, list(range(rank - len(shape), rank)), odd=True)
    return _affine(ctx, x, gain, shift, channelwise=False)


@rule("rms_norm.default", "_fused_rms_norm.default", centres=False)
def rms_norm(
    ctx: Context, x: Value, shape: Sequence[int], gain: Value | None = None, eps: float | None = None
) -> Value | tuple[Value, ...]:
    """x / |x|: rotations pass, and permutations where there is a gain."""
    rank = len(x.dims)
    x = ctx.normalize(x, list(range(rank - len(shape), rank)), rotation=True, odd=True)
    out = _affine(ctx, x, gain, None, channelwise=False)
    return out if len(ctx.shapes) == 1 else (out, Value(tuple(() for _ in ctx.shapes[1])))


@rule("group_norm.default", finishes=True)
def group_norm(
    ctx: Context,
    x: Value,
    groups: int,
    gain: Value | None = None,
    shift: Value | None = None,
    eps: float = 1e-5,
    cudnn: bool = True,
) -> Value:
    """Normalise over the channels of a group and all pixels: channels stay in their group."""
    shape = x.shape
    n, c, *rest = shape
    split = ctx.reshape(x, (n, groups, c // groups, *rest))
    out = ctx.normalize(split, list(range(2, len(split.dims))), odd=True)
    return _affine(ctx, ctx.reshape(out, shape), gain, shift, channelwise=True)


@rule("instance_norm.default", finishes=True)
def instance_norm(
    ctx: Context,
    x: Value,
    gain: Value | None,
    shift: Value | None,
    mean: Value | None,
    var: Value | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn: bool = False,
) -> Value:
    """Normalise every channel of every sample over its pixels; running statistics move with the channels.

    Those that are given are written to, which neither its schema nor the graph says.
    """
    if not use_input_stats and mean is not None and var is not None:
        return batch_norm(ctx, x, gain, shift, mean, var, momentum, eps)[0]
    x = ctx.normalize(x, list(range(2, len(x.dims))), odd=True)
    if use_input_stats:
        _stored(ctx, (mean, var), _statistics(ctx, x))
    return _affine(ctx, x, gain, shift, channelwise=True)


@rule("softmax.int", "_softmax.default", "log_softmax.int", "_log_softmax.default")
def softmax(ctx: Context, x: Value, dim: int, *args: object, **kwargs: object) -> Value:
    """exp(x) / sum exp(x): permutations only."""
    return ctx.normalize(x, [dim % len(x.dims)] if x.dims else [])


@rule("_weight_norm.default")
def weight_norm(ctx: Context, v: Value, g: Value, dim: int = 0) -> Value:
    """g v / |v|, the length over all dimensions but one: along it v scales freely, g carries the scale."""
    # torch reads -1 as "over all dimensions", not as the last one.
    others = [d for d in range(len(v.dims)) if d != dim]
    length = ctx.reduce(v, others, True, "max")
    return ctx.multiply(g, ctx.multiply(v, ctx.pointwise(length, intertwiner("reciprocal"))))
