"""Which maps a stitch may be: the classes of appendix D.2 and D.6 of source 002."""

from __future__ import annotations

from dataclasses import dataclass

from intertwine import numbers
from intertwine.errors import InputError
from intertwine.text import quoted

NAMES = ("identity", "group", "full", "rank", "lasso")
_DO = "use identity, group, full, rank:4 or lasso:0.01"


@dataclass(frozen=True)
class Kind:
    """identity; group (G_sigma of the layer's activation); full; rank R (two 1x1 maps); lasso (L |W|_1).

    >>> str(Kind("rank", rank=4)), str(Kind("group"))
    ('rank:4', 'group')
    """

    name: str
    rank: int = 0
    penalty: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise InputError(f"no kind of stitch named {self.name!r}", do=_DO)
        if self.name == "rank" and self.rank < 1:
            raise InputError(f"a stitch of rank {self.rank}", do="give a rank of at least 1, such as rank:4")
        if self.name == "lasso" and not 0 < self.penalty < float("inf"):
            raise InputError(f"a lasso with penalty {self.penalty:g}", do="give a positive one: lasso:0.01")

    def __str__(self) -> str:
        if self.name == "rank":
            return f"rank:{self.rank}"
        return f"lasso:{self.penalty:g}" if self.name == "lasso" else self.name


def parse_kind(text: str | Kind) -> Kind:
    """The kind that a text names.

    >>> parse_kind("rank:4"), parse_kind("full")
    (Kind(name='rank', rank=4, penalty=0.0), Kind(name='full', rank=0, penalty=0.0))
    """
    if isinstance(text, Kind):
        return text
    name, colon, value = text.strip().partition(":")
    try:
        if name == "rank":
            return Kind(name, rank=numbers.count(value))
        if name == "lasso":
            return Kind(name, penalty=numbers.positive(value))
    except InputError as error:
        raise InputError(error.what, where=f"kind {quoted(text)}", do=_DO) from error
    if colon:
        raise InputError(f"{quoted(name)} takes no number", where=f"kind {quoted(text)}", do=_DO)
    return Kind(name)
