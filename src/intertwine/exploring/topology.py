"""Read from the grid what GENNI reads by eye: components and dimension of the set {J < epsilon}."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from intertwine.errors import InputError
from intertwine.exploring._evaluate import Landscape, check_levels


@dataclass(frozen=True)
class Topology:
    """The epsilon-set at one epsilon: its share of the grid, its components, its dimension.

    `dimension` is None when the set is too small for a slope. `touches_edge` says that the set goes on
    beyond the picture, so that components may meet outside it.
    """

    epsilon: float
    points: int
    share: float
    components: int
    largest: int
    dimension: float | None
    touches_edge: bool

    COLUMNS: ClassVar = (
        "epsilon", "points", "share", "components", "largest", "dimension", "reaches the edge"
    )  # fmt: skip

    def row(self) -> list[Any]:
        """Under COLUMNS."""
        dimension = "-" if self.dimension is None else f"{self.dimension:.2f}"
        return [
            f"{self.epsilon:.3g}", self.points, f"{100 * self.share:.2f} %", self.components, self.largest,
            dimension, self.touches_edge,
        ]  # fmt: skip


def find_topology(landscape: Landscape, epsilons: Sequence[float] | None = None) -> tuple[Topology, ...]:
    """Components and box-counting dimension for each epsilon (default: the levels of the landscape).

    A landscape refined for some levels is exact at those; other epsilons are read from interpolated values.
    """
    chosen = check_levels(epsilons if epsilons is not None else landscape.levels)
    if not chosen:
        raise InputError("no epsilon given", do="evaluate with epsilon=, or pass epsilons")
    return tuple(describe_set(landscape.inside(epsilon), epsilon) for epsilon in chosen)


def describe_set(inside: NDArray[np.bool_], epsilon: float = float("nan")) -> Topology:
    """The topology of a set of grid points; diagonal neighbours belong together.

    >>> ring = np.zeros((33, 33), dtype=bool)
    >>> ring[4:-4, 4:-4] = True; ring[6:-6, 6:-6] = False; ring[15:18, 15:18] = True
    >>> found = describe_set(ring)
    >>> found.components, found.touches_edge
    (2, False)
    """
    sizes = component_sizes(inside)
    edge = any(bool(np.take(inside, (0, -1), axis=axis).any()) for axis in range(inside.ndim))
    return Topology(
        epsilon=float(epsilon),
        points=int(inside.sum()),
        share=float(inside.mean()),
        components=len(sizes),
        largest=int(sizes[0]) if len(sizes) else 0,
        dimension=box_dimension(inside),
        touches_edge=edge,
    )


def component_sizes(inside: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The number of points of every connected component, largest first."""
    from scipy.ndimage import generate_binary_structure, label

    labels, count = label(inside, structure=generate_binary_structure(inside.ndim, inside.ndim))
    return np.sort(np.bincount(labels.ravel(), minlength=count + 1)[1:])[::-1]


def box_dimension(inside: NDArray[np.bool_]) -> float | None:
    """Slope of log N(s) against log 1/s, N(s) the number of boxes of side s that the set meets.

    Sides are powers of two from one point to an eighth of the grid. None when the set has fewer points
    than the slope needs to mean anything, or the grid fewer than three sides.

    >>> line = np.eye(64, dtype=bool)
    >>> round(box_dimension(line), 6), round(box_dimension(np.ones((64, 64), dtype=bool)), 6)
    (1.0, 2.0)
    """
    sides = [1]
    while sides[-1] * 2 <= min(inside.shape) // 8:
        sides.append(sides[-1] * 2)
    if len(sides) < 3 or inside.sum() < 8:
        return None
    counts = [count_boxes(inside, side) for side in sides]
    slope = np.polyfit(np.log(sides), np.log(counts), 1)[0]
    return float(-slope)


def count_boxes(inside: NDArray[np.bool_], side: int) -> int:
    """How many boxes of `side` points meet the set."""
    padded = np.pad(inside, [(0, -n % side) for n in inside.shape])
    split = padded.reshape([part for n in padded.shape for part in (n // side, side)])
    return int(split.any(axis=tuple(range(1, 2 * inside.ndim, 2))).sum())
