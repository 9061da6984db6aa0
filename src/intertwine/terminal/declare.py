"""Declare a verb and its options, a line each. Examples and longer help are text: cli/help/VERB.txt."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from intertwine.terminal import types
from intertwine.terminal.registered import with_registered

Subparsers = argparse._SubParsersAction  # of the whole parser, or of a verb with commands of its own
Options = argparse._ActionsContainer  # a parser, or a group of its options
_HELP = Path(__file__).parents[1] / "cli" / "help"


def verb(
    subparsers: Subparsers[Any],
    name: str,
    run: Callable[[argparse.Namespace], int | None],
    help: str,
    description: str | None = None,
    *,
    more: str = "",
    text: str | None = None,
    **defaults: Any,
) -> argparse.ArgumentParser:
    """A verb's parser. more: help behind that of its file; text: the file's name; defaults: of options."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name,
        help=help,
        description=description,
        epilog=with_registered("\n".join(filter(None, [help_text(text or name), more]))),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run, **defaults)
    return parser


def several(subparsers: Subparsers[Any], name: str, help: str) -> Subparsers[Any]:
    """A verb of several commands: what `verb` adds them to."""
    form = argparse.RawDescriptionHelpFormatter
    parser = subparsers.add_parser(
        name, help=help, epilog=with_registered(help_text(name)), formatter_class=form
    )
    commands: Subparsers[Any] = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    return commands


def help_text(name: str) -> str:
    """What stands below the options of a verb.

    >>> help_text("merge").splitlines()[0]
    'examples:'
    """
    return (_HELP / f"{name}.txt").read_text(encoding="utf-8")


def value(
    options: Options, name: str, type: types.Checked[Any], metavar: str, help: str, **more: Any
) -> None:
    """An option with a value, or (without a dash) an argument."""
    options.add_argument(name, type=type, metavar=metavar, help=help, **more)


def choice(options: Options, name: str, choices: Sequence[str], help: str, **more: Any) -> None:
    """An option with one of a few values."""
    options.add_argument(name, choices=choices, help=help, **more)


def flag(options: Options, name: str, help: str, **more: Any) -> None:
    """An option that is given or not."""
    options.add_argument(name, action="store_true", help=help, **more)


def either(options: Options, name: str, help: str) -> None:
    """An option that is given, forbidden (--no-...) or left open."""
    options.add_argument(name, action=argparse.BooleanOptionalAction, default=None, help=help)


def out(options: Options, metavar: str, help: str, **more: Any) -> None:
    """-o: what is written."""
    options.add_argument("-o", "--out", type=types.output_path, metavar=metavar, help=help, **more)


def json(options: Options, help: str = "print the numbers as JSON") -> None:
    """--json: for machines."""
    options.add_argument("--json", action="store_true", help=help)
