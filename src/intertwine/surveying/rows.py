"""A JSON file with a list of records that several processes add to, each under a lock to what is there."""

from __future__ import annotations

import json
import os
import types
import typing
from collections.abc import Iterable
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, Generic, TypeVar

from intertwine.errors import InputError
from intertwine.files import clear_lock, locked, read_json, write_bytes

T = TypeVar("T")


class Kept(Generic[T]):
    """The records of a file by the field `key`: `read` looks again, `add` adds."""

    def __init__(
        self, path: str | Path, kind: type[T], what: str, key: str, indent: int | None = None
    ) -> None:
        self.path, self.kind, self.what, self.key, self.indent = Path(path), kind, what, key, indent
        self.items: dict[str, T] = {}
        real = Path(os.path.realpath(path))
        self.lock = real.with_name(f".{real.name[:200]}.lock")
        clear_lock(self.lock, f"writes {path}")
        self.read()

    def read(self) -> None:
        """What is in the file now, in addition to what was."""
        self.items |= {getattr(item, self.key): item for item in read_items(self.path, self.kind, self.what)}

    def add(self, items: Iterable[T]) -> None:
        """Add records, or replace those of the same key; what others have added meanwhile stays."""
        with locked(self.lock, f"writes {self.path}"):
            self.read()
            self.items |= {getattr(item, self.key): item for item in items}
            rows = [asdict(self.items[name]) for name in sorted(self.items)]  # type: ignore[call-overload]
            write_bytes(self.path, (json.dumps(rows, indent=self.indent) + "\n").encode())


def read_items(path: Path, kind: type[T], what: str) -> list[T]:
    """The records of a file, none where there is no file; InputError says which field is wrong."""
    try:
        found = read_json(path)
        if not isinstance(found, list):
            raise ValueError("it is not a list")
        return [_record(kind, row) for row in found]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not a {what}: {error}", do="name another file with -o") from error


def _record(kind: type[T], row: Any) -> T:
    if not isinstance(row, dict):
        raise ValueError(f"{str(row)[:40]!r} is not a record")
    hints, known = typing.get_type_hints(kind), {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    for name, value in row.items():
        if name not in known or not _fits(value, hints[name]):
            raise ValueError(f"{name!r} is {str(value)[:40]!r}")
    for name, field in known.items():
        if name not in row and field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"a record lacks {name!r}")
    tuples = {name: tuple(row[name]) for name in row if typing.get_origin(hints[name]) is tuple}
    return kind(**{**row, **tuples})


def _fits(value: Any, hint: Any) -> bool:
    """Whether a JSON value fits a field: str, int, float, X | None, dict[str, X], tuple[X, ...]."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        return any(_fits(value, each) for each in inner)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(each, inner[1]) for each in value.values())
    if origin is tuple:
        return isinstance(value, list) and all(_fits(each, inner[0]) for each in value)
    if hint is float:
        return type(value) in (int, float)
    return type(value) is hint
