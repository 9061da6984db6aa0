"""How sure the combined network should be: one factor for its outputs, without labels.

    a = argmin E over inputs of KL(p || softmax(a f(x))),    p = softmax of what is asked for

Least squares gives the combined network outputs as large as those of the networks that it was made of, but it
is wrong more often than they are. The factor changes no prediction; it becomes part of the last layer. The
divergence is convex in a: its derivative, E sum_c (q_c - p_c) f_c with q = softmax(a f), rises.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from intertwine.combining._distil import Teachers, scores_of
from intertwine.combining._join import last_layer
from intertwine.combining._lockstep import cut
from intertwine.data.batches import Batches, arguments
from intertwine.errors import Unsupported
from intertwine.graph.copying import copy_model
from intertwine.graph.export import export, named_tensors

LEAST, MOST = 0.02, 50.0
_HALVINGS = 40


@torch.no_grad()
def calibrated(model: nn.Module, taught: Teachers, inputs: Any) -> nn.Module:
    """A copy whose last layer has the factor in it, one for each head; the model where there is none."""
    try:
        head = last_layer(export(model, *arguments(cut(inputs, 2))))
    except Unsupported:
        return model
    out = copy_model(model).eval()
    found = torch.cat([scores_of(out, batch).cpu() for batch, _ in Batches(inputs)])
    parts = zip(found.split(taught.widths, -1), taught.outputs.split(taught.widths, -1), strict=True)
    factors = [torch.full((scores.shape[-1],), best_factor(scores, wanted)) for scores, wanted in parts]
    factor = torch.cat(factors)
    state = named_tensors(out)
    for name, dim in head.items():
        tensor = state[name]
        tensor.mul_(factor.to(tensor).reshape([-1 if d == dim else 1 for d in range(tensor.dim())]))
    return out


def best_factor(scores: Tensor, wanted: Tensor) -> float:
    """argmin over a of KL(softmax(wanted) || softmax(a scores)), between 0.02 and 50.

    >>> scores = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    >>> round(best_factor(scores, 3 * scores), 4)
    3.0
    """
    classes = scores.shape[-1]
    z, p = scores.double().reshape(-1, classes), wanted.double().reshape(-1, classes).softmax(-1)
    low, high = LEAST, MOST
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        rising = float((((middle * z).softmax(-1) - p) * z).sum())
        low, high = (low, middle) if rising > 0 else (middle, high)
    return math.sqrt(low * high)
