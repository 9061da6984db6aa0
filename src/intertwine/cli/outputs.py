"""What a command writes: never over what the same command reads, and known to be possible before the work.

OUTPUTS says which arguments of which verb are written to. Every other text argument may name an input, as it
is or after a prefix (parquet:FILE, FILE.py:factory).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

from intertwine.errors import InputError
from intertwine.files import assert_can_write


class Written(Enum):
    """What a command writes: a file, a folder that it adds to, a folder that it replaces as a whole."""

    FILE, FOLDER, REPLACED = range(3)


# (verb, argument) -> how it is written to; `out` of other verbs is a file
OUTPUTS = {
    ("align", "element"): Written.FILE,
    ("combine", "page"): Written.FILE,
    ("coverage", "markdown"): Written.FILE,
    ("explore", "save"): Written.FOLDER,
    ("merge", "out"): Written.REPLACED,
    ("merge", "page"): Written.FILE,
    ("merge", "plan"): Written.FILE,
    ("reproduce", "out"): Written.FOLDER,
    ("sweep", "out"): Written.FOLDER,
    ("train", "out"): Written.FOLDER,
    ("zoo", "out"): Written.FOLDER,
    ("agents", "zoo_out"): Written.FOLDER,
}
_NAMES = ("zoo", "timm", "hf", "diffusers", "shipped")


def kind_of(verb: str, name: str) -> Written | None:
    """How an argument is written to; None for inputs and everything else.

    >>> kind_of("inspect", "out"), kind_of("inspect", "weights")
    (<Written.FILE: 0>, None)
    """
    return OUTPUTS.get((verb, name), Written.FILE if name == "out" else None)


def assert_outputs(args: argparse.Namespace) -> None:
    """Refuse outputs that are inputs, or each other, or cannot be written.

    >>> assert_outputs(argparse.Namespace(verb="align", out="w.pt", element="w.pt"))
    Traceback (most recent call last):
    ...
    intertwine.errors.InputError: w.pt would be written twice
      do   give each output its own name
    """
    outputs: list[tuple[str, Written]] = []
    inputs: list[str] = []
    for name, value in vars(args).items():
        kind = kind_of(args.verb, name)
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str):
                outputs.append((text, kind)) if kind is not None else inputs.append(text)
    for number, (out, kind) in enumerate(outputs):
        if not out or "\0" in out:
            raise InputError(f"{out!r} cannot be the name of a file", do="choose another name")
        for other, other_kind in outputs[:number]:
            if _is_same(out, other):
                raise InputError(f"{out} would be written twice", do="give each output its own name")
            if _replaces(out, kind, other) or _replaces(other, other_kind, out):
                raise InputError(f"{out} and {other} lie in each other", do="give each output its own place")
        for text in inputs:
            if any(os.path.exists(path) and _replaces(out, kind, path) for path in _paths(text)):
                raise InputError(
                    f"{out} is an input of this command ({text})",
                    so="nothing was changed",
                    do="write to another place",
                )
        if kind is Written.FILE:
            assert_can_write(out, parents=False)
        else:
            _assert_folder(out)


def _assert_folder(out: str) -> None:
    """A folder that can be written to, or can be made."""
    path = Path(os.path.realpath(out))
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    if not there.is_dir():
        raise InputError(f"cannot write {out}: {there} is not a folder", do="choose another name")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"cannot write {out}: {there} may not be written to", do="choose another place")


def _replaces(out: str, kind: Written, path: str) -> bool:
    """Whether writing to `out` would take away what is at `path`."""
    if kind is Written.REPLACED:
        return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(out))
    return kind is Written.FILE and os.path.isfile(path) and _is_same(path, out)


def _paths(text: str) -> Iterator[str]:
    """The paths that an argument may stand for: parquet:FILE, torchvision:NAME:ROOT, FILE.py:factory."""
    kind, colon, _ = text.partition(":")
    if "\0" in text or (colon and kind in _NAMES) or not ("." in text or os.sep in text or colon):
        return  # the name of a model or of data that the package knows
    yield text
    parts = text.split(":")
    for cut in range(1, len(parts)):
        yield ":".join(parts[cut:])
        yield ":".join(parts[:cut])


def _is_same(a: str, b: str) -> bool:
    try:
        return os.path.samefile(a, b)
    except (OSError, ValueError):
        return os.path.realpath(a) == os.path.realpath(b)
