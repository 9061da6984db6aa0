"""Whether two models run the same program on different weights, seen without exporting either.

What forward can depend on is compared: classes, settings, hooks, which weights are tied, and every tensor
that is no weight. In doubt the answer is no, and the caller exports both.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from intertwine.graph.copying import state_of
from intertwine.graph.export import named_tensors

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, Enum)
_WEIGHTS = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")  # compared by name
_NOT_FORWARD = (
    "training", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks", "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip
_HOOKS = (
    "_forward_hooks", "_forward_pre_hooks", "_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs",
    "_forward_hooks_always_called",
)  # fmt: skip
_HEAP_TYPE = 1 << 9  # CPython's flag of a class that was made by a class statement


def same_program(a: nn.Module, b: nn.Module) -> bool:
    """True if the graphs of both are surely the same but for the values of floating-point weights.

    >>> same_program(nn.Linear(3, 2), nn.Linear(3, 2)), same_program(nn.LeakyReLU(0.1), nn.LeakyReLU(0.2))
    (True, False)
    """
    try:
        return a is b or _Pair(a, b).alike()
    except RecursionError:  # settings inside settings without end
        return False


class _Pair:
    """Two models, and the modules of one that stand for modules of the other."""

    def __init__(self, a: nn.Module, b: nn.Module) -> None:
        self.sides = a, b
        self.named = [dict(m.named_modules(remove_duplicate=False)) for m in self.sides]
        self.partner = {id(m): self.named[1].get(name) for name, m in self.named[0].items()}
        self.compared: dict[tuple[int, int], tuple[Any, Any]] = {}  # pairs that were begun, and are held

    def alike(self) -> bool:
        left, right = self.named
        return (
            list(left) == list(right)
            and all(self.partner[id(m)] is right[name] for name, m in left.items())
            and self._same_tensors()
            and all(self._same_module(m, right[name]) for name, m in left.items())
        )

    def _same_tensors(self) -> bool:
        """Weights of the same kinds, tied in the same way; all other registered tensors are equal."""
        left, right = (named_tensors(m) for m in self.sides)
        if list(left) != list(right) or _ties(left) != _ties(right):
            return False
        saved = set(state_of(self.sides[0], keep_vars=True))
        if saved != set(state_of(self.sides[1], keep_vars=True)):
            return False
        for name, x in left.items():
            y = right[name]
            if type(x) is not type(y) or _kind(x) != _kind(y):
                return False
            if not (name in saved and x.is_floating_point()) and not _equal(x, y):
                return False
        return True

    def _same_module(self, x: nn.Module, y: nn.Module) -> bool:
        return type(x) is type(y) and self._same(_settings(x), _settings(y))

    def _same(self, x: Any, y: Any) -> bool:
        """A pair that was begun counts as the same: if it is not, that is found where it was begun."""
        if x is y or (id(x), id(y)) in self.compared:
            return True
        self.compared[id(x), id(y)] = x, y
        if type(x) is not type(y) or not self._same_content(x, y):
            return False
        if isinstance(x, (nn.Module, MethodType)) or not hasattr(x, "__dict__"):
            return True
        return self._same(vars(x), vars(y))  # what a class of the user's adds to a dict or a list, too

    def _same_content(self, x: Any, y: Any) -> bool:
        if isinstance(x, nn.Module):
            return self.partner.get(id(x)) is y
        if isinstance(x, Tensor):
            return _kind(x) == _kind(y) and _equal(x, y)
        if isinstance(x, np.ndarray):
            return x.dtype == y.dtype and x.dtype != object and np.array_equal(x, y)
        if isinstance(x, _PLAIN):
            return repr(x) == repr(y)  # nan is nan, and -0.0 is not 0.0
        if isinstance(x, Mapping):
            return list(x) == list(y) and all(self._same(x[k], y[k]) for k in x)
        if isinstance(x, (tuple, list)):
            return len(x) == len(y) and all(self._same(v, w) for v, w in zip(x, y, strict=True))
        if isinstance(x, (set, frozenset)):
            return all(isinstance(v, _PLAIN) for v in x) and x == y
        if isinstance(x, MethodType):
            return x.__func__ is y.__func__ and self._same(x.__self__, y.__self__)
        if isinstance(x, partial):
            return self._same((x.func, x.args, x.keywords), (y.func, y.args, y.keywords))
        if isinstance(x, (FunctionType, BuiltinFunctionType, type)):
            return False
        return all(
            c is object or (c.__flags__ & _HEAP_TYPE and "__slots__" not in vars(c)) for c in type(x).mro()
        )


def _settings(module: nn.Module) -> dict[str, Any]:
    """What forward can read but for tensors and submodules. Hooks are known by numbers that nobody reads."""
    found = {k: v for k, v in vars(module).items() if k not in _WEIGHTS + _NOT_FORWARD + _HOOKS}
    numbers = {key: i for i, key in enumerate([*module._forward_hooks, *module._forward_pre_hooks])}
    for kind in _HOOKS:
        found[kind] = [(numbers[key], hook) for key, hook in getattr(module, kind).items()]
    return found | {"absent": [k for k, v in module._parameters.items() if v is None]}


def _ties(tensors: Mapping[str, Tensor]) -> list[str]:
    """For each tensor the first name of what it is."""
    first: dict[int, str] = {}
    return [first.setdefault(id(x), name) for name, x in tensors.items()]


def _kind(x: Tensor) -> tuple[Any, ...]:
    return tuple(x.shape), x.dtype, x.device, x.layout


def _equal(x: Tensor, y: Tensor) -> bool:
    """Of the same values. A tensor without values cannot be seen to be."""
    return not x.is_meta and bool(torch.equal(x, y))
