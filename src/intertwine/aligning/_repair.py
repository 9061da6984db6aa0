"""Statistics along the line: recompute those of batch norms, or set those of every layer (REPAIR).

    none     batch-norm statistics are interpolated like any weight
    reset    batch-norm statistics are measured again on data
    repair   the mean and deviation of every channel that a convolution or linear layer makes are set to the
             interpolated ones of the end points (Jordan et al. 2022, eq. 5 and 6), then batch norms are reset

Averaging two models shrinks the variance of their activations; both ways give it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from intertwine.data.batches import Batches
from intertwine.data.evaluation import call, like_inputs
from intertwine.graph.copying import copy_model
from intertwine.merging.repair import norms_of, reestimate_norms

Repair = Literal["none", "reset", "repair", "least-squares"]
REPAIRS = {
    "none": "batch-norm statistics interpolated",
    "reset": "batch-norm statistics recomputed on data",
    "repair": "mean and deviation of every layer set to those interpolated between the end points (REPAIR)",
    "least-squares": "every layer solved for by least squares on data",
}
_LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
_DEAD = 1e-6  # a channel with less deviation than this share of the layer's mean one is left alone


class Corrected(nn.Module):
    """A layer whose output channels get a wanted mean and deviation: while measuring that of each batch, then
    that of all batches together."""

    first: Tensor
    second: Tensor
    mean: Tensor
    deviation: Tensor

    def __init__(self, layer: nn.Module, mean: Tensor, deviation: Tensor) -> None:
        super().__init__()
        self.layer = layer
        self.dim = -1 if isinstance(layer, nn.Linear) else 1
        self.measuring, self.count = True, 0
        self.register_buffer("mean", mean)
        self.register_buffer("deviation", deviation)
        self.register_buffer("first", torch.zeros_like(mean))
        self.register_buffer("second", torch.zeros_like(mean))

    def forward(self, x: Tensor) -> Tensor:
        """The corrected output."""
        y = self.layer(x)
        rows = y.movedim(self.dim, -1).reshape(-1, y.shape[self.dim])
        if self.measuring:
            first, second = rows.mean(0), rows.square().mean(0)
            self.first, self.second = self.first + first, self.second + second
            self.count += 1
            scale, shift = self._factors(first, second)
        else:
            scale, shift = self.factors()
        shape = [1] * y.dim()
        shape[self.dim] = -1
        result: Tensor = y * scale.reshape(shape) + shift.reshape(shape)
        return result

    def factors(self) -> tuple[Tensor, Tensor]:
        """What every channel is multiplied by, and what is added, for the statistics of all batches."""
        return self._factors(self.first / self.count, self.second / self.count)

    def _factors(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        found = (second - first.square()).clamp_min(0).sqrt()
        dead = found <= _DEAD * found.mean()
        scale = torch.where(dead, torch.ones_like(found), self.deviation / found.clamp_min(1e-30))
        return scale, self.mean - scale * first


def layer_statistics(model: nn.Module, data: Any) -> dict[str, tuple[Tensor, Tensor]]:
    """Layer -> mean and deviation of its output channels on data. The caller's model is not touched."""
    copied = copy_model(model).eval()
    sums: dict[str, list[Tensor]] = {}
    handles = []
    for name, layer in copied.named_modules():
        if isinstance(layer, _LAYERS):
            dim = -1 if isinstance(layer, nn.Linear) else 1
            handles.append(layer.register_forward_hook(_adder(sums, name, dim)))
    run(copied, data)
    return {
        name: (first / count, (second / count - (first / count).square()).clamp_min(0).sqrt())
        for name, (first, second, count) in sums.items()
    }


def _adder(sums: dict[str, list[Tensor]], name: str, dim: int) -> Any:
    def add(_layer: nn.Module, _inputs: Any, output: Tensor) -> None:
        rows = output.movedim(dim, -1).reshape(-1, output.shape[dim])
        terms = [rows.mean(0), rows.square().mean(0), torch.ones((), device=rows.device)]
        sums[name] = [a + b for a, b in zip(sums[name], terms, strict=True)] if name in sums else terms

    return add


def repaired(
    model: nn.Module,
    statistics: Sequence[dict[str, tuple[Tensor, Tensor]]],
    shares: Sequence[float],
    data: Any,
) -> nn.Module:
    """A copy of `model` in which every layer but the last has the statistics of the end points, mixed by
    `shares`, and batch norms are reset."""
    copied = copy_model(model).eval()
    names = list(statistics[0])[:-1]  # in the order of the forward pass; the last layer makes the output
    fixed = []
    for name in names:
        mean, deviation = (
            sum(share * s[name][k] for share, s in zip(shares, statistics, strict=True)) for k in (0, 1)
        )
        parent, _, leaf = name.rpartition(".")
        wrapped = Corrected(copied.get_submodule(name), mean, deviation)  # type: ignore[arg-type]
        setattr(copied.get_submodule(parent), leaf, wrapped)
        fixed.append(wrapped)
    renewed = reestimate_norms(copied, inputs_of(data)) if norms_of(copied) else copied
    if not norms_of(copied):
        run(renewed, data)
    for layer in renewed.modules():
        if isinstance(layer, Corrected):
            layer.measuring = False
    return renewed


def inputs_of(data: Any) -> Iterable[Tensor]:
    """The inputs of each batch."""
    for inputs, _ in Batches(data):
        yield inputs


@torch.no_grad()
def run(model: nn.Module, data: Any) -> None:
    """Forward passes for their side effects."""
    like = like_inputs(model)
    for inputs, _ in Batches(data, device=like.device):
        call(model, inputs, like.dtype)
