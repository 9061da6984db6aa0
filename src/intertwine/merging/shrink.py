"""A real smaller nn.Module of the same class: drop positions of weights, fix the attributes of layers.

Nothing is known about the architecture: the module that owns a weight is found by its name, and the kind of
torch.nn layer says which attributes hold its sizes. A layer of another kind has the plain integers that equal
an old size replaced, if that is unambiguous. Whether the forward copes is found out by running it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from intertwine.checks import checked
from intertwine.errors import InputError
from intertwine.graph.copying import copy_model
from intertwine.graph.export import named_tensors
from intertwine.merging.combine import fold_parts
from intertwine.merging.lists import drop_entries, dropped_entries, entries
from intertwine.merging.plan import MergePlan

Dropped = dict[tuple[str, int], np.ndarray]


@checked
def apply_merge(model: nn.Module, plan: MergePlan) -> nn.Module:
    """A new, smaller model with the merges of the plan; the caller's model is not touched.

    >>> from intertwine import trace
    >>> from intertwine.merging import plan_merge
    >>> mlp = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)).double()
    >>> with torch.no_grad():
    ...     _ = mlp[0].weight[1].copy_(mlp[0].weight[0]), mlp[0].bias[1].copy_(mlp[0].bias[0])
    ...     _ = mlp[2].weight[:, 1].copy_(mlp[2].weight[:, 0])
    >>> x = torch.randn(4, 3, dtype=torch.float64)
    >>> small = apply_merge(mlp, plan_merge(mlp, trace(mlp, x), method="ifm", beta=1e-9))
    >>> small[0].out_features, torch.allclose(small(x), mlp(x), atol=1e-10)
    (7, True)
    """
    return apply_plan(model, plan)


def apply_plan(model: nn.Module, plan: MergePlan, share: bool = False) -> nn.Module:
    """`apply_merge`; share: what the plan does not touch is the model's own, for those who only run it."""
    state = named_tensors(model)
    missing = [p.param for a in plan.axes for p in a.places if p.param not in state]
    if missing:
        raise InputError(f"the model has no weight {missing[0]!r}", so="the plan belongs to another model")
    parts = fold_parts(plan, {name: t for name, t in state.items() if t.is_floating_point()})
    small = shrink(model, parts, find_dropped(plan), share)
    set_numbers(small, find_numbers(model, plan))
    drop_entries(small, dropped_entries(plan))
    replace_tensors(small, {name: torch.from_numpy(values.copy()) for name, values in plan.weights.items()})
    return small


def find_dropped(plan: MergePlan) -> Dropped:
    """(weight, dim) -> the positions that the plan removes."""
    found: dict[tuple[str, int], list[np.ndarray]] = {}
    for axis in plan.axes:
        drop = [m.drop for m in axis.merges]
        if drop:
            for part in axis.places:
                found.setdefault((part.param, part.dim), []).append(
                    part.place(axis.size).where[drop].reshape(-1)
                )
    return {key: np.unique(np.concatenate(parts)) for key, parts in found.items()}


def find_numbers(model: nn.Module, plan: MergePlan) -> dict[str, dict[str, int]]:
    """Module -> name -> the new value of the numbers that hold widths of the plan's axes.

    A number may hold several (heads times the size of one): it shrinks by the product of their shares.
    """
    shares: dict[tuple[str, str], Fraction] = {}
    for axis in plan.axes:
        for place in axis.attributes if axis.merges else ():
            shares[place] = shares.get(place, Fraction(1)) * Fraction(axis.width, axis.size)
    found: dict[str, dict[str, int]] = {}
    for (path, name), share in shares.items():
        value = getattr(model.get_submodule(path), name) * share
        if value.denominator != 1:
            what = f"{path}.{name} would be {float(value):.3g}"
            raise InputError(what, so="the plan belongs to another model")
        found.setdefault(path, {})[name] = int(value)
    return found


def numbers_of(small: nn.Module, plan: MergePlan) -> dict[str, dict[str, int]]:
    """Module -> name -> the numbers that hold widths of the plan's axes, in the model that it has made.

    Entries of a container have moved up: each that is there is asked.
    """
    found: dict[str, dict[str, int]] = {}
    containers = [path for axis in plan.axes for path in axis.containers]
    for path, name in {place for a in plan.axes if a.merges for place in a.attributes}:
        around = next((c for c in containers if path.startswith(f"{c}.")), None)
        paths = [path]
        if around is not None:
            _, dot, rest = path[len(around) + 1 :].partition(".")
            paths = [f"{around}.{entry}{dot}{rest}" for entry in entries(small.get_submodule(around))]
        for each in paths:
            found.setdefault(each, {})[name] = getattr(small.get_submodule(each), name)
    return found


def set_numbers(model: nn.Module, numbers: Mapping[str, Mapping[str, int]]) -> None:
    """Give modules other numbers, by path and name."""
    for path, values in numbers.items():
        for name, value in values.items():
            setattr(model.get_submodule(path), name, value)


