"""`mlp`: x -> W_k relu(... relu(W_1 x + b_1) ...) + b_k, the net the sources' theory is about."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn


def mlp(widths: Sequence[int] = (784, 512, 256, 128), *, classes: int = 10) -> nn.Sequential:
    """A ReLU perceptron on flattened inputs; `widths[0]` is the number of input values.

    >>> [tuple(p.shape) for p in mlp((4, 3), classes=2).parameters()]
    [(3, 4), (3,), (2, 3), (2,)]
    """
    layers: list[nn.Module] = [nn.Flatten()]
    for fan_in, fan_out in pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], classes))
