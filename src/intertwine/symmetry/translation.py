"""theta -> theta + v: translations of constants (biases, shifts, means, tables) that no output sees.

The bias of keys may be anything, a constant added to the bias of values can be taken from that of the output,
a bias before batch norm from its mean. Which v these are depends on theta (the output's bias moves by W v):
they are found at a point, by `dimension`, and not from the graph. At theta they form a vector space.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from intertwine.errors import InputError


@dataclass(frozen=True, eq=False)
class Translation:
    """moves: weight -> what is added to it. kind: what `dimension` calls the direction."""

    moves: Mapping[str, Tensor]
    kind: str = "translation"

    def __repr__(self) -> str:
        return f"Translation({self.kind}: {', '.join(self.moves)})"

    def __matmul__(self, first: Translation) -> Translation:
        """`self @ first`: both, in any order."""
        if not isinstance(first, Translation):
            raise InputError("a translation is composed with translations", do="act twice")
        names = dict.fromkeys((*first.moves, *self.moves))
        parts = [(first.moves.get(n), self.moves.get(n)) for n in names]
        sums = [b if a is None else a if b is None else a + b for a, b in parts]
        return Translation({n: v for n, v in zip(names, sums, strict=True) if v is not None}, self.kind)

    def __mul__(self, factor: float) -> Translation:
        """As far again, or back."""
        return Translation({name: factor * v for name, v in self.moves.items()}, self.kind)

    __rmul__ = __mul__

    def inverse(self) -> Translation:
        """The translation that undoes this one."""
        return self * -1.0

    def weight(self, name: str, old: Callable[[str], Tensor]) -> Tensor:
        """The moved weight; the same object if it does not move. old: the weights, asked for by name."""
        move, before = self.moves.get(name), old(name)
        return before if move is None else before + move.to(before)
