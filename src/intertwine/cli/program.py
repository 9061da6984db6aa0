"""Dispatch to the verbs, and turn whatever ends one into a message and an exit code."""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import shlex
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NoReturn

import intertwine.cli as verbs
from intertwine.cli.output import NORMAL, QUIET, VERBOSE, note, volume
from intertwine.cli.outputs import assert_outputs
from intertwine.cli.streams import guarded_streams, only_json
from intertwine.errors import InputError, IntertwineError, ModelError
from intertwine.interrupts import Terminated, raising_terminated
from intertwine.pages.page import made_by
from intertwine.text import first_line, shown

OUR_BUG = 70  # EX_SOFTWARE of sysexits.h
INTERRUPTED, TERMINATED = 130, 143

_EVERYWHERE = {
    ("-q", "--quiet"): "no progress and no notes on stderr, only errors",
    ("-v", "--verbose"): "more on stderr: what is logged, and how long it took",
    ("--debug",): "show the traceback of an error",
}
_EPILOG = """\
intertwine VERB --help shows examples.

exit codes: 0 fine, 1 a verification or a task failed, 2 bad usage or bad input, 3 unsupported,
  70 a bug of intertwine (--debug shows where), 130 interrupted, 143 terminated
"""


# Options that had another name once. One vocabulary: docs/architecture.md lists it.
RENAMED = {
    "--output": "--out",
    "--lr": "--learning-rate",
    "--kind": "--kinds",
    "--inputs": "--limit",
    "--calibrate": "--train-limit",
    "--limit": "--train-limit",  # where only the training data has one
    "--gigabytes": "--memory",
    "--test": "--data, and what is trained on --train-data",
}


class Parser(argparse.ArgumentParser):
    """argparse's, with messages that are safe to show and that know the old names of options."""

    _given: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._given = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        for word in dict.fromkeys(str(given).partition("=")[0] for given in self._given):
            if word in RENAMED and self._is_gone(word, message):
                message = f"{word} is now {RENAMED[word]}"
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: error: {_cut(shown(message))}\n")

    def _is_gone(self, word: str, message: str) -> bool:
        """Whether an old name is what is wrong: nobody knows it, or only the new one is known here."""
        new = RENAMED[word].partition(",")[0]
        known = self._option_string_actions
        return word not in known and (new in known or f"unrecognized arguments: {word}" in message)


class ShowVersion(argparse.Action):
    """--version: the distribution is asked when it is wanted, which takes longer than the whole parser."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        import intertwine

        print(f"intertwine {intertwine.__version__}")
        parser.exit()


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


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    with guarded_streams():
        try:
            with raising_terminated():
                return _run(argv)
        except Terminated:
            _say("terminated")
            return TERMINATED
        except KeyboardInterrupt:
            _say("interrupted")
            return INTERRUPTED


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
        start = time.monotonic()
        with ExitStack() as stack:
            stack.enter_context(volume(_volume_of(args)))
            words = sys.argv[1:] if argv is None else argv
            stack.enter_context(made_by(shlex.join(["intertwine", *words])))
            if getattr(args, "json", False):
                stack.enter_context(only_json())
            code = int(args.run(args) or 0)
            note(f"{args.verb}: {time.monotonic() - start:.1f} s, exit code {code}")
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if debug:
            _say(traceback.format_exc())
        return _report(error)


def _volume_of(args: argparse.Namespace) -> int:
    """-q and -v; who asks for both hears more."""
    if getattr(args, "verbose", False):
        return VERBOSE
    return QUIET if getattr(args, "quiet", False) else NORMAL


def _report(error: BaseException) -> int:
    """Say what ended the command; the exit code."""
    known = _as_ours(error)
    if known is not None:
        _say(f"{type(known).__name__}: {known}")
        return known.exit_code
    _say(
        f"{type(error).__name__}: {first_line(error)} [{_place(error)}]: this is a bug of intertwine; please "
        "report this line and the command (--debug shows the traceback)"
    )
    return OUR_BUG


def _as_ours(error: BaseException) -> IntertwineError | None:
    """What is not a bug, whoever raised it: our errors, code of others that exits, no memory, no disk."""
    if isinstance(error, IntertwineError):
        return error
    if isinstance(error, SystemExit):  # we never exit in the middle; a return code of 0 would be a lie
        return ModelError(f"the model's code ended the command: {first_line(error)}", do="remove sys.exit")
    if isinstance(error, MemoryError) or _is_out_of_memory(error):
        return InputError(
            f"the memory is not enough: {first_line(error)}", do="give less data, or smaller inputs"
        )
    if isinstance(error, OSError) and error.strerror:
        named = f"{error.filename}: " if error.filename else ""
        return InputError(f"{named}{error.strerror}")
    return None


def _is_out_of_memory(error: BaseException) -> bool:
    """torch has no class of its own for it on the CPU."""
    text = str(error) if isinstance(error, RuntimeError) else ""
    return "can't allocate memory" in text or "out of memory" in text


def _place(error: BaseException) -> str:
    """The last line of ours that the error passed through, as `merging/plan.py:88`."""
    ours = [f for f in _frames(error) if f"{os.sep}intertwine{os.sep}" in f.filename]
    last = ours[-1] if ours else next(iter(reversed(list(_frames(error)))), None)
    if last is None:
        return "?"
    return f"{last.filename.rpartition(f'{os.sep}intertwine{os.sep}')[2]}:{last.lineno}"


def _frames(error: BaseException) -> Iterator[traceback.FrameSummary]:
    yield from traceback.extract_tb(error.__traceback__)


def _say(text: str) -> None:
    print(shown(text), file=sys.stderr)


def _cut(text: str) -> str:
    return text if len(text) <= 2000 else text[:2000] + f"... ({len(text):,} characters)"
