"""A smaller model in the form that it came in: a folder that `from_pretrained` reads without us.

config.json has the new widths where a config can say them. Where it cannot (layers of one kind with widths of
their own), a small `modeling_narrow.py` beside it says them, and loading needs `trust_remote_code=True`.
"""

from __future__ import annotations

import copy
import inspect
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from intertwine.errors import WeightsError
from intertwine.files import replacing_folder, write_bytes
from intertwine.merging.config_fields import narrowed_config
from intertwine.merging.factoring import FactoredEmbedding
from intertwine.merging.folding import PlainNorm, UntiedEmbedding
from intertwine.merging.storage import BESIDE, HUGGING_FACE, RECIPE, save_merged, why_not_replace
from intertwine.vision_shim import import_transformers
from intertwine.zoo.huggingface import HEADS, quietly
from intertwine.zoo.sources import Source

CODE = "modeling_narrow.py"
_TOLERANCE = 1e-4
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
            setattr(module, leaf, nn.Parameter(new, requires_grad=old.requires_grad))
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
    weights into the config's own model and comparing outputs; any other one that `intertwine.load` reads.
    """
    if source.family != "hf":
        return save_merged(small, out, source.name, details)
    shapes = {n: tuple(p.shape) for n, p in small.named_parameters(remove_duplicate=False)}
    folding = dict(details or {}).get("folding")
    config = None if folding else narrowed_config(source.model, shapes)
    with replacing_folder(out, why_not_replace) as beside, quietly(import_transformers()):
        plain = None if config is None else _rebuilt(small, source, config)
        if plain is not None:
            plain.save_pretrained(beside)
        else:
            _write_with_code(small, source, beside, folding)
        _copy_beside(source.folder, beside)
        files = sorted(path.name for path in beside.iterdir())
        recipe = {**dict(details or {}), "format": HUGGING_FACE, "source": source.name, "files": files}
        write_bytes(beside / RECIPE, json.dumps(recipe, indent=1, allow_nan=False).encode())
    return Path(out)


def _rebuilt(small: Any, source: Source, config: Any) -> Any | None:
    """The model that the config describes, with the weights, if it computes the same.

    Widths that a config can say may still mean something else to it (fewer heads, another scale): then code
    has to say them. Of a model whose widths did not change nothing is written.
    """
    rebuilt = type(source.model)._from_config(config, dtype=next(small.parameters()).dtype)  # type: ignore[attr-defined]
    rebuilt.load_state_dict(small.state_dict())
    rebuilt.generation_config = copy.deepcopy(getattr(source.model, "generation_config", None))
    try:
        _check_equal(small, rebuilt.eval(), source)
    except WeightsError:
        before = dict(source.model.named_parameters())
        if all(n in before and p.shape == before[n].shape for n, p in small.named_parameters()):
            raise
        return None
    return rebuilt


def _write_with_code(small: Any, source: Source, beside: Path, folding: Mapping[str, Any] | None) -> None:
    """The weights, with a module that rewrites and narrows the layers as the config's `narrow` says."""
    base = type(source.model).__name__
    before = dict(source.model.named_parameters(remove_duplicate=False))
    shapes = {
        n: list(p.shape)
        for n, p in small.named_parameters(remove_duplicate=False)
        if n not in before or p.shape != before[n].shape
    }
    config: Any = copy.deepcopy(source.model.config)
    config.narrow = {"shapes": shapes, "attributes": _changed_attributes(source.model, small)}
    config.narrow["folding"] = folding
    name = f"Narrow{base}"
    copied = copy.deepcopy(small)
    copied.config = config
    copied.save_pretrained(beside)
    written = json.loads((beside / "config.json").read_text())
    written |= {"architectures": [name], "auto_map": {_auto_class(source.model): f"{CODE[:-3]}.{name}"}}
    write_bytes(beside / "config.json", (json.dumps(written, indent=2) + "\n").encode())
    code = _MODULE.format(name=name, base=base, classes=_classes())
    write_bytes(beside / CODE, code.encode())
    made: dict[str, Any] = {}
    exec(compile(code, CODE, "exec"), made)  # ours: what is written must load, and compute the same
    _check_equal(small, made[name].from_pretrained(beside).eval(), source)


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


def _auto_class(model: Any) -> str:
    """The Auto class that stands for a model's class."""
    transformers = import_transformers()
    for head in HEADS:
        mapping = getattr(transformers, head)._model_mapping
        found = mapping.get(type(model.config), ())
        if type(model) in (found if isinstance(found, tuple | list) else (found,)):
            return head
    return "AutoModel"


def _check_equal(small: nn.Module, rebuilt: nn.Module, source: Source) -> None:
    with torch.no_grad():
        ours = tree_leaves(small.eval()(*source.example, **source.kwargs))
        theirs = rebuilt(*source.example, **source.kwargs)
    kept = [t for t in ours if isinstance(t, torch.Tensor) and t.is_floating_point()]
    found = [t for t in tree_leaves(dict(theirs)) if isinstance(t, torch.Tensor) and t.is_floating_point()]
    for tensor in kept:
        near = [t for t in found if t.shape == tensor.shape]
        scale = 1.0 + float(tensor.abs().max())
        if not any(float((t - tensor).abs().max()) <= _TOLERANCE * scale for t in near):
            raise WeightsError(
                "the model that config.json describes does not compute what the merged model does",
                where=source.name,
                so="nothing was written",
            )


def _copy_beside(folder: Path | None, out: Path) -> None:
    """Tokenizer and processor, which belong to the weights."""
    if folder is None:
        return
    for pattern in BESIDE:
        for path in folder.glob(pattern):
            if path.is_file() and not (out / path.name).exists() and not path.name.endswith(".safetensors"):
                shutil.copyfile(path, out / path.name)
