"""Elementwise ops. The group of a function of one operand is measured, not tabled (`intertwine.activations`),
so a new activation needs its name in the list below and nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch

from intertwine.activations import Intertwiner, intertwiner
from intertwine.graph.functional import WRITTEN_AS
from intertwine.ir.value import Value, constant, fixed
from intertwine.rules import moments
from intertwine.rules.registry import Context, is_value, rule

# sigma(x, *constants), applied to every entry alone: those that let positive values pass and hold negative
# ones back, which guided backpropagation gates, and all others.
RECTIFIERS = """
    relu relu6 leaky_relu elu celu selu gelu silu mish hardswish softplus threshold hardtanh clamp clamp_min
""".split()
UNARY = """
    sigmoid hardsigmoid tanh softsign log_sigmoid tanhshrink abs neg exp exp2 expm1 log log2 log10 log1p
    sqrt rsqrt reciprocal sign sgn sin cos tan asin acos atan sinh cosh asinh acosh atanh erf
    erfc floor ceil round trunc frac clamp_max nan_to_num logit isnan isinf isfinite logical_not
""".split()

# Comparisons and other functions of two operands that nothing passes through but permutations.
OPAQUE = """
    eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor eq.Scalar ne.Scalar lt.Scalar le.Scalar
    gt.Scalar ge.Scalar logical_and.default logical_or.default logical_xor.default bitwise_and.Tensor
    bitwise_or.Tensor bitwise_xor.Tensor bitwise_and.Scalar bitwise_or.Scalar atan2.default fmod.Tensor
    fmod.Scalar remainder.Tensor remainder.Scalar pow.Tensor_Tensor pow.Scalar floor_divide.default
    div.Tensor_mode div.Scalar_mode xlogy.Tensor logaddexp.default hypot.default clamp.Tensor
    clamp_min.Tensor clamp_max.Tensor __and__.Tensor __or__.Tensor __xor__.Tensor bitwise_not.default
""".split()

SAME = """
    alias.default clone.default detach.default _to_copy.default type_as.default
