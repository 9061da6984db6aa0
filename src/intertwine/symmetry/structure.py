"""The solved symmetry of one model in arrays: classes, scalings and the slots of the weights they act on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import coo_array

from intertwine.ir.ledger import NONLINEAR, NONORTHOGONAL, Ids
from intertwine.symmetry.classes import Classes, solve_classes
from intertwine.symmetry.colours import mix
from intertwine.symmetry.gains import Beside, equal_along, separate
from intertwine.symmetry.infer import Inference, Slot
from intertwine.symmetry.members import Exchanges
from intertwine.symmetry.pairs import Turns
from intertwine.symmetry.scales import Scalings, solve_scales


@dataclass(frozen=True)
class Linear:
    """A linear axis: its fibres (blocks, n) of classes, and for each slot (where, fibre, exponent).

    where: (rows, n) positions; fibre: which matrix acts on each row; exponent: +1 for A, -1 for A^-T
    (in a packed q-k weight both occur).
    """

    orbit: int
    orthogonal: bool
    fibres: Ids
    places: dict[tuple[str, int], tuple[Ids, Ids, Ids]]


class Structure:
    """Classes, scalings and slots of one inference, with what is needed to sample and to act."""

    def __init__(self, inference: Inference) -> None:
        self.inference = inference
        self.slots: dict[tuple[str, int], Slot] = inference.slots
        self.classes: Classes = solve_classes(inference.ledger)
        self._beside: list[Beside] = []  # of every axis whose matrices have other scalings beside them
        self._index()
        up = self.classes.ancestors.tocoo()
        self.ancestor_hash = np.zeros(self.classes.count, np.uint64)
        np.add.at(self.ancestor_hash, up.row, mix(up.col))
        self._take(solve_scales(inference.ledger))
        self.turns = Turns()  # of the pairs of rotary embeddings; found by a second run (`symmetry.turns`)
        self.exchanges = Exchanges()  # of modules that change places (`symmetry.exchange`)

    # -- slots as one long list of labels ----------------------------------------------------------------

    def _index(self) -> None:
        keys = list(self.slots)
        sizes = [self.slots[k].ids.size for k in keys]
        self.labels = np.concatenate([self.slots[k].ids.reshape(-1) for k in keys] or [np.zeros(0, np.int64)])
        self.scales = np.concatenate(
            [self.slots[k].scale.reshape(-1) for k in keys] or [np.zeros(0, np.int64)]
        )
        bounds = np.r_[0, np.cumsum(sizes)].astype(np.int64)
        self.slot_starts = bounds[:-1]
        self.span = {k: (int(bounds[i]), int(bounds[i + 1])) for i, k in enumerate(keys)}
        # Label -> its position in the list; every label of a slot stands in one place.
        self.position_of = np.full(len(self.classes.of), -1, np.int64)
        self.position_of[self.labels] = np.arange(len(self.labels))
        coordinates = self.classes.coordinates[self.labels]
        self.coordinate_start, self.coordinate_end = coordinates.indptr[:-1], coordinates.indptr[1:]
        self.coordinate_class = coordinates.indices
        self.coordinate_slot = np.repeat(np.arange(len(self.labels)), np.diff(coordinates.indptr))
        # A channel may occur twice in a slot (q and k in a packed weight): the colour says which is which.
        self.copy = self.classes.colour[self.labels]

    def place_hash(self, relabel: Ids) -> np.ndarray:
        """For every position of every slot, a hash of where it belongs once classes are relabelled."""
        if not len(self.labels):
            return np.zeros(0, np.uint64)
        mixed = mix(relabel[self.coordinate_class])
        result: np.ndarray = np.add.reduceat(mixed, self.coordinate_start) + self.copy
        return result

    # -- scales ------------------------------------------------------------------------------------------

    def _take(self, scalings: Scalings) -> None:
        self.scalings = scalings
        # Position -> number of its scale component, over all slots.
        self.component = scalings.component[self.scales]
        self.component_class = self._component_classes()
        for known in ("linear", "rescaled"):  # by the scalings before
            self.__dict__.pop(known, None)

    def _component_classes(self) -> Ids:
        """Scale component -> the class it rescales: the deepest one that all its positions share, or -1."""
        component = self.component
        n = len(self.scalings.kind)
        count = self.classes.count
        rows = component[self.coordinate_slot]
        votes = (
            coo_array((np.ones(len(rows)), (rows, self.coordinate_class)), shape=(n, count)).tocsr().tocoo()
        )
        full = votes.data == np.bincount(component, minlength=n)[votes.row]
        row, col = votes.row[full], votes.col[full]
        order = np.argsort(self.classes.depth[col], kind="stable")
        out = np.full(n, -1, np.int64)
        out[row[order]] = col[order]
        return out

    @cached_property
    def rescaled(self) -> np.ndarray:
        """Mask of the positions that scales and signs move.

        Where a matrix acts it takes the place of a scale; a scale that no channel owns is not used.
        """
        owner = self.component_class[self.component]
        result: np.ndarray = (owner >= 0) & ~np.isin(self.classes.orbit[owner], list(self.linear))
        return result

    # -- linear axes -------------------------------------------------------------------------------------

    @cached_property
    def linear(self) -> dict[int, Linear]:
        """Orbit -> linear axis. Asked for once the blocks are known to be consistent."""
        found: dict[int, Linear] = {}
        for members in self.linear_orbits():
            orbit = int(self.classes.orbit[members[0]])
            fibres = self.fibres(members)
            linear = None if self._turns_only(members) else self._linear_axis(orbit, fibres, orthogonal=False)
            linear = linear or self._linear_axis(orbit, fibres, orthogonal=True)
            if linear is not None:
                found[orbit] = linear
        return found

    def linear_orbits(self) -> Iterator[Ids]:
        """The classes of every orbit that met linear ops and lengths alone."""
        c = self.classes
        movable = np.zeros(c.count, bool)
        movable[self.coordinate_class] = True
        candidates = movable & ~c.frozen & ((c.flags & NONORTHOGONAL) == 0)
        order = np.argsort(c.orbit, kind="stable")
        for members in np.split(order, np.flatnonzero(np.diff(c.orbit[order])) + 1):
            if len(members) > 1 and candidates[members].all():
                yield members

    def _turns_only(self, members: Ids) -> bool:
        """Whether only matrices that keep lengths may act on an orbit."""
        return bool((self.classes.flags[members] & NONLINEAR).any())

    def separate_gains(self) -> None:
        """Where the channels of an axis share scalings with others, give the matrices what is theirs.

        What is left of the scalings is the same for all channels of a block (`gains.py`).
        """
        found = list[tuple[Beside, list[Ids]]]()
        for members in self.linear_orbits():
            fibres = self.fibres(members)
            places = None if self._turns_only(members) else self.places(fibres)
            if not places:
                continue
            where = np.concatenate([w + self.span[key][0] for key, (w, _) in places.items()])
            fibre = np.concatenate([f for _, f in places.values()])
            if self.exponents(self.scales[where], fibres[fibre]).all():
                continue
            blocks = [self.scales[where[fibre == k]] for k in range(len(fibres))]
            beside = separate(self.scalings, self.scales, blocks, fibres)
            if beside is not None:
                found.append((beside, blocks))
        while found:
            held = np.concatenate([beside.held for beside, _ in found])
            left = solve_scales(self.inference.ledger, held)
            equal = [(beside, blocks) for beside, blocks in found if equal_along(left, blocks)]
            if len(equal) == len(found):
                self._beside = [beside for beside, _ in found]
                self._take(left)
                return
            found = equal

    @cached_property
    def _by_class(self) -> tuple[Ids, Ids]:
        """Entries of the coordinates by class, and where each class starts among them."""
        order = np.argsort(self.coordinate_class, kind="stable")
        return order, np.searchsorted(self.coordinate_class[order], np.arange(self.classes.count + 1))

    def occurrences(self, classes: Ids) -> tuple[Ids, Ids]:
        """(position, k) for every position that classes[k] occurs at."""
        order, start = self._by_class
        count = start[classes + 1] - start[classes]
        offset = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        return self.coordinate_slot[order[np.repeat(start[classes], count) + offset]], np.repeat(
            np.arange(len(classes)), count
        )

    def slot_of(self, position: Ids) -> Ids:
        """The number of the slot that each position lies in."""
        return np.searchsorted(self.slot_starts, position, side="right") - 1

    @cached_property
    def home(self) -> np.ndarray:
        """`place_hash` where every class is where it was."""
        return self.place_hash(np.arange(self.classes.count))

    def _linear_axis(self, orbit: int, fibres: Ids, orthogonal: bool) -> Linear | None:
        """The axis, if matrices may act on it: any, where they take the place of scales of every channel;
        orthogonal, where no scale is free."""
        found = self.places(fibres)
        if not found:
            return None
        places = dict[tuple[str, int], tuple[Ids, Ids, Ids]]()
        for key, (where, fibre) in found.items():
            scales = self.slots[key].scale.reshape(-1)[where]
            exponent = np.ones(len(where), np.int64) if orthogonal else self.exponents(scales, fibres[fibre])
            if not exponent.all() or (orthogonal and self._any_free(scales)):
                return None
            places[key] = (where, fibre, exponent)
        return Linear(orbit, orthogonal, fibres, places)

    def _any_free(self, scales: Ids) -> bool:
        """Whether something may be rescaled by other numbers than 1 and -1."""
        kinds, local = self.scalings.kind_of[scales], self.scalings.local_of[scales]
        return any(self.scalings.kinds[k].real[local[kinds == k]].any() for k in np.unique(kinds))

    def places(self, fibres: Ids) -> dict[tuple[str, int], tuple[Ids, Ids]] | None:
        """Slot -> (rows, n) positions of the channels of a block, and which block; None where one is
        missing."""
        n = fibres.shape[1]
        if n < 2:
            return None
        position, channel = self.occurrences(fibres.reshape(-1))
        if not len(position):
            return None
        cls, fibre, rank = fibres.reshape(-1)[channel], channel // n, channel % n
        # What identifies a position besides the channel itself: everything but this class and its own one.
        own = self.classes.of[self.labels[position]]
        rest = self.home[position] - mix(cls) - np.where(own == cls, np.uint64(0), mix(own))
        slot = self.slot_of(position)
        order = np.lexsort((rank, rest, fibre, slot))
        slot = slot[order]
        keys, places = list(self.span), dict[tuple[str, int], tuple[Ids, Ids]]()
        for chosen in np.split(order, np.flatnonzero(np.diff(slot)) + 1):
            key = keys[int(self.slot_of(position[chosen[0]]))]
            if len(chosen) % n:
                return None
            where = (position[chosen] - self.span[key][0]).reshape(-1, n)
            ranks, which = rank[chosen].reshape(-1, n), fibre[chosen].reshape(-1, n)
            if (ranks != np.arange(n)).any() or (which != which[:, :1]).any():
                return None
            places[key] = (where, which[:, 0])
        return places

    def exponents(self, scales: Ids, channels: Ids) -> Ids:
        """+1 or -1 for every row, if a rescaling of the axis is a free number of each channel alone, else 0.

        The scale must be that of the channel itself: along a joint dimension another axis may own it.
        """
        values = np.zeros(scales.shape)
        for kind in np.unique(self.scalings.kind_of[scales]):
            real = self.scalings.kinds[kind].real
            here = self.scalings.kind_of[scales] == kind
            if real.shape[1] == 1:
                values[here] = real[self.scalings.local_of[scales[here]], 0]
        own = (self.component_class[self.scalings.component[scales]] == channels).all(axis=1)
        alike = own & (values == values[:, :1]).all(axis=1) & (np.abs(values[:, 0]) == 1.0)
        answer = np.where(alike, values[:, 0], 0).astype(np.int64)
        for beside in self._beside:
            alone = np.where(beside.owner[scales] == channels, beside.exponent[scales], 0)
            answer = np.where((alone == alone[:, :1]).all(axis=1), answer | alone[:, 0], answer)
        return answer

    @cached_property
    def _blocks_key(self) -> np.ndarray:
        return self.classes.blocks_key()

    def fibres(self, members: Ids) -> Ids:
        """The classes of one orbit as an array (blocks, channels of a block)."""
        keys = self._blocks_key[members]
        order = np.lexsort((members, keys))
        blocks = len(np.unique(keys))
        fibres = members[order].reshape(blocks, -1)
        return fibres[np.argsort(fibres[:, 0])]
