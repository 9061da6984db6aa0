"""A merged model on disk: OUT/weights.safetensors and OUT/recipe.json (the factory and what it must give).

The folder is written beside and exchanged: it is there whole or as it was. Loading believes nothing: every
field of the recipe is checked, and names, shapes, dtypes and finiteness of the weights against it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from intertwine.errors import WeightsError
from intertwine.files import (
    finish_exchange,
    read_json,
    read_regular,
    replacing_folder,
    write_bytes,
    write_tensors,
)
from intertwine.graph.export import named_tensors, stored_tensors
from intertwine.merging.folding import Folding
from intertwine.merging.lists import entries, keep_first
from intertwine.merging.shrink import fix_layers, replace_tensors, set_numbers

FORMAT = "intertwine merged model 1"
HUGGING_FACE = "intertwine model of Hugging Face 1"  # of save_pretrained, with a recipe beside
# What save_pretrained writes, and what belongs to the weights and is copied along.
_PRETRAINED = ("config.json", "generation_config.json", "modeling_narrow.py", "model.safetensors",
               "model-*-of-*.safetensors", "model.safetensors.index.json")  # fmt: skip
BESIDE = ("*token*", "vocab*", "merges.txt", "*.model", "*preprocessor_config.json", "processor_config.json",
          "chat_template*")  # fmt: skip
WEIGHTS, RECIPE = "weights.safetensors", "recipe.json"
_DO = "give a folder that merge wrote, as merge wrote it"


@dataclass(frozen=True)
class MergedRecipe:
    """What OUT/recipe.json says: how to rebuild the model, and which weights belong to it.

    source: the factory's string. input: the shape of its example, where the factory does not give one.
    file, sha256: where the file of a `file.py:factory`, or a file that is the model, was and what was in it.
    tied: a name -> the name that its weights are stored under. infinite: the tensors that hold
    infinities (attention masks). folding: the norms that were folded before. numbers: module -> name -> a
    width that its forward keeps. entries: list of modules -> how many it has left. wider: weights may be
    larger than the factory's, as those of combined networks are. networks: the factories of several that
    share a trunk (`Branches`), the first of them `source`.
    """

    source: str
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str] = field(default_factory=dict)
    tied: dict[str, str] = field(default_factory=dict)
    infinite: tuple[str, ...] = ()
    input: str | None = None
    file: str | None = None
    sha256: str | None = None
    folding: Folding | None = None
    numbers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    entries: Mapping[str, int] = field(default_factory=dict)
    wider: bool = False
    networks: tuple[str, ...] = ()


def save_merged(
    model: nn.Module, out: str | Path, source: str, details: Mapping[str, Any] | None = None
) -> Path:
    """Write a merged model of the factory string `source` ("zoo:vgg16", "net.py:make") to the folder `out`.

    details: plain data that is kept with it; `input` is the shape of the example, as in "1x3x32x32". An
    existing folder is replaced only if it is a merged model and holds nothing else.
    """
    state = {name: t.detach().cpu().contiguous() for name, t in stored_tensors(model).items()}
    tied: dict[str, str] = {}
    first: dict[int, str] = {}
    for name, tensor in named_tensors(model).items():
        if name in state:
            tied[name] = first.setdefault(id(tensor), name)
    kept = {name: t for name, t in state.items() if tied.get(name, name) == name}
    spoilt = [name for name, t in kept.items() if _askable(t).isnan().any()]
    if spoilt:
        raise WeightsError(f"the merged weight {spoilt[0]!r} holds NaN", so="nothing was written")
    recipe = {
        **dict(details or {}),
        "format": FORMAT,
        "source": source,
        **_file_of(source),
        "shapes": {name: list(t.shape) for name, t in kept.items()},
        "dtypes": {name: _dtype(t) for name, t in kept.items()},
        "tied": {name: to for name, to in tied.items() if name != to},
        "infinite": [name for name, t in kept.items() if _askable(t).isinf().any()],
    }
    text = json.dumps(recipe, indent=1, allow_nan=False)
    with replacing_folder(out, why_not_replace) as beside:
        write_tensors(beside / WEIGHTS, kept, {"format": FORMAT})
        write_bytes(beside / RECIPE, text.encode())
    return Path(out)


def why_not_replace(folder: Path) -> str:
    """Why a folder must be kept: it is not a merged model, or holds something else too; "" if it may go."""
    entries = {entry.name: entry for entry in folder.iterdir()}
    listed = hugging_face_files(folder)
    other = sorted(entries.keys() - ({RECIPE, *listed} if listed else {WEIGHTS, RECIPE}))
    if RECIPE not in entries or other:
        return f"holds {other[0]!r}, which merge did not write" if other else "is not a merged model"
    if any(entry.is_symlink() or not entry.is_file() for entry in entries.values()):
        return "is not a merged model: there are links or folders in it"
    try:
        if not listed:
            read_recipe(folder)
    except WeightsError:
        return "is not a merged model"
    return ""


def hugging_face_files(folder: str | Path) -> list[str]:
    """The files of a folder that we wrote for `from_pretrained`; empty for any other folder.

    A recipe may list anything at all: it is believed about names that such a folder has.
    """
    try:
        found = read_json(Path(folder) / RECIPE)
    except (OSError, ValueError):
        return []
    named = found.get("files") if isinstance(found, dict) and found.get("format") == HUGGING_FACE else None
    if not isinstance(named, list) or not all(map(_is_text, named)):
        return []
    return [name for name in named if any(fnmatchcase(name, p) for p in (*_PRETRAINED, *BESIDE))]


def read_recipe(folder: str | Path) -> MergedRecipe:
    """The checked recipe of a merged model."""
    path = Path(folder) / RECIPE
    if not os.path.exists(folder):  # unlike Path.exists, of names that are too long too
        finish_exchange(Path(folder).absolute().parent)
    try:
        found = read_json(path)
    except (OSError, ValueError) as error:
        raise WeightsError(f"{folder} is not a merged model: {error}", do=_DO) from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise WeightsError(f"{folder} is not a merged model, or of another version", do=_DO)
    wrong = [name for name, fits in _FIELDS.items() if not fits(found.get(name))]
    if wrong:
        what = "lacks" if wrong[0] not in found else "has a wrong"
        raise WeightsError(f"{path} {what} {wrong[0]!r}", so="nothing was loaded", do=_DO)
    shapes = {name: tuple(shape) for name, shape in found["shapes"].items()}
    tied, dtypes, infinite = found["tied"], found.get("dtypes") or {}, found.get("infinite") or []
    strays = [name for name in (*tied.values(), *dtypes, *infinite) if name not in shapes]
    strays += [name for name in tied if name in shapes]
    networks = tuple(found.get("networks") or ())
    held = {name.split(".")[1] for name in (*shapes, *tied) if name.startswith("networks.")}
    if networks and held != {str(number) for number in range(len(networks))}:  # all are built to be loaded
        strays.append("networks")
    if strays:
        raise WeightsError(f"{path} contradicts itself about {strays[0]!r}", so="nothing was loaded", do=_DO)
    optional = {name: found.get(name) for name in ("input", "file", "sha256")}
    folding = Folding.from_dict(found["folding"]) if found.get("folding") else None
    return MergedRecipe(
        found["source"], shapes, dtypes, tied, tuple(infinite), **optional, folding=folding,
        numbers=found.get("numbers") or {}, entries=found.get("entries") or {},
        wider=bool(found.get("wider")), networks=networks,
    )  # fmt: skip


def load_merged(path: str | Path, build: Callable[[MergedRecipe], nn.Module]) -> nn.Module:
    """The model in a folder that `save_merged` wrote; `build` makes the original from the recipe."""
    path = Path(path)
    recipe = read_recipe(path)
    try:
        weights = load(read_regular(path / WEIGHTS))
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise WeightsError(f"{path} is not a merged model: {error}", do=_DO) from error
    _check_weights(weights, recipe, path)
    model = build(recipe)
    if recipe.folding is not None:
        model = _folded(recipe.folding, model, path)
    _keep_entries(recipe, model, path)
    _set_numbers(recipe, model, path)
    named = named_tensors(model)
    before = {name: tuple(t.shape) for name, t in named.items()}
    _check_factory(recipe, weights, named, set(model.state_dict()), path)
    changed = {n: t for n, t in weights.items() if tuple(t.shape) != before[n]}
    fix_layers(model, replace_tensors(model, changed), before)
    with torch.no_grad():
        for name, tensor in named_tensors(model).items():
            if name in weights:
                tensor.data = weights[name].to(tensor.device)
    return model


def _folded(folding: Folding, model: nn.Module, path: Path) -> nn.Module:
    try:
        return folding.rebuild(model)
    except AttributeError as error:
        raise _misfit(f"{path} does not fit its factory: {error}") from error


def _keep_entries(recipe: MergedRecipe, model: nn.Module, path: Path) -> None:
    """Lists of modules that have fewer entries; only lists that are there are cut."""
    for place, count in recipe.entries.items():
        try:
            known = len(entries(model.get_submodule(place)))
        except AttributeError as error:
            raise _misfit(f"{path} does not fit its factory: {error}") from error
        if count > known:
            raise _misfit(f"{path} does not fit its factory: {place} has {known} entries, not {count}")
    keep_first(model, recipe.entries)


def _set_numbers(recipe: MergedRecipe, model: nn.Module, path: Path) -> None:
    """Widths that forwards keep in numbers of their modules; only numbers that are there are set."""
    for place, values in recipe.numbers.items():
        try:
            module = model.get_submodule(place)
        except AttributeError as error:
            raise _misfit(f"{path} does not fit its factory: {error}") from error
        for name, value in values.items():
            known = vars(module).get(name)
            if type(known) is not int:
                raise _misfit(f"{path} does not fit its factory: {place} has no number {name!r}")
            if value > known and not recipe.wider:
                raise _misfit(f"{path} does not fit its factory: {place}.{name} is {known}, not {value}")
    set_numbers(model, recipe.numbers)


def _file_of(source: str) -> dict[str, str]:
    """Where the file of a `file.py:factory` or a `file.onnx` is, and the hash of its content."""
    file = Path(source) if Path(source).is_file() else Path(source.rpartition(":")[0])
    if not file.is_file():
        return {}
    return {"file": str(file.resolve()), "sha256": hash_of(file)}


def hash_of(file: Path) -> str:
    """The SHA-256 of a file's content."""
    return hashlib.sha256(read_regular(file)).hexdigest()


