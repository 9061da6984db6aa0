"""The groups that can act on n channels, as plain values that print, parse and compare.

From small to large: trivial, diagonals (signs, positive, non-zero), permutations with or without them,
O(n), GL(n). `a <= b` says that every map of `a` is one of `b`, `a & b` is what both have, `a | b` the least
one that holds both.

>>> str(Group(permutation=True, positive=1))
'positive monomial'
>>> str(Group(permutation=True, positive=2, sign=1))
'monomial (2 scalings, 1 sign)'
>>> Group.parse("signed permutation") <= Group.parse("orthogonal") <= Group.parse("general linear")
True
>>> str(Group.parse("positive monomial") & Group.parse("orthogonal"))
'permutation'
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from intertwine.errors import NotFound, WrongKind

ORTHOGONAL, GENERAL = "orthogonal", "general linear"
_ORDER = ("", ORTHOGONAL, GENERAL)


@dataclass(frozen=True)
class Group:
    """permutation: channels may be exchanged. positive, sign: independent scalings and signs of a channel.

    linear: "" or "orthogonal" or "general linear", which contain all the others. blocks: the channels
    lie in this many blocks (heads, groups) and the group acts in each of them on its own.

    An axis may have several scalings (before and after a norm). At one place they act as one, so the order
    asks whether there are any.
    """

    permutation: bool = False
    positive: int = 0
    sign: int = 0
    linear: str = ""
    blocks: int = 1

    @property
    def moves(self) -> bool:
        """Whether it has more than the identity."""
        return self.permutation or bool(self.positive or self.sign or self.linear)

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

    @classmethod
    def parse(cls, text: str | Group) -> Group:
        """The group that prints like this.

        >>> Group.parse("monomial (2 scalings, 1 sign) in each of 3 blocks")
        Group(permutation=True, positive=2, sign=1, linear='', blocks=3)
        """
        if isinstance(text, Group):
            return text
        if not isinstance(text, str):
            raise WrongKind(f"a group is named by a text, not by a {type(text).__name__}")
        found = re.fullmatch(
            r"([a-z ]+?)(?: \((\d+) scalings?(?:, (\d+) signs?)?\))?(?: in each of (\d+) blocks)?",
            text.strip(),
        )
        if found is None or found[1] not in FAMILIES:
            raise NotFound(f"no group prints as {text!r}", do=f"use one of {', '.join(FAMILIES)}")
        group = replace(FAMILIES[found[1]], blocks=int(found[4] or 1))
        return replace(group, positive=int(found[2]), sign=int(found[3] or 0)) if found[2] else group

    @property
    def is_trivial(self) -> bool:
        """Whether nothing moves."""
        return not (self.permutation or self.positive or self.sign or self.linear)

    @property
    def mixes(self) -> bool:
        """Whether channels are exchanged or mixed; a diagonal acts on each alone."""
        return self.permutation or bool(self.linear)

    def __le__(self, other: Group) -> bool:
        if not isinstance(other, Group):
            return NotImplemented
        if self.mixes and self.blocks % other.blocks:
            return False
        if other.linear == GENERAL:
            return True
        if other.linear == ORTHOGONAL:
            return not self.positive and self.linear != GENERAL
        return (
            not self.linear
            and self.permutation <= other.permutation
            and bool(self.positive) <= bool(other.positive)
            and bool(self.sign) <= bool(other.sign)
        )

    def __and__(self, other: Group) -> Group:
        """The maps that both have (of blocks that do not nest: those of the common refinement)."""
        if not isinstance(other, Group):
            return NotImplemented
        blocks = math.lcm(self.blocks, other.blocks)
        a, b = self._spelled(), other._spelled()
        return Group(
            a.permutation and b.permutation,
            int(bool(a.positive and b.positive)),
            int(bool(a.sign and b.sign)),
            min(self.linear, other.linear, key=_ORDER.index),
            blocks,
        )._plain()

    def __or__(self, other: Group) -> Group:
        """The least group of this list that holds both."""
        if not isinstance(other, Group):
            return NotImplemented
        moving = [g.blocks for g in (self, other) if g.mixes]
        linear = max(self.linear, other.linear, key=_ORDER.index)
        positive, sign = int(bool(self.positive or other.positive)), int(bool(self.sign or other.sign))
        if linear == ORTHOGONAL and positive:
            linear = GENERAL
        permutation = self.permutation or other.permutation
        return Group(permutation, positive, sign, linear, math.gcd(*moving) if moving else 1)._plain()

    def _spelled(self) -> Group:
        """With everything that the linear part contains."""
        if not self.linear:
            return self
        return replace(self, permutation=True, positive=int(self.linear == GENERAL), sign=1)

    def _plain(self) -> Group:
        """Without what the linear part contains anyway."""
        return Group(linear=self.linear, blocks=self.blocks) if self.linear else self


FAMILIES: dict[str, Group] = {
    g.name: g
    for g in (
        *(Group(p, s, g) for p in (False, True) for s in (0, 1) for g in (0, 1)),
        Group(linear=ORTHOGONAL),
        Group(linear=GENERAL),
    )
}
