"""Dispatch to the verbs, and turn whatever ends one into a message and an exit code."""

from __future__ import annotations

import argparse
import atexit
import os
import shlex
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import NoReturn

from intertwine.cli.parser import build_parser
from intertwine.errors import InputError
from intertwine.foreign import are_threads_left, is_signal
from intertwine.interrupts import HungUp, Terminated, raising_terminated
from intertwine.pages.page import made_by
from intertwine.terminal.failures import report, say_error
from intertwine.terminal.output import NORMAL, QUIET, VERBOSE, note, print_json, volume
from intertwine.terminal.outputs import assert_outputs
from intertwine.terminal.streams import failing_in_a_line, guarded_streams, only_json

HUNG_UP, INTERRUPTED, TERMINATED = 129, 130, 143


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    with guarded_streams(), failing_in_a_line():
        try:
            with raising_terminated():
                code = _run(argv)
                if argv is None and are_threads_left():  # they would keep the process, for ever perhaps
                    _leave(code)
                return code
        except Terminated as error:
            say_error("terminated")
            return HUNG_UP if isinstance(error, HungUp) else TERMINATED
        except KeyboardInterrupt:
            say_error("interrupted")
            return INTERRUPTED


def _leave(code: int) -> NoReturn:
    """End the process as Python would, but wait for no thread."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(InputError):
            stream.flush()
    os._exit(code)


def _seed_of(args: argparse.Namespace) -> int | None:
    seed = getattr(args, "seed", None)
    return seed if isinstance(seed, int) else None


def _run(argv: Sequence[str] | None) -> int:
    debug = False
    try:
        try:
            args = build_parser().parse_args(argv)
        except SystemExit as end:  # argparse has said what is wrong with the usage, or printed the help
            sys.stdout.flush()
            return int(end.code or 0)
        debug = getattr(args, "debug", False)
        assert_outputs(args)
        with ExitStack() as stack:
            stack.enter_context(volume(_volume_of(args)))
            words = sys.argv[1:] if argv is None else argv
            stack.enter_context(made_by(shlex.join(["intertwine", *words]), _seed_of(args)))
            if getattr(args, "json", False):
                stack.enter_context(only_json(for_good=argv is None))
            code = _run_verb(args, debug)
        sys.stdout.flush()
        return code
    except BaseException as error:
        return _reported(error, debug)


def _run_verb(args: argparse.Namespace, debug: bool) -> int:
    start = time.monotonic()
    try:
        code = int(args.run(args) or 0)
        note(f"{args.verb}: {time.monotonic() - start:.1f} s, exit code {code}")
    except BaseException as error:
        code = _reported(error, debug)
        if code == 1 and getattr(args, "json", False):  # a result, if not the one that was hoped for
            print_json({"error": str(error)})
    return code


def _reported(error: BaseException, debug: bool) -> int:
    """The exit code of what ended the command, which is told; signals are raised again."""
    if is_signal(error):
        raise error
    if debug:
        say_error(traceback.format_exc())
    return report(error)


def _volume_of(args: argparse.Namespace) -> int:
    """-q and -v; who asks for both hears more."""
    if getattr(args, "verbose", False):
        return VERBOSE
    return QUIET if getattr(args, "quiet", False) else NORMAL
