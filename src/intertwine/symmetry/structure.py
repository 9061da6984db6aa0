"""The solved symmetry of one model in arrays: classes, scalings and the slots of the weights they act on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import coo_array

from intertwine.ir.ledger import NONLINEAR, NONORTHOGONAL, Ids
from intertwine.symmetry.classes import Classes, ambiguous_labels, mix, solve_classes
from intertwine.symmetry.infer import Inference, Slot
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
        self.scalings: Scalings = solve_scales(inference.ledger)
        self._index()
        # Position -> number of its scale component, over all slots.
        self.component = self.scalings.component[self.scales]
        up = self.classes.ancestors.tocoo()
        self.ancestor_hash = np.zeros(self.classes.count, np.uint64)
        np.add.at(self.ancestor_hash, up.row, mix(up.col))
        self.component_class = self._component_classes()

    # -- slots as one long list of labels ----------------------------------------------------------------

    def _index(self) -> None:
        keys = list(self.slots)
        sizes = [self.slots[k].ids.size for k in keys]
        self.labels = np.concatenate([self.slots[k].ids.reshape(-1) for k in keys] or [np.zeros(0, np.int64)])
        self.scales = np.concatenate(
            [self.slots[k].scale.reshape(-1) for k in keys] or [np.zeros(0, np.int64)]
        )
        bounds = np.r_[0, np.cumsum(sizes)].astype(np.int64)
        self.span = {k: (int(bounds[i]), int(bounds[i + 1])) for i, k in enumerate(keys)}
        coordinates = self.classes.coordinates[self.labels]
        self.coordinate_start = coordinates.indptr[:-1]
        self.coordinate_class = coordinates.indices
        self.coordinate_slot = np.repeat(np.arange(len(self.labels)), np.diff(coordinates.indptr))
        slots = np.repeat(np.arange(len(keys)), sizes)
        self.copy, self.doubtful = ambiguous_labels(self.inference.ledger, self.classes, slots, self.labels)

    def place_hash(self, relabel: Ids) -> np.ndarray:
        """For every position of every slot, a hash of where it belongs once classes are relabelled."""
        if not len(self.labels):
            return np.zeros(0, np.uint64)
        return np.add.reduceat(mix(relabel[self.coordinate_class]), self.coordinate_start) + self.copy

    # -- scales ------------------------------------------------------------------------------------------

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
        return (owner >= 0) & ~np.isin(self.classes.orbit[owner], list(self.linear))

    # -- linear axes -------------------------------------------------------------------------------------

    @cached_property
    def linear(self) -> dict[int, Linear]:
        """Orbit -> linear axis. Asked for once the blocks are known to be consistent."""
        c = self.classes
        found: dict[int, Linear] = {}
        movable = np.zeros(c.count, bool)
        movable[self.coordinate_class] = True
        candidates = movable & ~c.frozen & ((c.flags & NONORTHOGONAL) == 0)
        for orbit in np.unique(c.orbit[candidates]):
            members = np.flatnonzero(c.orbit == orbit)
            if not candidates[members].all() or len(members) < 2:
                continue
            linear = self._linear_axis(int(orbit), members, bool((c.flags[members] & NONLINEAR).any()))
            if linear is not None:
                found[int(orbit)] = linear
        return found

    def _linear_axis(self, orbit: int, members: Ids, orthogonal: bool) -> Linear | None:
        fibres = self.fibres(members)
        if fibres.shape[1] < 2:
            return None
        fibre_of = np.full(self.classes.count, -1, np.int64)
        rank_of = np.full(self.classes.count, -1, np.int64)
        fibre_of[fibres] = np.arange(len(fibres))[:, None]
        rank_of[fibres] = np.arange(fibres.shape[1])[None, :]
        hit = np.flatnonzero(fibre_of[self.coordinate_class] >= 0)
        if not len(hit):
            return None
        position, cls = self.coordinate_slot[hit], self.coordinate_class[hit]
        # What identifies a position besides the channel itself: everything but this class and its own one.
        own = self.classes.of[self.labels[position]]
        everything = self.place_hash(np.arange(self.classes.count))[position]
        rest = everything - mix(cls) - np.where(own == cls, np.uint64(0), mix(own))
        places: dict[tuple[str, int], tuple[Ids, Ids, Ids]] = {}
        for key, (start, stop) in self.span.items():
            inside = (position >= start) & (position < stop)
            if not inside.any():
                continue
            order = np.lexsort((rank_of[cls[inside]], rest[inside], fibre_of[cls[inside]]))
            where = (position[inside] - start)[order]
            n = fibres.shape[1]
            if self.slots[key].ids.ndim > 1 or len(where) % n:
                return None
            where = where.reshape(-1, n)
            ranks = rank_of[cls[inside]][order].reshape(-1, n)
            which = fibre_of[cls[inside]][order].reshape(-1, n)
            if (ranks != np.arange(n)).any() or (which != which[:, :1]).any():
                return None
            exponent = np.ones(len(where), np.int64) if orthogonal else self._exponents(key, where)
            if not exponent.all():
                return None
            places[key] = (where, which[:, 0], exponent)
        return Linear(orbit, orthogonal, fibres, places)

    def _exponents(self, key: tuple[str, int], where: Ids) -> Ids:
        """+1 or -1 for every row, if the only rescaling of the axis is one free number; 0 where it is not."""
        scales = self.slots[key].scale.reshape(-1)[where]
        values = np.zeros(where.shape)
        for kind in np.unique(self.scalings.kind_of[scales]):
            real = self.scalings.kinds[kind].real
            here = self.scalings.kind_of[scales] == kind
            if real.shape[1] == 1:
                values[here] = real[self.scalings.local_of[scales[here]], 0]
        alike = (values == values[:, :1]).all(axis=1) & (np.abs(values[:, 0]) == 1.0)
        return np.where(alike, values[:, 0], 0).astype(np.int64)

    def fibres(self, members: Ids) -> Ids:
        """The classes of one orbit as an array (blocks, channels of a block)."""
        keys = self.ancestor_hash[members]
        order = np.lexsort((members, keys))
        blocks = len(np.unique(keys))
        fibres = members[order].reshape(blocks, -1)
        return fibres[np.argsort(fibres[:, 0])]
