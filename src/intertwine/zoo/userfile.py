"""`path/to/file.py:factory`: run a user's Python file and call one function of it.

The factory takes no arguments and returns the model, `(model, example)`, or `(model, example, kwargs)`, where
`example` is a tensor or a tuple of them.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from intertwine.errors import ModelError, NotFound
from intertwine.foreign import USER_MODULE, user_code
from intertwine.reading import existing_file

Built = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]
_DO = "return the model, (model, example) or (model, example, kwargs)"


def build_from_file(spec: str) -> Built:
    """Run the file of "path/to/file.py:factory" and call its factory."""
    path, _, name = spec.rpartition(":")
    module = run_file(existing_file(path, "Python file", ModelError))
    factory = getattr(module, name, None)
    if not callable(factory):
        own = [
            k
            for k, v in vars(module).items()
            if callable(v) and getattr(v, "__module__", "") == module.__name__
        ]
        raise NotFound(
            f"{path} has no function {name!r}", do=f"it defines {', '.join(own) or 'no functions'}"
        )
    with user_code(f"{spec} failed"):
        built = factory()
    return _parts(spec, built)


def _parts(spec: str, built: Any) -> Built:
    """Model, example and keyword arguments of what a factory returned."""
    parts = built if isinstance(built, tuple) else (built,)
    if not 1 <= len(parts) <= 3:
        raise ModelError(f"{spec} returned a tuple of {len(parts)}", do=_DO)
    model = parts[0]
    example = parts[1] if len(parts) > 1 else ()
    kwargs = parts[2] if len(parts) > 2 else {}
    if not isinstance(model, nn.Module):
        raise ModelError(f"{spec} returned a {type(model).__name__}, not a torch.nn.Module", do=_DO)
    if isinstance(example, Tensor):
        example = (example,)
    if not isinstance(example, tuple | list) or not all(isinstance(value, Tensor) for value in example):
        raise ModelError(f"the example of {spec} is neither a tensor nor a tuple of tensors", do=_DO)
    if not isinstance(kwargs, Mapping) or not all(isinstance(key, str) for key in kwargs):
        raise ModelError(f"the keyword arguments of {spec} are not a dict with names", do=_DO)
    return model, tuple(example), dict(kwargs)


def run_file(path: Path) -> ModuleType:
    """The module of a Python file, run under a name of its own."""
    name = f"{USER_MODULE}{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ModelError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look the module up by name
    try:
        with importable(path.parent), user_code(f"running {path} failed"), _nothing_written():
            spec.loader.exec_module(module)
    except ModelError:
        sys.modules.pop(name, None)
        raise
    return module


@contextmanager
def _nothing_written() -> Iterator[None]:
    """No folder __pycache__ beside the user's files."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """What lies in the folder can be imported, as by a script there."""
    place = str(folder.resolve())
    sys.path.insert(0, place)
    try:
        yield
    finally:
        with suppress(ValueError):  # its code may have removed it
            sys.path.remove(place)
