"""Which group acts on the channels of a layer: the link from a value of the graph to its axis.

The channels of a value are the rows of the nearest weight upstream; the axis that those rows lie on has the
group that belongs to the layer, and with it the measure (`measures.measure_for`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from intertwine.errors import NotFound
from intertwine.symmetry import trace
from intertwine.trace.values import ValueGraph


def layer_groups(
    model: nn.Module, example: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> Callable[[str], str]:
    """Layer name -> name of the group of its channels, for `compare(..., symmetry=...)`.

    A layer on a frozen axis, or on none, has the trivial group.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 6), nn.GELU(), nn.Linear(6, 2))
    >>> group = layer_groups(net, (torch.zeros(2, 3),))
    >>> group("1"), group("3"), group("4")
    ('positive monomial', 'permutation', 'trivial')
    """
    symmetry = trace(model, tuple(example), dict(kwargs or {}))
    by_rows: dict[str, str] = {}
    for axis in symmetry.axes:
        if axis.frozen_because:
            continue
        rows = [m.param for m in axis.members if m.dim == 0 and m.role in ("out", "gain", "bias", "shift")]
        for param in rows:
            # A bias is added to the value, so it moves as the value does; a gain may have a sign to undo.
            beside = param.removesuffix("weight") + "bias"
            by_rows[param] = symmetry.group_at(axis, beside if beside in rows else param).name
    weights = {value.name: value.weight for value in ValueGraph(model, example, kwargs).values}

    def group(layer: str) -> str:
        if layer not in weights:
            raise NotFound(f"no layer named {layer!r}", do=f"the layers are {', '.join(weights)}")
        return by_rows.get(weights[layer] or "", "trivial")

    return group
