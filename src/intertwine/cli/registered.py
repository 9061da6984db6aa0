"""What the registries hold, read from a file beside this one: `--help` and completion must not import torch.

    python -m intertwine.cli.registered     writes registered.json again

A test says when it is time: after a method, a measure or a class of stitches was added. What is run is
always looked up in the registries themselves, and so is help where they are loaded already: somebody may have
added to them.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_suffix(".json")


_LOADED = ("intertwine.zoo", "intertwine.merging", "intertwine.comparing", "intertwine.stitching")


def registered() -> dict[str, Any]:
    """methods, parameters and repairs of merge; measures of compare; stitches; help on MODEL and DATA.

    >>> "cka" in registered()["measures"], next(iter(registered()["methods"]))
    (True, 'moments')
    """
    return read_registries() if all(name in sys.modules for name in _LOADED) else read_file()


@cache
def read_file() -> dict[str, Any]:
    """What the registries held when the file was written."""
    found: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return found


def read_registries() -> dict[str, Any]:
    """The same from the registries (this imports torch)."""
    from intertwine.comparing import MEASURES
    from intertwine.data.sources import data_help
    from intertwine.merging import METHODS
    from intertwine.merging.decide import REPAIRS
    from intertwine.merging.registry import all_parameters
    from intertwine.stitching import STITCH_CLASSES
    from intertwine.zoo.sources import model_forms, model_help

    return {
        "methods": {each.name: each.help for each in METHODS.values()},
        "parameters": {
            name: [method, list(each.choices), each.help] for name, (each, method) in all_parameters().items()
        },
        "repairs": list(REPAIRS),
        "measures": list(MEASURES),
        "model_forms": model_forms(),
        "model_help": model_help(),
        "data_help": data_help(),
        "stitches": {each.usage: each.help for each in STITCH_CLASSES.values()},
    }


if __name__ == "__main__":
    _FILE.write_text(json.dumps(read_registries(), indent=2) + "\n", encoding="utf-8")
