"""The groups that can act on an axis of n channels, as plain values that print.

From small to large: trivial, diagonals (signs, positive, non-zero), permutations with or without them,
O(n), GL(n). Larger groups contain the smaller ones of the same kind.

>>> str(Group(permutation=True, positive=1))
'positive monomial'
>>> str(Group(permutation=True, positive=2, sign=1))
'monomial (2 scalings, 1 sign)'
>>> str(Group(linear="general linear"))
'general linear'
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Group:
    """permutation: channels may be exchanged. positive, sign: independent scalings and signs of a channel.

    linear: "" or "orthogonal" or "general linear", which contain all the others. blocks: the channels
    lie in this many blocks (heads, groups) and the group acts in each of them on its own.
    """

    permutation: bool = False
    positive: int = 0
    sign: int = 0
    linear: str = ""
    blocks: int = 1

    @property
    def name(self) -> str:
        """The family: what decides which measure or which stitch belongs to the axis."""
        if self.linear:
            return self.linear
        scaling = "nonzero" if self.positive and self.sign else "positive" if self.positive else ""
        if self.permutation:
            if scaling:
                return "monomial" if scaling == "nonzero" else "positive monomial"
            return "signed permutation" if self.sign else "permutation"
        if scaling:
            return f"{scaling} diagonal"
        return "sign diagonal" if self.sign else "trivial"

    def __str__(self) -> str:
        text = self.name
        if not self.linear and (self.positive > 1 or self.sign > 1):
            signs = f", {self.sign} sign{'s' if self.sign > 1 else ''}" if self.sign else ""
            text += f" ({self.positive} scaling{'s' if self.positive != 1 else ''}{signs})"
        return text + (f" in each of {self.blocks} blocks" if self.blocks > 1 else "")
