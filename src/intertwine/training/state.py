"""The state of a run on disk: one file that is either the old one or the new one, never half of either.

RUN/run.json            what this run is: model, data, recipe, seed
RUN/state.safetensors   weights, optimizer and counters, replaced as a whole; all that resuming needs
RUN/metrics.jsonl       one line an epoch
RUN/checkpoints/        weights at the epochs that the recipe names
RUN/best.safetensors    the best so far, where the recipe keeps the best
RUN/model.safetensors   the result; there once the run is finished
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from intertwine.errors import InputError, WeightsError
from intertwine.files import locked as hold_lock
from intertwine.files import read_json, sweep_leftovers, write_bytes, write_tensors
from intertwine.reading import parsing, read_safetensors

STATE, RUN, METRICS, MODEL, BEST = (
    "state.safetensors", "run.json", "metrics.jsonl", "model.safetensors", "best.safetensors",
)  # fmt: skip
_COUNTERS = "counters"


@dataclass
class Counters:
    """Where a run stands: `step` steps into `epoch`, with what the epoch has added up so far."""

    epoch: int = 0
    step: int = 0
    loss: float = 0.0
    correct: int = 0
    seen: int = 0
    best: float = -1.0
    best_epoch: int = 0


def save_state(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, counters: Counters) -> None:
    """Replace RUN/state.safetensors."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for index, entries in optimizer.state_dict()["state"].items():
        for name, value in entries.items():
            if value is not None:
                tensors[f"optimizer.{index}.{name}"] = torch.as_tensor(value)
    write_tensors(folder / STATE, tensors, {_COUNTERS: json.dumps(asdict(counters))})


def _counters(text: str) -> Counters:
    """The counters of a state's header; ValueError if they are none."""
    values = json.loads(text)
    kinds = {field.name: type(field.default) for field in fields(Counters)}
    if not isinstance(values, dict) or values.keys() != kinds.keys():
        raise ValueError("its counters are not those of a run")
    for name, kind in kinds.items():
        value = values[name]
        fits = type(value) is int or (kind is float and type(value) is float and math.isfinite(value))
        if not fits or (kind is int and value < 0):
            raise ValueError(f"its counter {name} is {value!r}")
    return Counters(**values)


def load_state(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> Counters | None:
    """Put RUN/state.safetensors into model and optimizer; None where the run has not got so far."""
    path = folder / STATE
    if not path.exists():
        return None
    so, do = "the run cannot go on", "delete it to start again"
    header, tensors = read_safetensors(path, "state of a run", WeightsError, do=do)
    with parsing(path, WeightsError, so=so, do=do):
        counters = _counters(header.get(_COUNTERS, "null"))
        weights = {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
        model.load_state_dict(weights)
        _load_optimizer(optimizer, {k: v for k, v in tensors.items() if k.startswith("optimizer.")})
    return counters


def _load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for key, value in tensors.items():
        _, index, name = key.split(".", 2)
        like = parameters[int(index)]
        if value.shape == like.shape:  # in the layout of the parameter, as the optimizer itself makes it
            value = torch.empty_like(like, dtype=value.dtype).copy_(value)
        state.setdefault(int(index), {})[name] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def claim(folder: Path, identity: dict[str, Any]) -> bool:
    """Make RUN for this run, or check that it is this run's; True where there is something to go on with."""
    path = folder / RUN
    if not path.exists():
        others = [p.name for p in folder.iterdir() if not p.name.startswith(".")] if folder.is_dir() else []
        if others:
            raise InputError(
                f"{folder} is not empty and holds no run ({', '.join(sorted(others)[:4])})",
                do="choose a new folder with -o",
            )
        write_bytes(path, (json.dumps(identity, indent=2) + "\n").encode())
        return False
    try:
        found = read_json(path)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}", do="choose a new folder with -o") from error
    differences = list(find_differences(found, identity, "the run" if not isinstance(found, dict) else ""))
    if differences:
        raise InputError(
            f"{folder} holds another run: {'; '.join(differences[:4])}",
            so="nothing was changed",
            do="choose a new folder with -o, or give what that run was started with",
        )
    sweep_leftovers(folder, deep=True)
    return True


@contextmanager
def claimed(folder: Path, identity: dict[str, Any]) -> Iterator[bool]:
    """`claim`; what a new run has written goes again where it fails before its first state.

    All that is taken away is the run's own: `claim` refuses a folder that holds anything else.
    """
    resumed = claim(folder, identity)
    try:
        yield resumed
    except Exception:  # no signal: those save a state first
        if not resumed and not (folder / STATE).exists():
            for name in (RUN, METRICS):
                (folder / name).unlink(missing_ok=True)
            for name in ("checkpoints", "tensorboard"):
                shutil.rmtree(folder / name, ignore_errors=True)
        raise


def find_differences(there: Any, here: Any, name: str = "") -> Iterator[str]:
    """Which entries of two nested mappings differ, one sentence each.

    >>> list(find_differences({"a": {"b": 1}}, {"a": {"b": 2}}))
    ['a.b is 1 there and 2 here']
    """
    if isinstance(there, dict) and isinstance(here, dict):
        for key in sorted({*there, *here}):
            path = f"{name}.{key}" if name else str(key)
            yield from find_differences(there.get(key), here.get(key), path)
    elif there != here and name != "recipe.about":
        yield f"{name} is {there} there and {here} here"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Only one process trains in a folder, and .lock says which; others wait and find its result."""
    there = folder.exists()
    try:
        with hold_lock(folder / ".lock", f"trains in {folder}"):
            yield
    except Exception:
        if not there:
            with suppress(OSError):  # only an empty folder goes: nothing came of the run
                folder.rmdir()
        raise
