"""The nearest pair and the largest distance of a set that shrinks by merging, maintained and not searched.

A merged channel is a linear combination of two, so its inner products follow from theirs: with
x = a x_m + b x_n,  <x, y> = a <x_m, y> + b <x_n, y>. No weight is read again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

Matrix = np.ndarray
Pair = tuple[float, float]
COLUMNS = 256  # of low-rank changes that are held back


def combined(gram: Matrix, keep: int, drop: int, a: float, b: float) -> Matrix:
    """The row of a x_keep + b x_drop, written over the row and the column of x_keep."""
    own = a * a * gram[keep, keep] + 2 * a * b * gram[keep, drop] + b * b * gram[drop, drop]
    row = a * gram[keep] + b * gram[drop]
    row[keep] = own
    gram[keep], gram[:, keep] = row, row
    result: Matrix = row
    return result


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

    A change of a Gram matrix by C changes D by c_ii + c_jj - 2 c_ij. All changes since the last look at the
    distances are one product on them, and two passes find the nearest pair and the largest distance. Of the
    Gram matrices only the rows that merge are wanted, so changes stay factors until there are many. The last
    channel takes the place of one that dies, so that all work is on the living; `order[i]` is the channel in
    row i.
    """

    def __init__(self, grams: Sequence[Matrix], order: np.ndarray | None = None) -> None:
        self.table = distances(grams)
        self.sides = [_ChangingGram(gram) for gram in grams]
        self.order = np.arange(len(self.table)) if order is None else order
        self.moved = np.zeros(len(self.table))  # change of the norms that the table has not seen

    def __len__(self) -> int:
        return len(self.order)

    def extremes(self) -> tuple[int, int, float, float]:
        """Rows (keep, drop) and the distance of the nearest pair, and the largest distance."""
        self._see_changes()
        diagonal = np.einsum("ii->i", self.table)
        diagonal[:] = 0.0
        largest = max(float(self.table.max()), 0.0)
        diagonal[:] = np.inf
        i = int(self.table.min(1).argmin())
        j = int(self.table[i].argmin())
        distance = max(float(self.table[i, j]), 0.0)
        return (i, j, distance, largest) if self.order[i] < self.order[j] else (j, i, distance, largest)

    def merge(self, keep: int, drop: int, coefficients: Sequence[Pair]) -> None:
        """Row `keep` becomes a x_keep + b x_drop, with (a, b) for every Gram matrix; `drop` dies."""
        self._see_changes()
        row = np.zeros(len(self))
        for side, (a, b) in zip(self.sides, coefficients, strict=True):
            inner = side.combine(keep, drop, a, b)
            row += inner[keep] + side.norms - 2 * inner
            side.remove(drop)
        self.table[keep], self.table[:, keep] = row, row
        self.table = _without(self.table, drop)
        self.order[drop] = self.order[-1]
        self.order, self.moved = self.order[:-1], self.moved[:-1]

    def change(self, side: int, left: Matrix, right: Matrix) -> None:
        """Gram matrix `side` changes by left right^T, which is symmetric."""
        if self.sides[side].full(left.shape[1]):
            self._see_changes()
        self.moved += self.sides[side].change(left, right)

    def _see_changes(self) -> None:
        factors = [side.unseen() for side in self.sides]
        if not any(left.shape[1] for left, _ in factors):
            return
        half, one = self.moved[:, None] * -0.5, np.ones((len(self), 1))
        left = np.concatenate([*(left for left, _ in factors), half, one], 1)
        right = np.concatenate([*(right for _, right in factors), one, half], 1)
        torch.from_numpy(self.table).addmm_(torch.from_numpy(left), torch.from_numpy(right).T, alpha=-2.0)
        self.moved[:] = 0.0


class _ChangingGram:
    """G + L R^T: a Gram matrix, and its changes as factors until there are `COLUMNS` of them."""

    def __init__(self, gram: Matrix) -> None:
        self.gram, self.norms = gram, np.diag(gram).copy()
        self.left, self.right = np.zeros((2, len(gram), COLUMNS))
        self.used = self.seen = 0

    def unseen(self) -> tuple[Matrix, Matrix]:
        """The factors of the changes since the last call."""
        start, self.seen = self.seen, self.used
        return self.left[:, start : self.used], self.right[:, start : self.used]

    def full(self, columns: int) -> bool:
        """Whether a change with so many columns finds no room."""
        result: bool = self.used + columns > self.left.shape[1]
        return result

    def change(self, left: Matrix, right: Matrix) -> Matrix:
        """Add left right^T; returns the change of the norms. Where it is `full`, nothing may be unseen."""
        if self.full(left.shape[1]):
            left_part, right_part = (
                torch.from_numpy(factor[:, : self.used]) for factor in (self.left, self.right)
            )
            torch.from_numpy(self.gram).addmm_(left_part, right_part.T)
            self.used = self.seen = 0
            if self.full(left.shape[1]):
                self.left, self.right = np.zeros((2, len(self.gram), left.shape[1]))
        end = self.used + left.shape[1]
        self.left[:, self.used : end], self.right[:, self.used : end] = left, right
        self.used = end
        own = np.einsum("ij,ij->i", left, right)
        self.norms += own
        result: Matrix = own
        return result

    def combine(self, keep: int, drop: int, a: float, b: float) -> Matrix:
        """The row of a x_keep + b x_drop, which takes the place of x_keep."""
        left, right = self.left[:, : self.used], self.right[:, : self.used]
        weight = a * left[keep] + b * left[drop]
        row = torch.mv(torch.from_numpy(right), torch.from_numpy(weight)).numpy()
        row += a * self.gram[keep] + b * self.gram[drop]
        row[keep] = a * row[keep] + b * row[drop]
        self.gram[keep], self.gram[:, keep] = row, row
        left[keep], right[keep], self.norms[keep] = 0.0, 0.0, row[keep]
        return row

    def remove(self, drop: int) -> None:
        """The last row and column take the place of `drop`."""
        self.gram = _without(self.gram, drop)
        for rows in (self.left, self.right, self.norms):
            rows[drop] = rows[-1]
        self.left, self.right, self.norms = self.left[:-1], self.right[:-1], self.norms[:-1]


def _without(matrix: Matrix, drop: int) -> Matrix:
    last = len(matrix) - 1
    matrix[drop], matrix[:, drop] = matrix[last], matrix[:, last]
    matrix[drop, drop] = matrix[last, last]
    return matrix[:last, :last]
