"""Operators of ONNX that look up, scatter, rank or count along a dimension, in terms of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from intertwine.errors import Unsupported
from intertwine.zoo.onnx_values import Attributes, Operator, integers, tensor


def _gather(inputs: list[Any], attributes: Attributes) -> Tensor:
    x, index = tensor(inputs[0]), inputs[1]
    axis = attributes.get("axis", 0) % x.dim()
    if not isinstance(index, Tensor) and np.asarray(index).ndim == 0:
        return x.select(axis, int(index))
    index = tensor(index)
    if axis == 0 and x.dim() == 2 and x.is_floating_point():
        return F.embedding(index, x)
    return x[(slice(None),) * axis + (index,)]


def _from_the_front(index: Tensor, size: int) -> Tensor:
    """Negative indices count from the end."""
    return torch.where(index < 0, index + size, index)


def _places(x: Tensor, index: Tensor) -> tuple[Tensor, ...]:
    """The last dimension of an index, each of its entries for one dimension of x."""
    return tuple(_from_the_front(each, x.shape[dim]) for dim, each in enumerate(index.unbind(-1)))


def _gather_nd(inputs: list[Any], attributes: Attributes) -> Tensor:
    x, index = tensor(inputs[0]), tensor(inputs[1])
    if attributes.get("batch_dims", 0):
        raise Unsupported("GatherND with an index for every row")
    return x[_places(x, index)]


def _accumulates(attributes: Attributes, name: str) -> bool:
    how = attributes.get("reduction", "none")
    if how not in ("none", "add"):
        raise Unsupported(f"{name} that reduces by {how}")
    return bool(how == "add")


def _scatter_nd(inputs: list[Any], attributes: Attributes) -> Tensor:
    x, index, updates = (tensor(each) for each in inputs)
    return x.index_put(_places(x, index), updates, _accumulates(attributes, "ScatterND"))


def _gather_elements(inputs: list[Any], attributes: Attributes) -> Tensor:
    x, index = tensor(inputs[0]), tensor(inputs[1])
    axis = attributes.get("axis", 0)
    return x.gather(axis, _from_the_front(index.long(), x.shape[axis]))


def _scatter_elements(inputs: list[Any], attributes: Attributes) -> Tensor:
    x, index, updates = (tensor(each) for each in inputs)
    axis = attributes.get("axis", 0)
    put = x.scatter_add if _accumulates(attributes, "ScatterElements") else x.scatter
    return put(axis, _from_the_front(index.long(), x.shape[axis]), updates)


def _cumulative_sum(inputs: list[Any], attributes: Attributes) -> Tensor:
    x, (axis,) = tensor(inputs[0]), integers(inputs[1])
    backwards = bool(attributes.get("reverse", 0))
    total = x.flip(axis).cumsum(axis).flip(axis) if backwards else x.cumsum(axis)
    return total - x if attributes.get("exclusive", 0) else total


def _top_k(inputs: list[Any], attributes: Attributes) -> tuple[Tensor, ...]:
    x, (count,) = tensor(inputs[0]), integers(inputs[1])
    largest, ordered = bool(attributes.get("largest", 1)), bool(attributes.get("sorted", 1))
    found: tuple[Tensor, ...] = tuple(torch.topk(x, count, attributes.get("axis", -1), largest, ordered))
    return found


def _extreme(function: Callable[..., Tensor]) -> Operator:
    def run(inputs: list[Any], attributes: Attributes) -> Tensor:
        if attributes.get("select_last_index", 0):
            raise Unsupported("the last of several largest entries")
        return function(tensor(inputs[0]), attributes.get("axis", 0), bool(attributes.get("keepdims", 1)))

    return run


LOOKUPS: dict[str, Operator] = {
    "Gather": _gather, "GatherND": _gather_nd, "GatherElements": _gather_elements,
    "ScatterND": _scatter_nd, "ScatterElements": _scatter_elements,
    "CumSum": _cumulative_sum, "TopK": _top_k,
    "ArgMax": _extreme(torch.argmax), "ArgMin": _extreme(torch.argmin),
}  # fmt: skip
