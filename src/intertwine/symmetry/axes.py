"""Structure -> the axes that a user sees: names, sizes, groups, members, reasons."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from intertwine.ir.groups import Group
from intertwine.ir.ledger import UNMERGEABLE, WINDOW, Ids
from intertwine.symmetry.colours import mix
from intertwine.symmetry.structure import Structure


@dataclass(frozen=True)
class Member:
    """A weight's dimension that carries (part of) an axis, by state-dict name.

    role: what the dimension is used for: out, in, bias, gain, shift, mean, var, slope, or other.
    """

    param: str
    dim: int
    role: str


@dataclass(frozen=True, eq=False)
class Axis:
    """Channels that are alike, and the group that acts on them.

    classes: (blocks, channels of a block), the channels' numbers inside `Structure`.
    """

    name: str
    size: int
    group: Group
    members: tuple[Member, ...]
    mergeable: bool
    frozen_because: str
    classes: Ids

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `intertwine inspect --json` prints it."""
        return {
            "name": self.name,
            "size": self.size,
            "group": str(self.group),
            "members": [{"param": m.param, "dim": m.dim, "role": m.role} for m in self.members],
            "mergeable": self.mergeable,
            "frozen_because": self.frozen_because or None,
        }


def build_axes(structure: Structure) -> tuple[Axis, ...]:
    """One axis for each orbit that has any freedom, and one for each frozen set of channels."""
    c = structure.classes
    present = np.flatnonzero(np.bincount(structure.coordinate_class, minlength=c.count))
    facts = _Facts(structure)
    # Frozen channels are alone in their orbits; those with the same members and reason are one axis.
    alike = mix(facts.members[present].view(np.int64)) + mix(facts.reason[present] + (1 << 44))
    key = np.where(c.frozen[present], alike, mix(c.orbit[present]))
    key = key + mix(1000 * facts.real[present] + facts.sign[present] + (1 << 45))
    _, which = np.unique(key, return_inverse=True)
    order = np.argsort(which, kind="stable")
    groups = np.split(present[order], np.flatnonzero(np.diff(which[order])) + 1) if len(present) else []
    axes = [axis for members in groups if (axis := _axis(structure, members, facts)) is not None]
    place = {slot: i for i, slot in enumerate(structure.span)}
    axes.sort(key=lambda a: (min(place[m.param, m.dim] for m in a.members), int(a.classes.min())))
    return _named(structure, axes)


class _Facts:
    """Per class: where it occurs, why it is frozen, how many scalings and signs it has, what lies inside."""

    def __init__(self, structure: Structure) -> None:
        c, count = structure.classes, structure.classes.count
        self._keys = list(structure.span)
        starts = structure.slot_starts
        sizes = np.diff(np.r_[starts, len(structure.labels)])
        slot = np.repeat(np.arange(len(starts)), sizes)[structure.coordinate_slot]
        pairs = np.sort(structure.coordinate_class * np.int64(len(starts) + 1) + slot)
        pairs = pairs[np.diff(pairs, prepend=-1) != 0]
        self._cls, self._slot = np.divmod(pairs, len(starts) + 1)
        self.members = np.zeros(count, np.uint64)
        np.add.at(self.members, self._cls, mix(self._slot))
        self.reasons, self.reason = _reasons(structure)
        self.real, self.sign = _freedom(structure)
        self.is_block = np.zeros(count, bool)
        up = c.ancestors.tocoo()
        if up.nnz:
            # Alone in its fibre, a class moves with its blocks only; a block holds others that move.
            _, fibre, size = np.unique(c.blocks_key() + mix(c.orbit), return_inverse=True, return_counts=True)
            moves = ~c.frozen & (size[fibre] > 1)
            self.is_block[up.col[moves[up.row]]] = True

    def slots(self, cls: int) -> list[tuple[str, int]]:
        """The slots (param, dim) in which a class occurs, in the order of the graph."""
        first, last = np.searchsorted(self._cls, [cls, cls + 1])
        return [self._keys[s] for s in self._slot[first:last]]


