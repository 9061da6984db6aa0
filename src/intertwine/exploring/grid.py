"""The grid of coefficients: x_m {a + (i-1)/(n-1) (b-a)}, 1 <= i <= n (footnote 7 of GENNI)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from intertwine.errors import InputError
from intertwine.exploring.plane import check_dim

# 5 million values of J are 40 MB, and far beyond what a picture can show.
MAX_POINTS = 5_000_000


@dataclass(frozen=True)
class Grid:
    """Bounds and number of points of every axis.

    >>> grid = Grid.cube(2, 2.0, 5)
    >>> grid.shape, grid.axes[0].tolist()
    ((5, 5), [-2.0, -1.0, 0.0, 1.0, 2.0])
    """

    bounds: tuple[tuple[float, float], ...]
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        check_dim(len(self.shape))
        if len(self.bounds) != len(self.shape):
            raise InputError(f"{len(self.bounds)} bounds for {len(self.shape)} axes")
        if any(not (np.isfinite(low) and np.isfinite(high) and low < high) for low, high in self.bounds):
            raise InputError(f"each bound needs low < high, got {self.bounds}")
        if min(self.shape) < 2:
            raise InputError(f"a grid needs at least 2 points along each axis, got {self.shape}")
        if self.size > MAX_POINTS:
            raise InputError(
                f"a grid of {self.size:,} points is more than the maximum of {MAX_POINTS:,}",
                do="take fewer points along each axis, or a lower dimension",
            )

    @classmethod
    def cube(cls, dim: int, bound: float | tuple[float, float], points: int) -> Grid:
        """The same bounds (-bound, bound), or (low, high), and number of points along every axis."""
        check_dim(dim)
        low, high = bound if isinstance(bound, tuple) else (-bound, bound)
        return cls(((float(low), float(high)),) * dim, (int(points),) * dim)

    @property
    def dim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        size = 1
        for count in self.shape:
            size *= count
        return size

    @property
    def axes(self) -> tuple[NDArray[np.float64], ...]:
        return tuple(np.linspace(a, b, n) for (a, b), n in zip(self.bounds, self.shape, strict=True))

    @property
    def steps(self) -> tuple[float, ...]:
        return tuple((b - a) / (n - 1) for (a, b), n in zip(self.bounds, self.shape, strict=True))

    def coordinates(self, flat: NDArray[np.int64] | Sequence[int] | None = None) -> Tensor:
        """Coordinates (rows, float64) of the points with these flat indices, or of all, in C order."""
        indices = np.arange(self.size) if flat is None else np.asarray(flat)
        places = np.unravel_index(indices, self.shape)
        columns = [axis[place] for axis, place in zip(self.axes, places, strict=True)]
        return torch.from_numpy(np.stack(columns, axis=1))
