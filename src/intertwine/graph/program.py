"""Exported programs (.pt2): read, freed of the size of the batch that they were exported on, and written."""

from __future__ import annotations

import inspect
import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from intertwine.errors import ModelError
from intertwine.graph.export import quiet
from intertwine.reading import parsing


def load_program(path: Path) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """The module of an exported program (.pt2) and the arguments that it was exported on.

    The archive may hold pickles: only files that the user trusts get here.
    """
    with parsing(path, ModelError, do="give what torch.export.save wrote"), quiet():
        program = torch.export.load(path)
        args, kwargs = program.example_inputs or ((), {})
        # what checks the sizes of the example refuses other ones and is no part of the function
        module = program.module(check_guards=False)
    for name in ("train", "eval"):  # methods that only raise; the graph has one mode
        vars(module).pop(name, None)
    # torch warns of its own classes whenever such a module is copied; there is nothing to do about it
    warnings.filterwarnings("ignore", message=".*treespec, LeafSpec", category=FutureWarning)
    return module, tuple(args), dict(kwargs)


def free_batch(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Let a loaded program take other batches than the one it was exported on, where rows do not meet.

    That is tried: every row of the example, twice in one batch, gives what it gives alone. Where it does not,
    what checks the sizes stays.
    """
    first = next((t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.dim()), None)
    from torch.export import _unlift  # late: it loads much that reading other models does not need

    refuses = getattr(_unlift, "_check_input_constraints_pre_hook", None)
    checks = [key for key, hook in module._forward_pre_hooks.items() if hook is refuses]
    if first is None or not checks:
        return
    rows, hooks = len(first), module._forward_pre_hooks.copy()

    def twice(value: Any) -> Any:
        with_rows = isinstance(value, torch.Tensor) and value.dim() and len(value) == rows
        return torch.cat([value, value]) if with_rows else value

    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            once = tree_leaves(module(*args, **kwargs))
            for key in checks:
                del module._forward_pre_hooks[key]
            both = tree_leaves(module(*tree_map(twice, args), **tree_map(twice, dict(kwargs))))
            same = all(_close(a, b) for a, b in zip(tree_map(twice, once), both, strict=True))
    except Exception:  # a size is written into the program
        same = False
    if not same:
        module._forward_pre_hooks = hooks


def _close(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor):
        return bool(a == b)
    return a.shape == b.shape and torch.allclose(a, b, 1e-4, 1e-5, equal_nan=True)


def export_program(
    model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], *, path: Path, free_batch: bool
) -> None:
    """Write `model` as an exported program (.pt2); free_batch: for any number of inputs at once."""
    shapes = free_shapes(model, args, kwargs) if free_batch else None
    with torch.no_grad(), quiet():
        program = torch.export.export(model, tuple(args), dict(kwargs), dynamic_shapes=shapes, strict=False)
        written = io.BytesIO()  # torch's writer of files ends the process where the disk is full
        torch.export.save(program, written)
    path.write_bytes(written.getvalue())


def free_shapes(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Argument -> its first dimension is free, as exporters ask for it."""
    given = inspect.signature(model.forward).bind(*args, **kwargs).arguments
    auto = torch.export.Dim.AUTO
    free: dict[str, Any] = tree_map(
        lambda value: {0: auto} if isinstance(value, torch.Tensor) and value.dim() else None, dict(given)
    )
    return free
