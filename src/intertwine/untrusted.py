"""A folder of Hugging Face that somebody else filled: what is looked at before transformers reads it.

No pipes or devices (reading them never ends), no weights outside the folder, no code unless it is allowed,
and no config that describes a model beyond what the weights beside it could fill.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from intertwine.errors import DataError, InputError, ModelError
from intertwine.reading import assert_plain_folder, parsing, read_text
from intertwine.text import quoted

CONFIG = "config.json"
MOST_CLASSES = 1_000_000  # transformers keeps a name for each
MOST_LAYERS = 10_000  # and a list with an entry for each layer
_MOST = {
    "num_labels": MOST_CLASSES,
    **dict.fromkeys(
        ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers",
         "num_decoder_layers"),
        MOST_LAYERS,
    ),
}  # fmt: skip
_WEIGHTS = (".safetensors", ".bin")
_INDEX = ".index.json"
_TOKENIZER = "tokenizer.json"
_GROWTH = 256  # characters
_PER_BYTE, _SLACK = 8, 1_000_000  # weights for each byte of their files: quantised ones hold 2


def assert_plain(folder: Path) -> None:
    """Everything in the folder is a file or a folder, and indices of weights name files of it."""
    assert_plain_folder(folder, ModelError)
    for index in sorted(folder.glob(f"*{_INDEX}")):
        _assert_inside(folder, index)


def _assert_inside(folder: Path, index: Path) -> None:
    found = read_json_file(index)
    shards = found.get("weight_map") if isinstance(found, dict) else None
    if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
        raise ModelError(f"{index} is no index of weights: it has no weight_map of names")
    for name in sorted(set(shards.values())):
        if os.path.basename(name) != name or not name.endswith(_WEIGHTS) or not (folder / name).is_file():
            raise ModelError(
                f"{index.name} names {quoted(name)}, which is no file of weights in its folder",
                where=str(folder.absolute()),
                so="nothing was loaded",
            )


def read_json_file(path: Path) -> Any:
    """The document of a JSON file of a folder, with an error of ours."""
    with parsing(path, ModelError):
        return json.loads(read_text(path, path.name, ModelError))


def assert_config(config: Any, place: str, *, run_code: bool) -> None:
    """A config that names no code of others, unless that is allowed, no millions of classes or layers."""
    if not isinstance(config, dict):
        raise ModelError(f"{CONFIG} of {place} is no JSON object")
    for name, value in _fields(config):
        is_kernel = name.endswith("_implementation") and isinstance(value, str) and "/" in value
        if not run_code and value and (name == "auto_map" or is_kernel):
            listed = value.values() if isinstance(value, dict) else [value]
            raise InputError(
                f"{place} brings its own Python code ({', '.join(sorted(map(str, listed)))[:200]})",
                so="nothing was run",
                do="if you trust it, give --run-code",
            )
        most = _MOST.get(name)
        if most is not None and isinstance(value, int | float) and not 0 <= value <= most:
            raise ModelError(f"{place} asks for {name} {value:,}, and {most:,} is the most")


def assert_tokenizer(folder: Path) -> None:
    """A folder of a tokenizer: plain, and with a config, if there is one, that can be read with it."""
    assert_plain_folder(folder, ModelError)
    if (folder / _TOKENIZER).is_file():
        assert_tokenizer_file(folder / _TOKENIZER)
    if (folder / CONFIG).is_file():
        assert_config(read_json_file(folder / CONFIG), str(folder), run_code=True)  # it is never run


def assert_tokenizer_file(path: Path) -> None:
    """A tokenizer.json that makes a few characters of one at most: without memory, Rust ends the process."""
    found = json.loads(path.read_bytes())
    grown = 1
    for name, value in _fields({"": found.get("normalizer") if isinstance(found, dict) else None}):
        if name in ("content", "prepend") and isinstance(value, str):
            grown *= max(1, len(value))
        elif name == "Regex":  # it may match nothing, which stands between all characters
            grown *= 2
    if grown > _GROWTH:
        raise DataError(
            f"the tokenizer {path} may make {grown:,} characters of one, and {_GROWTH} is the most",
            do="look at its normalizer",
        )


def _fields(config: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every field of a config and of those inside it."""
    waiting: list[Any] = [config]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            yield from ((str(name), value) for name, value in each.items())
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each


class WeightsOf:
    """What the files of a folder could fill: called with a number of weights, it raises if that is more."""

    def __init__(self, folder: Path) -> None:
        files = [path for path in folder.iterdir() if path.suffix in _WEIGHTS and path.is_file()]
        self.folder, self.size = folder, sum(path.stat().st_size for path in files)

    def __call__(self, numbers: int) -> None:
        if numbers > _PER_BYTE * self.size + _SLACK:
            raise ModelError(
                f"{CONFIG} describes a model of {numbers:,} weights and more, "
                f"but the files of weights beside it have {self.size / 1e6:,.1f} MB",
                where=str(self.folder.absolute()),
                so="nothing was loaded",
            )
