"""What can be moved on its own: the axes of a model as a forest of units, and where each lies in the weights.

unit     the channels of one axis; its fibres (blocks, channels of a block) are permuted inside
child    a unit whose fibres lie each in one channel of another unit (the dimensions of a head)
spot     the positions of a unit along one dimension of one weight that are scaled alike
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from intertwine.ir.ledger import Ids
from intertwine.symmetry.colours import mix
from intertwine.symmetry.positions import in_front
from intertwine.symmetry.sampling import fibre_keys
from intertwine.symmetry.structure import Linear, Structure
from intertwine.symmetry.subgroup import Subgroup

Weights = Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class Spot:
    """where: (channels, copies) along a dimension. groups: of a grouped convolution's input channels, else 1.

    kind, local: the rescaling of these positions in `Scalings`; kind is -1 if the unit cannot rescale them.
    rows: (channels,) component of each channel. exponent: of the matrix of a linear unit, +1 or -1.
    crossed: the moving units that lie across this one there, as heads do that share the axis of their keys.
    """

    param: str
    dim: int
    where: Ids
    groups: int
    kind: int
    local: int
    rows: Ids
    exponent: int = 1
    crossed: frozenset[int] = frozenset()

    @property
    def slot(self) -> tuple[str, int]:
        """The dimension of the weight."""
        return self.param, self.dim

    def has_several(self, shape: tuple[int, ...]) -> bool:
        """Whether a weight of this shape has more than one number at each position."""
        return math.prod(shape) > self.groups * shape[self.dim]

    def slices(self, tensor: Tensor) -> Tensor:
        """(channels, everything else): the slices of all channels, maybe as a view."""
        grouped = self.groups > 1
        shape = (self.groups, tensor.shape[self.dim]) if grouped else (tensor.shape[self.dim],)
        flat = in_front(tensor, shape, self.dim).movedim(-1, 0)
        if len(flat) != self.where.size or not self._in_order:
            flat = flat.index_select(0, torch.from_numpy(self.where.reshape(-1)))
        return flat.reshape(len(self.where), -1)

    @cached_property
    def _in_order(self) -> bool:
        """Whether channels lie one after the other, as in most weights: then nothing has to be gathered."""
        return np.array_equal(self.where.reshape(-1), np.arange(self.where.size))


@dataclass(eq=False)
class Unit:
    """One axis. classes: (blocks, channels of a block). parent_channel: block -> channel of the parent."""

    index: int
    name: str
    classes: Ids
    permutes: bool
    linear: Linear | None
    spots: tuple[Spot, ...] = ()
    slots: frozenset[tuple[str, int]] = frozenset()
    parent: Unit | None = None
    parent_channel: Ids = field(default_factory=lambda: np.zeros(0, np.int64))
    children: list[Unit] = field(default_factory=list)

    @property
    def reach(self) -> set[tuple[str, int]]:
        """The dimensions that carry the unit or something inside it."""
        return {slot for unit in self.family() for slot in unit.slots}

    @property
    def size(self) -> int:
        """How many channels."""
        return self.classes.size

    @property
    def moves(self) -> bool:
        """Whether channels are exchanged (by a permutation or by a matrix)."""
        return self.permutes or self.linear is not None

    def lineage(self) -> list[Unit]:
        """This unit and all that it lies in."""
        return [self, *(self.parent.lineage() if self.parent is not None else [])]

    def family(self) -> list[Unit]:
        """This unit and all that lie inside it."""
        return [self, *(unit for child in self.children for unit in child.family())]


@dataclass(frozen=True, eq=False)
class Forest:
    """All units of a model. carried: (param, dim) -> units that lie there."""

    structure: Structure
    units: tuple[Unit, ...]
    carried: Mapping[tuple[str, int], frozenset[int]]

    @property
    def roots(self) -> list[Unit]:
        """Units that lie in no other."""
        return [unit for unit in self.units if unit.parent is None]

    def settled(self, slot: tuple[str, int], done: AbstractSet[int]) -> bool:
        """Whether all other dimensions of the weight carry only units that are done."""
        param, own = slot
        dims = range(len(self.structure.inference.shapes[param]))
        return all(self.carried.get((param, dim), frozenset()) <= done for dim in dims if dim != own)


def find_units(group: Subgroup) -> Forest:
    """The units of a model, in the order of its graph; held ones neither permute nor turn."""
    s = group.symmetry.structure
    units: list[Unit] = []
    for index, axis in enumerate(group.axes):
        free = axis.name not in group.held
        linear = s.linear.get(int(s.classes.orbit[axis.classes.flat[0]])) if free else None
        slots = frozenset((m.param, m.dim) for m in axis.members)
        units.append(
            Unit(index, axis.name, axis.classes, free and axis.group.permutation, linear, slots=slots)
        )
    _nest(s, units)
    carried: dict[tuple[str, int], set[int]] = {}
    for unit in units:
        for slot in unit.slots:
            carried.setdefault(slot, set()).add(unit.index)
    place = _place(s)
    for unit in units:
        kin = {u.index for u in [*unit.lineage(), *unit.family()]}
        unit.spots = tuple(
            replace(spot, crossed=_crossed(s, spot, [units[k] for k in carried[spot.slot] - kin]))
            for spot in _spots(s, unit, place)
        )
    return Forest(s, tuple(units), {slot: frozenset(found) for slot, found in carried.items()})


def _crossed(s: Structure, spot: Spot, others: list[Unit]) -> frozenset[int]:
    """Those units that move and lie at a position of the spot."""
    here = s.span[spot.slot][0] + spot.where
    return frozenset(
        u.index for u in others if u.moves and np.isin(s.occurrences(u.classes.reshape(-1))[0], here).any()
    )


def _nest(s: Structure, units: list[Unit]) -> None:
    """Find parents: the deepest unit of whose channels each holds one fibre."""
    unit_of = np.full(s.classes.count, -1, np.int64)
    for unit in units:
        unit_of[unit.classes] = unit.index
    up = s.classes.ancestors
    for unit in units:
        if not unit.moves:
            continue
        above = [up.indices[up.indptr[c] : up.indptr[c + 1]] for c in unit.classes[:, 0]]
        choices = {int(u) for u in unit_of[above[0]] if u >= 0 and units[u].moves}
        ordered = sorted(choices, key=lambda u: -int(s.classes.depth[units[u].classes.flat[0]]))
        for u in ordered:
            held = [a[unit_of[a] == u] for a in above]
            channel = {int(c): i for i, c in enumerate(units[u].classes.reshape(-1))}
            places = [channel[int(h[0])] for h in held if len(h) == 1]
            if len(places) == len(set(places)) == len(unit.classes) == units[u].size:
                unit.parent, unit.parent_channel = units[u], np.array(places)
                units[u].children.append(unit)
                break


def _spots(s: Structure, unit: Unit, place: np.ndarray) -> tuple[Spot, ...]:
    """Positions of the unit's channels that do not belong to a child, in an order common to all channels."""
    flat = unit.classes.reshape(-1)
    position, which = s.occurrences(flat)
    inner = [child.classes.reshape(-1) for child in unit.family()[1:]]
    if inner:
        free = ~np.isin(position, s.occurrences(np.concatenate(inner))[0])
        position, which = position[free], which[free]
    cls = flat[which]
    own = s.classes.of[s.labels[position]]
    # What a position is besides this channel: blocks that do not hold the channel, and which copy it is.
    rest = s.home[position] - mix(cls) - s.ancestor_hash[cls]
    rest = rest - np.where(own == cls, np.uint64(0), mix(own)) + _relative(s, place, position, cls, own)
    order = np.lexsort((position, s.classes.orbit[own], rest, which, s.slot_of(position)))
    position, which = position[order], which[order]
    spots: list[Spot] = []
    slots, keys = s.slot_of(position), list(s.span)
    for inside in np.split(np.arange(len(position)), np.flatnonzero(np.diff(slots)) + 1):
        counts = np.bincount(which[inside], minlength=len(flat))
        if len(inside) and counts.min() == counts.max():
            param, dim = keys[slots[inside[0]]]
            where = position[inside].reshape(len(flat), -1)
            spots += _split(s, unit, param, dim, where, s.span[param, dim][0])
    return tuple(spots)


