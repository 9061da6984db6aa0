"""A smaller model in the form that it came in: a folder that `from_pretrained` reads without us.

config.json has the new widths where a config can say them. Where it cannot (layers of one kind with widths of
their own), a small `modeling_narrow.py` beside it says them, and loading needs `trust_remote_code=True`.
"""

from __future__ import annotations

import copy
import inspect
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import nn

from intertwine.errors import InputError, Unsupported, WeightsError
from intertwine.files import replacing_folder, write_bytes
from intertwine.graph.export import stored_tensors
from intertwine.merging.branches import Branches
from intertwine.merging.config_fields import narrowed_configs
from intertwine.merging.factoring import FactoredEmbedding
from intertwine.merging.folding import PlainNorm, UntiedEmbedding
from intertwine.merging.storage import BESIDE, HUGGING_FACE, RECIPE, save_merged, why_not_replace
from intertwine.vision_shim import import_transformers
from intertwine.zoo.huggingface import HEADS, quietly
from intertwine.zoo.reloaded import check_written
from intertwine.zoo.sources import MERGED, Source

CODE = "modeling_narrow.py"
SHARD = "5GB"  # of which files are at most, as transformers cuts them
_MODULE = '''"""{name}: {base} whose layers have widths of their own ("narrow" in config.json)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import {base}


{classes}class {name}({base}):
    def __init__(self, config):
        super().__init__(config)
        rewritten = config.narrow.get("folding") or dict()
        for path in rewritten.get("untied", ()):
            self._put(path, UntiedEmbedding(self.get_submodule(path).weight))
        for path, first in config.narrow.get("shared", dict()).items():
            self._put(path, self.get_submodule(first))
            self.all_tied_weights_keys[path + ".table"] = first + ".table"
        for path, (eps, shifted) in rewritten.get("norms", dict()).items():
            gain = self.get_submodule(path).weight
            self._put(path, PlainNorm(eps, torch.zeros_like(gain) if shifted else None))
        for path in rewritten.get("factored", ()):
            self._put(path, FactoredEmbedding(self.get_submodule(path).weight))
        for name, shape in config.narrow["shapes"].items():
            path, _, leaf = name.rpartition(".")
            module = self.get_submodule(path)
            old = getattr(module, leaf)
            new = torch.empty(shape, dtype=old.dtype, device=old.device)
            is_weight = isinstance(old, nn.Parameter)
            setattr(module, leaf, nn.Parameter(new, requires_grad=old.requires_grad) if is_weight else new)
        for path, values in config.narrow["attributes"].items():
            for name, value in values.items():
                setattr(self.get_submodule(path), name, tuple(value) if isinstance(value, list) else value)

    def _put(self, path, module):
        parent, _, leaf = path.rpartition(".")
        setattr(self.get_submodule(parent), leaf, module)
'''


def save_model(
    small: nn.Module, source: Source, out: str | Path, details: Mapping[str, Any] | None = None
) -> Path:
    """Write a model that was made from `source` (merged, or with other weights) to the folder `out`.

    A model of Hugging Face becomes a folder of `save_pretrained` with its tokenizer, checked by loading the
    weights into the config's own model and comparing outputs; any other one, and several networks on one
    trunk (`networks` in details: their sources), that `intertwine.load` reads.
    """
    assert_savable(source)
    if source.family != "hf" or isinstance(small, Branches):
        return save_merged(small, out, source.name, details)
    shapes = {n: tuple(p.shape) for n, p in small.named_parameters(remove_duplicate=False)}
    folding = dict(details or {}).get("folding")
    untied = _is_untied(source.model, small)
    with replacing_folder(out, why_not_replace) as beside, quietly(import_transformers()):
        configs = () if folding else narrowed_configs(source.model, shapes, untied)
        if not any(_write_plain(small, source, beside, config) for config in configs):
            _write_with_code(small, source, beside, folding)
        _copy_beside(source.folder, beside)
        files = sorted(path.name for path in beside.iterdir())
        recipe = {**dict(details or {}), "format": HUGGING_FACE, "source": source.name, "files": files}
        write_bytes(beside / RECIPE, json.dumps(recipe, indent=1, allow_nan=False).encode())
    return Path(out)


def _is_untied(before: nn.Module, after: nn.Module) -> bool:
    """Whether weights that were one are two now: a head that was the table of the embedding."""
    named = [dict(m.named_parameters(remove_duplicate=False)) for m in (before, after)]
    one: dict[int, set[int]] = {}
    for name, weight in named[0].items():
        if name in named[1]:
            one.setdefault(id(weight), set()).add(id(named[1][name]))
    return any(len(found) > 1 for found in one.values())


def how_to_load(out: str | Path) -> str:
    """What a folder that was written needs to be loaded: "" unless code says its widths.

    The classes are named, because any other (AutoModel, of a model with a head) knows the code of no narrower
    model: transformers then builds its own in the old widths, and refuses the weights.
    """
    if not (Path(out) / CODE).is_file():
        return ""
    classes = " or ".join(json.loads((Path(out) / "config.json").read_text())["auto_map"])
    return f", with {CODE}: from_pretrained of {classes} needs trust_remote_code=True"


def assert_savable(source: Source) -> None:
    """Raise InputError where what is made of `source` has no form: a recipe starts from a whole model."""
    if source.family == MERGED or hasattr(getattr(source.model, "config", None), "narrow"):
        raise InputError(
            f"{source.name} is a merged model already",
            so="what is made of it cannot be written",
            do="merge the model that it was made of, with another target",
        )
    stored_tensors(source.model)


