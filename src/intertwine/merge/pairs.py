"""The nearest pair and the largest distance of a set that shrinks by merging, maintained in O(d) a merge.

A merged channel is a linear combination of two, so its inner products follow from theirs: with
x = a x_m + b x_n,  <x, y> = a <x_m, y> + b <x_n, y>. No weight is read again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Matrix = np.ndarray


def combine_gram(gram: Matrix, keep: int, drop: int, a: float, b: float) -> None:
    """Replace x_keep by a x_keep + b x_drop and x_drop by 0, in place."""
    own = a * a * gram[keep, keep] + 2 * a * b * gram[keep, drop] + b * b * gram[drop, drop]
    row = a * gram[keep] + b * gram[drop]
    row[keep], row[drop] = own, 0.0
    gram[keep], gram[:, keep] = row, row
    gram[drop], gram[:, drop] = 0.0, 0.0


def distances(grams: Sequence[Matrix], alive: np.ndarray) -> Matrix:
    """D_ij = sum over the Gram matrices of g_ii + g_jj - 2 g_ij; infinite where i = j or one is dead."""
    total = grams[0] + grams[1] if len(grams) == 2 else sum(grams[1:], start=grams[0].copy())
    norms = np.diag(total).copy()
    total *= -2.0
    total += norms[:, None]
    total += norms[None, :]
    np.maximum(total, 0.0, out=total)
    total[~alive] = np.inf
    total[:, ~alive] = np.inf
    np.fill_diagonal(total, np.inf)
    return total


def extremes(grams: Sequence[Matrix], alive: np.ndarray) -> tuple[int, int, float, float]:
    """(i, j, distance) of the nearest living pair, i < j, and the largest distance, in few passes."""
    total = grams[0] + grams[1]
    norms = np.where(alive, np.diag(total), -np.inf)
    total *= -2.0
    total += norms[:, None]
    total += norms[None, :]
    largest = max(float(total.max()), 0.0)
    dead = np.flatnonzero(~alive)
    total[dead], total[:, dead] = np.inf, np.inf
    np.fill_diagonal(total, np.inf)
    i, j = divmod(int(total.argmin()), len(total))
    return min(i, j), max(i, j), max(float(total[i, j]), 0.0), largest


class PairTable:
    """Distances of an axis under merging: `nearest()`, `largest()`, `merge(keep, drop, ...)`.

    Ties go to the first pair in lexicographic order, as `argmin` of the whole matrix would.
    """

    def __init__(self, grams: Sequence[Matrix]) -> None:
        self.grams = list(grams)
        size = len(self.grams[0])
        self.alive = np.ones(size, bool)
        self.table = distances(self.grams, self.alive)
        every = np.arange(size)
        self.near = self.table.argmin(1)
        self.near_distance = self.table[every, self.near]
        self.far, self.far_distance = self._farthest(every)

    def __len__(self) -> int:
        return int(self.alive.sum())

    def nearest(self) -> tuple[int, int, float]:
        """(i, j, distance) of the nearest pair, i < j."""
        i = int(self.near_distance.argmin())
        j = int(self.near[i])
        return min(i, j), max(i, j), float(self.near_distance[i])

    def largest(self) -> float:
        """The largest distance."""
        return float(self.far_distance.max())

    def merge(self, keep: int, drop: int, coefficients: Sequence[tuple[float, float]]) -> None:
        """Channel `keep` becomes a x_keep + b x_drop, with (a, b) for every Gram matrix; `drop` dies."""
        for gram, (a, b) in zip(self.grams, coefficients, strict=True):
            combine_gram(gram, keep, drop, a, b)
        self.alive[drop] = False
        row = np.zeros(len(self.alive))
        for gram in self.grams:
            row += gram[keep, keep] + np.diag(gram) - 2 * gram[keep]
        row = np.where(self.alive, np.maximum(row, 0.0), np.inf)
        row[keep] = np.inf
        self.table[keep], self.table[:, keep] = row, row
        self.table[drop], self.table[:, drop] = np.inf, np.inf
        self._refresh(keep, drop, row)

    def _refresh(self, keep: int, drop: int, row: np.ndarray) -> None:
        """Only rows that lost their nearest (farthest) channel and gained none as near (far) are searched."""
        self.near_distance[drop], self.far_distance[drop] = np.inf, -np.inf
        before = self.near == keep
        closer = (row < self.near_distance) | ((row == self.near_distance) & (before | (keep < self.near)))
        closer &= self.alive
        lost = self.alive & ~closer & (before | (self.near == drop))
        closer[keep], lost[keep] = False, True
        self.near[closer], self.near_distance[closer] = keep, row[closer]
        again = np.flatnonzero(lost)
        self.near[again] = self.table[again].argmin(1)
        self.near_distance[again] = self.table[again, self.near[again]]
        farther = self.alive & (row >= self.far_distance)
        gone = self.alive & ~farther & ((self.far == keep) | (self.far == drop))
        farther[keep], gone[keep] = False, True
        self.far[farther], self.far_distance[farther] = keep, row[farther]
        again = np.flatnonzero(gone)
        self.far[again], self.far_distance[again] = self._farthest(again)

    def _farthest(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        finite = np.where(np.isfinite(self.table[rows]), self.table[rows], -np.inf)
        far = finite.argmax(1)
        return far, finite[np.arange(len(rows)), far]