def _relative(s: Structure, place: np.ndarray, position: Ids, cls: Ids, own: Ids) -> np.ndarray:
    """What turns the names of blocks that lie in a channel, or beside it in one block, into relative ones.

    The second pair of channels of one head has another name than that of the next head; by its orbit and its
    place among those that it can change places with, it is the same.
    """
    up, total = s.classes.ancestors, s.classes.count
    hit, entry = _ranges(s.coordinate_start, s.coordinate_end, position)
    block = s.coordinate_class[entry]
    inner = (s.classes.depth[block] > 0) & (block != own[hit]) & (block != cls[hit])
    hit, block = hit[inner], block[inner]
    if not len(hit):
        return np.zeros(len(position), np.uint64)
    channels = np.unique(cls)
    which, above = _ranges(up.indptr[:-1], up.indptr[1:], channels)
    around = np.concatenate([channels[which] * total + up.indices[above], channels * total + channels])
    outside = ~np.isin(cls[hit] * total + block, around)
    hit, block = hit[outside], block[outside]
    which, above = _ranges(up.indptr[:-1], up.indptr[1:], block)
    shared = np.isin(cls[hit[which]] * total + up.indices[above], around)
    beside = np.bincount(which[shared], minlength=len(block)) > 0
    hit, block = hit[beside], block[beside]
    change = np.zeros(len(position), np.uint64)
    np.add.at(change, hit, mix(s.classes.orbit[block] + (1 << 43)) + place[block] - mix(block))
    return change


