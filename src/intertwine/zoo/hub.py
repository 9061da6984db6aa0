"""`hub:PLACE:NAME`: an entry point of a `hubconf.py`, from a folder or from the cache of torch.hub.

PLACE is a folder, or OWNER/REPO or OWNER/REPO:REF as torch.hub.load takes it, which must be in its cache:
code is never fetched. The file is run, so it needs leave. Without `--pretrained` an entry that has such an
argument is asked for random weights; with it, it loads what it likes from the cache's `checkpoints`, or
fetches it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from intertwine.errors import InputError, ModelError, NotFound
from intertwine.foreign import user_code
from intertwine.reading import user_path
from intertwine.text import quoted
from intertwine.zoo.sources import Source, Wanted
from intertwine.zoo.userfile import importable, run_file

_FORM = "hub:DIR:NAME, or hub:OWNER/REPO:NAME of a repository in torch.hub's cache"
_CODE = "hubconf.py"
_CLASSES = ("num_classes", "classes", "n_classes")


def hub_source(spec: str, wanted: Wanted) -> Source:
    """The model that an entry point returns; it does not say what its input looks like."""
    place, _, name = spec.partition(":")[2].rpartition(":")
    if not place or not name:
        raise InputError(f"cannot read the model {quoted(spec)}", do=f"write {_FORM}")
    folder = find_repository(place)
    if not wanted.run_code:
        raise InputError(
            f"{spec} runs the Python code in {folder / _CODE}",
            so="nothing was loaded or run",
            do="if you trust it, give --run-code",
        )
    with importable(folder):  # entry points import their neighbours when they are called
        module = run_file(folder / _CODE)
        entries = {n: f for n, f in vars(module).items() if callable(f) and not n.startswith("_")}
        if name not in entries:
            known = ", ".join(sorted(entries)) or "none"
            raise NotFound(f"{folder} has no entry point {quoted(name)}", do=f"it has {known}")
        options = _options(entries[name], name, wanted)
        with user_code(spec):
            model = entries[name](**options)
    if not isinstance(model, nn.Module):
        raise ModelError(f"{spec} returned a {type(model).__name__}, not a torch.nn.Module")
    return Source(f"hub:{folder}:{name}", model, ())


def find_repository(place: str) -> Path:
    """The folder with the hubconf.py: as it stands, or OWNER_REPO_REF in the cache."""
    folder = user_path(place, ModelError)
    if (folder / _CODE).is_file():
        return folder.absolute()
    repository, _, ref = place.partition(":")
    hub = Path(torch.hub.get_dir())
    if repository.count("/") == 1 and not repository.startswith((".", "~", "/")):
        pattern = f"{repository.replace('/', '_')}_{ref.replace('/', '_') or '*'}"
        found = sorted(p.parent for p in hub.glob(f"{pattern}/{_CODE}")) if hub.is_dir() else []
        if len(found) == 1:
            return found[0].absolute()
        if found:
            refs = ", ".join(p.name.removeprefix(pattern[:-1]) for p in found)
            raise InputError(
                f"the cache holds several of {place}: {refs}", do=f"write hub:{repository}:REF:NAME"
            )
    raise NotFound(
        f"{quoted(place)} is neither a folder with a hubconf.py nor in the cache of torch.hub",
        where=str(hub),
        so="nothing was fetched: code comes from this machine only",
        do=f"write {_FORM}",
    )


def _options(entry: Callable[..., Any], name: str, wanted: Wanted) -> dict[str, Any]:
    """The arguments of an entry point that say which weights and how many classes."""
    known = inspect.signature(entry).parameters
    options: dict[str, Any] = {"pretrained": wanted.pretrained} if "pretrained" in known else {}
    if wanted.pretrained and not options:
        raise InputError(f"{name} has no argument `pretrained`", do="give --weights FILE")
    if wanted.classes is not None:
        field = next((field for field in _CLASSES if field in known), None)
        if field is None:
            takes = ", ".join(known) or "no arguments"
            raise InputError(f"{name} has no argument for the number of classes", do=f"it takes {takes}")
        options[field] = wanted.classes
    return options
