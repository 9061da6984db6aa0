"""The group of a model as it acts on its parameters: what everything else in this folder works with."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from intertwine.orbit.raised import Raised, RaisedState, is_large
from intertwine.orbit.scales import Scales
from intertwine.orbit.state import Mover, State
from intertwine.orbit.units import Forest, Weights, find_units
from intertwine.symmetry.subgroup import Subgroup


class GroupAction:
    """forest: what can be moved on its own. scales: what can be rescaled. params: the weights that count."""

    def __init__(self, group: Subgroup, params: Iterable[str]) -> None:
        self.structure = group.symmetry.structure
        self.forest: Forest = find_units(group)
        self.scales = Scales(group, params)
        self.params = self.scales.params
        self._mover = Mover(self.structure)

    def state(self, weights: Weights) -> State:
        """These weights, at the start of a way."""
        if isinstance(weights, Raised):
            return RaisedState(self._mover, weights.only(sorted(self.params)))
        return State(self._mover, {name: weights[name] for name in self.params})

    def squared_norm(self, weights: Weights) -> float:
        """|weights|^2 over the parameters."""
        return float(sum(_dot(weights[name], weights[name]) for name in sorted(self.params)))

    def squared_distance(self, left: Weights, right: Weights, some: Iterable[str] | None = None) -> float:
        """|left - right|^2 over the parameters, or over some of them."""
        names = self.params if some is None else self.params.intersection(some)
        return float(sum(_squared_gap(left, right, name) for name in sorted(names)))

    def agreement(self, left: Weights, right: Weights, some: Iterable[str] | None = None) -> float:
        """<left, right> over the parameters, or over some of them."""
        names = self.params if some is None else self.params.intersection(some)
        return float(sum(_dot(left[n], right[n]) for n in sorted(names)))


def _dot(left: Tensor, right: Tensor) -> Tensor:
    """<left, right> without a tensor of products in between."""
    return torch.dot(left.reshape(-1), right.reshape(-1))


def _squared_gap(left: Weights, right: Weights, name: str) -> Tensor:
    """|left - right|^2 of one weight, of which nothing is held afterwards."""
    gap = right[name]  # first: moving it takes more than holding it
    gap = left[name] - gap
    return _dot(gap, gap)


def in_float64(weights: Weights) -> Weights:
    """float64 copies on the CPU; of a large model each is made when it is looked at."""
    return Raised(weights) if is_large(weights.values()) else double(weights)


def double(weights: Weights) -> dict[str, Tensor]:
    """float64 copies on the CPU."""
    return {name: tensor.detach().to("cpu", torch.float64, copy=True) for name, tensor in weights.items()}
