"""Contractions: linear, matmul, einsum."""

from __future__ import annotations

from collections.abc import Sequence

from intertwine.ir.value import Value, fixed
from intertwine.rules import moments
from intertwine.rules.registry import Context, rule

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@rule("linear.default", contracts=True, moments=moments.linear, rows=-1)
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


@rule("matmul.default", "bmm.default", "mm.default", "mv.default", "dot.default", contracts=True)
def matmul(ctx: Context, a: Value, b: Value) -> Value:
    """sum_k a[..., n, k] b[..., k, m]: contracted channels cancel, batch dimensions move together."""
    n = "y" if len(a.dims) > 1 else ""
    m = "z" if len(b.dims) > 1 else ""
    rank = max(len(a.dims), len(b.dims)) - 2
    letters = LETTERS[: max(rank, 0)]
    left = letters[len(letters) - max(len(a.dims) - 2, 0) :]
    right = letters[len(letters) - max(len(b.dims) - 2, 0) :]
    return ctx.einsum(f"{left}{n}x,{right}x{m}->{letters}{n}{m}", a, b)


@rule("addmm.default", "baddbmm.default", contracts=True)
def addmm(ctx: Context, bias: Value, a: Value, b: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    """bias + a b."""
    ctx.role(b, len(b.dims) - 2, "in")
    ctx.role(b, len(b.dims) - 1, "out")
    ctx.role(bias, len(bias.dims) - 1, "bias")
    out = matmul(ctx, a, b)
    return ctx.add(out, bias) if beta else out


@rule("einsum.default", contracts=True)
def einsum(ctx: Context, spec: str, operands: Sequence[Value], **_: object) -> Value:
    """Any einsum without repeated letters inside one operand."""
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
    if any(len(set(t)) < len(t) for t in filled):
        for value in operands:
            ctx.fix(value, "einsum takes a diagonal")
        return fixed(ctx.shape)
    return ctx.einsum(",".join(filled) + "->" + out.replace("...", most), *operands)
