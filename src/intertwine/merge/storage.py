"""A merged model on disk: OUT/weights.safetensors and OUT/recipe.json (the factory's string and the plan).

The directory is written beside and renamed: it is there whole or not at all.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from intertwine.errors import InputError, WeightsError
from intertwine.merge.shrink import fix_layers, named_tensors, replace_tensors

FORMAT = "intertwine merged model 1"


def save_merged(
    model: nn.Module, out: str | Path, source: str, details: Mapping[str, Any] | None = None
) -> Path:
    """Write a merged model of the factory string `source` ("zoo:vgg16", "net.py:make") to the folder `out`.

    details: plain data that is kept with it. An existing folder is replaced only if it is a merged model.
    """
    out = Path(out)
    if out.exists() and not (out / "recipe.json").is_file():
        raise InputError(f"{out} exists and is not a merged model", do="choose another folder")
    state = {name: t.detach().cpu().contiguous() for name, t in model.state_dict().items()}
    tied: dict[str, str] = {}
    first: dict[int, str] = {}
    for name, tensor in named_tensors(model).items():
        if name in state:
            tied[name] = first.setdefault(id(tensor), name)
    kept = {name: t for name, t in state.items() if tied.get(name, name) == name}
    recipe = {
        "format": FORMAT,
        "source": source,
        "shapes": {name: list(t.shape) for name, t in kept.items()},
        "tied": {name: to for name, to in tied.items() if name != to},
        **dict(details or {}),
    }
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}") from error
    try:
        save_file(kept, beside / "weights.safetensors", metadata={"format": FORMAT})
        (beside / "recipe.json").write_text(json.dumps(recipe, indent=1, allow_nan=False), encoding="utf-8")
        (beside / "weights.safetensors").chmod(0o644)  # safetensors writes private files
        beside.chmod(0o755)
        _put(beside, out)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return out


def _put(beside: Path, out: Path) -> None:
    if not out.exists():
        os.rename(beside, out)
        return
    old = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}.old."))
    os.rename(out, old / "replaced")
    os.rename(beside, out)
    shutil.rmtree(old, ignore_errors=True)


def load_merged(path: str | Path, build: Callable[[str], nn.Module]) -> nn.Module:
    """The model in a folder that `save_merged` wrote; `build` makes the original from the factory string."""
    path = Path(path)
    try:
        recipe = json.loads((path / "recipe.json").read_text(encoding="utf-8"))
        weights = load_file(path / "weights.safetensors")
    except (OSError, ValueError, SafetensorError) as error:
        raise WeightsError(
            f"{path} is not a merged model: {error}", do="give the folder that merge wrote"
        ) from error
    if recipe.get("format") != FORMAT:
        raise WeightsError(f"{path} is not a merged model, or of another version")
    model = build(recipe["source"])
    named = named_tensors(model)
    missing = sorted(set(weights) - set(named))
    if missing:
        raise WeightsError(
            f"{recipe['source']} has no weight {missing[0]!r}", so="the factory has changed since the merge"
        )
    before = {name: tuple(t.shape) for name, t in named.items()}
    changed = {n: t for n, t in weights.items() if tuple(t.shape) != before[n]}
    fix_layers(model, replace_tensors(model, changed), before)
    with torch.no_grad():
        for name, tensor in named_tensors(model).items():
            if name in weights:
                tensor.data = weights[name].to(tensor.device)
    return model


def flops_of(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> int:
    """FLOPs of one call, for one example of the batch, counted while the model really runs.

    >>> flops_of(nn.Linear(3, 4), (torch.zeros(2, 3),))
    24
    """
    from torch.utils.flop_counter import FlopCounterMode

    from intertwine.trace.export import eval_copy

    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        eval_copy(model)(*args, **dict(kwargs or {}))
    sizes = [x.shape[0] for x in args if isinstance(x, torch.Tensor) and x.dim()]
    return int(counter.get_total_flops() // np.maximum(1, sizes[0] if sizes else 1))
