"""What may change places as a whole, and what such an exchange does to an element of the other parts.

An element of the group is e . g: first g (permutations, scales, matrices inside tensors), then an exchange e.
So e g e^-1 is asked for whenever two elements are composed (`symmetry.conjugate`): it does to every member
what g does to the one that lay there before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from intertwine.ir.ledger import Ids
from intertwine.rules.expressions import Exchanged
from intertwine.symmetry.pairs import Slot

if TYPE_CHECKING:
    from intertwine.symmetry.structure import Structure


@dataclass(frozen=True, eq=False)
class Family:
    """members: what changes places. tensors: of each member its weights and buffers, in one order. beside:
    (weight, dimension) -> (members, n) positions of each member along it."""

    members: tuple[str, ...]
    tensors: tuple[tuple[str, ...], ...]
    beside: Mapping[Slot, Ids]

    @property
    def size(self) -> int:
        """How many members there are."""
        return len(self.members)

    def __str__(self) -> str:
        along = sorted({name for name, _ in self.beside})
        with_ = f", with what is theirs in {', '.join(along)}" if along else ""
        return f"{self.size} modules may change places: {', '.join(self.members)}{with_}"

    def exchanged(self, order: Sequence[int]) -> Exchanged:
        """Member k in the place of member order[k]."""
        pairs = [(self.tensors[j], self.tensors[k]) for k, j in enumerate(order)]
        moved = {new: old for there, here in pairs for new, old in zip(there, here, strict=True)}
        return Exchanged(moved, {slot: self.source(slot, order).tolist() for slot in self.beside})

    def source(self, slot: Slot, order: Sequence[int]) -> Ids:
        """Where each position of a slot, up to the last that moves, comes from: member k goes to order[k]."""
        where = self.beside[slot]
        source = np.arange(int(where.max()) + 1)
        source[where[np.asarray(order)]] = where
        return source

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        beside = {f"{name} dim {dim}": where.tolist() for (name, dim), where in self.beside.items()}
        return {"members": list(self.members), "beside": beside}


class Exchanges:
    """The families of one model. An exchange is an array over all their members: where each one goes."""

    def __init__(self, families: Sequence[Family] = ()) -> None:
        self.families = tuple(families)
        self.start = np.cumsum([0, *(family.size for family in self.families)])

    @property
    def count(self) -> int:
        """How many members there are in all families."""
        return int(self.start[-1])

    def identity(self) -> Ids:
        """Every member stays."""
        return np.arange(self.count)

    def draw(self, rng: np.random.Generator, restless: bool = False) -> Ids:
        """Members in a random order; restless: in a cycle through the whole family, so that none stays."""
        out = self.identity()
        for start, family in zip(self.start, self.families, strict=False):
            order = rng.permutation(family.size)
            place = order if not restless else order[(np.argsort(order) + 1) % family.size]
            out[start : start + family.size] = start + place
        return out

    def alone(self, number: int) -> Exchanges:
        """One family."""
        return Exchanges([self.families[number]])

    def orders(self, exchange: Ids) -> list[list[int]]:
        """For each family, where its members go."""
        bounds = zip(self.start, self.start[1:], strict=False)
        return [(exchange[a:b] - a).tolist() for a, b in bounds]

    def is_exchange(self, exchange: np.ndarray) -> bool:
        """Whether an array is a permutation of the members of each family."""
        return exchange.shape == (self.count,) and all(
            sorted(order) == list(range(len(order))) for order in self.orders(exchange)
        )

    def exchanged(self, exchange: Ids) -> Exchanged:
        """Which weight, and which position, lies where."""
        tensors, slots = dict[str, str](), dict[Slot, Sequence[int]]()
        for family, order in zip(self.families, self.orders(exchange), strict=True):
            moved = family.exchanged(order)
            tensors |= moved.tensors
            slots |= {(name, dim): source for name, of in moved.slots.items() for dim, source in of.items()}
        return Exchanged(tensors, slots)

    def moved(self, structure: Structure, exchange: Ids) -> Ids:
        """Where every position of every weight goes, as an index into the one long list of positions."""
        out = np.arange(len(structure.labels))
        moved = self.exchanged(exchange)
        for slot, (start, stop) in structure.span.items():
            source = moved.tensors.get(slot[0])
            if source is not None:
                out[slice(*structure.span[source, slot[1]])] = np.arange(start, stop)
            along = moved.slots.get(slot[0], {}).get(slot[1])
            if along is not None:
                out[start + np.asarray(along)] = start + np.arange(len(along))
        return out
