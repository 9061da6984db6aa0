"""What a command writes: never over what the same command reads, and known to be possible before the work.

An argument of type `output_file` or `output_folder` says that the command writes there. Every other text
argument may name an input, as it is or after a prefix (parquet:FILE, FILE.py:factory).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

from intertwine.errors import InputError
from intertwine.files import assert_can_write

_NAMES = ("zoo", "timm", "hf", "diffusers", "shipped")


class OutputFile(str):
    """A path that the command writes a file to."""


class OutputFolder(str):
    """A folder that the command adds to."""


class ReplacedFolder(OutputFolder):
    """A folder that the command replaces as a whole."""


def output_file(text: str) -> OutputFile:
    return OutputFile(_checked(text))


def output_folder(text: str) -> OutputFolder:
    return OutputFolder(_checked(text))


def replaced_folder(text: str) -> ReplacedFolder:
    return ReplacedFolder(_checked(text))


def _checked(text: str) -> str:
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be the name of a file")
    return text


def assert_outputs(args: argparse.Namespace) -> None:
    """Refuse outputs that are inputs, or each other, or cannot be written.

    >>> assert_outputs(argparse.Namespace(out=OutputFile("w.pt"), page=OutputFile("w.pt")))
    Traceback (most recent call last):
    ...
    intertwine.errors.InputError: w.pt would be written twice
    """
    values = vars(args).values()
    given = [part for value in values for part in (value if isinstance(value, list) else [value])]
    outputs = [value for value in given if isinstance(value, (OutputFile, OutputFolder))]
    inputs = [value for value in given if type(value) is str]
    for number, out in enumerate(outputs):
        for other in outputs[:number]:
            if _is_same(out, other):
                raise InputError(f"{out} would be written twice", do="give each output its own name")
            if _replaces(out, other) or _replaces(other, out):
                raise InputError(f"{out} and {other} lie in each other", do="give each output its own place")
        for text in inputs:
            if any(_replaces(out, path) for path in _paths(text)):
                raise InputError(
                    f"{out} is an input of this command ({text})",
                    so="nothing was changed",
                    do="write to another place",
                )
        if isinstance(out, OutputFile):
            assert_can_write(out)


def _replaces(out: str, path: str) -> bool:
    """Whether writing to `out` would take away what is at `path`."""
    if isinstance(out, ReplacedFolder):
        return os.path.exists(path) and _is_inside(path, out)
    return isinstance(out, OutputFile) and os.path.isfile(path) and _is_same(path, out)


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


def _is_inside(path: str, folder: str) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
