"""Which maps a stitch may be: the classes of appendix D.2 and D.6 of source 002, and any that are added.

A class says which group it ranges over at a layer, how its best member follows from second moments, and as
what it is trained. `rank:4` names a class with its number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from torch import Tensor

from intertwine import numbers
from intertwine.errors import InputError
from intertwine.ir.groups import Group
from intertwine.text import quoted

if TYPE_CHECKING:
    from intertwine.stitching.fit import Training
    from intertwine.stitching.maps import Map
    from intertwine.stitching.start import StitchMoments

Start = Callable[["StitchMoments", Group, float], Tensor]
F = TypeVar("F", bound=Start)


@dataclass(frozen=True)
class StitchClass:
    """One class of maps.

    ranges: the group of a layer -> the group that the maps form there, None where they form none.
    start: (moments, group, number) -> the best member. trained: (start, group, number, training) -> its
    parameters, None where nothing is to be trained. number: what the number after the colon is, as in
    "rank:4" ("": there is none), with an example and what it has to be.
    """

    name: str
    help: str
    ranges: Callable[[Group], Group | None]
    start: Start
    trained: Callable[[Tensor, Group, float, Training], Map] | None
    square: bool = False
    number: str = ""
    example: str = ""
    fits: Callable[[float], bool] = lambda number: True

    @property
    def usage(self) -> str:
        """How it is written: "rank:4"."""
        return f"{self.name}:{self.example}" if self.number else self.name


STITCH_CLASSES: dict[str, StitchClass] = {}


def stitch_class(
    name: str,
    help: str,
    *,
    ranges: Callable[[Group], Group | None],
    trained: Callable[[Tensor, Group, float, Training], Map] | None = None,
    square: bool = False,
    number: str = "",
    example: str = "",
    fits: Callable[[float], bool] = lambda number: True,
) -> Callable[[F], F]:
    """Register the closed form of a class of maps; `stitch`, its help and its messages know it then."""

    def register(start: F) -> F:
        if name in STITCH_CLASSES:
            raise InputError(f"there is a kind of stitch named {name!r} already")
        STITCH_CLASSES[name] = StitchClass(
            name, help, ranges, start, trained, square, number, example, fits
        )  # fmt: skip
        return start

    return register


def usages() -> str:
    """All kinds as they are written: "identity, group, full, rank:4, lasso:0.01"."""
    return ", ".join(each.usage for each in STITCH_CLASSES.values())


@dataclass(frozen=True)
class Kind:
    """A class of maps, with its number where it takes one.

    >>> str(Kind("rank", 4)), str(Kind("group"))
    ('rank:4', 'group')
    """

    name: str
    number: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in STITCH_CLASSES:
            raise InputError(f"no kind of stitch named {self.name!r}", do=f"use {usages()}")
        if self.of.number and not self.of.fits(self.number):
            raise InputError(
                f"a stitch of {self.name} {self.number:g}", do=f"give a {self.of.number}: {self.of.usage}"
            )

    @property
    def of(self) -> StitchClass:
        """The class."""
        return STITCH_CLASSES[self.name]

    def __str__(self) -> str:
        return f"{self.name}:{self.number:g}" if self.of.number else self.name


def parse_kind(text: str | Kind) -> Kind:
    """The kind that a text names.

    >>> parse_kind("rank:4"), parse_kind("full")
    (Kind(name='rank', number=4.0), Kind(name='full', number=0.0))
    """
    if isinstance(text, Kind):
        return text
    name, colon, value = text.strip().partition(":")
    found = STITCH_CLASSES.get(name)
    if found is None or not found.number:
        if found is not None and colon:
            raise InputError(f"{name!r} takes no number", where=f"kind {text!r}", do=f"use {usages()}")
        return Kind(name)
    try:
        number = numbers.finite(value)
    except InputError as error:
        raise InputError(error.what, where=f"kind {quoted(text)}", do=f"use {usages()}") from error
    return Kind(name, number)
