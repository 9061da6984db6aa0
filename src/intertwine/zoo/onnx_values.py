"""Values of an ONNX graph, as its operators take them: tensors of torch, and numbers that are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intertwine.errors import Unsupported

Attributes = Mapping[str, Any]
Operator = Callable[[list[Any], Attributes], Any]

DTYPES = {
    1: torch.float32, 2: torch.uint8, 3: torch.int8, 5: torch.int16, 6: torch.int32, 7: torch.int64,
    9: torch.bool, 10: torch.float16, 11: torch.float64, 16: torch.bfloat16,
}  # fmt: skip


def tensor(value: Any) -> Tensor:
    """A value of the graph as a tensor."""
    return value if isinstance(value, Tensor) else torch.as_tensor(value)


def integers(value: Any) -> list[int]:
    """A value that must be known without running the model: sizes, axes, pads."""
    if isinstance(value, Tensor):
        raise Unsupported("a size or an index in it depends on the values of an input")
    return [int(each) for each in np.asarray(value).reshape(-1)]


def item(inputs: list[Any], place: int, default: Any = None) -> Any:
    """An input that may be left out."""
    return inputs[place] if place < len(inputs) and inputs[place] is not None else default


def mapped(function: Callable[..., Any]) -> Operator:
    """An operator whose inputs are all tensors and that has no attributes."""
    return lambda inputs, attributes: function(*[tensor(each) for each in inputs])


def arithmetic(function: Callable[..., Any]) -> Operator:
    """One that takes single numbers as they are."""

    def run(inputs: list[Any], attributes: Attributes) -> Any:
        single = [not isinstance(each, Tensor) and np.asarray(each).ndim == 0 for each in inputs]
        pairs = zip(inputs, single, strict=True)
        return function(*[np.asarray(each).item() if alone else tensor(each) for each, alone in pairs])

    return run