def _write_plain(small: nn.Module, source: Source, beside: Path, config: Any) -> bool:
    """Write the weights with the config that says their widths; whether that is the model.

    Widths that a config can say may still mean something else to it (fewer heads, another scale): then code
    has to say them. Of a model whose widths did not change nothing is written.
    """
    kind = type(source.model)
    _write_weights(small, kind, config, beside)
    try:
        check_written(beside, kind, small, source)
    except WeightsError:
        before = dict(source.model.named_parameters())
        if all(n in before and p.shape == before[n].shape for n, p in small.named_parameters()):
            raise
        for path in beside.iterdir():
            path.unlink()
        return False
    return True


def _write_weights(small: nn.Module, kind: type, config: Any, beside: Path) -> None:
    """save_pretrained as a model of class `kind` does it; no weight is copied.

    transformers renames weights on their way to the disk and back, by class: so the class that writes must be
    the one that will read. One that it does not know is not renamed when it is read, but would be when it is
    written, as a loaded model remembers: its weights keep the names that they have in memory.
    """
    view: Any = copy.copy(small)
    view.__class__, view.config = kind, config
    if kind is not type(small):
        view._weight_conversions = []
        shared = {f"{path}.table": f"{first}.table" for path, first in _shared_tables(small).items()}
        view._tied_weights_keys = {**(view._tied_weights_keys or {}), **shared}
    try:
        view.save_pretrained(beside, max_shard_size=SHARD)
    except SafetensorError as error:
        number = re.search(r"\(os error (\d+)\)", str(error))  # a full disk is no OSError to it
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(beside)) from error


def _shared_tables(small: nn.Module) -> dict[str, str]:
    """Path -> the first of several untied embeddings that share one table: it is written once."""
    first: dict[int, str] = {}
    modules = small.named_modules(remove_duplicate=False)
    untied = [(path, m) for path, m in modules if isinstance(m, UntiedEmbedding)]
    return {path: one for path, m in untied if (one := first.setdefault(id(m.table), path)) != path}


def _write_with_code(small: Any, source: Source, beside: Path, folding: Mapping[str, Any] | None) -> None:
    """The weights, with a module that rewrites and narrows the layers as the config's `narrow` says."""
    base = type(source.model).__name__
    if getattr(import_transformers(), base, None) is not type(source.model):
        raise Unsupported(
            f"{base} is a class of the folder's own code, and its config cannot say the widths",
            where=source.name,
            so="nothing was written",
            do="leave alone what the config cannot say: --uniform",
        )
    before = source.model.state_dict()  # with the statistics of norms, which are narrower too
    shapes = {
        n: list(t.shape)
        for n, t in small.state_dict().items()
        if n not in before or t.shape != before[n].shape
    }
    config: Any = copy.deepcopy(source.model.config)
    config.narrow = {"shapes": shapes, "attributes": _changed_attributes(source.model, small)}
    config.narrow |= {"folding": folding, "shared": _shared_tables(small)}
    name = f"Narrow{base}"
    code = _MODULE.format(name=name, base=base, classes=_classes())
    made: dict[str, Any] = {}
    exec(compile(code, CODE, "exec"), made)  # ours: what is written must load, and compute the same
    _write_weights(small, made[name], config, beside)
    written = json.loads((beside / "config.json").read_text())
    places = dict.fromkeys(_auto_classes(source.model), f"{CODE[:-3]}.{name}")
    written |= {"architectures": [name], "auto_map": places}
    write_bytes(beside / "config.json", (json.dumps(written, indent=2) + "\n").encode())
    write_bytes(beside / CODE, code.encode())
    check_written(beside, made[name], small, source)


def _classes() -> str:
    """The modules that rewritten models have, as text."""
    texts = [inspect.getsource(c) for c in (PlainNorm, UntiedEmbedding, FactoredEmbedding)]
    return "".join(f"{text}\n\n" for text in texts)


def _changed_attributes(before: nn.Module, after: nn.Module) -> dict[str, dict[str, Any]]:
    """Module -> its plain numbers that are others now."""
    old, found = dict(before.named_modules()), {}
    for path, module in after.named_modules():
        known = vars(old[path]) if path in old else {}
        changed = {
            name: value
            for name, value in vars(module).items()
            if isinstance(value, int | tuple) and not name.startswith("_") and known.get(name) != value
        }
        if changed:
            found[path] = changed
    return found


def _auto_classes(model: Any) -> list[str]:
    """The Auto classes that stand for a model's class: of all, not only of those that we try."""
    transformers = import_transformers()
    heads = dict.fromkeys([*HEADS, *(n for n in dir(transformers) if n.startswith("AutoModel"))])
    mapped = {head: getattr(transformers, head)._model_mapping.get(type(model.config), ()) for head in heads}
    found = {head: each if isinstance(each, tuple | list) else (each,) for head, each in mapped.items()}
    return [head for head, classes in found.items() if type(model) in classes] or ["AutoModel"]


def _copy_beside(folder: Path | None, out: Path) -> None:
    """Tokenizer and processor, which belong to the weights."""
    if folder is None:
        return
    for pattern in BESIDE:
        for path in folder.glob(pattern):
            if path.is_file() and not (out / path.name).exists() and not path.name.endswith(".safetensors"):
                shutil.copyfile(path, out / path.name)
