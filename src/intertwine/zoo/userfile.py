"""`path/to/file.py:factory`: run a user's Python file and call one function of it.

The factory takes no arguments and returns the model, `(model, example)`, or `(model, example, kwargs)`, where
`example` is a tensor or a tuple of them.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from intertwine.errors import ModelError, NotFound

Built = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


def build_from_file(spec: str) -> Built:
    """Run the file of "path/to/file.py:factory" and call its factory."""
    path, _, name = spec.rpartition(":")
    module = _run(Path(path))
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
    try:
        built = factory()
    except Exception as error:
        raise ModelError(f"{spec} failed: {type(error).__name__}: {error}") from error
    parts = built if isinstance(built, tuple) else (built,)
    model, example, kwargs = (*parts, (), {})[:3] if len(parts) == 1 else (*parts, {})[:3]
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"{spec} returned a {type(model).__name__}, not a torch.nn.Module",
            do="return the model, or (model, example)",
        )
    return model, (example,) if isinstance(example, Tensor) else tuple(example), dict(kwargs)


def _run(path: Path) -> ModuleType:
    if not path.is_file():
        raise ModelError(f"no such file: {path}")
    name = f"intertwine_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ModelError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look the module up by name
    sys.path.insert(0, str(path.parent.resolve()))  # the file may import its neighbours, as a script could
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ModelError(f"running {path} failed: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    return module
