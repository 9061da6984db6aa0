"""Reductions over dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from intertwine.activations import intertwiner
from intertwine.ir.ledger import NONLINEAR, UNMERGEABLE
from intertwine.ir.placing import of_rank
from intertwine.ir.value import Factor, Value, fixed, zero_scale
from intertwine.rules import moments
from intertwine.rules.linear import LETTERS
from intertwine.rules.registry import Context, Product, dims_of, rule


def _dims(x: Any, dims: Sequence[int] | None = None, *_: Any, **__: Any) -> Sequence[int] | None:
    return dims


@rule("sum.dim_IntList", "sum.default", summarizes=True, sums=_dims, moments=moments.mean)
@rule("nansum.default", summarizes=True, moments=moments.mean)
def linear_reduce(
    ctx: Context, x: Value | Product, dims: Sequence[int] | None = None, keepdim: bool = False, **_: Any
) -> Value:
    """sum: what is summed over cannot be rescaled, the rest passes; a sum of products contracts."""
    if isinstance(x, Product):
        return _contract(ctx, x, dims, keepdim)
    x = x if ctx.floating else ctx.opaque(x)  # whole numbers are made of its entries
    return ctx.reduce(x, dims_of(x, dims), keepdim)


@rule("mean.dim", "mean.default", summarizes=True, sums=_dims, moments=moments.mean)
@rule("nanmean.default", summarizes=True, moments=moments.mean)
def average(
    ctx: Context, x: Value | Product, dims: Sequence[int] | None = None, keepdim: bool = False, **_: Any
) -> Value:
    """mean: as a sum; where products are averaged, what is merged would be counted."""
    if isinstance(x, Product):
        return _contract(ctx, x, dims, keepdim, UNMERGEABLE)  # it sees how many there are
    return linear_reduce(ctx, x, dims, keepdim)


def _contract(
    ctx: Context, product: Product, dims: Sequence[int] | None, keepdim: bool, flags: int = 0
) -> Value:
    """sum over dims of left * right: a matrix on one, its inverse transpose on the other; x * x turns."""
    rank = max(len(product.left.dims), len(product.right.dims))
    left, right = of_rank(product.left, rank), of_rank(product.right, rank)
    ctx.part(left, product.left)
    ctx.part(right, product.right)
    gone = dims_of(left, dims)
    if product.left is product.right:  # what turns it keeps its length
        flags |= NONLINEAR
    for value in (left, right):
        for factor in value.factors_on(a for d in gone for a in value.dims[d]):
            ctx.ledger.mark(factor.ids, flags)
    letters = LETTERS[:rank]
    kept = [d for d in range(rank) if d not in gone]
    out = ctx.einsum(f"{letters},{letters}->{''.join(letters[d] for d in kept)}", left, right)
    where = dict(zip(kept, out.dims, strict=True))
    return out.with_dims(where.get(d, ()) for d in range(rank)) if keepdim else out


@rule("amax.default", "amin.default", summarizes=True)
@rule("linalg_vector_norm.default", "norm.ScalarOpt_dim")
def extreme(ctx: Context, x: Value, *args: Any, **kwargs: Any) -> Value:
    """max, min, norms: positive scales of the other dimensions pass."""
    dims, keepdim = _dims_argument(ctx, args, kwargs)
    # Order 0 counts the entries that are not 0, whatever their size.
    order = (args[0] if args else kwargs.get("ord", kwargs.get("p", 2))) if "norm" in ctx.op else None
    how = "opaque" if order == 0 else "length" if order == 2 else "max"
    return ctx.reduce(x, dims_of(x, dims), keepdim, how)


@rule("max.dim", "min.dim", "median.dim")
def extreme_with_index(ctx: Context, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """max along one dimension, and where: only the values can be used further."""
    out = ctx.reduce(x, [dim % len(x.dims)], keepdim, "max")
    place = ctx.fix(x, "its largest position is taken", [dim % len(x.dims)])
    return out, ctx.reduce(place, [dim % len(x.dims)], keepdim, "opaque")


@rule(
    "var.correction",
    "std.correction",
    "var.dim",
    "std.dim",
    "logsumexp.default",
    "prod.dim_int",
    "var.default",
    "std.default",
    "prod.default",
    "any.dim",
    "all.dim",
    "any.default",
    "all.default",
    "any.dims",
    "all.dims",
    "max.default",
    "min.default",
)
def opaque_reduce(ctx: Context, x: Value, *args: Any, **kwargs: Any) -> Value:
    """Other statistics: blocks move as blocks, nothing is rescaled."""
    dims, keepdim = _dims_argument(ctx, args, kwargs)
    return ctx.reduce(x, dims_of(x, dims), keepdim, "opaque")


@rule("var_mean.correction", "std_mean.correction")
def var_mean(ctx: Context, x: Value, *args: Any, **kwargs: Any) -> tuple[Value, Value]:
    """Two statistics at once."""
    dims, keepdim = _dims_argument(ctx, args, kwargs)
    chosen = dims_of(x, dims)
    return ctx.reduce(x, chosen, keepdim, "opaque"), ctx.reduce(x, chosen, keepdim, "opaque")


@rule("argmax.default", "argmin.default")
def position(ctx: Context, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """Where the largest entry is: the dimension is fixed."""
    dims = dims_of(x, dim)
    return ctx.reduce(ctx.fix(x, "its largest position is taken", dims), dims, keepdim, "opaque")


@rule("diff.default")
def diff(
    ctx: Context,
    x: Value,
    n: int = 1,
    dim: int = -1,
    prepend: Value | None = None,
    append: Value | None = None,
) -> Value:
    """Differences of neighbours: the dimension is fixed, the others are linear."""
    dim %= len(x.dims)
    parts = [v for v in (prepend, x, append) if v is not None]
    parts = [ctx.fix(v, "neighbours are subtracted", [dim]) for v in parts]
    flat = [v.with_dims((*v.dims[:dim], (), *v.dims[dim + 1 :])) for v in parts]
    out = ctx.add(*flat) if len(flat) > 1 else flat[0]
    return replace(out, dims=(*out.dims[:dim], *fixed(ctx.shape[dim : dim + 1]).dims, *out.dims[dim + 1 :]))


@rule("cummax.default", "cummin.default")
def cumulative_extreme(ctx: Context, x: Value, dim: int) -> tuple[Value, Value]:
    """Running maxima and where they are: the dimension is fixed, the others take positive scales."""
    out = ctx.pointwise(ctx.fix(x, "taken in order", [dim % len(x.dims)]), intertwiner("relu"))
    plain = tuple(Factor(f.axes, f.ids, zero_scale(f.ids.shape)) for f in out.factors)
    return out, replace(out, factors=plain)


@rule("cumsum.default", "cumprod.default", "logcumsumexp.default")
def cumulative(ctx: Context, x: Value, dim: int, **_: Any) -> Value:
    """Running sums: the order along the dimension matters, so it is fixed."""
    x = ctx.fix(x, "summed up in order", [dim % len(x.dims)])
    return x if ctx.op.startswith("cumsum") else ctx.opaque(x)


def _dims_argument(ctx: Context, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, bool]:
    """(dims, keepdim) of the reductions whose schemas put them at different places."""
    name = ctx.op.split(".")[0]
    rest = list(args)
    if name in ("linalg_vector_norm", "norm") and rest:
        rest.pop(0)
    dims = kwargs.get("dim", rest.pop(0) if rest else None)
    if isinstance(dims, bool):
        dims = None
    flags = [a for a in rest if isinstance(a, bool)]
    return dims, bool(kwargs.get("keepdim", flags[-1] if flags else False))
