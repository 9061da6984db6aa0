"""Several networks in one module: a trunk that they share, and after it each one's own layers and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from intertwine.data.evaluation import logits_of


class Branches(nn.Module):
    """x -> the outputs of all networks, side by side. The weights of the trunk are one tensor under several
    names: they are held, stored and counted once.

    >>> a, b = (nn.Sequential(nn.Linear(3, 4), nn.Linear(4, n)) for n in (2, 5))
    >>> both = Branches([a, b])
    >>> tie(both, {"networks.1.0.weight": "networks.0.0.weight", "networks.1.0.bias": "networks.0.0.bias"})
    >>> both(torch.zeros(1, 3)).shape, sum(p.numel() for p in both.parameters())
    (torch.Size([1, 7]), 51)
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return torch.cat([logits_of(network(*args, **kwargs)) for network in self.networks], -1)


def tie(model: nn.Module, names: Mapping[str, str]) -> None:
    """Give every name the tensor of another one. A layer all of whose tensors are another's becomes that
    layer: `to()` makes new buffers, and would part those that two layers hold."""
    layers: dict[tuple[str, str], dict[str, str]] = {}
    for name, other in names.items():
        (path, _, leaf), (there, _, source) = name.rpartition("."), other.rpartition(".")
        layers.setdefault((path, there), {})[leaf] = source
    for (path, there), leaves in layers.items():
        mine, theirs = model.get_submodule(path), model.get_submodule(there)
        own = {n: t for n, t in (*mine._parameters.items(), *mine._buffers.items()) if t is not None}
        if path and all(leaves.get(n) == n for n, t in own.items() if t.is_floating_point()):
            parent, _, last = path.rpartition(".")
            model.get_submodule(parent)._modules[last] = theirs
            continue
        for leaf, source in leaves.items():
            of_weights = leaf in mine._parameters
            held: Any = mine._parameters if of_weights else mine._buffers
            held[leaf] = (theirs._parameters if of_weights else theirs._buffers)[source]
