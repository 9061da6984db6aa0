"""Contractions: linear, matmul, einsum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from intertwine.graph.kernels import KERNELS
from intertwine.ir.ledger import ANY_NONLINEAR, UNMERGEABLE
from intertwine.ir.value import Factor, Value, fixed
from intertwine.rules import moments
from intertwine.rules.registry import Context, rule

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@rule(
    "linear.default", contracts=True, product=(1, 2, 1), moments=moments.linear, rows=-1, thin=True,
    channels=lambda *_: {1: (0, 1), 2: (0,)},
)  # fmt: skip
def linear(ctx: Context, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """x[..., i] w[o, i] + b[o]: the input channels of w cancel those of x."""
    batch = LETTERS[: len(x.dims) - 1]
    if len(weight.dims) == 1:
        ctx.role(weight, 0, "in")
        out = ctx.einsum(f"{batch}y,y->{batch}", x, weight)
        return out if bias is None else ctx.add(out, bias)
    ctx.role(weight, 0, "out")
    ctx.role(weight, 1, "in")
    out = ctx.einsum(f"{batch}y,zy->{batch}z", x, weight)
    if bias is None:
        return out
    ctx.role(bias, 0, "bias")
    return ctx.add(out, bias)


@rule(
    "matmul.default", "bmm.default", "mm.default", "mv.default", "dot.default", "vdot.default",
    contracts=True, product=(1, None, -2),
)  # fmt: skip
def matmul(ctx: Context, a: Value, b: Value) -> Value:
    """sum_k a[..., n, k] b[..., k, m]: contracted channels cancel, batch dimensions move together."""
    ctx.linear_weight(b)
    n = "y" if len(a.dims) > 1 else ""
    m = "z" if len(b.dims) > 1 else ""
    rank = max(len(a.dims), len(b.dims)) - 2
    letters = LETTERS[: max(rank, 0)]
    left = letters[len(letters) - max(len(a.dims) - 2, 0) :]
    right = letters[len(letters) - max(len(b.dims) - 2, 0) :]
    return ctx.einsum(f"{left}{n}x,{right}x{m}->{letters}{n}{m}", a, b)


@rule("addmm.default", "baddbmm.default", contracts=True, product=(2, 0, -2))
def addmm(ctx: Context, bias: Value, a: Value, b: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    """bias + a b."""
    ctx.role(b, len(b.dims) - 2, "in")
    ctx.role(b, len(b.dims) - 1, "out")
    ctx.role(bias, len(bias.dims) - 1, "bias")
    out = matmul(ctx, a, b)
    return ctx.add(out, bias) if beta else out


@rule("addmv.default", contracts=True)
def addmv(ctx: Context, bias: Value, a: Value, b: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    """bias + a b, for a vector b."""
    out = matmul(ctx, a, b)
    return ctx.add(out, bias) if beta else out


@rule("linalg_multi_dot.default", "chain_matmul.default", contracts=True)
def multi_dot(ctx: Context, matrices: Sequence[Value]) -> Value:
    """a b c ...: products one after the other."""
    out = matrices[0]
    for matrix in matrices[1:]:
        out = matmul(ctx, out, matrix)
    return out


@rule("inner.default", contracts=True)
def inner(ctx: Context, a: Value, b: Value) -> Value:
    """sum_k a[..., k] b[..., k]: the last dimensions are contracted, the others stand side by side."""
    left, right = LETTERS[: len(a.dims) - 1], LETTERS[len(a.dims) : len(a.dims) + len(b.dims) - 1]
    return ctx.einsum(f"{left}z,{right}z->{left}{right}", a, b)


@rule("outer.default", "ger.default")
def outer(ctx: Context, a: Value, b: Value) -> Value:
    """a[i] b[k]."""
    return ctx.einsum("a,b->ab", a, b)


@rule("addr.default")
def addr(ctx: Context, bias: Value, a: Value, b: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    """bias + a[i] b[k]."""
    out = outer(ctx, a, b)
    return ctx.add(out, bias) if beta else out


@rule("linalg_vecdot.default", contracts=True)
def vecdot(ctx: Context, a: Value, b: Value, *, dim: int = -1) -> Value:
    """sum_k a[..., k] b[..., k], row by row."""
    rank = max(len(a.dims), len(b.dims))
    a, b = (v.with_dims(((),) * (rank - len(v.dims)) + v.dims) for v in (a, b))
    letters = LETTERS[:rank]
    return ctx.einsum(f"{letters},{letters}->{letters.replace(letters[dim], '')}", a, b)


@rule("einsum.default", contracts=True)
def einsum(ctx: Context, spec: str, operands: Sequence[Value], **_: object) -> Value:
    """Any einsum; of an operand in which a letter comes twice, the diagonal is taken first."""
    spec = spec.replace(" ", "")
    if "->" not in spec:
        free = sorted(c for c in set(spec) if c.isalpha() and spec.count(c) == 1)
        spec += "->" + "".join(free)
    left, out = spec.split("->")
    terms = left.split(",")
    unused = [c for c in LETTERS + LETTERS.upper() if c not in spec]
    ranks = [len(v.dims) - len(t.replace("...", "")) for v, t in zip(operands, terms, strict=True)]
    most = "".join(unused[: max([r for r, t in zip(ranks, terms, strict=True) if "..." in t], default=0)])
    filled = [t.replace("...", most[len(most) - r :] if r else "") for t, r in zip(terms, ranks, strict=True)]
    plain, values = list[str](), list[Value]()
    for term, value in zip(filled, operands, strict=True):
        for letter in [c for c in dict.fromkeys(term) if term.count(c) == 2]:
            value = take_diagonal(ctx, value, term.index(letter), term.rindex(letter))
            term = term.replace(letter, "") + letter
        if len(set(term)) < len(term):
            for given in operands:
                ctx.fix(given, "einsum takes a diagonal of more than two dimensions")
            return fixed(ctx.shape)
        plain.append(term)
        values.append(value)
    return ctx.einsum(",".join(plain) + "->" + out.replace("...", most), *values)


def row_and_column(x: Value, a: int, b: int) -> tuple[Factor, Factor] | None:
    """The factors along two dimensions of one size, if there is one along each, and on nothing else."""
    axes = [x.dims[d] for d in (a, b)]
    found = [x.factors_on(dim) for dim in axes]
    simple = all(len(dim) == 1 and [f.axes for f in on] == [dim] for dim, on in zip(axes, found, strict=True))
    return (found[0][0], found[1][0]) if simple and x.shape[a] == x.shape[b] else None


def take_diagonal(ctx: Context, x: Value, a: int, b: int) -> Value:
    """W_ii along two dimensions, which becomes the last one: rows and columns move together."""
    pair, size = row_and_column(x, a, b), min(x.shape[a], x.shape[b])
    if pair is None:
        x = ctx.fix(x, "its diagonal is taken", [a, b])
        last, factors = fixed((size,)).dims, x.factors
    else:
        rows, columns = pair
        ctx.ledger.tie(rows.ids, columns.ids)
        scale = ctx.ledger.fresh_scales(rows.ids.shape)
        ctx.ledger.equation((scale, rows.scale, columns.scale), (1.0, -1.0, -1.0), (1, 1, 1))
        for factor in pair:
            ctx.ledger.mark(factor.ids, ANY_NONLINEAR | UNMERGEABLE)
        others = tuple(f for f in x.factors if f not in pair)
        last, factors = (rows.axes,), (*others, Factor(rows.axes, rows.ids, scale))
    kept = tuple(d for i, d in enumerate(x.dims) if i not in (a, b))
    return Value((*kept, *last), factors, x.zero)


@rule("bilinear.default", contracts=True)
def bilinear(ctx: Context, left: Value, right: Value, weight: Value, bias: Value | None = None) -> Value:
    """sum_ij w[o, i, j] x[i] y[j] + b[o]: both inputs cancel against the weight."""
    for dim, role in enumerate(("out", "in", "in")):
        ctx.role(weight, dim, role)
    batch = LETTERS[: len(left.dims) - 1]
    out = ctx.einsum(f"{batch}x,zxy,{batch}y->{batch}z", left, weight, right)
    return out if bias is None else ctx.add(out, bias)


@rule("kron.default")
def kron(ctx: Context, a: Value, b: Value) -> Value:
    """a[i] b[k] at (i k), in every dimension."""
    rank = max(len(a.dims), len(b.dims))
    a, b = (v.with_dims(((),) * (rank - len(v.dims)) + v.dims) for v in (a, b))
    left, right = LETTERS[:rank], LETTERS[rank : 2 * rank]
    out = ctx.einsum(f"{left},{right}->{''.join(map(''.join, zip(left, right, strict=True)))}", a, b)
    return ctx.reshape(out, [math.prod(out.shape[2 * k : 2 * k + 2]) for k in range(rank)])


@rule("_grouped_mm.default", "transformers.grouped_mm_fallback.default")
def grouped_mm(
    ctx: Context, a: Value, b: Value, offsets: Value | None = None, bias: Value | None = None, *args: Any,
    **kwargs: Any,
) -> Value:  # fmt: skip
    """Rows times the matrix of their group (expert): groups move if rows are sorted by what names them."""
    if offsets is not None:
        ctx.fix(offsets, "bounds of groups")
    if len(a.dims) != 2 or len(b.dims) != 3 or bias is not None:
        for value in (a, b, bias):
            if value is not None:
                ctx.fix(value, "a product in groups of another kind")
        return fixed(ctx.shape)
    ctx.role(b, 1, "in")
    ctx.role(b, 2, "out")
    a, b = ctx.fix(a, "rows lie in groups", [0]), ctx.pointed(b, [0], "tokens are routed to experts", True)
    return ctx.einsum("yx,xz->yz", a, b.with_dims(b.dims[1:]))


def _rows_by_group(
    a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: Any = None
) -> Tensor:
    """The same product, one group after the other; rows after the last bound are zero."""
    if a.dim() != 2 or b.dim() != 3 or offs is None or bias is not None:
        return cast(Tensor, torch.ops.aten._grouped_mm.default(a, b, offs, bias, out_dtype))
    out, start = a.new_zeros(a.shape[0], b.shape[2]), 0
    for matrix, end in zip(b, offs.tolist(), strict=True):
        out[start:end] = a[start:end] @ matrix
        start = end
    return out


# The kernel takes no float64, in which symmetries are proved.
KERNELS[torch.ops.aten._grouped_mm.default] = _rows_by_group


@rule("cosine_similarity.default")
def cosine_similarity(ctx: Context, a: Value, b: Value, dim: int = 1, eps: float = 1e-8) -> Value:
    """a . b / |a| |b|: both may be turned alike."""
    rank = max(len(a.dims), len(b.dims))
    a, b = (v.with_dims(((),) * (rank - len(v.dims)) + v.dims) for v in (a, b))
    dim %= rank
    a, b = (ctx.normalize(v, [dim], rotation=True) for v in (a, b))
    letters = LETTERS[:rank]
    return ctx.einsum(f"{letters},{letters}->{letters.replace(letters[dim], '')}", a, b)


@rule("cdist.default", "_cdist_forward.default")
def cdist(ctx: Context, a: Value, b: Value, p: float = 2.0, *args: Any) -> Value:
    """|a_i - b_j|: both may be turned alike for p = 2, exchanged for every p."""
    left = a.with_dims((*a.dims[:-1], (), a.dims[-1]))
    right = b.with_dims((*b.dims[:-2], (), *b.dims[-2:]))
    apart = ctx.add(left, right)
    return ctx.reduce(apart, [len(apart.dims) - 1], False, "length" if p == 2 else "max" if p else "opaque")


@rule("pairwise_distance.default")
def pairwise_distance(
    ctx: Context, a: Value, b: Value, p: float = 2, eps: float = 1e-6, keepdim: bool = False
) -> Value:
    """|a - b + eps|: channels are exchanged alike; what is added to each lets nothing else pass."""
    apart = ctx.opaque(a, b)
    return ctx.reduce(apart, [len(apart.dims) - 1], keepdim, "opaque")


@rule("linalg_cross.default")
def cross(ctx: Context, a: Value, b: Value, *, dim: int = -1) -> Value:
    """a x b along one dimension, which is fixed; along the others a product."""
    a, b = (ctx.fix(v, "a coordinate of a cross product", [dim]) for v in (a, b))
    return ctx.multiply(a, b)


@rule("tensordot.default", contracts=True)
def tensordot(ctx: Context, a: Value, b: Value, left: Sequence[int], right: Sequence[int]) -> Value:
    """Sums over pairs of dimensions, which cancel."""
    names = list(LETTERS[: len(a.dims)])
    others = list(LETTERS[len(a.dims) : len(a.dims) + len(b.dims)])
    for i, j in zip(left, right, strict=True):
        others[j] = names[i]
    gone = {names[i] for i in left}
    out = [letter for letter in [*names, *others] if letter not in gone]
    return ctx.einsum(f"{''.join(names)},{''.join(others)}->{''.join(out)}", a, b)
