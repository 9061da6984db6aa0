"""Pairs of channels read as complex numbers z, and z -> w z on the weights that carry them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from intertwine.ir.ledger import Ids

Slot = tuple[str, int]


@dataclass(frozen=True, eq=False)
class Turns:
    """count: how many pairs. places: slot -> (rows, 2) positions, the pair of each row, its exponent (+1 or
    -1 for 1 / conj). scaled: of each pair, whether |w| is free here."""

    count: int = 0
    places: Mapping[Slot, tuple[Ids, Ids, Ids]] = field(default_factory=dict)
    scaled: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))

    def draw(self, rng: np.random.Generator, spread: float) -> np.ndarray:
        """log w of every pair: angles all round, log-normal scales where they are free."""
        angle = rng.uniform(-np.pi, np.pi, self.count)
        logs: np.ndarray = np.where(self.scaled, spread * rng.standard_normal(self.count), 0.0) + 1j * angle
        return logs

    def multiply(self, tensor: Tensor, slot: Slot, logs: np.ndarray) -> Tensor:
        """One dimension of a weight with its pairs multiplied by w, or by 1 / conj(w)."""
        if slot not in self.places or not logs.any():
            return tensor
        where, pair, exponent = self.places[slot]
        size = torch.from_numpy(np.exp(exponent * logs.real[pair]))
        cos, sin = (torch.from_numpy(f(logs.imag[pair])).to(tensor) for f in (np.cos, np.sin))
        index = torch.from_numpy(where).to(tensor.device)
        front = tensor.movedim(slot[1], -1).clone()
        first, second = front[..., index[:, 0]], front[..., index[:, 1]]
        front[..., index[:, 0]] = size.to(tensor) * (cos * first - sin * second)
        front[..., index[:, 1]] = size.to(tensor) * (sin * first + cos * second)
        return front.movedim(-1, slot[1])

    def moved(self, span: Mapping[Slot, tuple[int, int]], destination: Ids) -> Ids:
        """Pair -> where a permutation takes it; -1 for a pair that it takes apart."""
        pair_at, role_at = np.full(len(destination), -1), np.full(len(destination), -1)
        for slot, (where, pair, _) in self.places.items():
            start = span[slot][0]
            pair_at[start + where], role_at[start + where] = pair[:, None], np.array([0, 1])
        image = np.full(self.count, -2, np.int64)
        at = np.flatnonzero(pair_at >= 0)
        there = np.where(role_at[destination[at]] == role_at[at], pair_at[destination[at]], -1)
        image[pair_at[at]] = there
        image[pair_at[at[image[pair_at[at]] != there]]] = -1
        return image

    def chosen(self, pairs: np.ndarray) -> Turns:
        """Those of the pairs (a mask) only."""
        number = np.cumsum(pairs) - 1
        places = {
            slot: (where[pairs[pair]], number[pair[pairs[pair]]], exponent[pairs[pair]])
            for slot, (where, pair, exponent) in self.places.items()
        }
        kept = {slot: place for slot, place in places.items() if len(place[1])}
        return Turns(int(pairs.sum()), kept, self.scaled[pairs])
