"""What averaging does to statistics, and how it is undone; the result has the shape of the models.

none            nothing
reset           batch-norm statistics are measured on unlabelled inputs
rescale         mean and deviation of every layer as in the models, averaged (REPAIR), folded into weights
least-squares   every layer is solved for (`_layerwise`)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import nn

from intertwine.aligning import Mixer
from intertwine.aligning._repair import Corrected, inputs_of
from intertwine.merging.repair import norms_of, reestimate_norms

Repair = Literal["none", "reset", "rescale", "least-squares"]
REPAIRS: tuple[Repair, ...] = ("none", "reset", "rescale", "least-squares")


def reset(model: nn.Module, data: Any) -> nn.Module:
    """A copy whose batch norms hold the statistics of these inputs; without batch norms, the model."""
    return reestimate_norms(model, inputs_of(data)) if norms_of(model) else model


def rescaled(models: Sequence[nn.Module], shares: Sequence[float], data: Any) -> nn.Module:
    """REPAIR (Jordan et al. 2022): its factors and shifts become part of the weights.

    A layer without a bias has nowhere to put its shift; the batch norm after it takes it away in any case.
    """
    wrapped = Mixer(models, "repair", data).mixed(shares)
    with torch.no_grad():
        for path, module in list(wrapped.named_modules()):
            if isinstance(module, Corrected):
                _fold(module)
                parent, _, leaf = path.rpartition(".")
                setattr(wrapped.get_submodule(parent), leaf, module.layer)
    return reset(wrapped, data)


def _fold(corrected: Corrected) -> None:
    scale, shift = corrected.factors()
    layer: Any = corrected.layer
    layer.weight.mul_(scale.reshape(-1, *[1] * (layer.weight.dim() - 1)))
    if layer.bias is not None:
        layer.bias.mul_(scale).add_(shift)
