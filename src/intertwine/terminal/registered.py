"""What the registries hold, read from a file beside this one: `--help` and completion must not import torch.

    python -m intertwine.terminal.registered     writes registered.json again

A test says when it is time: after a method, a measure or a class of stitches was added. What is run is
always looked up in the registries themselves, and so is help where they are loaded already: somebody may have
added to them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_suffix(".json")


def registered() -> dict[str, Any]:
    """methods, parameters and repairs of merge; measures of compare; stitches; help on MODEL and DATA.

    >>> "cka" in registered()["measures"], next(iter(registered()["methods"]))
    (True, 'moments')
    """
    live = [read() for package, read in _REGISTRIES.items() if package in sys.modules]
    return {**read_file(), **{name: value for found in live for name, value in found.items()}}


def with_registered(text: str | None) -> str:
    """A help text with the models and the data sets that are known in place of {models} and {data}."""
    found = registered()
    return (text or "").replace("{models}", found["model_help"]).replace("{data}", found["data_help"])


@cache
def read_file() -> dict[str, Any]:
    """What the registries held when the file was written."""
    found: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return found


def read_registries() -> dict[str, Any]:
    """The same from the registries (this imports torch)."""
    return {name: value for read in _REGISTRIES.values() for name, value in read().items()}


def _merging() -> dict[str, Any]:
    from intertwine.merging import METHODS
    from intertwine.merging.decide import REPAIRS
    from intertwine.merging.registry import all_parameters

    return {
        "methods": {each.name: each.help for each in METHODS.values()},
        "parameters": {
            name: [method, list(each.choices), each.help] for name, (each, method) in all_parameters().items()
        },
        "repairs": list(REPAIRS),
    }


def _comparing() -> dict[str, Any]:
    from intertwine.comparing import MEASURES

    return {"measures": list(MEASURES)}


def _stitching() -> dict[str, Any]:
    from intertwine.stitching import STITCH_CLASSES

    return {"stitches": {each.usage: each.help for each in STITCH_CLASSES.values()}}


def _data() -> dict[str, Any]:
    from intertwine.data.sources import data_help

    return {"data_help": data_help()}


def _zoo() -> dict[str, Any]:
    from intertwine.zoo.sources import model_forms, model_help

    return {"model_forms": model_forms(), "model_help": model_help()}


_REGISTRIES: dict[str, Callable[[], dict[str, Any]]] = {
    "intertwine.merging": _merging,
    "intertwine.comparing": _comparing,
    "intertwine.stitching": _stitching,
    "intertwine.data": _data,
    "intertwine.zoo": _zoo,
}


if __name__ == "__main__":
    _FILE.write_text(json.dumps(read_registries(), indent=2) + "\n", encoding="utf-8")