def _place(s: Structure) -> np.ndarray:
    """Class -> which of those it is that it can change places with inside its blocks, as a hash."""
    keys = fibre_keys(s)
    order = np.argsort(keys, kind="stable")
    first = np.flatnonzero(np.r_[True, np.diff(keys[order]) != 0])
    place = np.empty(len(keys), np.int64)
    place[order] = np.arange(len(keys)) - np.repeat(first, np.diff(np.r_[first, len(keys)]))
    return mix(place + (1 << 44))


def _ranges(starts: Ids, ends: Ids, rows: Ids) -> tuple[Ids, Ids]:
    """(k, entry) for every entry between the start and the end of rows[k]."""
    count = (ends - starts)[rows]
    which = np.repeat(np.arange(len(rows)), count)
    return which, np.arange(len(which)) + np.repeat(starts[rows] - np.cumsum(count) + count, count)


def _split(s: Structure, unit: Unit, param: str, dim: int, position: Ids, start: int) -> list[Spot]:
    """One spot for the copies that are scaled alike."""
    scale = s.scales[position]
    kind, local, row = (
        table[scale] for table in (s.scalings.kind_of, s.scalings.local_of, s.scalings.row_of)
    )
    owner = s.component_class[s.component[position]]
    owned = (
        (owner == unit.classes.reshape(-1)[:, None])
        & (kind == kind[:1])
        & (local == local[:1])
        & (unit.linear is None)
    ).all(axis=0)
    exponent = _exponents(unit, (param, dim), position - start)
    found: dict[tuple[int, int, int], list[int]] = {}
    for copy in range(position.shape[1]):
        key = (int(kind[0, copy]), int(local[0, copy])) if owned[copy] else (-1, -1)
        found.setdefault((*key, int(exponent[copy])), []).append(copy)
    shape = s.slots[param, dim].ids.shape
    return [
        Spot(
            param, dim, position[:, copies] - start, shape[0] if len(shape) > 1 else 1, key[0], key[1],
            row[:, copies[0]], key[2],
        )
        for key, copies in found.items()
    ]  # fmt: skip


def _exponents(unit: Unit, slot: tuple[str, int], where: Ids) -> Ids:
    """For each copy: +1 if the matrix of a linear unit acts as it is, -1 if as its inverse transpose."""
    if unit.linear is None or slot not in unit.linear.places:
        return np.ones(where.shape[1], np.int64)
    rows, _, exponent = unit.linear.places[slot]
    at = np.ones(int(where.max()) + 1, np.int64)
    known = rows < len(at)
    at[rows[known]] = np.broadcast_to(exponent[:, None], rows.shape)[known]
    answer: Ids = at[where[0]]
    return answer