""".split()

WRITTEN_AS[torch.ops.aten.lift_fresh_copy.default] = torch.ops.aten.clone.default


@lru_cache(maxsize=4096)
def _measured(op: str, args: tuple[Any, ...], kwargs: tuple[tuple[str, Any], ...]) -> Intertwiner:
    name, overload = op.split(".")
    function = getattr(getattr(torch.ops.aten, name), overload)
    return intertwiner(lambda x: function(x, *args, **dict(kwargs)))


def overloads(names: list[str]) -> list[str]:
    """Those of these functions that torch has, as ops."""
    found = []
    for name in names:
        packet = getattr(torch.ops.aten, name, None)
        if packet is not None and "default" in packet.overloads():
            found.append(f"{name}.default")
    return found


@rule("square.default", finishes=True, moments=moments.pointwise, factors=lambda x: (x, x), thin=True)
@rule(*overloads(RECTIFIERS), finishes=True, moments=moments.pointwise, backward="rectifier", thin=True)
@rule(*overloads(UNARY), finishes=True, moments=moments.pointwise, thin=True)
def unary(ctx: Context, x: Value, *args: Any, **kwargs: Any) -> Value:
    """sigma(x): what passes is the intertwiner group of sigma, found by evaluation."""
    if not x.factors:
        return x if not x.zero else constant(ctx.shape)
    kwargs = {k: v for k, v in kwargs.items() if k not in ("inplace",)}
    if any(is_value(a) for a in args):
        return ctx.opaque(x, *(a for a in args if is_value(a)))
    return ctx.pointwise(x, _measured(ctx.op, args, tuple(sorted(kwargs.items()))))


@rule(*SAME, same=True, carries=True, moments=moments.same, thin=True)
def same(ctx: Context, x: Value, *args: Any, **kwargs: Any) -> Value | tuple[Value, ...]:
    """The identity (copies, changes of precision); a cast to whole numbers or truth values rescales
    nothing."""
    return x if ctx.floating else ctx.opaque(x)


@rule("native_dropout.default", moments=moments.same, thin=True)
def dropout(ctx: Context, x: Value, p: float, training: bool | None) -> tuple[Value, Value]:
    """The identity in eval mode; in training a mask is drawn for every position, so that none may move."""
    if training and p > 0:
        x = ctx.multiply(x, fixed(ctx.shape))
    return x, fixed(ctx.shapes[1])


@rule("rrelu.default", backward="rectifier")
def rrelu(ctx: Context, x: Value, lower: float = 0.0, upper: float = 0.0, training: bool = False) -> Value:
    """max(x, 0) + a min(x, 0): positive scales pass; in training a is drawn for every position."""
    out = ctx.pointwise(x, intertwiner("relu"))
    return ctx.multiply(out, fixed(ctx.shape)) if training else out


@rule("prelu.default", "_prelu_kernel.default", finishes=True, backward="rectifier", thin=True)
def prelu(ctx: Context, x: Value, weight: Value) -> Value:
    """max(x, 0) + w min(x, 0): w is scaled by nothing, x by any positive number."""
    if weight.dims:
        ctx.role(weight, 0, "slope")
    if len(x.dims) > 1 and len(weight.dims) == 1:
        weight = weight.with_dims(((), *weight.dims, *((),) * (len(x.dims) - 2)))
    x = ctx.pointwise(x, intertwiner("relu"))
    return ctx.add(x, ctx.multiply(x, weight))


@rule(
    "add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", "rsub.Scalar", "rsub.Tensor",
    finishes=True, adds=True, moments=moments.add, thin=True,
)  # fmt: skip
def add(ctx: Context, a: Any, b: Any, *args: Any, **kwargs: Any) -> Value:
    """a + b: all operands are scaled alike."""
    if not is_value(a):
        a, b = b, a
    if is_value(b):
        return ctx.add(a, b)
    if b == 0 and "rsub" not in ctx.op:
        result: Value = a
        return result
    return ctx.add(a, constant(()))


@rule("mul.Tensor", "mul.Scalar", factors=lambda a, b: (a, b), moments=moments.mul, thin=True)
def mul(ctx: Context, a: Any, b: Any) -> Value:
    """a * b: scales add up."""
    if not is_value(a):
        a, b = b, a
    return ctx.multiply(a, b) if is_value(b) else a


@rule("div.Tensor", "div.Scalar", "true_divide.Tensor", thin=True)
def div(ctx: Context, a: Any, b: Any) -> Value:
    """a / b: scales are subtracted."""
    if not is_value(b):
        result: Value = a
        return result
    inverse = ctx.pointwise(b, intertwiner("reciprocal"))
    return ctx.multiply(a, inverse) if is_value(a) else inverse


@rule("pow.Tensor_Scalar", factors=lambda x, exponent: (x, x) if exponent == 2 else None, thin=True)
def power(ctx: Context, x: Value, exponent: float) -> Value:
    """x**d: a becomes a**d."""
    return ctx.pointwise(x, _measured("pow.Tensor_Scalar", (exponent,), ()))


@rule("maximum.default", "minimum.default", "fmax.default", "fmin.default", "max.other", "min.other")
def extremum(ctx: Context, a: Value, b: Value) -> Value:
    """max(a, b): both scaled by the same positive number."""
    return ctx.pointwise(ctx.add(a, b), intertwiner("relu"))


@rule("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(ctx: Context, mask: Value, a: Any, b: Any) -> Value:
    """A fixed mask chooses between a and b, which must be scaled alike; numbers other than 0 forbid it."""
    return choose(ctx, mask, a, b)


@rule("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(ctx: Context, x: Value, mask: Value, fill: Any) -> Value:
    """x where the mask is false, else a number."""
    return choose(ctx, mask, x, fill)


def choose(ctx: Context, mask: Value, a: Any, b: Any) -> Value:
    """a where the mask is true, else b; numbers too."""
    branches = [v if is_value(v) else constant((), zero=v == 0) for v in (a, b)]
    chosen = ctx.add(*branches)
    if chosen.zero:
        return ctx.expand(chosen, ctx.shape)
    # The mask is not scaled by anything, so as a factor it only ties labels together. One that is false
    # everywhere (no padding) chooses as any other does: what it multiplies here is not 0.
    return ctx.multiply(replace(ctx.unscaled(mask), zero=False), ctx.expand(chosen, ctx.shape))


@rule(*OPAQUE)
def opaque(ctx: Context, *args: Any, **kwargs: Any) -> Value:
    """Any other function of several operands: they move together and none is rescaled."""
    values = [a for a in args if is_value(a)]
    return ctx.opaque(*values) if values else fixed(ctx.shape)


@rule("addcmul.default", "addcdiv.default")
def addcmul(ctx: Context, x: Value, a: Value, b: Value, **kwargs: Any) -> Value:
    """x + a * b, x + a / b."""
    return ctx.add(x, mul(ctx, a, b) if "mul" in ctx.op else div(ctx, a, b))


@rule("lerp.Tensor", "lerp.Scalar")
def lerp(ctx: Context, a: Value, b: Value, weight: Any) -> Value:
    """a + w (b - a)."""
    mixed = ctx.add(a, b)
    return ctx.add(mixed, ctx.multiply(mixed, weight)) if is_value(weight) else mixed


@rule("glu.default")
def glu(ctx: Context, x: Value, dim: int = -1) -> Value:
    """x1 * sigmoid(x2) of the two halves."""
    from intertwine.rules.shape import halves

    first, gate = halves(ctx, x, dim)
    return ctx.multiply(first, ctx.pointwise(gate, intertwiner("sigmoid")))
