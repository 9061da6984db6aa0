"""How means and covariances of features pass through an op: the `moments` of its rule.

A value is taken as Gaussian between layers. With channel covariance C, neighbouring positions correlated by
S_pq = exp(-|p - q| / tau), and a kernel w:

    convolution   cov z_ij = sum_pq w_ip C w_jq S_pq
    batch norm    mean = shift, cov = corr(z) o gain gain^T        (its statistics are those of real data)
    f(z)          cov_ij = sum_n a_n(i) a_n(j) rho_ij^n / n!,  a_n(i) = E[f(m_i + s_i x) He_n(x)]   (Mehler)

Each function takes the node and its arguments: `Moments` or None for values, tensors for weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

TAU = 1.0
ORDER, NODES = 8, 80


@dataclass(frozen=True, eq=False)
class Moments:
    """mean (C,) and covariance (C, C) of the channels of a value, which lie along `dim`.

    copies: after a flatten every channel lies at this many neighbouring positions.
    """

    mean: Tensor
    cov: Tensor
    dim: int
    copies: int = 1


def unknown(size: int, dim: int) -> Moments:
    """Uncorrelated features of unit scale."""
    return Moments(torch.zeros(size, dtype=torch.float64), torch.eye(size, dtype=torch.float64), dim)


def _shape(node: fx.Node) -> tuple[int, ...]:
    value = node.meta.get("val")
    return tuple(int(s) for s in value.shape) if isinstance(value, Tensor) else ()


def _kernel_correlation(kernel: tuple[int, ...]) -> Tensor:
    grid = torch.stack(torch.meshgrid(*[torch.arange(k, dtype=torch.float64) for k in kernel], indexing="ij"))
    points = grid.reshape(len(kernel), -1).T
    return torch.exp(-torch.cdist(points, points) / TAU)


def convolution(node: fx.Node, x: Any, weight: Tensor, bias: Any = None, *rest: Any) -> Moments | None:
    groups = (
        next((int(r) for r in reversed(node.args[3:]) if isinstance(r, int)), 1) if len(node.args) > 6 else 1
    )
    outer, inner = weight.shape[:2]
    if not isinstance(x, Moments):
        x = unknown(inner * groups, 1)
    near = _kernel_correlation(tuple(weight.shape[2:]))
    flat = weight.reshape(outer, inner, -1)
    if groups == 1:
        mixed = torch.einsum("oip,ij->ojp", flat @ near, x.cov)
        cov = mixed.reshape(outer, -1) @ flat.reshape(outer, -1).T
        mean = flat.sum(2) @ x.mean
    elif inner == 1 and outer == groups:
        rows = flat[:, 0]
        cov = (rows @ near @ rows.T) * x.cov
        mean = rows.sum(1) * x.mean
    else:
        dense = torch.zeros(outer, inner * groups, flat.shape[2], dtype=torch.float64)
        for g in range(groups):
            span = slice(g * outer // groups, (g + 1) * outer // groups)
            dense[span, g * inner : (g + 1) * inner] = flat[span]
        mixed = torch.einsum("oip,ij->ojp", dense @ near, x.cov)
        cov = mixed.reshape(outer, -1) @ dense.reshape(outer, -1).T
        mean = dense.sum(2) @ x.mean
    return Moments(mean + bias if isinstance(bias, Tensor) else mean, cov, 1)


def linear(node: fx.Node, x: Any, weight: Tensor, bias: Any = None) -> Moments | None:
    if not isinstance(x, Moments):
        x = unknown(weight.shape[1], len(_shape(node)) - 1)
    parts = weight.reshape(weight.shape[0], len(x.mean), x.copies)
    cov = sum(
        (parts[:, :, p] @ x.cov @ parts[:, :, p].T for p in range(x.copies)),
        torch.zeros(1, dtype=torch.float64),
    )
    mean = parts.sum(2) @ x.mean
    return Moments(mean + bias if isinstance(bias, Tensor) else mean, cov, len(_shape(node)) - 1)


def _correlation(cov: Tensor) -> Tensor:
    scale = cov.diag().clamp_min(0).sqrt().clamp_min(1e-12)
    return (cov / scale[:, None] / scale[None, :]).clamp(-1, 1)


def batch_norm(node: fx.Node, x: Any, gain: Any, shift: Any, mean: Tensor, *rest: Any) -> Moments:
    size = len(mean)
    corr = _correlation(x.cov) if isinstance(x, Moments) else torch.eye(size, dtype=torch.float64)
    gain = gain if isinstance(gain, Tensor) else torch.ones(size, dtype=torch.float64)
    shift = shift if isinstance(shift, Tensor) else torch.zeros(size, dtype=torch.float64)
    return Moments(shift, corr * torch.outer(gain, gain), 1)


def layer_norm(
    node: fx.Node, x: Any, shape: Any, gain: Any = None, shift: Any = None, *rest: Any
) -> Moments | None:
    if len(shape) != 1:
        return None
    return Moments(*_normed(x, int(shape[0]), gain, shift), len(_shape(node)) - 1)


def _normed(x: Any, size: int, gain: Any, shift: Any) -> tuple[Tensor, Tensor]:
    corr = _correlation(x.cov) if isinstance(x, Moments) else torch.eye(size, dtype=torch.float64)
    gain = gain if isinstance(gain, Tensor) else torch.ones(size, dtype=torch.float64)
    shift = shift if isinstance(shift, Tensor) else torch.zeros(size, dtype=torch.float64)
    return shift, corr * torch.outer(gain, gain)


_gauss = cache(np.polynomial.hermite_e.hermegauss)  # it takes longer than the rest of an activation


def _quadrature() -> tuple[Tensor, Tensor, Tensor]:
    nodes, share = _gauss(NODES)
    x = torch.from_numpy(nodes)
    polynomials = [torch.ones_like(x), x]
    for n in range(2, ORDER + 1):
        polynomials.append(x * polynomials[-1] - (n - 1) * polynomials[-2])
    return x, torch.from_numpy(share / share.sum()), torch.stack(polynomials)


def pointwise(node: fx.Node, x: Any, *rest: Any) -> Moments | None:
    """Mehler's formula; what the first `ORDER` terms miss is put on the diagonal."""
    if not isinstance(x, Moments):
        return None
    nodes, share, polynomials = _quadrature()
    scale = x.cov.diag().clamp_min(0).sqrt()
    function: Any = node.target
    values = function(x.mean[:, None] + scale[:, None] * nodes[None, :], *rest, **node.kwargs)
    if not torch.isfinite(values).all():
        return None  # a Gaussian is not what such a function is made for (log, sqrt)
    mean = values @ share
    corr = _correlation(x.cov)
    cov, power = torch.zeros_like(corr), torch.ones_like(corr)
    for n in range(1, ORDER + 1):
        power = power * corr
        a = (values * polynomials[n] * share).sum(1)
        cov += torch.outer(a, a) * power / math.factorial(n)
    spread = (values - mean[:, None]).square() @ share
    cov += torch.diag((spread - cov.diag()).clamp_min(0))
    return Moments(mean, cov, x.dim, x.copies)


