"""The parser: messages that are safe to show, the old names of options, the version."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from intertwine.text import shown

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

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """argparse drops a value `--` (of `--seed=--`), and hands out a list of none."""
        if action.option_strings and "--" in arg_strings:
            raise argparse.ArgumentError(action, "'--' is no value")
        return super()._get_values(action, arg_strings)

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


def _cut(text: str) -> str:
    return text if len(text) <= 2000 else text[:2000] + f"... ({len(text):,} characters)"
