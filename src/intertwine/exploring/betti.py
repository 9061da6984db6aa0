"""b0, b1, b2 of a set of grid points: pieces, tunnels, hollows of the union of the closed cubes around them.

chi = b0 - b1 + b2, by counting cells; b0 counts pieces (cubes that share a corner belong together), the last
number the bounded pieces of the rest (which touch by faces). That leaves one unknown up to three dimensions,
so no boundary matrix is reduced.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from intertwine.errors import Unsupported


def betti_numbers(inside: NDArray[np.bool_]) -> tuple[int, ...]:
    """(b0,) of a set on a line, (b0, b1) in a plane, (b0, b1, b2) in space.

    >>> ring = np.ones((3, 3), dtype=bool); ring[1, 1] = False
    >>> betti_numbers(ring), betti_numbers(~ring)
    ((1, 1), (1, 0))
    """
    if not 1 <= inside.ndim <= 3:
        raise Unsupported(
            f"a set of {inside.ndim} dimensions", so="its Betti numbers do not follow from pieces and counts",
            do="take a slice of three",
        )  # fmt: skip
    pieces = _pieces(inside, inside.ndim)
    if inside.ndim == 1:
        return (pieces,)
    # The rest of the plane or space is one piece outside, which the border makes sure of, and the hollows.
    hollows = _pieces(~np.pad(inside, 1), 1) - 1
    if inside.ndim == 2:
        return pieces, hollows
    return pieces, pieces + hollows - euler_characteristic(inside), hollows


def euler_characteristic(inside: NDArray[np.bool_]) -> int:
    """Corners minus edges plus faces minus ... of the union of closed cubes.

    >>> euler_characteristic(np.ones((2, 2, 2), dtype=bool))
    1
    """
    total = 0
    for flat in range(inside.ndim + 1):
        for axes in combinations(range(inside.ndim), flat):
            cells = inside
            for axis in axes:  # a cell that is a point along this axis lies between two cubes
                ends = [(1, 1) if k == axis else (0, 0) for k in range(inside.ndim)]
                padded = np.pad(cells, ends)
                low = np.delete(padded, -1, axis)
                cells = low | np.delete(padded, 0, axis)
            total += (-1) ** (inside.ndim - flat) * int(cells.sum())
    return total


def _pieces(inside: NDArray[np.bool_], connectivity: int) -> int:
    from scipy.ndimage import generate_binary_structure, label

    return int(label(inside, structure=generate_binary_structure(inside.ndim, connectivity))[1])
