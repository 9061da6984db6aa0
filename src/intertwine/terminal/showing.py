"""What every verb does with its result: one JSON document, or tables and remarks; the page if asked for."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from intertwine.progress import Progress
from intertwine.results import Result
from intertwine.terminal.output import log, now_and_then, print_json, print_table, say
from intertwine.text import shown

_NUMBERS = (".json", ".npz")


def show(
    args: argparse.Namespace, result: Result, facts: Mapping[str, Any] | None = None, *, tables: bool = True
) -> None:
    """Print a result; facts: what the command line knows beside it. tables=False: the remarks alone."""
    if args.json:
        print_json({**(facts or {}), **result.to_dict()})
        return
    for table in result.tables() if tables else ():
        print_table(table.title, table.columns, table.rows, right=table.right)
    for line in result.remarks():
        say(line)


def write_and_show(
    args: argparse.Namespace, result: Result, facts: Mapping[str, Any], **options: Any
) -> None:
    """Write to --out, if it is given, the page, or the numbers that its ending asks for; and print."""
    if args.out:
        if Path(args.out).suffix in _NUMBERS:
            result.save(args.out)
        else:
            result.page(facts=facts, **options).write(args.out)
    show(args, result, {**facts, "page": args.out})
    if args.out and not args.json:
        say(f"wrote {args.out}")


def write_page(args: argparse.Namespace, result: Result, facts: Mapping[str, Any]) -> None:
    """Write the page to --page, if it is given."""
    if args.page:
        result.page(facts=facts).write(args.page)
        if not args.json:
            say(f"wrote {args.page}")


def parts(text: str) -> list[str]:
    """What stands between commas.

    >>> parts("a, b,")
    ['a', 'b']
    """
    return [part.strip() for part in text.split(",") if part.strip()]


@contextmanager
def bar() -> Iterator[Progress]:
    """The progress of a verb as one bar on stderr that says what is done now; else a line now and then."""
    console = log()
    if not console.is_terminal:
        said = now_and_then()
        yield lambda done, total, what: said(f"{what}: {done:,}" + (f" of {total:,}" if total else ""))
        return
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=console, transient=True, disable=console.quiet) as drawn:
        task = drawn.add_task("", total=None)

        def update(done: int, total: int, what: str) -> None:
            drawn.update(task, description=escape(shown(what)), completed=done, total=total or None)

        yield update
