"""The registry of DATA strings: `@data_source` adds what may stand before the colon.

Help texts, hints and error messages are made from it (`data/builtin.py` has the sources that come with us).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from intertwine.errors import DataError
from intertwine.text import quoted


@dataclass(frozen=True)
class Request:
    """What a user asks of a source beside its name; see `load_data`."""

    split: str = "test"
    limit: int | None = None
    size: int | None = None
    batch: int = 256
    tokenizer: str | None = None
    context: int | None = None
    objective: str | None = None


Read = Callable[[str, Request], Any]


@dataclass(frozen=True)
class DataSource:
    """One kind of DATA string: what follows its name, a line of help, and how it is read."""

    name: str
    form: str
    help: str
    read: Read

    @property
    def written(self) -> str:
        """How it is written: "digits", "npz:FILE", "fashion-mnist[:DIR]"."""
        return self.name + (self.form if self.form.startswith("[") or not self.form else f":{self.form}")

    def takes(self, rest: str, colon: bool) -> bool:
        """Whether what follows the name has the form."""
        if not self.form:
            return not colon
        if self.form.startswith("["):
            return True
        return bool(rest) and rest.count(":") >= self.form.count(":")


DATA_SOURCES: dict[str, DataSource] = {}


def data_source(name: str, *, form: str = "", help: str = "") -> Callable[[Read], Read]:
    """Register what `name:...` means. The function gets what follows the colon, and the `Request`.

    form: what follows, "FILE"; "" for nothing; "[:DIR]" for something that may be left out. It returns images
    and labels (`Raw`), image files not yet decoded (`Encoded`), or a data set of its own with `batches()`.

    >>> import numpy as np
    >>> from intertwine.data import load_data
    >>> from intertwine.data.dataset import Raw
    >>> @data_source("black", form="SIDE", help="two black images")
    ... def black(rest, request):
    ...     return Raw(np.zeros((2, 1, int(rest), int(rest)), np.uint8), np.array([0, 1]))
    >>> tuple(load_data("black:3").images.shape)
    (2, 1, 3, 3)
    >>> _ = DATA_SOURCES.pop("black")
    """

    def register(read: Read) -> Read:
        DATA_SOURCES[name] = DataSource(name, form, help, read)
        return read

    return register


def read_source(spec: str, request: Request) -> Any:
    """What the source of a DATA string returns."""
    name, colon, rest = spec.partition(":")
    source = DATA_SOURCES.get(name)
    if source is None or not source.takes(rest, bool(colon)):
        raise DataError(f"cannot read the data source {quoted(spec)}", do=f"write one of {data_forms()}")
    return source.read(rest, request)


def data_forms() -> str:
    """How DATA strings are written, in a line."""
    return ", ".join(source.written for source in DATA_SOURCES.values())


def data_help() -> str:
    """The registered sources, a line each."""
    return "DATA is one of\n" + "".join(f"  {s.written:<24} {s.help}\n" for s in DATA_SOURCES.values())
