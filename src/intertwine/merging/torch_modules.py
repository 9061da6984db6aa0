"""What modules of others compute, in terms of torch's own: RMS norms, and embeddings with a factor.

    norm(x) = (c + w) x / rms(x),      embedding(i) = c E_i

Both are read off what the module gives in float64, never off its class. The gain of Llama's norms is w, of
Gemma's 1 + w.
"""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from intertwine.graph.eager import run_module
from intertwine.graph.example import Example


@torch.no_grad()
def as_rms_norm(module: Any) -> tuple[nn.RMSNorm, float] | None:
    """The norm of torch that computes the same, if there is one, and c; its gain is c + w.

    >>> class Gained(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.eps, self.weight = 1e-6, nn.Parameter(torch.zeros(4))
    ...     def forward(self, x):
    ...         return nn.functional.rms_norm(x, (4,), 1 + self.weight, self.eps)
    >>> as_rms_norm(Gained())
    (RMSNorm((4,), eps=1e-06, elementwise_affine=True), 1.0)
    """
    weight = getattr(module, "weight", None)
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if isinstance(module, (nn.LayerNorm, nn.RMSNorm)) or not isinstance(weight, Tensor) or weight.dim() != 1:
        return None
    if not isinstance(eps, float) or [name for name, _ in module.named_parameters()] != ["weight"]:
        return None
    x = torch.randn(3, 2, len(weight), generator=torch.Generator().manual_seed(0)).to(weight)
    with suppress(Exception):  # whatever a forward raises on what it does not take
        bare = nn.functional.rms_norm(x.double(), x.shape[-1:], None, eps)
        (out,) = run_module(copy.deepcopy(module).double(), Example.of(x)).outputs
        gain = (out * bare).sum((0, 1)) / (bare * bare).sum((0, 1))
        constant = float((gain - weight).median().round())
        norm = nn.RMSNorm(len(weight), eps).to(weight).requires_grad_(weight.requires_grad)
        norm.weight.copy_(weight + constant)
        if out.shape == x.shape and torch.allclose(out, bare * (weight.double() + constant), 1e-10, 1e-12):
            return norm, constant
    return None


@torch.no_grad()
def row_factor(module: Any) -> float | None:
    """c, if an embedding looks up the rows of its table times c.

    >>> row_factor(nn.Embedding(3, 2)), row_factor(nn.Linear(3, 2))
    (1.0, None)
    """
    if not isinstance(module, nn.Embedding):
        return None
    if type(module) is nn.Embedding:
        return 1.0
    ids = torch.arange(min(64, module.num_embeddings), device=module.weight.device)
    with suppress(Exception):  # a forward of its own may take something else
        (out,) = run_module(copy.deepcopy(module).double(), Example.of(ids)).outputs
        rows = module.weight[ids].double()
        factor = (out * rows).sum() / rows.square().sum()
        if torch.allclose(out, factor * rows, rtol=1e-10, atol=0.0):
            return float(factor)
    return None


__all__ = ["as_rms_norm", "row_factor"]
