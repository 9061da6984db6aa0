"""One file a result: tensors in safetensors, the rest as JSON in its header. Written beside, then renamed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from intertwine.errors import InputError
from intertwine.files import write_tensors
from intertwine.reading import read_safetensors

_FORMAT = "intertwine.explore/1"


def write_result(
    path: str | Path, kind: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]
) -> Path:
    """Save `tensors` and `facts` as a result of the given kind; an existing file is replaced whole."""
    assert_ours(Path(path))
    header = {"format": _FORMAT, "kind": kind, "facts": json.dumps(dict(facts), sort_keys=True)}
    return write_tensors(path, tensors, header, parents=True)


def assert_ours(path: Path) -> None:
    """InputError if there is a file that is no result: its name was not chosen by the user."""
    if not path.is_file():
        return
    try:
        ours = read_safetensors(path, "result of explore", header_only=True)[0].get("format") == _FORMAT
    except InputError:
        ours = False
    if not ours:
        raise InputError(
            f"{path} is there and is no result of explore", so="it was not changed", do="choose another place"
        )


def read_result(path: str | Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and facts of a file that `write_result` wrote for the same kind."""
    header, tensors = read_safetensors(path, "result of explore")
    if header.get("format") != _FORMAT or header.get("kind") != kind:
        found = header.get("kind", "something else")
        raise InputError(f"{Path(path).name} holds {found!r}, not {kind!r}")
    try:
        facts = json.loads(header["facts"])
    except (KeyError, ValueError, RecursionError) as error:
        raise InputError(f"{Path(path).name} lacks its facts, or they are not JSON") from error
    if not isinstance(facts, dict):
        raise InputError(f"{Path(path).name} lacks its facts")
    return tensors, facts
