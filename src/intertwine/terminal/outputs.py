"""What a command writes: never over what the same command reads, and known to be possible before the work.

OUTPUTS says which arguments of which verb are written to, BESIDE what else is written because of them. Every
other text argument may name an input, as it is or with something before or behind it (parquet:FILE,
FILE.py:factory, text:FILE[90%:], object=DIR+texture=FILE). What lies in a folder that is read is read.
"""

from __future__ import annotations

import argparse
import errno
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path

from intertwine.errors import InputError
from intertwine.files import assert_can_write
from intertwine.files.replace import reporting
from intertwine.terminal.mentions import is_ours, mentions


class Written(Enum):
    """What a command writes: a file, a folder that it adds to, a folder that it replaces as a whole."""

    FILE, FOLDER, REPLACED = range(3)


# (verb, argument) -> how it is written to; `out` of other verbs is a file
OUTPUTS = {
    ("align", "element"): Written.FILE,
    ("align", "page"): Written.FILE,
    ("combine", "out"): Written.REPLACED,
    ("combine", "page"): Written.FILE,
    ("coverage", "markdown"): Written.FILE,
    ("explore", "save"): Written.FOLDER,
    ("merge", "out"): Written.REPLACED,
    ("merge", "page"): Written.FILE,
    ("merge", "plan"): Written.FILE,
    ("coverage", "page"): Written.FILE,
    ("reproduce", "out"): Written.FOLDER,
    ("sweep", "out"): Written.FOLDER,
    ("sweep", "page"): Written.FILE,
    ("train", "page"): Written.FILE,
    ("train", "out"): Written.FOLDER,
    ("zoo", "out"): Written.FOLDER,
    ("agents", "zoo_out"): Written.FOLDER,
}
WEIGHTS = {("combine", "out")}  # which may be a model's folder, or the file of its weights alone
_EXPORTED = {"torch": ".pt2", "onnx": ".onnx"}


def _beside_explore(args: argparse.Namespace) -> Iterator[tuple[str, Written]]:
    yield from _ending_otherwise(args.out, ".best.safetensors")


def _beside_coverage(args: argparse.Namespace) -> Iterator[tuple[str, Written]]:
    if args.dedupe or args.each_module:
        yield from _ending_otherwise(args.out, ".catalogue.json")


def _ending_otherwise(out: str, suffix: str) -> Iterator[tuple[str, Written]]:
    """The name of an output with another ending; a path without a name is refused as the output itself."""
    if Path(out).name:
        yield str(Path(out).with_suffix(suffix)), Written.FILE


def _beside_merge(args: argparse.Namespace) -> Iterator[tuple[str, Written]]:
    if args.out and args.export:
        yield f"{args.out}{_EXPORTED[args.export]}", Written.FILE
    if args.out and args.finetune is not None:  # the run's own: nothing else is read or written in it
        yield f"{args.out}.run", Written.REPLACED


# verb -> what it writes beside its outputs, without being told the names
BESIDE: dict[str, Callable[[argparse.Namespace], Iterator[tuple[str, Written]]]] = {
    "coverage": _beside_coverage,
    "explore": _beside_explore,
    "merge": _beside_merge,
}
_NAMES = ("zoo", "timm", "diffusers", "shipped")
_MARKS = re.compile(r"[:=+@\[]")  # between a path and what else a MODEL, DATA or CONCEPTS says
_PATHS = ("weights", "weights_a", "weights_b", "base", "tokenizer", "text", "concepts", "zoo", "plane")
_MENTIONED = ""  # no argument's name: what is no path is a word
_LONGEST = 4096  # longer than any path
_MOST = 40  # marks that are looked at from either end
_PAGES = (".html",)  # never read: a page may lie in a folder of data, and be written again


def kind_of(verb: str, name: str, text: str = "") -> Written | None:
    """How an argument is written to; None for inputs and everything else.

    >>> kind_of("inspect", "out"), kind_of("inspect", "weights"), kind_of("combine", "out", "a.safetensors")
    (<Written.FILE: 0>, None, <Written.FILE: 0>)
    """
    kind = OUTPUTS.get((verb, name), Written.FILE if name == "out" else None)
    return Written.FILE if (verb, name) in WEIGHTS and text.endswith(".safetensors") else kind


def assert_outputs(args: argparse.Namespace) -> None:
    """Refuse outputs that are inputs, or each other, or cannot be written.

    >>> assert_outputs(argparse.Namespace(verb="align", out="w.pt", element="w.pt"))
    Traceback (most recent call last):
    ...
    intertwine.errors.InputError: w.pt would be written twice
      do   give each output its own name
    """
    outputs: list[tuple[str, Written]] = []
    inputs: list[str] = []  # paths
    for name, value in vars(args).items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str):
                kind = kind_of(args.verb, name, text)
                outputs.append((text, kind)) if kind is not None else inputs.extend(_paths(text, name))
    beside = BESIDE.get(args.verb)
    outputs += list(beside(args)) if beside else []
    if any(os.path.isfile(out) for out, _ in outputs if "\0" not in out):
        inputs += [each for path in inputs for text in mentions(path) for each in _paths(text, _MENTIONED)]
    for number, (out, kind) in enumerate(outputs):
        if not out or "\0" in out:
            raise InputError(f"{out!r} cannot be the name of a file", do="choose another name")
        for other, other_kind in outputs[:number]:
            if _is_same(out, other):
                raise InputError(f"{out} would be written twice", do="give each output its own name")
            if _replaces(out, kind, other) or _replaces(other, other_kind, out):
                raise InputError(f"{out} and {other} lie in each other", do="give each output its own place")
        for path in inputs:
            if os.path.exists(path) and _replaces(out, kind, path):
                raise InputError(
                    f"{out} is an input of this command ({path})",
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
    if there != path:  # /proc, say, can be written to as far as anybody can see
        with reporting(out):
            if path.is_symlink():
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            os.rmdir(tempfile.mkdtemp(dir=there))


def _replaces(out: str, kind: Written, path: str) -> bool:
    """Whether writing to `out` would take away what is at `path`, or in it."""
    there, here = Path(os.path.realpath(path)), Path(os.path.realpath(out))
    if kind is Written.REPLACED:
        return there.is_relative_to(here)
    if kind is Written.FOLDER or not here.is_file():
        return False
    inside = there.is_dir() and here.is_relative_to(there)
    return _is_same(path, out) or (inside and here.suffix not in _PAGES)


def _paths(text: str, name: str) -> Iterator[str]:
    """The paths that an argument may stand for: all that lies between two marks of it."""
    kind, colon, _ = text.partition(":")
    if "\0" in text or len(text) > _LONGEST or (colon and kind in _NAMES):
        return  # the name of a model that a package knows
    is_word = name not in _PATHS and not any(mark in text for mark in (".", os.sep, ":"))
    if is_word and not is_ours(text):
        return  # it may by chance be a folder's name too
    starts = [0, *(found.end() for found in _MARKS.finditer(text))]
    ends = [*(found.start() for found in _MARKS.finditer(text)), len(text)]
    for start in starts[:_MOST]:
        yield from (os.path.expanduser(text[start:end]) for end in ends[-_MOST:] if end > start)


def _is_same(a: str, b: str) -> bool:
    try:
        return os.path.samefile(a, b)
    except (OSError, ValueError):
        return os.path.realpath(a) == os.path.realpath(b)
