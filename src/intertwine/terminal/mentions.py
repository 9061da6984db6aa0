"""What a file that is read names is read too: recipes of sweeps, factories of merged models, weights."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from intertwine.errors import InputError
from intertwine.files import read_json
from intertwine.reading import read_text

_RECIPE = "recipe.json"
_MOST = 10_000  # texts of one file


def mentions(path: str) -> list[str]:
    """The texts in a file, or in a folder of ours, that may stand for other files, as on a command line.

    Nothing of what cannot be read: who reads it in earnest is told why.

    >>> mentions("no/such/file.yml")
    []
    """
    found: list[str] = []
    with suppress(OSError, ValueError, InputError, RecursionError):
        if path.endswith(".onnx"):
            from intertwine.zoo.onnx_file import stored_beside

            return stored_beside(path)
        if path.endswith((".yml", ".yaml")):
            found = _texts_of_yaml(path)
        elif is_ours(path):
            found = list(_texts(read_json(os.path.join(path, _RECIPE))))
    return [*found, *(os.path.join(os.path.dirname(path) or ".", text) for text in found)]


def is_ours(path: str) -> bool:
    """Whether a path is a folder that `merge` or `combine` may have written."""
    return os.path.isfile(os.path.join(path, _RECIPE))


def _texts_of_yaml(path: str) -> list[str]:
    from intertwine.training.lines import read_yaml

    found: list[str] = []
    waiting, seen = [read_yaml(read_text(path), path).node], set[int]()
    while waiting and len(found) < _MOST:
        node = waiting.pop()
        if id(node) in seen:  # an alias may stand for a whole that holds it
            continue
        seen.add(id(node))
        if node.id == "scalar":
            found.append(str(node.value))
        else:
            waiting += [part for each in node.value for part in (each if node.id == "mapping" else [each])]
    return found


def _texts(document: Any) -> Iterator[str]:
    """The factories of a recipe and where they were."""
    named = document if isinstance(document, dict) else {}
    networks = named.get("networks")
    for text in (named.get("source"), named.get("file"), *(networks if isinstance(networks, list) else ())):
        if isinstance(text, str):
            yield text