def _axis(structure: Structure, members: Ids, facts: _Facts) -> Axis | None:
    c = structure.classes
    first = int(members[0])
    frozen = bool(c.frozen[first])
    linear = None if frozen else structure.linear.get(int(c.orbit[first]))
    fibres = members.reshape(1, -1) if frozen else structure.fibres(members)
    blocks, width = fibres.shape
    permutation = not frozen and width > 1
    group = Group(
        permutation=permutation,
        positive=int(facts.real[first]),
        sign=int(facts.sign[first]),
        linear="" if linear is None else "orthogonal" if linear.orthogonal else "general linear",
        blocks=blocks,
    )
    reason = facts.reasons[facts.reason[first]] if frozen else ""
    if not group.moves and not frozen:
        # Moves only with the blocks it lies in: not an axis of its own.
        if c.depth[first]:
            return None
        reason = "alone of its kind"
    roles, shapes = structure.inference.roles, structure.inference.shapes
    found = tuple(Member(p, d, roles.get((p, d), "other")) for p, d in facts.slots(first))
    if frozen and reason == WINDOW and all(m.role == "other" for m in found):
        return None
    if not group.moves and all(shapes[m.param][m.dim] == 1 for m in found):
        return None  # a dimension of size 1 is an axis if it has a scale
    mergeable = (
        permutation
        and not c.depth[first]
        and not (c.flags[members] & UNMERGEABLE).any()
        and not facts.is_block[first]
        and all(structure.slots[m.param, m.dim].ids.ndim == 1 for m in found)
    )
    return Axis("", len(members), group, found, bool(mergeable), reason, fibres)


def _reasons(structure: Structure) -> tuple[list[str], Ids]:
    """Texts, and class -> number of the text why it is frozen (-1: it is not)."""
    ledger, of = structure.inference.ledger, structure.classes.of
    texts: dict[str, int] = {WINDOW: 0}
    reason = np.full(structure.classes.count, -1, np.int64)
    for freeze in ledger.freezes:
        text = WINDOW if freeze.reason == WINDOW else ledger.said(freeze)
        cls = of[freeze.labels]
        # The first real reason counts; that a window slides over it comes last.
        reason[cls[reason[cls] <= 0]] = texts.setdefault(text, len(texts))
    return list(texts), reason


def _freedom(structure: Structure) -> tuple[Ids, Ids]:
    """Class -> number of independent positive scalings and of signs."""
    count = structure.classes.count
    real, sign = np.zeros(count, np.int64), np.zeros(count, np.int64)
    cls, kind = structure.component_class, structure.scalings.kind
    ok = cls >= 0
    np.add.at(real, cls[ok], np.array([k.real.shape[1] for k in structure.scalings.kinds])[kind[ok]])
    np.add.at(sign, cls[ok], np.array([k.sign.shape[1] for k in structure.scalings.kinds])[kind[ok]])
    return real, sign


def _places(structure: Structure, axis: Axis, member: Member) -> Ids:
    """Positions of a member that are channels of the axis themselves, not only inside one."""
    start, stop = structure.span[member.param, member.dim]
    return np.flatnonzero(np.isin(structure.classes.of[structure.labels[start:stop]], axis.classes))


def _named(structure: Structure, axes: list[Axis]) -> tuple[Axis, ...]:
    """Name an axis after the weight that makes it; ranges and suffixes tell namesakes apart."""
    named: dict[int, Axis] = {}
    taken: set[str] = set()
    # Frozen channels come second where two axes would have the same name.
    for place, axis in sorted(enumerate(axes), key=lambda pair: bool(pair[1].frozen_because)):
        makers = [m for m in axis.members if m.role == "out"] or list(axis.members)
        found = [(m, _places(structure, axis, m)) for m in makers]
        maker, places = next((pair for pair in found if len(pair[1])), found[0])
        name = maker.param.removesuffix(".weight")
        if maker.role == "in":
            name += ".in"
        elif maker.role == "other" and maker.dim:
            name += f".{maker.dim}"
        width = structure.slots[maker.param, maker.dim].ids.size
        if not axis.frozen_because and not len(places):
            name += "/blocks"
        elif not axis.frozen_because and len(places) < width:
            name += f"[{places.min()}:{places.max() + 1}]"
        unique, k = name, 2
        while unique in taken:
            unique, k = f"{name}#{k}", k + 1
        taken.add(unique)
        named[place] = replace(axis, name=unique)
    return tuple(named[place] for place in sorted(named))