def same(node: fx.Node, x: Any, *rest: Any) -> Moments | None:
    """Copies, and pooling: a summary of a channel is distributed much as the channel is."""
    return x if isinstance(x, Moments) else None


def add(node: fx.Node, x: Any, y: Any, *rest: Any) -> Moments | None:
    alpha = float(rest[0] if rest else node.kwargs.get("alpha", 1))  # type: ignore[arg-type]
    name = str(node.target).removeprefix("aten.").partition(".")[0]
    a, b = {"add": (1.0, alpha), "sub": (1.0, -alpha), "rsub": (-alpha, 1.0)}[name]
    if isinstance(x, Moments) and isinstance(y, Moments) and len(x.mean) == len(y.mean):
        return Moments(a * x.mean + b * y.mean, a * a * x.cov + b * b * y.cov, x.dim, x.copies)
    known, factor, other, share = (x, a, y, b) if isinstance(x, Moments) else (y, b, x, a)
    if not isinstance(known, Moments):
        return None
    shift: Any = 0.0
    if isinstance(other, (int, float)):
        shift = share * other
    elif isinstance(other, Tensor) and other.numel() in (1, len(known.mean)):
        shift = share * other.reshape(-1).to(known.mean)
    return Moments(factor * known.mean + shift, factor * factor * known.cov, known.dim, known.copies)


