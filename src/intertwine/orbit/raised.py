"""Large models on their way along the orbit: g . theta of one weight at a time, made when it is looked at.

Copies of both models in float64 are 16 bytes a parameter. Here the weights stay as they are stored, a state
is its element only, and `weights[name]` is that weight in float64, moved by the element.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from intertwine.orbit.scales import Slot
from intertwine.orbit.state import Match, Mover, State
from intertwine.symmetry import Element
from intertwine.symmetry.transform import Action, fibre_map

LARGE = 2_000_000_000  # bytes that the weights of one model may take in float64


def is_large(tensors: Iterable[Tensor]) -> bool:
    """Whether float64 copies would take more memory than a tool may: then one is made at a time."""
    return 8 * sum(t.numel() for t in tensors) > LARGE


class Raised(Mapping[str, Tensor]):
    """Weights in float64, made at every look: g . theta, or theta without an element.

    device: where they are wanted; None leaves them where they are stored.
    """

    def __init__(
        self, stored: Mapping[str, Tensor], element: Element | None = None, device: str | None = "cpu"
    ) -> None:
        self._stored, self._device = stored, device
        self._action = None if element is None else Action(element)

    def __getitem__(self, name: str) -> Tensor:
        # Nothing here has a name: a large weight would be held while it is being moved.
        return self._raised(name) if self._action is None else self._action.weight(name, self._raised)

    def _raised(self, name: str) -> Tensor:
        if isinstance(self._stored, Raised):  # made for this look
            return self._stored[name]
        stored = self._stored[name].detach()
        return stored.to(self._device or stored.device, torch.float64, copy=True)

    def __contains__(self, name: object) -> bool:
        return name in self._stored  # a mapping would make the weight to tell

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def only(self, names: Iterable[str]) -> Raised:
        """Some of the weights."""
        out, chosen = copy.copy(self), [name for name in names if name in self._stored]
        inner = self._stored
        out._stored = inner.only(chosen) if isinstance(inner, Raised) else {n: inner[n] for n in chosen}
        return out

    def moved(self, element: Element) -> Raised:
        """These weights, moved by a further element."""
        return Raised(self, element)


class RaisedState(State):
    """A state whose steps change its element alone; `weights` are the first ones, moved by it."""

    def __init__(self, mover: Mover, weights: Raised) -> None:
        super().__init__(mover, {})
        self._first = weights
        self._seen: Raised | None = None  # until the next step

    @property
    def weights(self) -> Raised:
        """g . theta for the element of now."""
        if self._seen is None:
            self._seen = self._first.moved(self.element)
        return self._seen

    def copy(self, params: Iterable[str] | None = None) -> RaisedState:
        """The same state, of some weights only."""
        out = RaisedState.__new__(RaisedState)
        vars(out).update(vars(self))
        out._linear = dict(self._linear)
        if params is not None:
            out._first, out._seen = self._first.only(params), None
        return out

    def adopt(self, trial: State) -> None:
        """Go where a copy has gone."""
        vars(self).update({**vars(trial), "_first": self._first, "_seen": None})

    def match(self, found: Match, slots: Iterable[Slot]) -> None:
        """Permute and turn."""
        for orbit, matrices in found.linear.items():
            self.turn(orbit, matrices)
        self.relabel, self._seen = found.relabel[self.relabel], None

    def turn(self, orbit: int, matrices: np.ndarray) -> None:
        """Act with a matrix on each block of a linear axis."""
        self._linear[orbit] = matrices[fibre_map(self.structure, orbit, self.relabel)] @ self._linear[orbit]
        self._seen = None

    def turn_pairs(self, logs: np.ndarray) -> None:
        """Multiply the pairs of rotary embeddings by w, given as log w."""
        super().turn_pairs(logs)
        self._seen = None

    def rescale(self, log_scale: np.ndarray, sign: np.ndarray, slots: Iterable[Slot]) -> None:
        """Multiply by sign and exp(log_scale), given for every position; `slots` are those that change."""
        super().rescale(log_scale, sign, slots)
        self._seen = None