def shrink(
    model: nn.Module, parts: Iterable[Mapping[str, Tensor]], dropped: Dropped, share: bool = False
) -> nn.Module:
    """A copy of `model` with new weights, given a part at a time, without the dropped positions."""
    state = named_tensors(model)
    before = {name: tuple(t.shape) for name, t in state.items()}
    cut = {name for name, _ in dropped}
    # what is cut is replaced, so that it need not be copied
    kept = {n: t for n, t in state.items() if n in cut or (share and isinstance(t, nn.Parameter))}
    small = copy_model(model, {id(t): t for t in kept.values()})
    touched = [
        path
        for part in parts
        for path in replace_tensors(small, {name: _without(t, name, dropped) for name, t in part.items()})
    ]
    fix_layers(small, dict.fromkeys(touched), before)
    return small


def replace_tensors(model: nn.Module, tensors: Mapping[str, Tensor]) -> list[str]:
    """Put new tensors in the places of old ones, under every name of a tied one; paths of the owners."""
    named = named_tensors(model)
    names: dict[int, list[str]] = {}
    for name, tensor in named.items():
        names.setdefault(id(tensor), []).append(name)
    owners = dict(model.named_modules(remove_duplicate=False))
    touched: list[str] = []
    for name, values in tensors.items():
        old = named[name]
        new = values.detach().to(old.device, old.dtype)
        if isinstance(old, nn.Parameter):
            new = nn.Parameter(new, requires_grad=old.requires_grad)
        for alias in names[id(old)]:
            path, _, leaf = alias.rpartition(".")
            store: Any = owners[path]._parameters if isinstance(old, nn.Parameter) else owners[path]._buffers
            store[leaf] = new
            touched.append(path)
    return list(dict.fromkeys(touched))


def fix_layers(model: nn.Module, paths: Iterable[str], before: Mapping[str, tuple[int, ...]]) -> None:
    """Set the size attributes of the layers at these paths; `before`: the old shapes by name. A layer that
    has several paths is set once: what it says of itself is read on the way."""
    found = [(model.get_submodule(path), path) for path in paths]
    layers = {id(layer): (layer, path) for layer, path in found}
    for layer, path in layers.values():
        own = {n.rpartition(".")[2]: s for n, s in before.items() if n.rpartition(".")[0] == path}
        _fix_attributes(layer, own)


def _without(tensor: Tensor, name: str, dropped: Dropped) -> Tensor:
    cut = [dim for dim in range(tensor.dim()) if (name, dim) in dropped]
    for dim in cut:
        kept = np.setdiff1d(np.arange(tensor.shape[dim]), dropped[name, dim])
        tensor = tensor.index_select(dim, torch.from_numpy(kept).to(tensor.device))
    return tensor if cut else tensor.clone(memory_format=torch.contiguous_format)


def _fix_attributes(module: nn.Module, before: Mapping[str, tuple[int, ...]]) -> None:
    """Set the size attributes of a layer from the shapes that its weights have now."""
    weight = getattr(module, "weight", None)
    shape = tuple(weight.shape) if isinstance(weight, Tensor) else ()
    holder: Any = module  # attributes that nn.Module's types do not declare
    if isinstance(module, nn.modules.conv._ConvNd):
        _fix_convolution(holder, shape, before["weight"])
    elif isinstance(module, nn.Linear):
        holder.out_features, holder.in_features = shape
    elif isinstance(module, nn.Bilinear):
        holder.out_features, holder.in1_features, holder.in2_features = shape
    elif isinstance(module, nn.modules.batchnorm._NormBase):
        sizes = [t.shape[0] for t in (module.weight, module.running_mean) if t is not None]
        holder.num_features = sizes[0]
    elif isinstance(module, nn.GroupNorm):
        holder.num_channels = shape[0]
    elif isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
        holder.normalized_shape = shape
    elif isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        holder.num_embeddings, holder.embedding_dim = shape
    elif isinstance(module, nn.PReLU):
        holder.num_parameters = shape[0]
    else:
        _fix_unknown(module, before)


def _fix_convolution(module: Any, shape: tuple[int, ...], before: tuple[int, ...]) -> None:
    outer, inner = shape[:2]
    groups = module.groups
    if groups > 1 and groups == module.in_channels:
        groups = outer * groups // before[0]  # depthwise: the groups are the channels
    if module.transposed:
        module.in_channels, module.out_channels = outer, inner * groups
    else:
        module.out_channels, module.in_channels = outer, inner * groups
    module.groups = groups


def _fix_unknown(module: nn.Module, before: Mapping[str, tuple[int, ...]]) -> None:
    changes: dict[int, set[int]] = {}
    for leaf, old in before.items():
        new = tuple(getattr(module, leaf).shape)
        for a, b in zip(old, new, strict=True):
            changes.setdefault(a, set()).add(b)
    for name, value in list(vars(module).items()):
        if type(value) is int and len(changes.get(value, ())) == 1:
            (new_size,) = changes[value]
            setattr(module, name, new_size)
