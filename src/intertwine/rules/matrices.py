"""Matrices whose rows and columns are read together: inverses, exponentials, traces, diagonals.

inverse       (A W B)^-1 = B^-1 W^-1 A^-1     rows become columns, scales their inverses
exponential   exp(A W A^-1) = A exp(W) A^-1   rows and columns move together, one undoes the other
trace         tr(A W A^-1) = tr W             likewise
determinant   det(A W A^-1) = det W           likewise
identity      A 1 A^-1 = 1                    likewise
norms         |W|                             rows in any order, columns in any order; where singular values
                                              decide, A W B for orthogonal A and B
diagonal      W_ii                            rows and columns move together
factors       Cholesky's and others           rows and columns are fixed, other dimensions pass
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from intertwine.ir.ledger import ANY_NONLINEAR, UNMERGEABLE
from intertwine.ir.placing import project
from intertwine.ir.value import Extent, Factor, Value, fixed, zero_scale
from intertwine.rules.linear import matmul, row_and_column, take_diagonal
from intertwine.rules.registry import Context, dims_of, rule

EXCHANGED = "rows and columns are exchanged"


def _square(ctx: Context, x: Value, reason: str) -> tuple[Value, tuple[Factor, Factor] | None]:
    """A value that is read as matrices, and its rows and columns, which move together or are fixed. What lies
    along other dimensions is not rescaled."""
    rank = len(x.dims)
    pair = row_and_column(x, rank - 2, rank - 1)
    rest = [f for f in x.factors if pair is None or f not in pair]
    for factor in rest:
        ctx.ledger.zero(factor.scale)
        ctx.ledger.mark(factor.ids, ANY_NONLINEAR)
    if pair is None:
        return replace(ctx.fix(x, reason, [rank - 2, rank - 1]), zero=False), None
    rows, columns = pair
    ctx.ledger.tie(rows.ids, columns.ids)
    ctx.ledger.equation((rows.scale, columns.scale), (1.0, 1.0), (1, 1))
    plain = (Factor(f.axes, f.ids, zero_scale(f.ids.shape)) for f in rest)
    return Value(x.dims, (*plain, *pair)), pair


@rule("linalg_inv.default", "inverse.default")
def inverse(ctx: Context, x: Value) -> Value:
    """W^-1: rows become columns and columns rows, rescaled by the inverse."""
    rank = len(x.dims)
    sides = {a for d in (rank - 2, rank - 1) for a in x.dims[d]}
    if any(len(sides.intersection(f.axes)) > 1 for f in x.factors) or x.zero:
        return replace(ctx.fix(x, EXCHANGED, [rank - 2, rank - 1]), zero=False)
    factors = []
    for factor in x.factors:
        others = [a for a in factor.axes if a not in sides]
        if others:
            ctx.ledger.mark(project(ctx.ledger, factor, others), ANY_NONLINEAR)
        scale = ctx.ledger.fresh_scales(factor.scale.shape) if factor.scale.any() else factor.scale
        ctx.ledger.equation((factor.scale, scale), (1.0, 1.0), (1, 1))
        factors.append(Factor(factor.axes, factor.ids, scale))
    # Of equal entries the inverse is none.
    plain = {a: Extent(a.size) for a in sides if a.wild}
    return Value((*x.dims[:-2], x.dims[-1], x.dims[-2]), tuple(factors)).renamed(plain)


@rule("linalg_solve.default")
def solve(ctx: Context, a: Value, b: Value, *, left: bool = True) -> Value:
    """A^-1 B, or B A^-1."""
    vector = len(b.dims) == 1 or (len(a.dims) - 1 == len(b.dims) and a.shape[:-1] == b.shape)
    given = b.with_dims((*b.dims, ())) if vector else b
    out = matmul(ctx, inverse(ctx, a), given) if left else matmul(ctx, given, inverse(ctx, a))
    return out.with_dims(out.dims[:-1]) if vector else out


@rule("matrix_exp.default", "linalg_matrix_exp.default", "matrix_power.default")
def power(ctx: Context, x: Value, *args: Any) -> Value:
    """f(W) with f(A W A^-1) = A f(W) A^-1: rows and columns move together."""
    return _square(ctx, x, "a power is taken of it as a matrix")[0]


@rule("eye.default", "eye.m", sizes_only=True)
def identity(ctx: Context, *args: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Value:
    """1 = A 1 A^-1: rows and columns move together, one rescaled by the inverse of the other.

    It has channels of nobody; what it is added to, and multiplied with, says whose they are. Whole numbers
    name places.
    """
    rows, columns = ctx.shape
    if rows != columns or (dtype is not None and not dtype.is_floating_point):
        return fixed(ctx.shape)
    axes, labels = (Extent(rows), Extent(rows)), [ctx.ledger.fresh_labels((rows,)) for _ in range(2)]
    scales = ctx.ledger.fresh_scales((rows,)), ctx.ledger.fresh_scales((rows,))
    ctx.ledger.tie(*labels)
    ctx.ledger.equation(scales, (1.0, 1.0), (1, 1))
    for ids in labels:
        ctx.ledger.mark(ids, UNMERGEABLE)
    factors = (Factor((a,), ids, s) for a, ids, s in zip(axes, labels, scales, strict=True))
    return Value(tuple((a,) for a in axes), tuple(factors))


@rule("trace.default", "linalg_det.default", "det.default", "logdet.default", "linalg_slogdet.default")
def invariant(ctx: Context, x: Value) -> Value | tuple[Value, ...]:
    """tr W, det W: rows and columns move together, one rescaled by the inverse of the other."""
    matrix, pair = _square(ctx, x, "its trace or determinant is taken")
    for factor in pair or ():
        ctx.ledger.mark(factor.ids, UNMERGEABLE)
    number = Value(matrix.dims[:-2], tuple(f for f in matrix.factors if f not in (pair or ())))
    return (number,) * len(ctx.shapes) if len(ctx.shapes) > 1 else number


def _singular(ctx: Context, x: Value, dims: Sequence[int], keepdim: bool, turns: bool = True) -> Value:
    """What is the same of all matrices with these rows, in any order, and these columns; turns: of all with
    these singular values."""
    joint = [f for f in x.factors if all(set(f.axes).intersection(x.dims[d]) for d in dims)]
    for factor in joint:  # entries of it move as rows and columns do
        for d in dims:
            project(ctx.ledger, factor, x.dims[d])
    return ctx.reduce(x, dims, keepdim, "length" if turns and not joint else "opaque")


@rule("linalg_norm.default", "linalg_norm.ord_str")
def norm(
    ctx: Context, x: Value, ord: Any = None, dim: Any = None, keepdim: bool = False, **kwargs: Any
) -> Value:
    """Norms of vectors, the length of all entries, and other norms of matrices."""
    dims = dims_of(x, dim)
    if len(dims) > 1 and ord not in (None, "fro"):
        return _singular(ctx, x, dims, keepdim, ord in (2, -2, "nuc"))
    how = "length" if ord in (None, "fro", 2) else "opaque" if ord == 0 else "max"
    return ctx.reduce(x, dims, keepdim, how)


@rule("linalg_matrix_norm.default", "linalg_matrix_norm.str_ord")
def matrix_norm(
    ctx: Context, x: Value, ord: Any = "fro", dim: Sequence[int] = (-2, -1), keepdim: bool = False, **_: Any
) -> Value:
    """|W|: rows in any order, columns in any order; those of its singular values turn."""
    return norm(ctx, x, ord, dim, keepdim)


@rule("linalg_svdvals.default")
def singular_values(ctx: Context, x: Value, **_: Any) -> Value:
    """Those of A W B are the same for orthogonal A and B."""
    rank = len(x.dims)
    out = _singular(ctx, x, [rank - 2, rank - 1], keepdim=False)
    return out.with_dims((*out.dims, *fixed(ctx.shape[-1:]).dims))


@rule("diagonal.default", "diagonal_copy.default")
def diagonal(ctx: Context, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """W_ii: rows and columns move together; beside the main diagonal they are fixed."""
    a, b = dim1 % len(x.dims), dim2 % len(x.dims)
    if not offset:
        return take_diagonal(ctx, x, a, b)
    x = ctx.fix(x, "its diagonal is taken", [a, b])
    kept = tuple(d for i, d in enumerate(x.dims) if i not in (a, b))
    return x.with_dims((*kept, *fixed(ctx.shape[-1:]).dims))


@rule("diag_embed.default")
def diag_embed(ctx: Context, x: Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    """A matrix with these entries on its diagonal: its rows and columns move with them, and share scales."""
    rank, last = len(x.dims) + 1, x.dims[-1]
    found = x.factors_on(last)
    plain = (offset, dim1 % rank, dim2 % rank) == (0, rank - 2, rank - 1)
    if not plain or len(last) != 1 or len(found) != 1:
        x = ctx.fix(x, "put on a diagonal")
        return replace(fixed(ctx.shape), zero=x.zero)
    (entries,), columns = found, Extent(last[0].size)
    ids = ctx.ledger.fresh_labels(entries.ids.shape)
    ctx.ledger.tie(ids, entries.ids)
    ctx.ledger.mark(ids, ANY_NONLINEAR | UNMERGEABLE)
    ctx.ledger.mark(entries.ids, ANY_NONLINEAR | UNMERGEABLE)
    scales = [ctx.ledger.fresh_scales(entries.ids.shape) for _ in range(2)]
    ctx.ledger.equation((entries.scale, *scales), (1.0, -1.0, -1.0), (1, 1, 1))
    others = tuple(f for f in x.factors if f is not entries)
    sides = (
        Factor(entries.axes, entries.ids, scales[0]),
        Factor(entries.renamed({last[0]: columns}).axes, ids, scales[1]),
    )
    return Value((*x.dims, (columns,)), (*others, *sides), x.zero)


@rule("diag.default")
def diag(ctx: Context, x: Value, offset: int = 0) -> Value:
    """The diagonal of a matrix, or the matrix of a diagonal."""
    return diag_embed(ctx, x, offset) if len(x.dims) == 1 else diagonal(ctx, x, offset)


@rule("linalg_cholesky.default", "linalg_qr.default")
def whole(ctx: Context, x: Value, *args: Any, **kwargs: Any) -> Value | tuple[Value, ...]:
    """Factorisations: rows and columns are fixed, other dimensions pass."""
    x = ctx.fix(ctx.opaque(x), "a factorisation is taken", [len(x.dims) - 2, len(x.dims) - 1])
    kept = x.dims[:-2]
    made = tuple(Value((*kept, *fixed(shape[len(kept) :]).dims), x.factors) for shape in ctx.shapes)
    return made if len(made) > 1 else made[0]
