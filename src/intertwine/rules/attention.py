"""Attention: softmax(q k^T + mask) v, heads as blocks."""

from __future__ import annotations

from typing import Any

from intertwine.ir.value import Value
from intertwine.rules.linear import matmul
from intertwine.rules.norm import softmax
from intertwine.rules.registry import Context, rule
from intertwine.rules.shape import repeat_interleave, transpose


@rule("scaled_dot_product_attention.default")
def attention(
    ctx: Context,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """q and k share their channels (GL of the head dim), v has its own; heads move as blocks."""
    if enable_gqa and len(q.dims) > 2:
        groups = q.shape[-3] // k.shape[-3]
        k, v = (repeat_interleave(ctx, x, groups, -3) for x in (k, v))
    scores = matmul(ctx, q, transpose(ctx, k, -1, -2))
    if causal:
        rank = len(scores.dims)
        scores = ctx.fix(scores, "attention is causal", [rank - 2, rank - 1])
    if mask is not None:
        scores = ctx.add(scores, mask)
    return matmul(ctx, softmax(ctx, scores, -1), v)


@rule(
    "_assert_tensor_metadata.default",
    "_assert_async.msg",
    "_assert_scalar.default",
    "sym_constrain_range_for_size.default",
    checks=True,
)
def nothing(ctx: Context, *args: Any, **kwargs: Any) -> tuple[()]:
    """A check without a result."""
    return ()
