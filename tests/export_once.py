"""Equal models are exported once in a process, in one go: what thousands of small tests wait for most.

The graph of torch.export depends on the code of a module, on its attributes and on the shapes of its weights
and inputs, and on no value of either: in there they are fake. `fingerprint` writes all of that down; where it
cannot (a closure, a class local to a test) the model is exported anew. No reader of a graph changes it.

`fuzz/test_fuzz.py` holds the graphs against those of torch's own way, on random programs and on real
architectures.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from fuzz.fast_export import exporting, in_one_go
from intertwine.graph import functional

KEPT = 300  # programs; a worker that kept thousands would need gigabytes
exported: dict[bytes, tuple[Any, Any]] = {}


class _Printer(pickle.Pickler):
    """Weights and inputs by shape, other tensors by content, all else as pickle writes it."""

    def __init__(self, file: io.BytesIO, fake: set[int]) -> None:
        super().__init__(file)
        self.fake = fake
        self.seen: dict[int, tuple[int, Tensor]] = {}  # kept: an id is free again when its owner is gone

    def persistent_id(self, obj: Any) -> Any:
        """What stands for a tensor, or None."""
        if isinstance(obj, MethodType):
            raise pickle.PicklingError("pickle knows a method by its name alone")
        if not isinstance(obj, Tensor):
            return None
        number, _ = self.seen.setdefault(id(obj), (len(self.seen), obj))
        kind = type(obj), obj.shape, obj.stride(), obj.dtype, obj.device, obj.requires_grad
        content = None if id(obj) in self.fake else obj.detach().cpu().tolist()
        return number, *map(str, kind), content


def fingerprint(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> bytes | None:
    """All that a graph depends on; None where it cannot be told."""
    leaves = torch.utils._pytree.tree_leaves((args, kwargs or {}))
    fake = {id(t) for t in (*model.parameters(), *model.buffers(), *leaves) if isinstance(t, Tensor)}
    file = io.BytesIO()
    state = str(torch.get_default_dtype()), torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    try:
        _Printer(file, fake).dump(([id(part) for part in _code(model)], state, model, args, kwargs or {}))
    except Exception:  # whatever pickle, or a class with its own way of pickling, raises
        return None
    return hashlib.blake2b(file.getvalue(), digest_size=20).digest()


def _code(model: nn.Module) -> list[Any]:
    """The classes of a model and all that stands in them: another one may have the same name."""
    kinds = dict.fromkeys(base for module in model.modules() for base in type(module).__mro__)
    own = [kind for kind in kinds if kind not in nn.Module.__mro__]
    return [*own, *(value for kind in own for value in vars(kind).values())]


def _remembered(export: Callable[..., Any]) -> Callable[..., Any]:
    def once(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        key = fingerprint(model, args, kwargs)
        if key is None:
            return export(model, args, kwargs)
        if key in exported:
            exported[key] = exported.pop(key)  # what is asked for again stays longest
        else:
            while len(exported) >= KEPT:
                exported.pop(next(iter(exported)))
            program = export(model, args, kwargs)
            program._state_dict, program._example_inputs = {}, None  # the weights of one model
            exported[key] = program, _code(model)  # kept: so their ids stay theirs
        return exported[key][0]

    return once


@contextmanager
def exporting_once() -> Iterator[None]:
    """Inside, `intertwine` exports equal models once."""
    with in_one_go(), exporting(_remembered(functional.in_one_go)):
        yield
