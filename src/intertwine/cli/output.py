"""What verbs print and write: results on stdout, progress and logs on stderr, files all or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from intertwine.cells import format_cell
from intertwine.cli.streams import document
from intertwine.files import write_bytes
from intertwine.plain import to_json
from intertwine.text import shown


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    document().write(to_json(value))


def say(text: str) -> None:
    """A line of the result on stdout; names in it cannot move the cursor or change colours."""
    print(shown(text))


class _Log(Console):
    """A console whose lines are text: no markup, and escape sequences in names are shown as such."""

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(shown(o) if isinstance(o, str) else o for o in objects), **options)


def log() -> Console:
    """The console for everything that is not a result (stderr)."""
    return _Log(stderr=True)


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Sequence[str] = ()
) -> None:
    """A table on stdout; columns named in `right` are aligned right. Cells are text, never markup."""
    table = Table(title=escape(shown(title)), title_justify="left")
    for column in columns:
        table.add_column(
            escape(shown(column)), justify="right" if column in right else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(escape(shown(format_cell(cell))) for cell in row))
    Console().print(table)


@contextmanager
def progress(label: str, total: int | None = None) -> Iterator[Any]:
    """A bar on stderr; yields `advance(n=1)`. It vanishes when done and stays silent without a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = log()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(escape(shown(label)), total=total)

        def advance(count: int = 1) -> None:
            bar.advance(task, count)

        yield advance


def write_text(path: str | Path, text: str) -> Path:
    """The file is there whole, or as it was before."""
    return write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_json(path: str | Path, value: Any) -> Path:
    """`print_json`'s document in a file."""
    return write_text(path, to_json(value))
