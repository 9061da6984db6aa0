"""Layerwise linear feature connectivity (eq. 12 of source 000; Zhou et al. 2023): is, at every layer,

    Z(t A + (1 - t) B, x)  =  t Z(A, x) + (1 - t) Z(B, x)  ?

Measured at t = 1/2 on data, for each layer: the cosine between the two sides and the relative size of their
difference, with the cosine of the end points as what would be reached without any connectivity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from intertwine.aligning._interpolate import mix
from intertwine.comparing.collecting import Runner
from intertwine.data.batches import Batches, count_rows
from intertwine.data.evaluation import like_inputs


@dataclass(frozen=True)
class LayerConnectivity:
    """cosine, error: of Z(middle) against the mean of Z(A) and Z(B), mean over inputs. ends: cosine of Z(A)
    and Z(B)."""

    layer: str
    cosine: float
    error: float
    ends: float


def check_llfc(
    model_a: nn.Module,
    model_b: nn.Module,
    data: Any,
    *,
    middle: nn.Module | None = None,
    limit: int = 500,
    runner: Runner | None = None,
) -> tuple[LayerConnectivity, ...]:
    """Every layer of the mean model against the mean of the layers (`middle`: a repaired mean model).

    runner: of model A, if there is one; models that run the same program share its graph.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> [round(layer.cosine, 6) for layer in check_llfc(net, net, torch.randn(6, 4))]
    [1.0, 1.0]
    """
    mean = mix([model_a, model_b], [0.5, 0.5]) if middle is None else middle
    first = Runner(model_a) if runner is None else runner
    runners = [first, *(Runner(m, like=first) for m in (model_b, mean))]
    sums: dict[str, Tensor] = {}
    count = 0
    for inputs, _ in Batches(data, limit=limit, device=like_inputs(model_a).device):
        values = [runner.run(inputs)[0] for runner in runners]
        for name in values[0]:
            if all(name in v for v in values):
                a, b, m = (v[name].flatten(1).double().cpu() for v in values)
                both = (a + b) / 2
                error = (m - both).norm(dim=1) / both.norm(dim=1).clamp_min(1e-30)
                terms = torch.stack([_cosine(m, both).sum(), error.sum(), _cosine(a, b).sum()])
                sums[name] = sums.get(name, torch.zeros(3, dtype=torch.float64)) + terms
        count += count_rows(inputs)
    return tuple(LayerConnectivity(name, *(total / count).tolist()) for name, total in sums.items())


def _cosine(left: Tensor, right: Tensor) -> Tensor:
    """Of each row; 1 where both are zero (no unit of the layer is active), since they are the same."""
    found = torch.nn.functional.cosine_similarity(left, right, dim=1, eps=1e-30)
    return found.masked_fill((left == 0).all(1) & (right == 0).all(1), 1.0)
