"""Dispatch to the verbs, and turn our errors into a message and an exit code."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Sequence
from contextlib import nullcontext

from rich.console import Console

import intertwine.cli as verbs
from intertwine.cli.outputs import assert_outputs
from intertwine.cli.streams import guarded_streams, only_json
from intertwine.errors import IntertwineError

# Modules of this package that are shared helpers and not verbs.
_NOT_VERBS = {"main", "arguments", "output", "outputs", "streams"}


def build_parser() -> argparse.ArgumentParser:
    """The whole parser: one subparser a verb, in alphabetical order."""
    parser = argparse.ArgumentParser(
        prog="intertwine",
        description="Infer, prove and use the weight-space symmetries of any PyTorch model.",
        epilog="intertwine VERB --help shows examples.",
    )
    subparsers = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for info in pkgutil.iter_modules(verbs.__path__):
        if info.name not in _NOT_VERBS:
            importlib.import_module(f"intertwine.cli.{info.name}").add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    with guarded_streams():
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    log = Console(stderr=True)
    try:
        return _run(argv)
    except IntertwineError as error:
        log.print(f"{type(error).__name__}: {error}", markup=False, highlight=False, soft_wrap=True)
        return error.exit_code
    except KeyboardInterrupt:
        log.print("interrupted", markup=False)
        return 130


def _run(argv: Sequence[str] | None) -> int:
    try:
        args = build_parser().parse_args(argv)
    except SystemExit:  # --help
        sys.stdout.flush()
        raise
    assert_outputs(args)
    with only_json() if getattr(args, "json", False) else nullcontext():
        code = int(args.run(args) or 0)
    sys.stdout.flush()
    return code