def _askable(tensor: Tensor) -> Tensor:
    """The same numbers in a dtype that can be asked whether they are finite: float8 cannot."""
    return tensor.float() if tensor.element_size() == 1 else tensor


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_optional_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_names(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(map(_is_text, value)))


def _is_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


def _is_shapes(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)
        for shape in value.values()
    )


def _is_folding(value: Any) -> bool:
    try:
        Folding.from_dict(value)
    except (AttributeError, KeyError, TypeError, ValueError):
        return False
    return True


def _is_numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(numbers, dict) and all(type(n) is int and n > 0 for n in numbers.values())
        for numbers in value.values()
    )


_FIELDS: dict[str, Callable[[Any], bool]] = {
    "source": _is_text,
    "shapes": _is_shapes,
    "tied": _is_texts,
    "dtypes": lambda value: value is None or _is_texts(value),
    "infinite": _is_names,
    "input": _is_optional_text,
    "file": _is_optional_text,
    "sha256": _is_optional_text,
    "folding": lambda value: value is None or _is_folding(value),
    "numbers": lambda value: value is None or _is_numbers(value),
    "entries": lambda value: value is None or _is_numbers({"": value}),
    "wider": lambda value: value is None or isinstance(value, bool),
    "networks": _is_names,
}


def _check_weights(weights: Mapping[str, Tensor], recipe: MergedRecipe, path: Path) -> None:
    """Names, shapes, dtypes and finiteness are those of the recipe."""
    for name in sorted({*weights, *recipe.shapes}):
        if name not in weights or name not in recipe.shapes:
            what = "lacks the weight" if name in recipe.shapes else "holds a weight that the recipe has not:"
            raise _misfit(f"{path / WEIGHTS} {what} {name!r}")
        tensor, shape = weights[name], recipe.shapes[name]
        if tuple(tensor.shape) != shape:
            raise _misfit(f"{path / WEIGHTS}: {name!r} is {tuple(tensor.shape)}, in the recipe {shape}")
        if _dtype(tensor) != recipe.dtypes.get(name, _dtype(tensor)):
            wanted = recipe.dtypes[name]
            raise _misfit(f"{path / WEIGHTS}: {name!r} is {_dtype(tensor)}, in the recipe {wanted}")
        values = _askable(tensor)
        if values.isnan().any() or (name not in recipe.infinite and values.isinf().any()):
            raise _misfit(f"{path / WEIGHTS}: {name!r} holds NaN or infinite numbers")


