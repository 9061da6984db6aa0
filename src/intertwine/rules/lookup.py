"""Ops that pick and put entries by an index. Where it says the same for all channels they pass; along the
dimension that it points into, positions matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from intertwine.activations import intertwiner
from intertwine.ir.ledger import ANY_NONLINEAR, UNMERGEABLE
from intertwine.ir.value import Extent, Factor, Value, constant, fixed, zero_scale
from intertwine.rules.pointwise import choose
from intertwine.rules.registry import Context, is_value, rule

POINTED = "an index points into it"


def _with_sizes(value: Value, sizes: Mapping[int, int]) -> Value:
    """The value with dimensions on which nothing lies in other sizes, their positions all different."""
    dims = list(value.dims)
    for dim, size in sizes.items():
        dims[dim] = (Extent(size),) if size > 1 else ()
    return replace(value, dims=tuple(dims), zero=False)


def _flat(value: Value, *dims: int) -> Value:
    """The value with dimensions on which nothing lies of size 1."""
    return value.with_dims(() if d in dims else dim for d, dim in enumerate(value.dims))


@rule("gather.default", points=2)
def gather(ctx: Context, x: Value, dim: int, index: Value, **_: Any) -> Value:
    """x[index[i, c], c]: channels pass where the index is the same for all, or moves with them."""
    if not x.dims:
        return x
    dim %= len(x.dims)
    x, index = ctx.pointed(x, [dim], POINTED), ctx.opaque(ctx.fix(index, "used as an index", [dim]))
    for d, size in enumerate(index.shape):
        if d != dim and size < x.shape[d]:
            x = ctx.take(x, d, np.arange(size))
    return ctx.multiply(_with_sizes(index, {dim: index.shape[dim]}), _flat(x, dim))


@rule(
    "scatter.src", "scatter.value", "scatter_add.default", "scatter.reduce", "scatter.value_reduce",
    "scatter_reduce.two", points=2, writes=True,
)  # fmt: skip
def scatter(
    ctx: Context, x: Value, dim: int, index: Value, source: Any = None, *args: Any, **kwargs: Any
) -> Value:
    """x with entries put where an index says; both are scaled alike, and not at all unless it only adds."""
    if not x.dims:
        return ctx.opaque(x, *([source] if is_value(source) else []))
    dim %= len(x.dims)
    shape = x.shape
    source = kwargs.get("src", kwargs.get("value", source))
    source = source if is_value(source) else constant((1,) * len(shape), zero=source == 0)
    held = {d for d, size in enumerate(index.shape) if size != shape[d]}
    held |= {d for d, size in enumerate(source.shape) if size not in (1, index.shape[d])} | {dim}
    x = x if x.zero else ctx.pointed(x, [dim], POINTED)
    x, index, source = (
        _flat(ctx.fix(v, POINTED, [d for d in held if v.dims[d]]) if v.dims else v, *held)
        for v in (x, ctx.opaque(index), source)
    )
    out = ctx.add(x, source)
    how = kwargs.get("reduce", args[0] if args else None)
    if "reduce" in ctx.op and how not in ("sum", "mean", "add"):
        out = ctx.opaque(out)
    out = ctx.expand(ctx.multiply(index, out), [1 if d in held else n for d, n in enumerate(shape)])
    return ctx.labelled(_with_sizes(out, {d: shape[d] for d in held}), dim)


@rule("index_add.default", "index_copy.default", writes=True)
def index_add(ctx: Context, x: Value, dim: int, index: Value, source: Value, **_: Any) -> Value:
    """x with slices of another tensor added or put in: both are scaled alike."""
    ctx.fix(index, "used as an index")
    if not x.dims:
        return ctx.add(x, source)
    dim %= len(x.dims)
    shape = x.shape
    x, source = ctx.fix(x, POINTED, [dim]), ctx.fix(source, POINTED, [dim])
    out = ctx.add(_flat(x, dim), _flat(source, dim))
    return _with_sizes(ctx.expand(out, (*shape[:dim], 1, *shape[dim + 1 :])), {dim: shape[dim]})


@rule("masked_scatter.default", writes=True)
def masked_scatter(ctx: Context, x: Value, mask: Value, source: Value) -> Value:
    """Rows of another tensor, in order, where a mask says so for all channels at once: both scaled alike."""
    last = mask.dims[-1] if mask.dims else ()
    alike = not mask.factors_on(last) and all(axis.wild for axis in last)
    if not (alike and x.dims and source.dims and x.shape[-1] == source.shape[-1] == ctx.shape[-1]):
        for value in (x, mask, source):
            ctx.fix(value, "put where a mask says, entry by entry")
        return fixed(ctx.shape)
    x, mask = (ctx.fix(v, POINTED, range(len(v.dims) - 1)) for v in (x, mask))
    row = ctx.fix(source, POINTED, range(len(source.dims) - 1)).with_dims([source.dims[-1]])
    out = ctx.expand(ctx.add(x, row), ctx.shape)
    return _with_sizes(out, dict(enumerate(ctx.shape[:-1])))


@rule("index_put.default", writes=True)
def index_put(
    ctx: Context, x: Value, indices: list[Value | None], values: Value, accumulate: bool = False
) -> Value:
    """x with rows put or added where indices or masks say so, for all channels at once: scaled alike."""
    if not accumulate and ctx.masks(1) == [True] and len(indices[0].dims) + len(values.dims) <= len(x.dims):  # type: ignore[union-attr]
        mask = indices[0].with_dims((*indices[0].dims, *((),) * (len(x.dims) - len(indices[0].dims))))  # type: ignore[union-attr]
        return choose(ctx, mask, values, x)  # x[mask] = 0, or one row for all
    # A mask of k dimensions points into k of x, numbers into one: these at most.
    pointed = sum(1 if index is None else max(1, len(index.dims)) for index in indices)
    kept = max(len(x.dims) - pointed, 0)
    for index in indices:
        if index is not None:
            ctx.fix(index, "used as an index")
    rows = len(x.dims) - kept
    x = ctx.fix(x, POINTED, range(rows))
    above = max(len(values.dims) - kept, 0)
    row = ctx.fix(values, POINTED, range(above)).with_dims(values.dims[above:])
    out = ctx.add(_flat(x, *range(rows)), row)
    out = ctx.expand(out, [1] * rows + list(ctx.shape[rows:]))
    return _with_sizes(out, dict(enumerate(ctx.shape[:rows])))


@rule("take_along_dim.default")
def take_along_dim(ctx: Context, x: Value, index: Value, dim: int | None = None) -> Value:
    """x[index[i, c], c], where both are stretched along the other dimensions."""
    if dim is None or not x.dims:  # all entries in a row
        ctx.fix(x, POINTED)
        ctx.fix(index, "used as an index")
        return fixed(ctx.shape)
    dim %= len(x.dims)
    wide = [max(a, b) for a, b in zip(x.shape, index.shape, strict=True)]
    x, index = (ctx.expand(v, [*wide[:dim], v.shape[dim], *wide[dim + 1 :]]) for v in (x, index))
    return gather(ctx, x, dim, index)


@rule("index_fill.int_Scalar")
def index_fill(ctx: Context, x: Value, dim: int, index: Value, value: float) -> Value:
    """x with slices filled by a number: nothing is rescaled unless it is 0."""
    ctx.fix(index, "used as an index")
    if not x.dims:
        return ctx.opaque(x)
    dim %= len(x.dims)
    x = _with_sizes(ctx.fix(x, POINTED, [dim]), {dim: x.shape[dim]})
    return x if value == 0 else ctx.add(x, constant(()))


@rule("one_hot.default", points=0)
def one_hot(ctx: Context, index: Value, *args: Any) -> Value:
    """A new dimension of classes: those that the index names; where it moves the result moves along."""
    index = ctx.opaque(index)
    out = Value((*index.dims, *fixed(ctx.shape[-1:]).dims), index.factors)
    return ctx.labelled(out, len(index.dims))


@rule("nonzero.default")
def nonzero(ctx: Context, x: Value) -> Value:
    """The places of what is not 0, as many as there are: which they are does not move."""
    ctx.fix(ctx.opaque(x), "the places of its entries are listed")
    return fixed(ctx.shape)


def _ranked(ctx: Context, x: Value, dim: int, size: int) -> tuple[Value, Value]:
    """(values, places) by rank along a dimension, which is fixed unless the places name its channels.

    Positive scales of the others keep the order.
    """
    factors = x.factors_on(x.dims[dim])
    if len(factors) == 1 and factors[0].axes == x.dims[dim] and ctx.ranked(dim, factors[0].ids):
        ctx.ledger.mark(factors[0].ids, ANY_NONLINEAR | UNMERGEABLE)
        ctx.ledger.zero(factors[0].scale)
        x = replace(x, factors=tuple(f for f in x.factors if f is not factors[0]))
    x = ctx.pointwise(ctx.fix(x, "ranked", [dim]), intertwiner("relu"))
    x = _with_sizes(x, {dim: size})
    return x, replace(x, factors=tuple(Factor(f.axes, f.ids, zero_scale(f.ids.shape)) for f in x.factors))


@rule("topk.default", ranks=True)
def topk(ctx: Context, x: Value, k: int, dim: int = -1, *args: Any, **kwargs: Any) -> tuple[Value, Value]:
    """The k largest along a dimension and where they are, which names channels if they are never equal."""
    if not x.dims:
        return x, constant(())
    in_order = args[1] if len(args) > 1 else kwargs.get("sorted", True)
    x = x if in_order else ctx.fix(x, "the largest in no order", [dim])
    return _ranked(ctx, x, dim % len(x.dims), k)


@rule("sort.default", "sort.stable")
def sort(ctx: Context, x: Value, *args: Any, **kwargs: Any) -> tuple[Value, Value]:
    """All of a dimension in order, and where they were: other dimensions take positive scales."""
    given = [a for a in args if isinstance(a, int) and not isinstance(a, bool)]
    dim = kwargs.get("dim", given[0] if given else -1)
    if kwargs.get("stable") and x.dims:
        x = ctx.fix(x, "equal entries keep their order", [dim])
    return _ranked(ctx, x, dim % len(x.dims), x.shape[dim]) if x.dims else (x, constant(()))


@rule("argsort.default", "argsort.stable")
def argsort(ctx: Context, x: Value, *args: Any, **kwargs: Any) -> Value:
    """Where the entries of a dimension are in order: other dimensions take positive scales."""
    return sort(ctx, x, *args, **kwargs)[1]


@rule(
    "_embedding_bag.default", "_embedding_bag_forward_only.default", "embedding_bag.padding_idx",
    looks_up=True,
)  # fmt: skip
def embedding_bag(
    ctx: Context, weight: Value, index: Value, offsets: Value, scale_grad: bool = False, mode: int = 0,
    sparse: bool = False, per_sample: Value | None = None, *args: Any,
) -> tuple[Value, ...]:  # fmt: skip
    """Rows of a table, summed, averaged or their maxima: rows are fixed, columns pass."""
    ctx.role(weight, 1, "out")
    for value in (index, offsets, per_sample):
        if value is not None:
            ctx.fix(value, "used as an index")
    table = ctx.fix(weight, "rows are looked up by index", [0])
    if mode == 2:
        table = ctx.pointwise(table, intertwiner("relu"))
    out = table.with_dims((*fixed(ctx.shape[:1]).dims, table.dims[1]))
    return (out, *(fixed(shape) for shape in ctx.shapes[1:]))
