"""Least squares before a rectifier: where nothing is to come through, how far below zero does not matter.

    W = argmin  E |e|^2 + r m |W - W_0|^2,    e = z - t,  or max(z, 0) where every network is off

with z = W h + c: c is the constant that goes with W, and what the combined network has in the sum already.
The problem is convex. Plain least squares with the goal min(z, 0) in those places bounds it from above and
touches it at the W that z was made with, so every round errs less than the one before; the matrix of the
equations stays what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from intertwine.combining._normal import Sums

ROUNDS = 4


@dataclass(frozen=True)
class LayerRows:
    """Some rows of a layer. rows(): (groups, n, inputs); goal: (n, outputs) of what the layer makes itself.

    off: where no network lets anything through; beside: what the sum holds there already. None: nowhere,
    nothing.
    """

    rows: Callable[[], Tensor]
    goal: Tensor
    off: Tensor | None = None
    beside: Tensor | None = None

    def aim(self, rows: Tensor, matrix: Tensor, shift: Tensor) -> Tensor:
        """The goal, with what the layer makes now in the places where that is low enough."""
        if self.off is None:
            return self.goal
        made = (rows @ matrix.to(rows).mT).movedim(0, 1).flatten(1) + shift.to(rows)
        # Of the sum z = made + beside: the layer itself should make min(z, 0) - beside.
        low = made.clamp_max(0) if self.beside is None else made.minimum(-self.beside)
        return torch.where(self.off, low, self.goal)


def one_sided(
    sums: Sums, parts: Sequence[LayerRows], before: Tensor, ridge: float, *, centred: bool
) -> tuple[Tensor, Sums]:
    """The solution, and the sums with the goals that it ended with. sums: those of the parts as they are."""
    matrix = sums.solve(before, ridge, centred=centred)
    if any(part.off is not None for part in parts):
        for _ in range(ROUNDS):
            shift = sums.shift(matrix) if centred else matrix.new_zeros(())
            sums = sums.aimed(_aims(parts, matrix, shift))
            matrix = sums.solve(before, ridge, centred=centred)
    return matrix, sums


def _aims(parts: Sequence[LayerRows], matrix: Tensor, shift: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows and goals, one part in memory at a time."""
    for part in parts:
        rows = part.rows()
        yield rows, part.aim(rows, matrix, shift)