def mul(node: fx.Node, x: Any, y: Any, *rest: Any) -> Moments | None:
    if isinstance(x, Moments) and isinstance(y, Moments) and len(x.mean) == len(y.mean):
        outer = torch.outer(y.mean, y.mean)
        cov = x.cov * (y.cov + outer) + torch.outer(x.mean, x.mean) * y.cov
        return Moments(x.mean * y.mean, cov, x.dim, x.copies)
    known, factor = (x, y) if isinstance(x, Moments) else (y, x)
    if not isinstance(known, Moments):
        return None
    if isinstance(factor, Tensor):
        if factor.numel() != len(known.mean):
            return known
        scale = factor.reshape(-1)
        return Moments(known.mean * scale, known.cov * torch.outer(scale, scale), known.dim, known.copies)
    if isinstance(factor, (int, float)):
        return Moments(factor * known.mean, factor * factor * known.cov, known.dim, known.copies)
    return known


def cat(node: fx.Node, parts: Any, dim: int = 0) -> Moments | None:
    known = [p for p in parts if isinstance(p, Moments)]
    if len(known) != len(parts) or not known:
        return None
    axis = dim % len(_shape(node))
    if any(p.dim != axis for p in known):
        return known[0]
    return Moments(torch.cat([p.mean for p in known]), torch.block_diag(*[p.cov for p in known]), axis)


def permute(node: fx.Node, x: Any, dims: Any) -> Moments | None:
    if not isinstance(x, Moments):
        return None
    order = [d % len(dims) for d in dims]
    return Moments(x.mean, x.cov, order.index(x.dim), x.copies)


def transpose(node: fx.Node, x: Any, a: int, b: int) -> Moments | None:
    order = list(range(len(_shape(node))))
    a, b = a % len(order), b % len(order)
    order[a], order[b] = b, a
    return permute(node, x, order)


def mean(node: fx.Node, x: Any, dims: Any = None, keepdim: bool = False, *rest: Any) -> Moments | None:
    if not isinstance(x, Moments) or dims is None:
        return None
    old = len(_shape(node.args[0]))  # type: ignore[arg-type]
    gone = {d % old for d in dims}
    if x.dim in gone:
        return None
    dim = x.dim if keepdim else x.dim - sum(d < x.dim for d in gone)
    return Moments(x.mean, x.cov, dim)


def view(node: fx.Node, x: Any, *rest: Any) -> Moments | None:
    """Reshapes that keep the channels whole, or flatten the pixels of a channel behind it."""
    if not isinstance(x, Moments):
        return None
    new, size = _shape(node), len(x.mean) * x.copies
    old = _shape(node.args[0])  # type: ignore[arg-type]
    before = math.prod(old[: x.dim])
    after = math.prod(old[x.dim + 1 :])
    seen = 1
    for dim, length in enumerate(new):
        rest_size = math.prod(new[dim + 1 :])
        if seen == before and length == size and rest_size == after:
            return Moments(x.mean, x.cov, dim, x.copies)
        if seen == before and length == size * after and rest_size == 1:
            return Moments(x.mean, x.cov, dim, x.copies * after)
        seen *= length
    return None
