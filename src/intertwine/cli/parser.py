"""One parser of all the verbs: each module of this package declares its own."""

from __future__ import annotations

import argparse
import importlib
import pkgutil

import intertwine.cli as verbs
from intertwine.terminal.parsing import Parser, ShowVersion

_EVERYWHERE = {
    ("-q", "--quiet"): "no progress and no notes on stderr, only errors",
    ("-v", "--verbose"): "more on stderr: what is logged, and how long it took",
    ("--debug",): "show the traceback of an error",
}
_EPILOG = """\
intertwine VERB --help shows examples.

exit codes: 0 fine, 1 a verification or a task failed, 2 bad usage or bad input, 3 unsupported,
  70 a bug of intertwine (--debug shows where), 130 interrupted, 143 terminated, 129 hung up
"""


def build_parser() -> argparse.ArgumentParser:
    """The whole parser: one subparser a verb, in alphabetical order. It imports nothing heavy."""
    parser = Parser(
        prog="intertwine",
        description="Infer, prove and use the weight-space symmetries of any PyTorch model.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subparsers = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for info in pkgutil.iter_modules(verbs.__path__):
        module = importlib.import_module(f"intertwine.cli.{info.name}")
        if hasattr(module, "add_parser"):  # the others are shared helpers
            module.add_parser(subparsers)
    parser.add_argument("--version", action=ShowVersion, nargs=0, help="show the version and stop")
    for each in [parser, *commands(parser).values()]:
        # SUPPRESS: the default of a subparser would overwrite what stands before the verb
        for flags, text in _EVERYWHERE.items():
            each.add_argument(*flags, action="store_true", default=argparse.SUPPRESS, help=text)
    return parser


def commands(parser: argparse.ArgumentParser, prefix: tuple[str, ...] = ()) -> dict[tuple[str, ...], Parser]:
    """Every command below a parser: its words, and its own parser.

    >>> ("zoo", "list") in commands(build_parser())
    True
    """
    found: dict[tuple[str, ...], Parser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                found |= commands(child, (*prefix, name)) or {(*prefix, name): child}
    return found
