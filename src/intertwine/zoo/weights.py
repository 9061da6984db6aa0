"""Read, check, load and save weights; no file is ever allowed to run code.

Checkpoints are read with safetensors or `torch.load(weights_only=True)`. Loading is all or nothing: the
model changes only if every name, shape and value is right.
"""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from intertwine.errors import WeightsError
from intertwine.files import write_tensors

Model = TypeVar("Model", bound=nn.Module)

PICKLED = (".pt", ".pth", ".th", ".bin")
# Keys under which training scripts keep the state dict, and prefixes that wrappers put before every name.
_WRAPPERS = ("state_dict", "model_state_dict", "model_state", "model", "net")
_PREFIXES = ("module.", "_orig_mod.", "model.", "net.")
# Counts training batches and changes nothing in eval mode; files from before PyTorch 0.4.1 lack it.
_OPTIONAL = "num_batches_tracked"
_LISTED = 8


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors or .pt/.pth/.th/.bin file, unwrapped, on the CPU."""
    path = Path(path)
    if not path.exists():
        raise WeightsError(
            f"no such file: {path}", do="give an existing .safetensors, .pt, .pth, .th or .bin file"
        )
    if path.is_dir():
        raise WeightsError(f"{path} is a folder, not a weights file")
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if path.suffix in PICKLED:
        return _unwrap(_read_pickled(path), path)
    raise WeightsError(
        f"unknown kind of weights file: {path.name}", do=f"use .safetensors or one of {' '.join(PICKLED)}"
    )


def load_weights(model: Model, path: str | Path, *, ignore: Iterable[str] = ()) -> Model:
    """Copy the weights of a file into `model` (in place, all or nothing) and return it.

    Half-precision files load into float32 models and the other way round. Names with one of the `ignore`
    prefixes are left out of the file. A tied tensor may be stored once. Raises WeightsError that lists what
    does not fit.
    """
    own = model.state_dict()
    state = _strip_prefixes(read_weights(path), own)
    state = {name: value for name, value in state.items() if not name.startswith(tuple(ignore))}
    _add_tied(state, own)
    _check_names_and_shapes(state, own, Path(path))
    state = {name: value.to(own[name].dtype) for name, value in state.items()}
    _check_finite(state, own, Path(path))
    with torch.no_grad():
        for name, value in state.items():
            own[name].copy_(value)
    return model


def save_weights(state: Mapping[str, Tensor] | nn.Module, path: str | Path) -> Path:
    """Write a state dict (or a model's) as safetensors: beside the target first, then renamed.

    Tied tensors are stored under each of their names, so that any reader finds every key.
    """
    return write_tensors(path, state.state_dict() if isinstance(state, nn.Module) else state)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise WeightsError(
            f"cannot read {path}: {error}",
            so="nothing was loaded",
            do="the file is corrupt or cut off; fetch it again",
        ) from error


def _read_pickled(path: Path) -> Any:
    try:
        with warnings.catch_warnings():
            # torch warns about old pickles and TorchScript before it raises; the error below says it better
            warnings.simplefilter("ignore", UserWarning)
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        blocked = re.search(r"GLOBAL ([\w.]+)", str(error))
        if blocked:
            raise WeightsError(
                f"refused {path}: it holds code or Python objects ({blocked[1]}), not only weights",
                so="nothing was loaded or run",
                do="save model.state_dict(), best as .safetensors",
            ) from error
        raise WeightsError(
            f"cannot read {path}: it is not a PyTorch weights file, or is corrupt",
            so="nothing was loaded or run",
        ) from error
    except (
        RuntimeError,
        EOFError,
        OSError,
        KeyError,
        ValueError,
        AttributeError,
        TypeError,
        IndexError,
    ) as error:
        reason = str(error).split(". ")[0] or "the file is empty"
        raise WeightsError(f"cannot read {path}: {reason}", so="nothing was loaded") from error


def _unwrap(loaded: Any, path: Path) -> dict[str, Tensor]:
    """The state dict inside {"state_dict": ...}, {"model": ...} and the like, tensors only."""
    while isinstance(loaded, Mapping):
        inner = next((loaded[k] for k in _WRAPPERS if isinstance(loaded.get(k), Mapping)), None)
        if inner is None:
            break
        loaded = inner
    tensors = (
        {str(k): v for k, v in loaded.items() if isinstance(v, Tensor)} if isinstance(loaded, Mapping) else {}
    )
    if not tensors:
        raise WeightsError(f"{path} holds no weights (found a {type(loaded).__name__} without tensors)")
    return tensors


def _strip_prefixes(state: dict[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Drop a wrapper's prefix (`module.`, ...) where every name has it and the model's do not."""
    while state.keys() != own.keys():
        prefix = next(
            (
                p
                for p in _PREFIXES
                if all(k.startswith(p) for k in state) and not all(k.startswith(p) for k in own)
            ),
            None,
        )
        if prefix is None or not state:
            break
        state = {name.removeprefix(prefix): value for name, value in state.items()}
    return dict(state)


def _add_tied(state: dict[str, Tensor], own: Mapping[str, Tensor]) -> None:
    """Give a tied name that the file leaves out the value that the file holds under its other name."""

    def place(tensor: Tensor) -> tuple[Any, ...]:
        return (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride())

    stored = {place(own[name]): name for name in state if name in own and own[name].numel()}
    for name, tensor in own.items():
        if name not in state and place(tensor) in stored:
            state[name] = state[stored[place(tensor)]]


def _check_names_and_shapes(state: Mapping[str, Tensor], own: Mapping[str, Tensor], path: Path) -> None:
    missing = [k for k in own if k not in state and not k.endswith(_OPTIONAL)]
    unexpected = [k for k in state if k not in own]
    wrong = []
    for name in (k for k in state if k in own):
        theirs, ours = state[name], own[name]
        if theirs.shape != ours.shape:
            wrong.append(f"{name} {_shape(theirs)} in the file, {_shape(ours)} in the model")
        elif theirs.is_floating_point() != ours.is_floating_point():
            wrong.append(f"{name} {theirs.dtype} in the file, {ours.dtype} in the model")
    groups = (("missing", missing), ("unexpected", unexpected), ("wrong shape or type", wrong))
    found = [f"{label} ({len(names)}): {_listing(names)}" for label, names in groups if names]
    if found:
        raise WeightsError(
            f"{path.name} does not fit the model\n       " + "\n       ".join(found),
            so="nothing was loaded",
            do="check that the file belongs to this architecture and number of classes",
        )


def _check_finite(state: Mapping[str, Tensor], own: Mapping[str, Tensor], path: Path) -> None:
    """No NaN, and no infinity except where the model itself was built with it (attention masks)."""
    bad = []
    for name, value in state.items():
        if value.is_floating_point():
            strange = int((~torch.isfinite(value) & (value != own[name].to(value.device))).sum())
            if strange:
                bad.append(f"{name} ({strange} of {value.numel()})")
    if bad:
        raise WeightsError(
            f"{path.name} holds NaN or infinite weights: {_listing(bad)}",
            so="nothing was loaded",
            do="the training diverged, or the file overflows the model's dtype",
        )


def _listing(names: list[str]) -> str:
    rest = f", and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + rest


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "scalar"