def _check_factory(
    recipe: MergedRecipe,
    weights: Mapping[str, Tensor],
    named: Mapping[str, Tensor],
    stored: set[str],
    path: Path,
) -> None:
    """The factory gives the tensors that the recipe names, tied in the same way, and none smaller unless the
    recipe says so."""

    def changed(what: str) -> WeightsError:
        return _misfit(
            f"{path} and {recipe.source} do not fit: {what}",
            do="the factory has changed since the merge, or the recipe was edited; merge again",
        )

    names = {*recipe.shapes, *recipe.tied}
    for name in sorted({*names, *stored}):
        if name not in named or name not in stored:
            raise changed(f"the factory gives no {name!r}")
        if name not in names:
            raise changed(f"the recipe has no {name!r}")
    for name, shape in recipe.shapes.items():
        whole, dtype = tuple(named[name].shape), named[name].dtype
        sides = list(zip(shape, whole, strict=False))
        larger = not recipe.wider and any(a > b for a, b in sides)
        if len(shape) != len(whole) or larger or any(bool(a) != bool(b) for a, b in sides):
            raise changed(f"{name!r} is {shape} in the recipe and {whole} in the model")
        if weights[name].is_floating_point() != dtype.is_floating_point:
            raise changed(f"{name!r} is {_dtype(weights[name])} in the recipe and {dtype} in the model")
    for name, to in recipe.tied.items():
        if named.get(name) is not named.get(to):
            raise changed(f"{name!r} is not tied to {to!r} in the model")


def _misfit(what: str, do: str = _DO) -> WeightsError:
    return WeightsError(what, so="nothing was loaded", do=do)


def flops_of(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> int:
    """FLOPs of one call, for one example of the batch, counted while the model really runs.

    >>> flops_of(nn.Linear(3, 4), (torch.zeros(2, 3),))
    24
    """
    from torch.utils.flop_counter import FlopCounterMode

    from intertwine.graph.export import eval_copy

    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        # a weight that wants gradients, as output, is more than the counter's hooks understand
        eval_copy(model).requires_grad_(False)(*args, **dict(kwargs or {}))
    sizes = [x.shape[0] for x in args if isinstance(x, torch.Tensor) and x.dim()]
    return int(counter.get_total_flops() // np.maximum(1, sizes[0] if sizes else 1))
