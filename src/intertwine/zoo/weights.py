"""Read, check, load and save weights; no file is ever allowed to run code.

Checkpoints are read with safetensors or `torch.load(weights_only=True)`. Loading is all or nothing: the
model changes only if every name, shape and value is right.
"""

from __future__ import annotations

import pickle
import re
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from intertwine.errors import WeightsError
from intertwine.files import write_tensors
from intertwine.graph.export import stored_tensors
from intertwine.reading import check_memory, existing_file, parsing

Model = TypeVar("Model", bound=nn.Module)

PICKLED = (".pt", ".pth", ".th", ".bin")
# Keys under which training scripts keep the state dict, and prefixes that wrappers put before every name.
_WRAPPERS = ("state_dict", "model_state_dict", "model_state", "model", "net")
_PREFIXES = ("module.", "_orig_mod.", "model.", "net.")
# Counts training batches and changes nothing in eval mode; files from before PyTorch 0.4.1 lack it.
_OPTIONAL = "num_batches_tracked"
_LISTED = 8
_NESTED = 16  # wrappers around a state dict


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors or .pt/.pth/.th/.bin file, unwrapped, on the CPU."""
    path = existing_file(path, "weights file", WeightsError)
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if path.suffix in PICKLED:
        return _unwrap(_read_pickled(path), path)
    raise WeightsError(
        f"unknown kind of weights file: {path.name}", do=f"use .safetensors or one of {' '.join(PICKLED)}"
    )


def load_weights(
    model: Model,
    path: str | Path,
    *,
    ignore: Iterable[str] = (),
    state: Mapping[str, Tensor] | None = None,
) -> Model:
    """Copy the weights of a file into `model` (in place, all or nothing) and return it.

    Half-precision files load into float32 models and the other way round. Names with one of the `ignore`
    prefixes are left out of the file. A tied tensor may be stored once. `state` is what the file holds, where
    it has been read already. Raises WeightsError that lists what does not fit.
    """
    own = stored_tensors(model)
    state = _strip_prefixes(dict(state) if state is not None else read_weights(path), own)
    state = {name: value for name, value in state.items() if not name.startswith(tuple(ignore))}
    _add_tied(state, own)
    _check_names_and_shapes(state, own, Path(path))
    with parsing(path, WeightsError, so="nothing was loaded"):  # some dtypes convert to nothing
        state = {name: value.to(own[name].dtype) for name, value in state.items()}
    _check_finite(state, own, Path(path))
    with torch.no_grad():
        for name, value in state.items():
            own[name].copy_(value)
    return model


def classes_of(model: nn.Module, state: Mapping[str, Tensor], *, ignore: Iterable[str] = ()) -> int | None:
    """The number of classes in a file, where that is all that does not fit the model; None otherwise.

    The tensors that do not fit must differ in their first dimension only, all in the same way, and belong to
    one layer that the model ends with: its last matrix, and the vector beside it.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 10))
    >>> classes_of(net, {**net.state_dict(), "2.weight": torch.zeros(7, 4), "2.bias": torch.zeros(7)})
    7
    >>> classes_of(net, {**net.state_dict(), "0.weight": torch.zeros(7, 3), "0.bias": torch.zeros(7)})
    """
    own = stored_tensors(model)
    state = {k: v for k, v in _strip_prefixes(dict(state), own).items() if not k.startswith(tuple(ignore))}
    wrong = [name for name, value in state.items() if name in own and value.shape != own[name].shape]
    matrices = [name for name, value in own.items() if value.dim() > 1]
    layers = {name.rpartition(".")[0] for name in wrong}
    if not wrong or layers != {matrices[-1].rpartition(".")[0]}:
        return None
    pairs = {(own[n].shape[0], state[n].shape[0]) for n in wrong if own[n].dim() and state[n].dim()}
    rest = all(own[n].shape[1:] == state[n].shape[1:] for n in wrong)
    return int(next(iter(pairs))[1]) if rest and len(pairs) == 1 else None


def save_weights(state: Mapping[str, Tensor] | nn.Module, path: str | Path) -> Path:
    """Write a state dict (or a model's) as safetensors: beside the target first, then renamed.

    Tied tensors are stored under each of their names, so that any reader finds every key.
    """
    return write_tensors(path, stored_tensors(state) if isinstance(state, nn.Module) else state)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    do = "the file is corrupt or cut off; fetch it again"
    with parsing(path, WeightsError, so="nothing was loaded", do=do):
        return load_file(path)


def _read_pickled(path: Path) -> Any:
    _check_unpacked_size(path)
    with parsing(path, WeightsError, so="nothing was loaded"), warnings.catch_warnings():
        # torch warns about old pickles and TorchScript before it raises; the error below says it better
        warnings.simplefilter("ignore")
        try:
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


def _check_unpacked_size(path: Path) -> None:
    """A zip archive of a few bytes may unpack to any number of them."""
    with parsing(path, WeightsError, so="nothing was loaded"):
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                size = sum(entry.file_size for entry in archive.infolist())
            check_memory(size, f"what {path} unpacks to", WeightsError)


def _unwrap(loaded: Any, path: Path) -> dict[str, Tensor]:
    """The state dict inside {"state_dict": ...}, {"model": ...} and the like, tensors only."""
    for _ in range(_NESTED):  # a file may even contain itself
        if not isinstance(loaded, Mapping):
            break
        inner = next((loaded[k] for k in _WRAPPERS if isinstance(loaded.get(k), Mapping)), None)
        if inner is None:
            break
        loaded = inner
    entries = loaded.items() if isinstance(loaded, Mapping) else ()
    tensors = {k: v for k, v in entries if isinstance(k, str) and isinstance(v, Tensor)}
    if not tensors:
        raise WeightsError(f"{path} holds no weights (found a {type(loaded).__name__} without tensors)")
    for name, tensor in tensors.items():
        if tensor.is_meta or tensor.is_nested or tensor.layout != torch.strided or tensor.is_quantized:
            kind = next(k for k in ("meta", "nested", "quantized", "sparse") if _is(tensor, k))
            raise WeightsError(
                f"{name} in {path} is a {kind} tensor, not a plain one",
                so="nothing was loaded",
                do="save model.state_dict() of a plain model, best as .safetensors",
            )
    return tensors


def _is(tensor: Tensor, kind: str) -> bool:
    return kind == "sparse" or bool(getattr(tensor, f"is_{kind}"))


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
        elif _number_kind(theirs) != _number_kind(ours):
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


def _number_kind(tensor: Tensor) -> tuple[bool, bool]:
    return tensor.is_floating_point(), tensor.is_complex()


def _listing(names: list[str]) -> str:
    rest = f", and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + rest


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "scalar"
