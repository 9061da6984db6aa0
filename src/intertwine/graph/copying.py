"""Copies of models that are not ours: with what hooks computed, or an error of ours."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from intertwine.errors import ModelError
from intertwine.foreign import is_signal
from intertwine.text import first_line

M = TypeVar("M", bound=nn.Module)


def copy_model(model: M, memo: Mapping[int, Any] | None = None) -> M:
    """`copy.deepcopy` of a model; memo: id -> what stands in the copy for it.

    >>> linear = nn.Linear(2, 3)
    >>> copied = copy_model(linear, {id(linear.bias): linear.bias})
    >>> copied.weight is linear.weight, copied.bias is linear.bias
    (False, True)
    """
    try:
        return copy.deepcopy(model, {**computed(model), **(memo or {})})
    except BaseException as error:  # a model may have its own __deepcopy__
        if is_signal(error) or isinstance(error, MemoryError):
            raise
        raise ModelError(
            f"the model cannot be copied: {first_line(error)}",
            where=type(model).__name__,
            so="it cannot be worked on without touching it",
            do="keep nothing in it that copy.deepcopy refuses",
        ) from error


def computed(model: nn.Module) -> dict[int, Any]:
    """What `deepcopy` refuses to copy, by id: tensors that hooks computed from weights and left in a module.

    Pruning and the old weight and spectral norms do so, and compute them again before each forward.
    """
    kept = (value for module in model.modules() for value in vars(module).values())
    return {id(x): x.detach().clone() for x in kept if isinstance(x, torch.Tensor) and not x.is_leaf}


def assert_itself(returned: object, model: nn.Module) -> None:
    """Raise `ModelError` where a model's own train() or eval() returns something else to go on with."""
    if returned is not model:
        raise ModelError(
            f"train() or eval() of {type(model).__name__} does not return the module",
            do="end it with return self",
        )


def state_of(model: nn.Module, *, keep_vars: bool = False) -> dict[str, Any]:
    """`model.state_dict()`, which a model may have made anything."""
    state = model.state_dict(keep_vars=keep_vars)
    if not isinstance(state, dict):
        raise ModelError(
            f"state_dict() of {type(model).__name__} returns a {type(state).__name__}",
            do="let it return a dict",
        )
    return state
