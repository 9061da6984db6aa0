"""What verbs print and write: results on stdout, progress and logs on stderr, files all or nothing.

rich is imported where something is printed: a help text needs none of it.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intertwine.cells import format_cell
from intertwine.files import write_bytes
from intertwine.plain import to_json
from intertwine.terminal.streams import document
from intertwine.text import shown

if TYPE_CHECKING:
    from rich.console import Console

QUIET, NORMAL, VERBOSE = -1, 0, 1
_volume = NORMAL
_FIRST_NOTE, _LAST_NOTE = 5.0, 60.0  # seconds between the lines of progress in a log: 5, 10, 20, 40, 60, 60


@contextmanager
def volume(level: int) -> Iterator[None]:
    """How much is said on stderr meanwhile: -q and -v. Errors are always said; -v shows what is logged."""
    global _volume
    before, _volume = _volume, level
    logger, handler = logging.getLogger("intertwine"), logging.StreamHandler(sys.stderr)
    at = logger.level
    if level >= VERBOSE:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        _volume = before
        logger.removeHandler(handler)
        logger.setLevel(at)


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    document().write(to_json(value))


def say(text: str) -> None:
    """A line of the result on stdout; names in it cannot move the cursor or change colours."""
    print(shown(text))


@cache
def _log_class() -> type[Console]:
    from rich.console import Console

    class Log(Console):
        """A console whose lines are text: no markup, and escape sequences in names are shown as such."""

        def print(self, *objects: Any, **options: Any) -> None:
            super().print(*(shown(o) if isinstance(o, str) else o for o in objects), **options)

    return Log


def log() -> Console:
    """The console for everything that is not a result (stderr)."""
    return _log_class()(stderr=True, quiet=_volume <= QUIET)


def note(text: str) -> None:
    """A line on stderr for those who asked for more (-v)."""
    if _volume >= VERBOSE:
        print(shown(text), file=sys.stderr)


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Sequence[str] = ()
) -> None:
    """A table on stdout; columns named in `right` are aligned right. Cells are text, never markup.

    No word is ever split: a pipe has no width, and a terminal too narrow for the longest words of all columns
    gets a block of lines for each row instead.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    heads = [shown(column) for column in columns]
    body = [[shown(format_cell(cell)) for cell in row] for row in rows]
    # a pipe has no width; rich pads nothing to it: a table is as wide as its cells
    width = console.size.width if console.is_terminal else 100_000
    cells = [[head, *(row[i] for row in body if i < len(row))] for i, head in enumerate(heads)]
    widths = _fit([_longest(each, str.split) for each in cells], [_longest(each, str.splitlines) for each in
                  cells], width - 3 * len(cells) - 1)  # fmt: skip
    if widths is None:
        _print_blocks(shown(title), heads, body)
        return
    table = Table(title=escape(shown(title)), title_justify="left")
    for head, column, wide in zip(heads, columns, widths, strict=True):
        table.add_column(escape(head), justify="right" if column in right else "left", width=wide)
    for row in body:
        table.add_row(*map(escape, row))
    Console(width=width).print(table)


def _longest(cells: Iterable[str], parts: Callable[[str], list[str]]) -> int:
    from rich.cells import cell_len

    return max((cell_len(part) for cell in cells for part in parts(cell)), default=0)


def _fit(least: Sequence[int], natural: Sequence[int], room: int) -> list[int] | None:
    """Widths from `least` (the longest word) to `natural` that sum to at most `room`, or None.

    >>> _fit([4, 8], [4, 80], 50), _fit([4, 8], [4, 80], 11)
    ([4, 46], None)
    """
    spare = room - sum(least)
    if spare < 0:
        return None
    widths = list(least)
    wanting = sorted(range(len(widths)), key=lambda i: natural[i] - least[i])
    for served, i in enumerate(wanting):  # those who want little first; what they leave goes to the others
        more = min(natural[i] - least[i], spare // (len(wanting) - served))
        widths[i] += more
        spare -= more
    return widths


def _print_blocks(title: str, heads: Sequence[str], body: Iterable[Sequence[str]]) -> None:
    wide = max(map(len, heads), default=0)
    print(title)
    for row in body:
        print()
        for head, cell in zip(heads, row, strict=False):
            print(f"{head:<{wide}}  {cell}" if cell else f"{head:<{wide}}  -")


def now_and_then(clock: Callable[[], float] = time.monotonic) -> Callable[[str], None]:
    """`say(text)` for what happens often: one line that changes on a terminal, else a line now and then.

    A log gets the first line after 5 seconds, and each wait is twice the last, up to a minute.
    """
    console = log()
    start = clock()
    due, wait = start + _FIRST_NOTE, _FIRST_NOTE

    def show(text: str) -> None:
        nonlocal due, wait
        if console.is_terminal:
            cut = shown(text)[: max(console.width - 1, 1)]
            console.print(f"{cut:<{console.width - 1}}", end="\r", markup=False, highlight=False)
        elif clock() >= due:
            console.print(f"{text} ({clock() - start:.0f} s)", markup=False, highlight=False, soft_wrap=True)
            wait = min(2 * wait, _LAST_NOTE)
            due = clock() + wait

    return show


def write_text(path: str | Path, text: str) -> Path:
    """The file is there whole, or as it was before."""
    return write_bytes(path, text.encode("utf-8", "backslashreplace"))
