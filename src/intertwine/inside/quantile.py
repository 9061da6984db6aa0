"""The exact q-quantile of every unit in one pass: of M numbers only the (1 - q) M largest are ever kept."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class Quantile:
    """Linear interpolation between order statistics, as numpy's default; memory is (1 - q) of all numbers.

    >>> numbers = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
    >>> running = Quantile(0.995, 1000)
    >>> for part in numbers.split(77):
    ...     running.add(part)
    >>> torch.allclose(running.value(), numbers.quantile(0.995, dim=0))
    True
    """

    def __init__(self, q: float, total: int) -> None:
        self.total, self.place = total, q * (total - 1)
        self.keep = total - math.floor(self.place)
        self.seen = 0
        self._kept: Tensor | None = None
        self._waiting: list[Tensor] = []

    def add(self, rows: Tensor) -> None:
        """rows: (numbers, units)."""
        self.seen += len(rows)
        self._waiting.append(rows)
        # sorting is done for several times what is kept, so that each number is looked at a few times
        if sum(map(len, self._waiting)) >= 4 * self.keep:
            self._settle()

    def value(self) -> Tensor:
        """The quantile of every unit."""
        assert self.seen == self.total, f"{self.seen} of {self.total} numbers"
        self._settle()
        assert self._kept is not None
        low, share = math.floor(self.place), self.place - math.floor(self.place)
        ordered = self._kept.sort(0, descending=True).values
        below, above = ordered[self.total - 1 - low], ordered[max(self.total - 2 - low, 0)]
        return below + share * (above - below)

    def _settle(self) -> None:
        if not self._waiting:
            return
        parts = self._waiting if self._kept is None else [self._kept, *self._waiting]
        rows = torch.cat(parts)
        self._kept = rows.topk(self.keep, 0, sorted=False).values if len(rows) > self.keep else rows
        self._waiting = []
