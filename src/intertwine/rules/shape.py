"""Ops that move entries without computing: the labels move the same way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from intertwine.graph.kernels import ANY_STRIDES
from intertwine.ir.ledger import WINDOW, Ids
from intertwine.ir.placing import separate
from intertwine.ir.value import Extent, Value, constant, fixed
from intertwine.rules import moments
from intertwine.rules.registry import Context, rule


@rule(
    "view.default", "_unsafe_view.default", "view_copy.default", "_reshape_copy.default",
    carries=True, moments=moments.view,
)  # fmt: skip
def view(ctx: Context, x: Value, *args: Any) -> Value:
    """Cut and group the axes anew."""
    return ctx.reshape(x, ctx.shape)


ANY_STRIDES[torch.ops.aten.view.default] = torch.ops.aten.reshape.default


@rule("view_as_real.default")
def view_as_real(ctx: Context, x: Value) -> Value:
    """Real and imaginary parts side by side, in a new dimension that is fixed; the others are linear."""
    return x.with_dims((*x.dims, *fixed((2,)).dims))


@rule("view.dtype", "view_as_complex.default")
def reinterpret(ctx: Context, x: Value, *args: Any) -> Value:
    """The last dimension changes its meaning (complex pairs): it is fixed."""
    rank = len(x.dims)
    x = ctx.fix(x, "entries are read as complex pairs", [rank - 1])
    kept = x.dims[: rank - 1]
    missing = ctx.shape[len(kept) :]
    return x.with_dims((*kept, *fixed(missing).dims)[: len(ctx.shape)])


@rule("permute.default", carries=True, moments=moments.permute, thin=True)
def permute(ctx: Context, x: Value, dims: Sequence[int]) -> Value:
    """Dimensions in another order."""
    order = [d % len(x.dims) for d in dims]
    return ctx.transposed(x) if order == [1, 0] else x.permuted(order)


@rule("transpose.int", carries=True, moments=moments.transpose, thin=True)
def transpose(ctx: Context, x: Value, a: int, b: int) -> Value:
    """Two dimensions change places."""
    order = list(range(len(x.dims)))
    a, b = a % len(order), b % len(order)
    order[a], order[b] = order[b], order[a]
    return ctx.transposed(x) if order == [1, 0] else x.permuted(order)


@rule("t.default", carries=True)
def t(ctx: Context, x: Value) -> Value:
    """Matrix transpose."""
    return transpose(ctx, x, -1, -2) if len(x.dims) > 1 else x


@rule("unsqueeze.default", carries=True)
def unsqueeze(ctx: Context, x: Value, dim: int) -> Value:
    """A new dimension of size 1."""
    dim %= len(x.dims) + 1
    return x.with_dims((*x.dims[:dim], (), *x.dims[dim:]))


@rule("squeeze.dim", "squeeze.default", "squeeze.dims", carries=True)
def squeeze(ctx: Context, x: Value, dims: int | Sequence[int] | None = None) -> Value:
    """Drop dimensions of size 1."""
    rank = len(x.dims)
    chosen = range(rank) if dims is None else [d % rank for d in ([dims] if isinstance(dims, int) else dims)]
    return x.with_dims(d for i, d in enumerate(x.dims) if not (i in chosen and x.shape[i] == 1))


@rule("expand.default", carries=True)
def expand(ctx: Context, x: Value, *args: Any, **kwargs: Any) -> Value:
    """Repeat along dimensions of size 1; what is repeated fits anything."""
    return ctx.expand(x, ctx.shape)


@rule("broadcast_tensors.default")
def broadcast_tensors(ctx: Context, values: Sequence[Value]) -> list[Value]:
    """All repeated to one shape."""
    return [ctx.expand(value, ctx.shape) for value in values]


@rule("repeat.default", "tile.default")
def repeat(ctx: Context, x: Value, repeats: Sequence[int]) -> Value:
    """Copies one after the other: (r, n) flattened."""
    rank = max(len(x.dims), len(repeats))
    dims = ((),) * (rank - len(x.dims)) + x.dims
    counts = [1] * (rank - len(repeats)) + list(repeats)
    return x.with_dims(
        ((Extent(r, wild=True), *d) if r > 1 else d) for r, d in zip(counts, dims, strict=True)
    )


@rule("repeat_interleave.self_int")
def repeat_interleave(ctx: Context, x: Value, repeats: int, dim: int | None = None, **_: Any) -> Value:
    """Every slice several times: (n, r) flattened."""
    if dim is None:
        x, dim = ctx.reshape(x, (int(np.prod(x.shape)),)), 0
    dim %= len(x.dims)
    extra = (Extent(repeats, wild=True),) if repeats > 1 else ()
    return x.with_dims((*x.dims[:dim], x.dims[dim] + extra, *x.dims[dim + 1 :]))


@rule("slice.Tensor", carries=True)
def slice_(
    ctx: Context, x: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    """x[start:end:step]."""
    dim %= len(x.dims)
    return ctx.take(x, dim, np.arange(x.shape[dim])[start:end:step])


@rule("select.int", carries=True)
def select(ctx: Context, x: Value, dim: int, index: int) -> Value:
    """x[index]: one slice."""
    dim %= len(x.dims)
    x = ctx.take(x, dim, np.array([index % x.shape[dim]]))
    return x.with_dims((*x.dims[:dim], *x.dims[dim + 1 :]))


@rule("unbind.int", carries=True)
def unbind(ctx: Context, x: Value, dim: int = 0) -> list[Value]:
    """All slices."""
    return [select(ctx, x, dim, i) for i in range(x.shape[dim])]


@rule("split.Tensor", "split_with_sizes.default", carries=True)
def split(ctx: Context, x: Value, sizes: int | Sequence[int], dim: int = 0) -> list[Value]:
    """Consecutive slices; their sizes are those of the results."""
    dim %= len(x.dims)
    parts, start = [], 0
    for shape in ctx.shapes:
        parts.append(ctx.take(x, dim, np.arange(start, start + shape[dim])))
        start += shape[dim]
    return parts


def halves(ctx: Context, x: Value, dim: int) -> tuple[Value, Value]:
    """The two halves of a dimension."""
    dim %= len(x.dims)
    n = x.shape[dim]
    return ctx.take(x, dim, np.arange(n // 2)), ctx.take(x, dim, np.arange(n // 2, n))


@rule("flip.default")
def flip(ctx: Context, x: Value, dims: Sequence[int]) -> Value:
    """Dimensions backwards."""
    for dim in dims:
        x = ctx.take(x, dim % len(x.dims), np.arange(x.shape[dim])[::-1].copy())
    return x


@rule("roll.default", carries=True)
def roll(ctx: Context, x: Value, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value:
    """Dimensions shifted round."""
    shifts = [shifts] if isinstance(shifts, int) else shifts
    dims = [dims] if isinstance(dims, int) else dims
    if not dims:
        ctx.fix(x, "rolled over the flattened tensor")
        return fixed(ctx.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        x = ctx.take(x, dim % len(x.dims), np.roll(np.arange(x.shape[dim]), shift))
    return x


@rule("cat.default", moments=moments.cat)
def cat(ctx: Context, values: Sequence[Value], dim: int = 0) -> Value:
    """Side by side."""
    # An empty 1-D tensor may be concatenated with anything.
    return ctx.concat([v for v in values if v.shape != (0,)], dim)


@rule("stack.default")
def stack(ctx: Context, values: Sequence[Value], dim: int = 0) -> Value:
    """Side by side along a new dimension."""
    return ctx.concat([unsqueeze(ctx, v, dim) for v in values], dim % (len(values[0].dims) + 1))


@rule("pad.default", "constant_pad_nd.default", carries=True, fills=True)
def pad(
    ctx: Context, x: Value, widths: Sequence[int], mode: Any = "constant", value: float | None = None
) -> Value:
    """Zeros beside channels fit any label; other paddings fix the dimension."""
    if not isinstance(mode, str):
        mode, value = "constant", mode
    rank = len(x.dims)
    for k in range(len(widths) // 2):
        before, after = widths[2 * k], widths[2 * k + 1]
        dim = rank - 1 - k
        if mode == "constant":
            x = ctx.pad(x, dim, before, after, float(value or 0.0))
        elif before or after:
            x = ctx.fix(x, f"padded by {mode}", [dim])
            size = x.shape[dim] + before + after
            x = x.with_dims((*x.dims[:dim], (Extent(size),), *x.dims[dim + 1 :]))
    return x


@rule("sym_size.int", "sym_numel.default", "sym_stride.int", sizes_only=True)
def size(ctx: Context, *args: Any) -> None:
    """A size is a number that no entry decides."""


@rule("zeros_like.default", "zeros.default", "new_zeros.default", "zero.default", sizes_only=True)
def zeros(ctx: Context, *args: Any, **kwargs: Any) -> Value:
    """Zeros fit anything."""
    return constant(ctx.shape, zero=True)


@rule(
    "ones_like.default", "ones.default", "new_ones.default", "full_like.default", "full.default",
    "new_full.default", "scalar_tensor.default", "fill.Scalar", "new_empty.default", "empty_like.default",
    "empty.memory_format", sizes_only=True,
)  # fmt: skip
@rule("fill.Tensor")
def filled(ctx: Context, *args: Any, **kwargs: Any) -> Value:
    """Equal entries: they fit any permutation but no scale. (Memory with nothing in it yet, too: who reads it
    before it is filled computes nothing that has a symmetry to lose.)"""
    return constant(ctx.shape, zero=ctx.op == "fill.Tensor" and args[1].zero)


@rule("copy.default")
def copy(ctx: Context, target: Value, source: Value, *args: Any) -> Value:
    """The source in the shape of the target."""
    return ctx.expand(source, ctx.shape)


@rule(
    "embedding.default", looks_up=True, points=1,
    # The padding row too: it is read, and only its gradient is left out by torch.
    differentiable=lambda table, index, *_: torch.nn.functional.embedding(index, table),
)  # fmt: skip
def embedding(ctx: Context, weight: Value, index: Value, *args: Any, **kwargs: Any) -> Value:
    """Rows of a table, which are fixed: data decides which. Where the index moves the result moves along."""
    ctx.role(weight, 1, "out")
    table, index = separate(
        [ctx.pointed(weight, [0], "rows are looked up by index", True), ctx.opaque(index)]
    )
    return Value((*index.dims, table.dims[1]), (*index.factors, *table.factors))


def _listed(ctx: Context, size: int) -> Ids | None:
    """The places that a list of numbers in the code picks, if it picks none of them twice."""
    order = ctx.literal
    if order is None or order.ndim != 1 or order.dtype.kind != "i" or not len(order):
        return None
    order = order % size
    return order if len(np.unique(order)) == len(order) else None


@rule("index.Tensor", "_unsafe_index.Tensor", picks=True, points=1)
def index(ctx: Context, x: Value, indices: Sequence[Value | None]) -> Value:
    """Advanced indexing: the indexed dimensions are fixed, the others stay; a list of numbers is a slice."""
    places = [d for d, i in enumerate(indices) if i is not None]
    if len(places) == 1 and (order := _listed(ctx, x.shape[places[0]])) is not None:
        return ctx.take(x, places[0], order)
    masks = any(ctx.masks(1))
    for i in indices:
        if i is not None:
            ctx.fix(i, "a mask made of it picks entries" if masks else "used as an index")
    if masks:
        return _masked(ctx, x, indices, places)
    x = ctx.pointed(x, places, "looked up by index", places == [0])
    kept = [d for d in range(len(x.dims)) if d not in places]
    adjacent = places == list(range(places[0], places[-1] + 1))
    start = places[0] if adjacent else 0
    count = len(ctx.shape) - len(kept)
    new = fixed(ctx.shape[start : start + count]).dims
    before = [x.dims[d] for d in kept[:start]]
    return x.with_dims((*before, *new, *(x.dims[d] for d in kept[start:])))


def _masked(ctx: Context, x: Value, indices: Sequence[Value | None], places: Sequence[int]) -> Value:
    """x[mask]: a mask of k dimensions stands for k of x, of which it makes one."""
    if len(places) > 1:
        ctx.fix(x, "looked up by several indices")
        return fixed(ctx.shape)
    (start,) = places
    gone = range(start, start + len(indices[start].dims))  # type: ignore[union-attr]
    x = ctx.pointed(x, list(gone), "looked up by a mask")
    return x.with_dims((*x.dims[:start], *fixed(ctx.shape[start : start + 1]).dims, *x.dims[gone.stop :]))


@rule("index_select.default", picks=True, points=2)
def index_select(ctx: Context, x: Value, dim: int, chosen: Value) -> Value:
    """Slices chosen by data: the dimension is fixed; by a list of numbers: labels move along."""
    dim %= len(x.dims)
    if (order := _listed(ctx, x.shape[dim])) is not None:
        return ctx.take(x, dim, order)
    ctx.fix(chosen, "used as an index")
    x = ctx.pointed(x, [dim], "looked up by index", dim == 0)
    return x.with_dims((*x.dims[:dim], *fixed(ctx.shape[dim : dim + 1]).dims, *x.dims[dim + 1 :]))


@rule("unfold.default")
def unfold(ctx: Context, x: Value, dim: int, size: int, step: int) -> Value:
    """Windows along one dimension, which is fixed."""
    dim %= len(x.dims)
    x = ctx.fix(x, WINDOW, [dim])
    new = fixed((ctx.shape[dim], ctx.shape[-1])).dims
    return x.with_dims((*x.dims[:dim], new[0], *x.dims[dim + 1 :], new[1]))


@rule("tril.default", "triu.default")
def triangle(ctx: Context, x: Value, *args: Any) -> Value:
    """Positions decide what is kept: the last two dimensions are fixed."""
    rank = len(x.dims)
    return ctx.fix(x, "a triangle is cut out", [rank - 2, rank - 1])


@rule("slice_scatter.default", writes=True)
def slice_scatter(
    ctx: Context,
    x: Value,
    source: Value,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Value:
    """x with a slice replaced: the pieces side by side. An empty slice replaces nothing."""
    if 0 in source.shape:
        return x
    dim %= len(x.dims)
    n = x.shape[dim]
    chosen = np.arange(n)[start:end:step]
    rest = np.setdiff1d(np.arange(n), chosen)
    order = np.argsort(np.concatenate([chosen, rest]))
    pieces = [source] + ([ctx.take(x, dim, rest)] if len(rest) else [])
    return ctx.take(ctx.concat(pieces, dim), dim, order)


@rule("select_scatter.default", writes=True)
def select_scatter(ctx: Context, x: Value, source: Value, dim: int, index: int) -> Value:
    """x with one slice replaced."""
    dim %= len(x.dims)
    return slice_scatter(ctx, x, unsqueeze(ctx, source, dim), dim, index, index + 1 or None)
