"""What is called in place of an op whose kernel takes less than the op says; `rules` fills both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# An op whose kernel takes only some precisions -> the same in ops that take every one.
KERNELS: dict[Any, Callable[..., Any]] = {}
# An op that takes only some memory layouts -> the same that takes all: a graph says nothing of layouts, and
# the kernels before it may leave another one behind for other weights or sizes than it was made with.
ANY_STRIDES: dict[Any, Callable[..., Any]] = {}


def kernel_of(op: Any) -> Any:
    """What to call for an op of a graph."""
    return KERNELS.get(op) or ANY_STRIDES.get(op, op)
