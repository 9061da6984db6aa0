"""Planted equal features: widen a model by exact duplication of channels, which merging must undo.

A channel with N copies has its reading slices divided by N; everything that makes it is repeated. The
function does not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from intertwine.errors import InputError, Unsupported
from intertwine.graph.copying import copy_model
from intertwine.graph.export import named_tensors
from intertwine.merging.places import find_places
from intertwine.merging.shrink import fix_layers, replace_tensors
from intertwine.symmetry import Axis, Symmetry


def widen(
    model: nn.Module, symmetry: Symmetry, sources: Mapping[str, Sequence[int]], seed: int | None = None
) -> nn.Module:
    """A wider model with the same function: on axis `name` new channel k is a copy of sources[name][k].

    Every old channel must occur. seed: also shuffle the new channels of every axis.

    >>> from intertwine import trace
    >>> mlp = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> x = torch.randn(5, 3)
    >>> wide = widen(mlp, trace(mlp, x), {"0": [0, 1, 2, 3, 3, 1]})
    >>> wide[0].out_features, torch.allclose(wide(x), mlp(x), atol=1e-6)
    (6, True)
    """
    rng, symmetry = np.random.default_rng(seed), symmetry.alike
    wide = copy_model(model)
    state = {
        n: t.detach() for n, t in named_tensors(wide).items() if n in symmetry.structure.inference.shapes
    }
    changed: dict[str, Tensor] = {}
    indices: dict[tuple[str, int], list[tuple[np.ndarray, np.ndarray]]] = {}
    for name, picked in sources.items():
        axis = symmetry.axis(name)
        source = np.asarray(picked)
        if seed is not None:
            source = rng.permutation(source)
        _plan_axis(symmetry, axis, source, indices)
    for (param, dim), parts in indices.items():
        tensor = changed.get(param, state[param])
        changed[param] = _repeat(tensor, dim, parts)
    before = {n: tuple(t.shape) for n, t in named_tensors(wide).items()}
    fix_layers(wide, replace_tensors(wide, changed), before)
    return wide


def _plan_axis(
    symmetry: Symmetry,
    axis: Axis,
    source: np.ndarray,
    indices: dict[tuple[str, int], list[tuple[np.ndarray, np.ndarray]]],
) -> None:
    copies = np.bincount(source, minlength=axis.size)
    if copies.min() < 1:
        raise InputError(f"channel {int(copies.argmin())} of {axis.name} has no copy")
    for place in find_places(symmetry, axis):
        share = 1.0 / copies[source] if place.consumes else np.ones(len(source))
        indices.setdefault((place.param, place.dim), []).append((place.where[source], share))


def _repeat(tensor: Tensor, dim: int, parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> Tensor:
    """The dimension with the channels of its axes repeated, each axis where it was."""
    old = np.arange(tensor.shape[dim])
    index, factor, at = [], [], 0
    for where, share in sorted(parts, key=lambda part: int(part[0].min())):
        span = np.unique(where)
        if len(span) != span[-1] - span[0] + 1:
            raise Unsupported("an axis whose channels do not lie side by side cannot be widened")
        between = old[at : span[0]]
        index += [between, where.reshape(-1)]
        factor += [np.ones(len(between)), np.repeat(share, where.shape[1])]
        at = int(span[-1]) + 1
    index.append(old[at:])
    factor.append(np.ones(len(old) - at))
    shape = [-1 if d == dim else 1 for d in range(tensor.dim())]
    picked = tensor.index_select(dim, torch.from_numpy(np.concatenate(index)).to(tensor.device))
    return picked * torch.from_numpy(np.concatenate(factor)).to(tensor).reshape(shape)
