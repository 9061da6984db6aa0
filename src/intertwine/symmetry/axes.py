"""Structure -> the axes that a user sees: names, sizes, groups, members, reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from intertwine.ir.groups import Group
from intertwine.ir.ledger import UNMERGEABLE, Ids
from intertwine.symmetry.structure import Structure

WINDOW = "a window slides over it"


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
    present = np.unique(structure.coordinate_class)
    reasons = _reasons(structure)
    slots_of = _slot_sets(structure)
    real, sign = _freedom(structure)
    groups: dict[Any, list[int]] = {}
    key: Any
    for cls in present.tolist():
        if c.frozen[cls]:
            # Frozen channels are alone in their orbits; those with the same members and reason are one axis.
            key = ("frozen", slots_of[cls], reasons.get(cls, ""), int(real[cls]), int(sign[cls]))
        else:
            key = ("orbit", int(c.orbit[cls]), (), int(real[cls]), int(sign[cls]))
        groups.setdefault(key, []).append(cls)
    axes = []
    for key, members in groups.items():
        axis = _axis(structure, np.array(members), key, reasons, slots_of)
        if axis is not None:
            axes.append(axis)
    order = {key: i for i, key in enumerate(structure.span)}
    axes.sort(key=lambda a: (min(order[m.param, m.dim] for m in a.members), int(a.classes.min())))
    return _named(structure, axes)


def _axis(
    structure: Structure, members: Ids, key: Any, reasons: dict[int, str], slots_of: dict[int, Any]
) -> Axis | None:
    c = structure.classes
    kind, orbit, _, real, sign = key
    first = int(members[0])
    frozen = kind == "frozen"
    linear = None if frozen else structure.linear.get(orbit)
    fibres = members.reshape(1, -1) if frozen else structure.fibres(members)
    blocks, width = fibres.shape
    permutation = not frozen and width > 1
    group = Group(
        permutation=permutation,
        positive=real,
        sign=sign,
        linear="" if linear is None else "orthogonal" if linear.orthogonal else "general linear",
        blocks=blocks,
    )
    reason = reasons.get(first, "")
    if group.name == "trivial" and not frozen:
        # Moves only with the blocks it lies in (or is alone of its kind): not an axis of its own.
        if c.depth[first] or len(members) > 1:
            return None
        reason = "alone of its kind"
    param_members = []
    for key_slot in slots_of[first]:
        role = structure.inference.roles.get(key_slot, "other")
        param_members.append(Member(key_slot[0], key_slot[1], role))
    if frozen and reason == WINDOW and all(m.role == "other" for m in param_members):
        return None
    mergeable = (
        permutation
        and blocks == 1
        and not c.depth[members].any()
        and not (c.flags[members] & UNMERGEABLE).any()
        and not _is_block(structure, first)
        and all(structure.slots[m.param, m.dim].ids.ndim == 1 for m in param_members)
    )
    return Axis("", len(members), group, tuple(param_members), bool(mergeable), reason, fibres)


def _is_block(structure: Structure, cls: int) -> bool:
    """Whether other channels that can move lie inside this one."""
    inside = structure.classes.ancestors[:, [cls]].tocoo().row
    return any(not structure.classes.frozen[i] and not _determined(structure, int(i)) for i in inside)


def _determined(structure: Structure, cls: int) -> bool:
    """Whether its blocks leave a class no choice: it is the only one of its orbit inside them."""
    orbit = structure.classes.orbit
    same = np.flatnonzero(orbit == orbit[cls])
    return int((structure.ancestor_hash[same] == structure.ancestor_hash[cls]).sum()) == 1


def _reasons(structure: Structure) -> dict[int, str]:
    ledger, of = structure.inference.ledger, structure.classes.of
    found: dict[int, str] = {}
    for freeze in ledger.freezes:
        site = ledger.sites[freeze.site]
        text = freeze.reason if freeze.reason.startswith("no rule") else f"{freeze.reason} ({site})"
        text = WINDOW if freeze.reason == WINDOW else text
        for cls in np.unique(of[freeze.labels]).tolist():
            if found.get(cls, WINDOW) == WINDOW:
                found[cls] = text
    return found


def _slot_sets(structure: Structure) -> dict[int, tuple[tuple[str, int], ...]]:
    """Class -> the slots (param, dim) in which it occurs, in the order of the graph."""
    keys = list(structure.span)
    starts = np.array([structure.span[k][0] for k in keys])
    slot = np.searchsorted(starts, structure.coordinate_slot, side="right") - 1
    pairs = np.unique(np.stack([structure.coordinate_class, slot]), axis=1)
    out: dict[int, list[int]] = {}
    for cls, s in pairs.T.tolist():
        out.setdefault(cls, []).append(s)
    shared: dict[tuple[int, ...], tuple[tuple[str, int], ...]] = {}
    return {cls: shared.setdefault(tuple(found), tuple(keys[s] for s in found)) for cls, found in out.items()}


def _freedom(structure: Structure) -> tuple[Ids, Ids]:
    """Class -> number of independent positive scalings and of signs."""
    count = structure.classes.count
    real, sign = np.zeros(count, np.int64), np.zeros(count, np.int64)
    _, first = np.unique(structure.component, return_index=True)
    kinds = structure.scalings.kind_of[structure.scales[first]]
    cls = structure.component_class
    ok = cls >= 0
    np.add.at(real, cls[ok], np.array([k.real.shape[1] for k in structure.scalings.kinds])[kinds[ok]])
    np.add.at(sign, cls[ok], np.array([k.sign.shape[1] for k in structure.scalings.kinds])[kinds[ok]])
    return real, sign


def _named(structure: Structure, axes: list[Axis]) -> tuple[Axis, ...]:
    """Name an axis after the weight that makes it; ranges and suffixes tell namesakes apart."""
    named: list[Axis] = []
    taken: set[str] = set()
    for axis in axes:
        makers = [m for m in axis.members if m.role == "out"] or list(axis.members)
        maker = makers[0]
        name = maker.param.removesuffix(".weight")
        if maker.role == "in":
            name += ".in"
        elif maker.role == "other" and maker.dim:
            name += f".{maker.dim}"
        start, stop = structure.span[maker.param, maker.dim]
        own = structure.classes.of[structure.labels[start:stop]]
        places = np.flatnonzero(np.isin(own, axis.classes))
        if not len(places) and not axis.frozen_because:
            name += "/blocks"
        elif 0 < len(places) < stop - start and not axis.frozen_because:
            name += f"[{places.min()}:{places.max() + 1}]"
        unique, k = name, 2
        while unique in taken:
            unique, k = f"{name}#{k}", k + 1
        taken.add(unique)
        named.append(
            Axis(
                unique, axis.size, axis.group, axis.members, axis.mergeable, axis.frozen_because, axis.classes
            )
        )
    return tuple(named)
