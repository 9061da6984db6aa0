"""What characterises G_ReLU and the max kernel among all matrices (Theorem 3.3 and Lemma E.46 of source 002).

A stabilises the rays {R+ e_i}  <=>  A = P D, D positive: the group of ReLU.
max(A x * A y) = max(x * y) for all x, y  <=>  A = P D, D = +-1: what G_ReLU-CKA cannot see.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def stabilises_rays(matrix: ArrayLike, tolerance: float = 1e-9) -> bool:
    """Whether the matrix sends the set of rays of the basis vectors onto itself.

    >>> stabilises_rays([[0, 2], [3, 0]]), stabilises_rays([[1, 1], [0, 1]])
    (True, False)
    """
    found = _square(matrix)
    size = np.abs(found).max(initial=0.0)
    used = np.abs(found) > tolerance * size
    monomial = bool((used.sum(0) == 1).all() and (used.sum(1) == 1).all())
    return monomial and bool((found[used] > 0).all())


def preserves_max_kernel(matrix: ArrayLike, tolerance: float = 1e-9) -> bool:
    """Whether max(A x * A y) = max(x * y) for all x and y: a permutation with signs.

    >>> preserves_max_kernel([[0, -1], [1, 0]]), preserves_max_kernel([[0, 2], [3, 0]])
    (True, False)
    """
    found = _square(matrix)
    return stabilises_rays(np.abs(found)) and bool(np.allclose(np.abs(found).max(0), 1, atol=tolerance))


def has_finite_orbit(vector: ArrayLike) -> bool:
    """Whether G_ReLU moves the ray of a vector to finitely many rays: only one coordinate is not 0.

    >>> has_finite_orbit([0, -2, 0]), has_finite_orbit([1, 1, 0])
    (True, False)
    """
    return int(np.count_nonzero(np.asarray(vector))) <= 1


def _square(matrix: ArrayLike) -> np.ndarray:
    from intertwine.errors import InputError

    found = np.asarray(matrix, dtype=float)
    if found.ndim != 2 or found.shape[0] != found.shape[1]:
        raise InputError(f"a matrix of shape {found.shape}", do="pass a square one")
    return found
