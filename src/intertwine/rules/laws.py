"""The laws by which `rules.expressions` tells values: what does not depend on the order of slices.

WHOLE    op -> the number of its result, or None where nothing better is known than the op of its operands
SLICED   op -> the slices of its result along a dimension, or None
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from torch import fx

from intertwine.rules.nodes import (
    args_of,
    dim_of,
    dims_of,
    encoded,
    groups_of,
    nodes_in,
    operands_in_order,
    shape,
    three_of,
)
from intertwine.rules.tails import op_of

if TYPE_CHECKING:
    from intertwine.rules.expressions import Expressions

Slices = tuple[int, ...]  # a number for each slice along a dimension
Whole = Callable[["Expressions", fx.Node], int | None]
Sliced = Callable[["Expressions", fx.Node, int, bool], Slices | None]
F = TypeVar("F", bound=Callable[..., Any])

WHOLE: dict[str, Whole] = {}
SLICED: dict[str, Sliced] = {}
GETITEM = "<built-in function getitem>"
SPLITS = ("split.Tensor", "split_with_sizes.default", "chunk.default")
PRODUCTS = ("matmul.default", "bmm.default", "mm.default")
CONVOLUTIONS = ("conv1d.default", "conv2d.default", "conv3d.default")
SOFTMAX = ("softmax.int", "_softmax.default", "log_softmax.int", "_log_softmax.default")
REDUCTIONS = (
    "sum.dim_IntList", "sum.default", "mean.dim", "mean.default", "amax.default", "amin.default",
    "logsumexp.default",
)  # fmt: skip
BATCH_NORMS = ("batch_norm.default", "_native_batch_norm_legit_no_training.default")
ROW_NORMS = ("layer_norm.default", "rms_norm.default")
VIEWS = ("view.default", "_unsafe_view.default", "reshape.default")
_MANY = 1 << 16  # entries of a matrix that are told from each other
ADDED_AT = ("index_add.default", "index_put.default")
ZEROS = ("zeros.default", "zeros_like.default", "new_zeros.default")


def law(table: dict[str, F], *ops: str) -> Callable[[F], F]:
    """Register a function as the law of some ops."""

    def register(function: F) -> F:
        table.update(dict.fromkeys(ops, function))
        return function

    return register


# -- what is put together and taken apart -------------------------------------------------------------------


@law(SLICED, "cat.default")
def _cat(r: Expressions, node: fx.Node, dim: int, rows: bool) -> Slices | None:
    pieces, along = args_of(node)[0], dim_of(node, 1, 0)
    if dim != along or not all(len(shape(piece)) == len(shape(node)) for piece in pieces):
        return None
    return tuple(s for piece in pieces for s in r.slices(piece, dim) or r.places(piece, dim))


@law(SLICED, "stack.default")
def _stack(r: Expressions, node: fx.Node, dim: int, rows: bool) -> Slices | None:
    if dim != dim_of(node, 1, 0):
        return None
    return tuple(r.number[piece] for piece in args_of(node)[0])


def _taken(r: Expressions, node: Any, dim: int) -> Slices | None:
    """The slices of what a slice is taken out of."""
    return r.slices(node, dim, rows=shape(node)[dim] in r.sizes)


@law(WHOLE, "select.int")
def _select(r: Expressions, node: fx.Node) -> int | None:
    x, index = args_of(node)[0], args_of(node)[2]
    if r.named(x) is not None:
        return r.moved_names(node)
    if not isinstance(index, int) or not shape(x):
        return None
    found = _taken(r, x, dim_of(node, 1, 0, x))
    return None if found is None else found[index]


@law(WHOLE, "slice.Tensor")
def _slice(r: Expressions, node: fx.Node) -> int | None:
    if r.named(args_of(node)[0]) is not None:
        return r.moved_names(node)
    return _beside(r, node, dim_of(node, 1, 0))


def _beside(r: Expressions, node: fx.Node, dim: int) -> int | None:
    """What is put together of slices."""
    found = SLICED[op_of(node)](r, node, dim, False)
    return None if found is None else r.terms.of(("beside", dim, len(shape(node)), found), found)


@law(SLICED, "slice.Tensor")
def _slice_slices(r: Expressions, node: fx.Node, dim: int, rows: bool) -> Slices | None:
    if dim != dim_of(node, 1, 0):
        return None
    x, bounds = args_of(node)[0], [*args_of(node)[2:], *(None,) * 3][:3]
    if not all(b is None or isinstance(b, int) for b in bounds) or node.kwargs:
        return None
    found = r.slices(x, dim, True) if rows else _taken(r, x, dim)
    return None if found is None else found[slice(*bounds)]


@law(WHOLE, GETITEM)
def _getitem(r: Expressions, node: fx.Node) -> int | None:
    source, k = args_of(node)
    if not isinstance(source, fx.Node) or not isinstance(k, int):
        return None
    if op_of(source) == "topk.default" and (named := r.named(source)) is not None:
        if k:
            return r.name(node, r.terms.of(("places", named[0])), named[1])
        return r.terms.of(("the largest", named[0]))
    if op_of(source) == "unbind.int":
        x = args_of(source)[0]
        found = _taken(r, x, dim_of(source, 1, 0, x)) if r.named(x) is None else None
        return None if found is None else found[k]
    if op_of(source) in SPLITS:
        return _beside(r, node, dim_of(source, 2, 0, node))
    return None


@law(SLICED, GETITEM)
def _getitem_slices(r: Expressions, node: fx.Node, dim: int, rows: bool) -> Slices | None:
    source, k = args_of(node)
    if not isinstance(source, fx.Node) or not isinstance(k, int):
        return None
    if op_of(source) in BATCH_NORMS and k == 0:
        return _batch_norm(r, source, dim, rows)
    if op_of(source) in SPLITS and dim == dim_of(source, 2, 0, node):
        x, sizes = args_of(source)[0], [int(part.shape[dim]) for part in source.meta["val"]]
        found = r.slices(x, dim, True) if rows else _taken(r, x, dim)
        start = sum(sizes[:k])
        return None if found is None else found[start : start + sizes[k]]
    return None


# -- sums over slices ---------------------------------------------------------------------------------------


@law(WHOLE, *REDUCTIONS)
def _reduced(r: Expressions, node: fx.Node) -> int | None:
    x = args_of(node)[0]
    dims = dims_of(node)
    for d in dims:
        found = r.slices(x, d)
        if found is None:
            continue
        floating = node.meta["val"].is_floating_point() and not node.kwargs
        if op_of(node) == "sum.dim_IntList" and len(dims) == 1 and len(args_of(node)) == 2 and floating:
            return r.terms.total(found)
        given = encoded((args_of(node)[1:], node.kwargs), {})
        return r.terms.of(("reduced", op_of(node), given, d, shape(x), r.terms.set(*found)))
    return None


@law(WHOLE, *PRODUCTS)
def _matmul(r: Expressions, node: fx.Node) -> int | None:
    a, b = args_of(node)
    if len(shape(a)) < 2 or len(shape(b)) < 2 or not (r.slices(a, -1) or r.slices(b, -2)):
        return None
    ranks = len(shape(a)), len(shape(b))
    pairs = zip(r.certain(a, -1), r.certain(b, -2), strict=True)
    return r.terms.total([r.terms.of(("outer", "matmul", ranks, p), p) for p in pairs])


@law(WHOLE, "einsum.default")
def _einsum(r: Expressions, node: fx.Node) -> int | None:
    spec, operands = str(args_of(node)[0]).replace(" ", ""), args_of(node)[1]
    left, arrow, out = spec.partition("->")
    terms = left.split(",")
    if not arrow or "." in spec or any(len(set(t)) < len(t) for t in terms):
        return None
    for letter in sorted(set(left) - {","} - set(out)):
        at = [(n, t.find(letter)) for n, t in zip(operands, terms, strict=True)]
        if not any(d >= 0 and r.slices(n, d) for n, d in at):
            continue
        sizes = {shape(n)[d] for n, d in at if d >= 0}
        if len(sizes) > 1:
            return None
        columns = [r.certain(n, d) if d >= 0 else (r.number[n],) * min(sizes) for n, d in at]
        return r.terms.total([r.terms.of(("outer", spec, letter, p), p) for p in zip(*columns, strict=True)])
    return None


@law(WHOLE, "linear.default")
def _linear(r: Expressions, node: fx.Node) -> int | None:
    x, weight, bias = three_of(node)
    if r.slices(x, -1) is None:
        return None
    pairs = zip(r.certain(x, -1), r.certain(weight, 1), strict=True)
    products = [r.terms.of(("outer", "linear", p), p) for p in pairs]
    return r.terms.total([*products, *([] if bias is None else [r.number[bias]])])


@law(SLICED, "linear.default")
def _linear_rows(r: Expressions, node: fx.Node, dim: int, rows: bool) -> Slices | None:
    if dim != len(shape(node)) - 1:
        return None
    x, weight, bias = three_of(node)
    found = r.slices(weight, 0, rows)
    if found is None:
        return None
    added = [()] * len(found) if bias is None else [(s,) for s in r.certain(bias, 0)]
    name = r.traced.weights.get(weight.name)
    inputs = r.slices(x, -1)
    if inputs is not None and (name is None or len(inputs) * len(found) > _MANY):
        return None
    answer = []
    for q, (row, shift) in enumerate(zip(found, added, strict=True)):
        if inputs is None or name is None:
            parts = (r.number[x], row, *shift)
            answer.append(r.terms.of(("row", "linear", parts), parts))
            continue
        pairs = [(s, r.leaf(name, {0: q, 1: p})) for p, s in enumerate(inputs)]
        answer.append(r.terms.total([*(r.terms.of(("times", p), p) for p in pairs), *shift]))
    return tuple(answer)


@law(WHOLE, *CONVOLUTIONS)
def _convolution(r: Expressions, node: fx.Node) -> int | None:
    x, weight, bias = three_of(node)
    if groups_of(node) != 1 or len(shape(x)) != len(shape(weight)) or r.slices(x, 1) is None:
        return None
    how = op_of(node), encoded((args_of(node)[3:], node.kwargs), r.number)
    pairs = zip(r.certain(x, 1), r.certain(weight, 1), strict=True)
    products = [r.terms.of(("outer", how, p), p) for p in pairs]
    shift = [] if bias is None else [r.terms.of(("shift", how[0], r.number[bias]), (r.number[bias],))]
    return r.terms.total([*products, *shift])


@law(SLICED, *CONVOLUTIONS)
def _convolution_rows(r: Expressions, node: fx.Node, dim: int, rows: bool) -> Slices | None:
    x, weight, bias = three_of(node)
    if dim != 1 or groups_of(node) != 1 or len(shape(x)) != len(shape(weight)) or r.slices(x, 1):
        return None
    found = r.slices(weight, 0, rows)
    if found is None:
        return None
    how = op_of(node), encoded((args_of(node)[3:], node.kwargs), r.number)
    added = [()] * len(found) if bias is None else [(s,) for s in r.certain(bias, 0)]
    parts = [(r.number[x], row, *shift) for row, shift in zip(found, added, strict=True)]
    return tuple(r.terms.of(("row", how, p), p) for p in parts)


@law(WHOLE, "index_add.default")
def _added_at(r: Expressions, node: fx.Node) -> int | None:
    if len(args_of(node)) != 4 or node.kwargs:
        return None
    base, dim, index, rows = args_of(node)
    parts = r.number[index], r.number[rows]
    return r.terms.total([r.number[base], r.terms.of(("put", dim, shape(node), parts), parts)])


@law(WHOLE, "index_put.default")
def _put_at(r: Expressions, node: fx.Node) -> int | None:
    if len(args_of(node)) != 4 or args_of(node)[3] is not True or not isinstance(args_of(node)[2], fx.Node):
        return None
    given, parts = encoded(args_of(node)[1], r.number), [r.number[n] for n in node.all_input_nodes[1:]]
    put = r.terms.of(("put", given, shape(node), r.number[args_of(node)[2]]), parts)
    return r.terms.total([r.number[args_of(node)[0]], put])


# -- one slice beside the others ----------------------------------------------------------------------------


@law(SLICED, *SOFTMAX)
def _softmax(r: Expressions, node: fx.Node, dim: int, rows: bool) -> Slices | None:
    if dim != dim_of(node, 1, -1):
        return None
    found = r.slices(args_of(node)[0], dim, rows)
    if found is None:
        return None
    how, everything = (op_of(node), encoded((args_of(node)[2:], node.kwargs), {})), r.terms.set(*found)
    return tuple(r.terms.of(("share", how, s, everything), (s,)) for s in found)


@law(SLICED, *ROW_NORMS)
def _row_norm(r: Expressions, node: fx.Node, dim: int, rows: bool) -> Slices | None:
    x, normalized, rank = args_of(node)[0], args_of(node)[1], len(shape(node))
    if dim < rank - len(normalized):
        return None
    found = r.slices(x, dim, rows) if len(normalized) == 1 else None
    if found is None:
        return None
    weights = [r.certain(w, 0) for w in node.all_input_nodes[1:]]
    given = encoded((args_of(node)[1:], node.kwargs), operands_in_order(node))
    how, everything = (op_of(node), given), r.terms.set(*found)
    parts = [*zip(found, *weights, strict=True)]
    return tuple(r.terms.of(("share", how, p, everything), p) for p in parts)


@law(SLICED, BATCH_NORMS[0])
def _batch_norm(r: Expressions, node: fx.Node, dim: int, rows: bool) -> Slices | None:
    found = r.slices(args_of(node)[0], 1, rows) if dim == 1 else None
    if found is None:
        return None
    weights = [r.certain(w, 0) for w in node.all_input_nodes[1:]]
    given = encoded((args_of(node), node.kwargs), operands_in_order(node))
    parts = [*zip(found, *weights, strict=True)]
    return tuple(r.terms.of(("channel", op_of(node), given, p), p) for p in parts)


# -- places of the largest ----------------------------------------------------------------------------------


@law(WHOLE, "topk.default")
def _topk(r: Expressions, node: fx.Node) -> int | None:
    x, dim = args_of(node)[0], dim_of(node, 2, -1, args_of(node)[0])
    # In no order ("sorted=False"), what comes first is not determined; the smallest are rare.
    flags = [*args_of(node)[3:], *node.kwargs.values()]
    if not shape(x) or any(flag is not True for flag in flags):
        return None
    found = _taken(r, x, dim)
    if found is None or len(set(found)) < len(found) or not r.ties.scorers(node, dim):
        return None
    among = r.terms.of(("largest", repr(args_of(node)[1]), dim, shape(x), r.terms.set(*found)))
    return r.name(node, among, found)


@law(WHOLE, "eq.Scalar", "ne.Scalar")
def _is_place(r: Expressions, node: fx.Node) -> int | None:
    named, place = r.named(args_of(node)[0]), args_of(node)[1]
    if named is None or not isinstance(place, int) or not 0 <= place < len(named[1]):
        return None
    among, chosen = named[0], named[1][place]
    return r.terms.of(("is", op_of(node), among, chosen), (chosen,))


@law(SLICED, "eq.Tensor", "ne.Tensor")
def _is_each_place(r: Expressions, node: fx.Node, dim: int, rows: bool) -> Slices | None:
    """places[..., None] == arange(n)."""
    places, numbers = args_of(node)
    named = r.named(places)
    if named is None or not isinstance(numbers, fx.Node) or op_of(numbers) != "arange.default":
        return None
    count = [a for a in args_of(numbers) if isinstance(a, int)]
    last = dim == len(shape(node)) - 1 and shape(places)[-1:] == (1,)
    if not last or count != [len(named[1])] or len(args_of(numbers)) != 1:
        return None
    return tuple(r.terms.of(("is each", op_of(node), named[0], s), (s,)) for s in named[1])


@law(SLICED, "one_hot.default")
def _one_hot(r: Expressions, node: fx.Node, dim: int, rows: bool) -> Slices | None:
    named = r.named(args_of(node)[0])
    if named is None or dim != len(shape(node)) - 1 or shape(node)[-1] != len(named[1]):
        return None
    return tuple(r.terms.of(("marks", named[0], s), (s,)) for s in named[1])


@law(SLICED, "scatter.src", "scatter.value", "scatter_add.default")
def _scattered(r: Expressions, node: fx.Node, dim: int, rows: bool) -> Slices | None:
    base, index, source = args_of(node)[0], args_of(node)[2], args_of(node)[3]
    named = r.named(index)
    if named is None or dim != dim_of(node, 1, 0) or shape(node)[dim] != len(named[1]) or node.kwargs:
        return None
    under: Sequence[Any] | None = r.slices(base, dim, True)
    if isinstance(base, fx.Node) and op_of(base) in ZEROS:
        under = ["zeros"] * len(named[1])
    if under is None:
        return None
    what = encoded(source, r.number)
    how, pairs = (op_of(node), dim, shape(node), named[0], what), zip(named[1], under, strict=True)
    return tuple(r.terms.of(("scattered", how, s, u), (s,)) for s, u in pairs)


@law(WHOLE, "gather.default")
def _gathered(r: Expressions, node: fx.Node) -> int | None:
    x, dim, index = args_of(node)[0], dim_of(node, 1, 0), args_of(node)[2]
    named = r.named(index)
    if named is None or node.kwargs or shape(x)[dim] != len(named[1]):
        return None
    found = r.slices(x, dim, True)
    if found is None:
        return None
    pairs = tuple(sorted(zip(named[1], found, strict=True)))
    return r.terms.of(("gathered", dim, named[0], pairs))


# -- one operand, slice by slice ----------------------------------------------------------------------------


def source_of(node: fx.Node, dim: int) -> tuple[fx.Node, int] | None:
    """The operand and its dimension whose slices make those of a result, each alone."""
    op, args = op_of(node), args_of(node)
    x = args[0] if args else None
    if not isinstance(x, fx.Node) or not shape(x) or any(x is n for n in nodes_in(args[1:])):
        return None
    rank, out = len(shape(x)), len(shape(node))
    if op == "unsqueeze.default":
        at = args[1] % out
        return None if dim == at else (x, dim - (dim > at))
    if op in ("select.int", "squeeze.dim"):
        at = args[1] % rank
        return x, dim + (dim >= at and out < rank)
    if op == "slice.Tensor":
        return (x, dim) if dim != dim_of(node, 1, 0) else None
    if op == "transpose.int":
        a, b = (k % rank for k in args[1:])
        return x, {a: b, b: a}.get(dim, dim)
    if op == "permute.default":
        return x, args[1][dim] % rank
    if op == "t.default":
        return x, rank - 1 - dim
    if op == "expand.default":
        at = dim - (out - rank)
        return (x, at) if at >= 0 and shape(x)[at] == shape(node)[dim] else None
    if op in VIEWS:
        return _kept_in_view(x, node, dim)
    if op in REDUCTIONS:
        gone = dims_of(node)
        if out == rank:
            return (x, dim) if dim not in gone else None
        return x, [d for d in range(rank) if d not in gone][dim]
    if op in SOFTMAX:
        return (x, dim) if dim != dim_of(node, 1, -1) else None
    if op == "linear.default":
        return (x, dim) if dim < rank - 1 else None
    if op in ROW_NORMS:
        return (x, dim) if dim < rank - len(args[1]) else None
    return None


def _kept_in_view(x: fx.Node, node: fx.Node, dim: int) -> tuple[fx.Node, int] | None:
    """The dimension of x that a view keeps as it is, with as much before it and behind it."""
    before, after = shape(x), shape(node)
    if not all(isinstance(s, int) for s in (*before, *after)):
        return None
    for at, size in enumerate(before):
        if size == after[dim] and math.prod(before[:at]) == math.prod(after[:dim]):
            return x, at
    return None
