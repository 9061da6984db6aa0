"""What modules of others compute, in terms of torch's own: RMS norms, and embeddings with a factor.

    norm(x) = (c + w) x / rms(x),      embedding(i) = c E_i

All is read off what the module gives in float64, the eps too, never off its class. The gain of Llama's norms
is w, of Gemma's 1 + w.
"""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from intertwine.graph.eager import run_module
from intertwine.graph.example import Example

LARGE = 1e8  # times an eps, and one over it, are nothing beside the other summand


@torch.no_grad()
def as_rms_norm(module: Any) -> tuple[nn.RMSNorm, float] | None:
    """The norm of torch that computes the same, if there is one, and c; its gain is c + w.

    >>> class Gained(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.weight = nn.Parameter(torch.zeros(4))
    ...     def forward(self, x):
    ...         return (1 + self.weight) * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
    >>> as_rms_norm(Gained())
    (RMSNorm((4,), eps=1e-06, elementwise_affine=True), 1.0)
    """
    weight = getattr(module, "weight", None)
    if isinstance(module, (nn.LayerNorm, nn.RMSNorm)) or not isinstance(weight, Tensor) or weight.dim() != 1:
        return None
    if [name for name, _ in module.named_parameters()] != ["weight"]:
        return None
    x = torch.randn(3, 2, len(weight), generator=torch.Generator().manual_seed(0)).to(weight).double()
    with suppress(Exception):  # whatever a forward raises on what it does not take
        own = copy.deepcopy(module).double()

        def given(x: Tensor) -> Tensor:
            return run_module(own, Example.of(x)).outputs[0]

        bare, large = nn.functional.rms_norm(x, x.shape[-1:], None, 0.0), given(LARGE * x)
        gain = (large * bare).sum((0, 1)) / (bare * bare).sum((0, 1))
        constant = float((gain - weight).median().round())
        gain = weight.double() + constant
        eps = _eps(gain, x / LARGE, given(x / LARGE))
        size = max(eps, 1e-12) ** 0.5  # of inputs that it matters for
        for y, close in ((x, 1e-10), (size * x, 1e-8)):
            wanted = nn.functional.rms_norm(y, y.shape[-1:], gain, eps)
            if not torch.allclose(given(y), wanted, close, 1e-12):
                return None
        norm = nn.RMSNorm(len(weight), eps).to(weight).requires_grad_(weight.requires_grad)
        norm.weight.copy_(weight + constant)
        return norm, constant
    return None


def _eps(gain: Tensor, x: Tensor, out: Tensor) -> float:
    """The eps of gain x / sqrt(mean x^2 + eps), from inputs that are small against it."""
    found = ((x * gain).square().sum(-1) / out.square().sum(-1) - x.square().mean(-1)).median()
    return float(f"{max(float(found), 0.0):.9g}")


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
