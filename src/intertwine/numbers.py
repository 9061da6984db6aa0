"""Numbers as people write them, on the command line and in files, each with the range that it must lie in.

A range is called with a text, or with a number that a file held, and returns the number or raises InputError:

>>> count("3"), fraction(0.5), seed("7")
(3, 0.5, 7)
>>> positive("nan")
Traceback (most recent call last):
intertwine.errors.InputError: 'nan' is not a number above 0
>>> fraction(2, "momentum")
Traceback (most recent call last):
intertwine.errors.InputError: momentum must be a number from 0 to 1, not 2

Neither NaN nor infinity is a number here, nor is what overflows to it (1e400).
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass

from intertwine.errors import InputError
from intertwine.text import quoted

LARGEST = 2**31 - 1  # fits every index and counter below us
GREATEST = 1e30  # of a rate, a scale, a tolerance: products with weights stay below float32's end
_BEYOND = 10**18
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_REAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True)
class _Range:
    """low <= x <= high; `above` and `below` leave out the ends."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    below: bool = False

    @property
    def words(self) -> str:
        """What is allowed, as it stands after "is not"."""
        if self.low == -math.inf:
            return f"{self._noun}" if self.high == math.inf else f"{self._noun} of at most {self.high:,g}"
        if self.high in (math.inf, LARGEST, GREATEST):
            return f"{self._noun} {'above' if self.above else 'of at least'} {self.low:,g}"
        edge = f" ({'above' if self.above else 'below'} {self.low if self.above else self.high:g})"
        return f"{self._noun} from {self.low:,g} to {self.high:,.10g}" + edge * (self.above or self.below)

    @property
    def _noun(self) -> str:
        return "a number"

    def holds(self, number: float) -> bool:
        """Whether a number lies in the range; NaN lies in none."""
        low = number > self.low if self.above else number >= self.low
        high = number < self.high if self.below else number <= self.high
        return low and high and math.isfinite(number)

    def _refuse(self, value: object, name: str, number: float | None) -> InputError:
        words = self.words
        if number is not None and number > self.high in (LARGEST, GREATEST):  # which `words` leaves out
            words = f"{self._noun} of at most {self.high:,.10g}"
        if name:
            return InputError(f"{name} must be {words}, not {quoted(value)}")
        return InputError(f"{quoted(value)} is not {words}")


@dataclass(frozen=True)
class Real(_Range):
    """A finite number in a range."""

    def __call__(self, value: object, name: str = "") -> float:
        number: float | None = None
        if isinstance(value, str) and len(value) < 400 and _REAL.fullmatch(value.strip()):
            number = float(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            number = float(value) if abs(value) < 1e308 else math.inf
        if number is None or not self.holds(number):
            raise self._refuse(value, name, number)
        return number


@dataclass(frozen=True)
class Whole(_Range):
    """A whole number in a range."""

    high: float = LARGEST

    @property
    def _noun(self) -> str:
        return "a whole number"

    def __call__(self, value: object, name: str = "") -> int:
        number: int | None = None
        if isinstance(value, str):
            digits = value.strip()
            if _WHOLE.fullmatch(digits):
                # beyond 18 digits all numbers are alike: none of them lies in a range
                number = int(digits) if len(digits) <= 19 else _BEYOND
        elif isinstance(value, int) and not isinstance(value, bool):
            number = value if abs(value) < _BEYOND else _BEYOND
        if number is None or not self.holds(number):
            raise self._refuse(value, name, number)
        return number


@dataclass(frozen=True)
class Several:
    """Numbers of one range, separated by commas.

    >>> Several(fraction)("0.1,0.25")
    (0.1, 0.25)
    """

    each: Real

    def __call__(self, text: str) -> tuple[float, ...]:
        return tuple(self.each(part) for part in text.split(","))


finite = Real()
positive = Real(0, GREATEST, above=True)
nonnegative = Real(0, GREATEST)
fraction = Real(0, 1)
share = Real(0, 1, above=True)
below_one = Real(0, 1, below=True)  # momentum, or when in a run something starts
seconds = Real(0, 1e9, above=True)
count = Whole(1)
whole = Whole(0)
seed = Whole(0, 2**32 - 1)  # what every generator below us takes
pixels = Whole(1, 8192)  # the side of an image
processes = Whole(1, max(64, 4 * (os.cpu_count() or 1)))  # more would only be in each other's way


_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_MEMORY = re.compile(r"(\d+\.?\d*|\.\d+)\s*([KMGT]?B)", re.ASCII | re.IGNORECASE)


def memory(text: str) -> int:
    """Bytes with their unit, at least 1.

    >>> memory("2GB"), memory("512 MB")
    (2000000000, 512000000)
    """
    found = _MEMORY.fullmatch(str(text).strip())
    size = float(found[1]) * _UNITS[found[2].upper()] if found else 0.0
    if not 1 <= size <= 10**15:
        raise InputError(f"{quoted(str(text))} is no size of memory", do="write it as 512MB or 2GB")
    return int(size)
