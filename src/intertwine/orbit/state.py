"""Weights on their way along the orbit, and acting on a few of them, fast.

`symmetry.transform.apply_element` finds where every position of every weight goes; a step of the descent
moves one axis, so only the dimensions that carry it are looked at, and what does not change is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from intertwine.ir.ledger import Ids
from intertwine.orbit.scales import Slot, apply_factors
from intertwine.orbit.units import Weights
from intertwine.symmetry import Element
from intertwine.symmetry.colours import mix
from intertwine.symmetry.positions import in_front, put_back, taken
from intertwine.symmetry.structure import Structure
from intertwine.symmetry.transform import destinations, fibre_map, identity


class Mover:
    """Moves positions along dimensions; remembers what does not depend on the element."""

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        self._hash = structure.home
        self._order: dict[Slot, Ids] = {}

    def source(self, slot: Slot, relabel: Ids) -> Ids | None:
        """new[p] = old[source[p]] along one dimension, or None where nothing moves."""
        s = self.structure
        start, stop = s.span[slot]
        first = int(s.coordinate_start[start])
        last = int(s.coordinate_start[stop]) if stop < len(s.coordinate_start) else len(s.coordinate_class)
        classes = s.coordinate_class[first:last]
        target = relabel[classes]
        if np.array_equal(target, classes):
            return None
        there = np.add.reduceat(mix(target), s.coordinate_start[start:stop] - first) + s.copy[start:stop]
        if slot not in self._order:
            self._order[slot] = np.argsort(self._hash[start:stop], kind="stable")
        out = np.empty(stop - start, np.int64)
        out[self._order[slot]] = np.argsort(there, kind="stable")
        return out

    def permute(self, weights: dict[str, Tensor], slots: Iterable[Slot], relabel: Ids) -> None:
        """Relabel channels along the given dimensions (in the caller's dict, with new tensors)."""
        # Dimension 0 first: the groups of a grouped convolution move before the channels in them.
        for slot in sorted(slots):
            if slot[0] in weights:
                source = self.source(slot, relabel)
                if source is not None:
                    weights[slot[0]] = self._gather(weights[slot[0]], slot, source)

    def _gather(self, tensor: Tensor, slot: Slot, source: Ids) -> Tensor:
        return taken(tensor, self.structure.slots[slot].ids.shape, slot[1], source)

    def multiply(self, weights: dict[str, Tensor], slots: Iterable[Slot], factor: np.ndarray) -> None:
        """Multiply by a factor for each position of every slot."""
        for slot in slots:
            if slot[0] in weights:
                start, stop = self.structure.span[slot]
                if (factor[start:stop] != 1.0).any():
                    apply_factors(self.structure, weights, slot, factor[start:stop])

    def turn(
        self, weights: dict[str, Tensor], orbit: int, matrices: np.ndarray, dual: np.ndarray | None = None
    ) -> None:
        """Act with the matrices X of one linear axis, and with X^-T (or `dual`) on what reads it."""
        if dual is None:
            dual = np.linalg.inv(matrices).transpose(0, 2, 1)
        for (param, dim), (where, fibre, exponent) in self.structure.linear[orbit].places.items():
            if param in weights:
                matrix = np.where(exponent[:, None, None] > 0, matrices[fibre], dual[fibre])
                shape = self.structure.slots[param, dim].ids.shape
                front = in_front(weights[param], shape, dim).clone()
                index = torch.from_numpy(where)
                front[..., index] = torch.einsum(
                    "...bn,bmn->...bm", front[..., index], torch.from_numpy(matrix)
                )
                weights[param] = put_back(front, shape, dim, weights[param].shape)


@dataclass(frozen=True, eq=False)
class Match:
    """relabel: class -> class. linear: orbit -> matrices, of the linear units that turn."""

    relabel: Ids
    linear: dict[int, np.ndarray]


class State:
    """Parameters on their way, and the element that brought them there. relabel: class -> where it is now."""

    def __init__(self, mover: Mover, weights: Weights) -> None:
        self.structure, self.mover = mover.structure, mover
        self.held: dict[str, Tensor] = dict(weights)
        base = identity(mover.structure)
        self.relabel, self._log_scale, self._sign = base.relabel, base.log_scale, base.sign
        self._linear = dict(base.linear)
        self._turn: np.ndarray | None = None

    @property
    def weights(self) -> Weights:
        """The parameters where they are now."""
        return self.held

    @property
    def element(self) -> Element:
        """All steps as one."""
        return Element(
            self.structure, self.relabel, self._log_scale, self._sign, dict(self._linear), self._turn
        )

    @property
    def origin(self) -> Ids:
        """Class -> the class that its channel had at first."""
        out = np.empty_like(self.relabel)
        out[self.relabel] = np.arange(len(out))
        return out

    def copy(self, params: Iterable[str] | None = None) -> State:
        """The same state, of some weights only."""
        out = State.__new__(State)
        vars(out).update(vars(self))
        names = self.held if params is None else [p for p in params if p in self.held]
        out.held = {name: self.held[name] for name in names}
        out._linear = dict(self._linear)
        return out

    def adopt(self, trial: State) -> None:
        """Go where a copy has gone."""
        vars(self).update({**vars(trial), "held": {**self.held, **trial.held}})

    def match(self, found: Match, slots: Iterable[Slot]) -> None:
        """Permute and turn."""
        for orbit, matrices in found.linear.items():
            self.turn(orbit, matrices)
        self.mover.permute(self.held, slots, found.relabel)
        self.relabel = found.relabel[self.relabel]

    def turn(self, orbit: int, matrices: np.ndarray) -> None:
        """Act with a matrix on each block of a linear axis."""
        self.mover.turn(self.held, orbit, matrices)
        moved = matrices[fibre_map(self.structure, orbit, self.relabel)]
        self._linear[orbit] = moved @ self._linear[orbit]

    def turn_pairs(self, logs: np.ndarray) -> None:
        """Multiply the pairs of rotary embeddings by w, given as log w."""
        s = self.structure
        for slot in s.turns.places:
            if slot[0] in self.held:
                self.held[slot[0]] = s.turns.multiply(self.held[slot[0]], slot, logs)
        there = logs[s.turns.moved(s.span, destinations(s, self.relabel))]
        self._turn = there if self._turn is None else self._turn + there

    def rescale(self, log_scale: np.ndarray, sign: np.ndarray, slots: Iterable[Slot]) -> None:
        """Multiply by sign and exp(log_scale), given for every position; `slots` are those that change."""
        self._log_scale, self._sign = self._log_scale.copy(), self._sign.copy()
        for slot in slots:
            # An element multiplies before it moves: what lies at p now was multiplied where it came from.
            start, stop = self.structure.span[slot]
            source = self.mover.source(slot, self.relabel)
            first = start + (np.arange(stop - start) if source is None else source)
            self._log_scale[first] += log_scale[start:stop]
            self._sign[first] *= sign[start:stop]
        self.mover.multiply(self.held, slots, np.exp(log_scale) * sign)
