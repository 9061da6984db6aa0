"""branch(models): networks whose first axes lie side by side in one trunk, and whose others stay their own.

    trunk tensor      the channels of all networks one after the other, block diagonal; one tensor for all
    behind it         each network's own, as it was; where it reads or writes the trunk, its own channels

It computes what the networks compute, or `Unsupported` says so. A dense layer of w channels costs w^2: layers
that two networks share at full width cost as much as both, so that only sharing with fewer channels pays,
and layers that have most of the weights and do unlike things are better left apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from intertwine.combining._join import assert_computes, joined_tensor
from intertwine.errors import InputError
from intertwine.graph.copying import copy_model
from intertwine.graph.export import named_tensors
from intertwine.merging.branches import Branches, tie
from intertwine.merging.limits import matches
from intertwine.merging.shrink import fix_layers, replace_tensors
from intertwine.symmetry import Symmetry

Rows = Mapping[str, Sequence[int]]  # weight -> how many of its first dimension are of each network


def branch(models: Sequence[nn.Module], symmetry: Symmetry, trunk: str, inputs: Any) -> tuple[Branches, Rows]:
    """All networks in one; symmetry: that of the first; trunk: the name, or a pattern, of the last axis that
    is shared; inputs: what it is checked on.

    >>> import torch
    >>> from intertwine import trace
    >>> a, b = (nn.Sequential(nn.Linear(3, n), nn.ReLU(), nn.Linear(n, 5), nn.ReLU(), nn.Linear(5, 2)).eval()
    ...         for n in (4, 6))
    >>> x = torch.randn(5, 3)
    >>> both, rows = branch([a, b], trace(a, x), "0", x)
    >>> rows["networks.0.0.weight"], rows["networks.1.2.weight"], both.networks[1][2].in_features
    ([4, 6], [0, 5], 10)
    """
    common, own = _dimensions(symmetry, trunk)
    states = [named_tensors(m) for m in models]
    places = {name: [(name, d) for d in range(t.dim())] for name, t in states[0].items()}
    shared = [
        name
        for name, dims in places.items()
        if any(common.get(d, "in") != "in" for d in dims) and own.isdisjoint(dims)
    ]
    networks, rows = [], dict[str, Sequence[int]]()
    for k, model in enumerate(models):
        new = {}
        for name in [n for n, t in states[k].items() if t.is_floating_point()]:
            every, alike = [state[name].detach() for state in states], name in shared
            new[name] = joined_tensor(every, name, common) if alike else _placed(every, k, name, common)
            sizes = [t.shape[0] if t.dim() else 0 for t in every]
            rows[f"networks.{k}.{name}"] = [n if alike or l == k else 0 for l, n in enumerate(sizes)]
        network = copy_model(model).eval()
        before = {name: tuple(t.shape) for name, t in states[k].items()}
        fix_layers(network, replace_tensors(network, new), before)
        networks.append(network)
    both = Branches(networks).eval()
    others = range(1, len(models))
    tie(both, {f"networks.{k}.{name}": f"networks.0.{name}" for k in others for name in shared})
    assert_computes(both, models, None, inputs)
    return both, rows


def _dimensions(symmetry: Symmetry, trunk: str) -> tuple[dict[tuple[str, int], str], set[tuple[str, int]]]:
    """(weight, dimension) -> role, of the axes that are shared; and those of the others."""
    axes = [axis for axis in symmetry.alike.axes if axis.mergeable]
    last = max((k for k, axis in enumerate(axes) if matches(trunk, axis.name)), default=None)
    if last is None:
        raise InputError(
            f"no axis of the networks is called {trunk!r}",
            so="it is not known how far they share a trunk",
            do=f"use one of {', '.join(axis.name for axis in axes)}, or a pattern",
        )
    common = {(m.param, m.dim): m.role for axis in axes[: last + 1] for m in axis.members}
    own = {(m.param, m.dim) for axis in axes[last + 1 :] for m in axis.members}
    return common, own


def _placed(tensors: Sequence[Tensor], k: int, name: str, common: Mapping[tuple[str, int], str]) -> Tensor:
    """The weights of network k, among those of the others where they lie on the trunk."""
    own = tensors[k]
    dims = [d for d in range(own.dim()) if (name, d) in common]
    shape = [sum(t.shape[d] for t in tensors) if d in dims else n for d, n in enumerate(own.shape)]
    starts = [sum(t.shape[d] for t in tensors[:k]) if d in dims else 0 for d in range(own.dim())]
    out = own.new_zeros(shape)
    out[tuple(slice(a, a + n) for a, n in zip(starts, own.shape, strict=True))] = own
    return out
