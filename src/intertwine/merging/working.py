"""The matrices of a model while they are merged: on the CPU, shrinking with every merged axis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from intertwine.merging.places import Place

COLUMNS = 512  # of a slice matrix that are multiplied at a time
BLOCK = 128  # rows of a Gram matrix that are computed at a time, up to the diagonal
Sides = tuple[list[Place], list[Place]]


@dataclass(frozen=True, eq=False)
class Target:
    """An axis to merge: its name, size, places, and the form of its merges.

    literal: compare merged channels by their sums and means, as eq. 6 and 7 say. Then three equal channels
    are not all merged (w + w is far from w); otherwise a merged channel is compared by what it stands for,
    the average of its channels.
    """

    name: str
    size: int
    places: tuple[Place, ...]
    sums_first: bool
    literal: bool = True

    def matrices(self, weights: Mapping[str, Tensor]) -> Sides:
        """The places that count for the distance: matrices that make the axis, and that read it (eq. 6)."""
        counted = [p for p in self.places if p.param in weights and weights[p.param].dim() > 1]
        return [p for p in counted if not p.consumes], [p for p in counted if p.consumes]


def gram(places: Sequence[Place], weights: Mapping[str, Tensor], size: int) -> np.ndarray:
    """sum over the places of R R^T in float64, R the slices of all channels; half of it is computed."""
    total = torch.zeros(size, size, dtype=torch.float64)
    for place in places:
        for part in _parts(place, weights[place.param]):
            for top in range(0, size, BLOCK):
                end = min(top + BLOCK, size)
                total[top:end, :end].addmm_(part[top:end], part[:end].T)
    return (total.tril() + total.tril(-1).T).numpy()


def _parts(place: Place, tensor: Tensor) -> Iterator[Tensor]:
    """The slices of all channels in float64, some columns at a time so that copies stay in cache."""
    parts: Iterable[Tensor]
    if place.dim == 0:
        parts = place.rows(tensor).split(COLUMNS, 1)
    else:
        columns = tensor[:1].numel() // tensor.shape[place.dim]
        parts = (place.rows(part) for part in tensor.split(max(1, COLUMNS // columns)))
    yield from (part.to(torch.float64) for part in parts)


class Working:
    """Weights and the places of all targets in them. The given tensors are replaced, never changed."""

    def __init__(self, targets: Sequence[Target], weights: Mapping[str, Tensor]) -> None:
        self.sides: list[Sides] = [target.matrices(weights) for target in targets]
        named = {p.param for sides in self.sides for side in sides for p in side}
        self.weights = {name: weights[name].to("cpu") for name in named}

    def grams(self, k: int) -> list[np.ndarray]:
        """The two Gram matrices of an axis: of what makes it and of what reads it."""
        making, reading = self.sides[k]
        size = len((making + reading)[0].where)
        return [gram(side, self.weights, size) for side in (making, reading)]

    def coupled(self, k: int) -> bool:
        """Whether one weight both makes and reads the axis (a recurrence)."""
        making, reading = self.sides[k]
        return bool({p.param for p in making} & {p.param for p in reading})

    def fold(self, k: int, classes: Sequence[Sequence[int]], sums_first: bool) -> None:
        """Every class of channels becomes its first: summed or averaged, and the others removed."""
        first = {c: members[0] for members in classes for c in members[1:]}
        drop = sorted(first)
        kept = np.setdiff1d(np.arange(sum(map(len, classes))), drop)
        into = np.searchsorted(kept, [first[c] for c in drop])
        share = np.ones(len(kept))
        np.add.at(share, into, 1.0)
        for side, average in enumerate((not sums_first, sums_first)):
            for number in range(len(self.sides[k][side])):
                place = self.sides[k][side][number]
                gone = torch.from_numpy(place.where[drop].reshape(-1))
                slices = self.weights[place.param].index_select(place.dim, gone).to(torch.float64)
                self._remove(place, gone.numpy())
                where = place.where[kept] - _below(gone.numpy(), place.where[kept])
                self.sides[k][side][number] = replace(place, where=where)
                tensor = self.weights[place.param]
                tensor.index_add_(place.dim, torch.from_numpy(where[into].reshape(-1)), slices)
                if average:
                    factor = torch.ones(tensor.shape[place.dim], dtype=tensor.dtype)
                    factor[torch.from_numpy(where)] = torch.from_numpy(1.0 / share)[:, None]
                    tensor *= factor.reshape([-1 if d == place.dim else 1 for d in range(tensor.dim())])

    def _remove(self, own: Place, gone: np.ndarray) -> None:
        """A new tensor without these positions of a place, and what else lies there moved up. An axis that
        crosses the one that loses channels (heads, and what is in each of them) has fewer copies."""
        param, dim = own.param, own.dim
        tensor = self.weights[param]
        kept = np.setdiff1d(np.arange(tensor.shape[dim]), gone)
        self.weights[param] = tensor.index_select(dim, torch.from_numpy(kept)).to(torch.float64)
        for sides in self.sides:
            for side in sides:
                for number, place in enumerate(side):
                    if (place.param, place.dim) == (param, dim) and place is not own:
                        where = place.where[~np.isin(place.where, gone)].reshape(len(place.where), -1)
                        side[number] = replace(place, where=where - _below(gone, where))


def _below(gone: np.ndarray, where: np.ndarray) -> np.ndarray:
    """How many of the removed positions lie before each position."""
    return np.searchsorted(np.sort(gone), where)
