"""The nearest pair and the largest distance of a set that shrinks by merging, maintained and not searched.

A merged channel is a linear combination of two, so its inner products follow from theirs: with
x = a x_m + b x_n,  <x, y> = a <x_m, y> + b <x_n, y>. No weight is read again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

Matrix = np.ndarray
Pair = tuple[float, float]


def combined(gram: Matrix, keep: int, drop: int, a: float, b: float) -> Matrix:
    """The row of a x_keep + b x_drop, written over the row and the column of x_keep."""
    own = a * a * gram[keep, keep] + 2 * a * b * gram[keep, drop] + b * b * gram[drop, drop]
    row = a * gram[keep] + b * gram[drop]
    row[keep] = own
    gram[keep], gram[:, keep] = row, row
    return row


def distances(grams: Sequence[Matrix]) -> Matrix:
    """D_ij = sum over the Gram matrices of g_ii + g_jj - 2 g_ij; infinite where i = j."""
    total = grams[0] + grams[1] if len(grams) == 2 else sum(grams[1:], start=grams[0].copy())
    norms = np.diag(total).copy()
    total *= -2.0
    total += norms[:, None]
    total += norms[None, :]
    np.maximum(total, 0.0, out=total)
    np.fill_diagonal(total, np.inf)
    return total


class PairTable:
    """Distances of an axis under merging: `nearest()`, `largest()`, `merge(keep, drop, ...)`.

    Every row remembers its nearest and its farthest channel. A row that loses one keeps the old distance as a
    bound, and is searched only when the bound comes first. Ties go to the first pair in lexicographic order,
    as `argmin` of the whole matrix would.
    """

    def __init__(self, grams: Sequence[Matrix]) -> None:
        self.grams = list(grams)
        self.norms = np.sum([np.diag(gram) for gram in self.grams], axis=0)
        size = len(self.grams[0])
        self.alive = np.ones(size, bool)
        self.living = size
        self.table = distances(self.grams)
        every = np.arange(size)
        self.near = self.table.argmin(1)
        self.near_distance = self.table[every, self.near]
        np.fill_diagonal(self.table, -np.inf)
        self.far = self.table.argmax(1)
        self.far_distance = self.table[every, self.far]
        np.fill_diagonal(self.table, np.inf)
        self.near_stale, self.far_stale = np.zeros(size, bool), np.zeros(size, bool)

    def __len__(self) -> int:
        return self.living

    def nearest(self) -> tuple[int, int, float]:
        """(i, j, distance) of the nearest pair, i < j."""
        i = int(self.near_distance.argmin())
        while self.near_stale[i]:
            known = self.near_distance[~self.near_stale].min(initial=np.inf)
            again = np.flatnonzero(self.near_stale & (self.near_distance <= known))
            self.near[again] = found = self.table[again].argmin(1)
            self.near_distance[again], self.near_stale[again] = self.table[again, found], False
            i = int(self.near_distance.argmin())
        j = int(self.near[i])
        return min(i, j), max(i, j), float(self.near_distance[i])

    def largest(self) -> float:
        """The largest distance."""
        i = int(self.far_distance.argmax())
        while self.far_stale[i]:
            self.far[i] = j = int(np.where(self.table[i] < np.inf, self.table[i], -np.inf).argmax())
            self.far_distance[i], self.far_stale[i] = self.table[i, j], False
            i = int(self.far_distance.argmax())
        return float(self.far_distance[i])

    def merge(self, keep: int, drop: int, coefficients: Sequence[Pair]) -> None:
        """Channel `keep` becomes a x_keep + b x_drop, with (a, b) for every Gram matrix; `drop` dies."""
        inner = np.zeros(len(self.alive))
        for gram, (a, b) in zip(self.grams, coefficients, strict=True):
            inner += combined(gram, keep, drop, a, b)
        own = inner[keep]
        self.alive[drop] = False
        self.living -= 1
        self.norms[keep] = own
        row = np.maximum(own + self.norms - 2 * inner, 0.0)
        row[~self.alive] = np.inf
        row[keep] = np.inf
        self.table[keep], self.table[:, keep] = row, row
        self.table[drop], self.table[:, drop] = np.inf, np.inf
        self._update_nearest(keep, drop, row)
        self._update_farthest(keep, drop, row)

    def _update_nearest(self, keep: int, drop: int, row: np.ndarray) -> None:
        closer = row < self.near_distance
        self.near_stale |= (self.near == keep) | (self.near == drop) | (row == self.near_distance)
        self.near[closer], self.near_distance[closer] = keep, row[closer]
        self.near_stale[closer] = False
        self.near[keep] = j = int(row.argmin())
        self.near_distance[keep], self.near_stale[keep] = row[j], False
        self.near_distance[drop], self.near_stale[drop] = np.inf, False

    def _update_farthest(self, keep: int, drop: int, row: np.ndarray) -> None:
        finite = np.where(row < np.inf, row, -np.inf)
        farther = finite >= self.far_distance
        self.far_stale |= (self.far == keep) | (self.far == drop)
        self.far[farther], self.far_distance[farther] = keep, finite[farther]
        self.far_stale[farther] = False
        self.far[keep] = j = int(finite.argmax())
        self.far_distance[keep], self.far_stale[keep] = finite[j], False
        self.far_distance[drop], self.far_stale[drop] = -np.inf, False


class MovingTable:
    """Distances of an axis under merging and under low-rank changes of every inner product.

    A change of the Gram matrix by C changes D by c_ii + c_jj - 2 c_ij: one product each, and two passes find
    the nearest pair and the largest distance. The last channel takes the place of one that dies, so that all
    work is on the living; `order[i]` is the channel in row i.
    """

    def __init__(self, grams: Sequence[Matrix], order: np.ndarray | None = None) -> None:
        self.grams = list(grams)
        self.table = distances(self.grams)
        self.order = np.arange(len(self.table)) if order is None else order

    def __len__(self) -> int:
        return len(self.order)

    def extremes(self) -> tuple[int, int, float, float]:
        """Rows (keep, drop) and the distance of the nearest pair, and the largest distance."""
        np.fill_diagonal(self.table, 0.0)
        largest = max(float(self.table.max()), 0.0)
        np.fill_diagonal(self.table, np.inf)
        i = int(self.table.min(1).argmin())
        j = int(self.table[i].argmin())
        distance = max(float(self.table[i, j]), 0.0)
        return (i, j, distance, largest) if self.order[i] < self.order[j] else (j, i, distance, largest)

    def merge(self, keep: int, drop: int, coefficients: Sequence[Pair]) -> None:
        """Row `keep` becomes a x_keep + b x_drop, with (a, b) for every Gram matrix; `drop` dies."""
        row = np.zeros(len(self))
        for gram, (a, b) in zip(self.grams, coefficients, strict=True):
            inner = combined(gram, keep, drop, a, b)
            row += inner[keep] + np.diagonal(gram) - 2 * inner
        self.table[keep], self.table[:, keep] = row, row
        last = len(self) - 1
        for matrix in (*self.grams, self.table):
            matrix[drop], matrix[:, drop] = matrix[last], matrix[:, last]
            matrix[drop, drop] = matrix[last, last]
        self.grams = [gram[:last, :last] for gram in self.grams]
        self.table = self.table[:last, :last]
        self.order[drop] = self.order[last]
        self.order = self.order[:last]

    def change(self, side: int, left: Tensor, right: Tensor) -> None:
        """Gram matrix `side` changes by left right^T, which is symmetric."""
        torch.from_numpy(self.grams[side]).addmm_(left, right.T)
        own = (left * right).sum(1, keepdim=True)
        one = torch.ones_like(own)
        table = torch.from_numpy(self.table)
        table.addmm_(torch.cat([left * -2.0, own, one], 1), torch.cat([right, one, own], 1).T)
