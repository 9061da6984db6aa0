"""The `type` of every option: what is read is checked, and the message reaches the user.

tests/hostile makes bad values from what each of them parses.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from intertwine import numbers
from intertwine.errors import InputError
from intertwine.reading import user_path
from intertwine.text import quoted

T = TypeVar("T")

_LONGEST_NAME = 200  # bytes; file systems allow 255, and temporary names beside the file are longer


@dataclass(frozen=True)
class Checked(Generic[T]):
    """An argparse type whose own message reaches the user; argparse hides that of a ValueError.

    Every option that takes a value has one, so that `parse` says what kind of value it is.
    """

    parse: Callable[[str], T]

    def __call__(self, text: str) -> T:
        try:
            return self.parse(text)
        except InputError as error:
            raise argparse.ArgumentTypeError(error.what + (f" ({error.do})" if error.do else "")) from error


def _shape(text: str) -> str:
    from intertwine.zoo.sources import parse_input

    parse_input(text)
    return text


def _normalize(text: str) -> str:
    from intertwine.data.normalize import parse_normalize

    parse_normalize(text)
    return text


def _spec(text: str) -> str:
    """A MODEL or DATA string: what it names is looked at when it is loaded."""
    user_path(text)
    return text


def read_path(text: str) -> str:
    """A path to read from."""
    return str(user_path(text))


def write_path(text: str) -> str:
    """A path to write to; its folder is looked at when it is written."""
    if len(os.fsencode(os.path.basename(text))) > _LONGEST_NAME:
        raise InputError(f"{quoted(text)} is longer than a file's name may be")
    return str(user_path(text))


def text(value: str) -> str:
    """Any text: a name or a pattern that the verb looks up."""
    return value


def _pattern_share(text: str) -> tuple[str, float]:
    """PATTERN=SHARE."""
    pattern, _, share = text.rpartition("=")
    if not pattern:
        raise InputError(f"{quoted(text)} is not PATTERN=SHARE", do="write 'mlp.*=0.5'")
    return pattern, numbers.below_one(share)


input_shape = Checked(_shape)
normalization = Checked(_normalize)
model_spec = Checked(_spec)
data_spec = Checked(_spec)
input_path = Checked(read_path)
tokenizer_path = Checked(read_path)  # a file or a folder, read only where there is text
output_path = Checked(write_path)
any_text = Checked(text)
positive_int = Checked(numbers.count)
any_seed = Checked(numbers.seed)
side = Checked(numbers.pixels)
processes = Checked(numbers.processes)
positive_float = Checked(numbers.positive)
nonnegative_float = Checked(numbers.nonnegative)
fraction = Checked(numbers.fraction)
fractions = Checked(numbers.Several(numbers.fraction))
share = Checked(numbers.share)
pattern_share = Checked(_pattern_share)
momentum = Checked(numbers.below_one)
seconds = Checked(numbers.seconds)
memory = Checked(numbers.memory)


def most(high: int, low: int = 1) -> Checked[int]:
    """Whole numbers up to `high`: repetitions that would never end are a slip of the finger."""
    return Checked(numbers.Whole(low, high))
