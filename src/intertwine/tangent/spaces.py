"""Subspaces of R^n in float64: ranks that singular values certify, null spaces, and parts of them.

A rank is where the singular values fall: r maximises sigma_r / sigma_(r+1), and that ratio, the *gap*, says
how sure it is. Rows and columns are brought to length 1 first, which changes no rank and takes out
differences of units; a null vector of the scaled matrix, divided by the lengths, is one of the original.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

SMALL = 1e-9  # of the largest: singular values above this are never taken for zero
NOTHING = 1e-10  # of the longest: a column as short as this is zero up to rounding
INSIDE = 1e-7  # a unit vector of a subspace lies in some coordinates if this is all it has outside
MANY = 300  # columns from which only the small end of the singular values is looked for
SPARE = 24  # columns more than the null space is known to have
STEPS = 4
EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Rank:
    """rank: how many singular values count; gap: ratio of the last that does to the first that does not."""

    rank: int
    gap: float
    singular_values: np.ndarray

    @property
    def certain(self) -> bool:
        """Whether the fall is too deep to be an accident."""
        return self.gap >= 1e3


def find_rank(singular_values: np.ndarray, most: int | None = None) -> Rank:
    """The rank by the largest gap; `most`: a bound that is known.

    >>> find_rank(np.array([2.0, 1.0, 1e-16]))
    Rank(rank=2, gap=..., singular_values=array([2.e+00, 1.e+00, 1.e-16]))
    """
    s = np.asarray(singular_values, float)
    n = len(s) if most is None else min(most, len(s))
    if not len(s) or not s[0] > 0:
        return Rank(0, float("inf"), s)
    floor = s[0] * EPSILON * max(len(s), 8)
    padded = np.maximum(np.r_[s, 0.0], floor)
    ratio = padded[:-1] / padded[1:]
    allowed = [r for r in range(1, n + 1) if padded[r] <= SMALL * s[0]]
    if not allowed:
        return Rank(n, 1.0, s)
    best = max(allowed, key=lambda r: ratio[r - 1])
    return Rank(best, float(ratio[best - 1]), s)


def unit_rows(rows: np.ndarray) -> np.ndarray:
    """Rows brought to length 1; those of zeros stay."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 0, length, 1.0)


def scaled(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(rows with columns of length 1, the lengths that they had); zero columns are exactly 0."""
    columns = np.linalg.norm(rows, axis=0)
    columns = np.where(columns > NOTHING * columns.max(initial=0.0), columns, 0.0)
    return np.where(columns > 0, rows / np.where(columns > 0, columns, 1.0), 0.0), columns


def svd(matrix: np.ndarray, full: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """U, s, V' of a finite matrix; the fast method sometimes does not converge, the slow one does."""
    try:
        left, s, right = np.linalg.svd(matrix, full_matrices=full)
    except np.linalg.LinAlgError:
        left, s, right = linalg.svd(matrix, full_matrices=full, lapack_driver="gesvd")
    return left, s, right


def factor(rows: np.ndarray) -> np.ndarray:
    """R of Q R where that is smaller: lengths and null space are those of all rows."""
    n = rows.shape[1]
    if len(rows) <= n:
        return rows
    result: np.ndarray = linalg.qr(rows, mode="r", check_finite=False)[0][:n]
    return result


def null_space(rows: np.ndarray, most: int | None = None) -> tuple[Rank, np.ndarray]:
    """The rank, and an orthonormal basis of the null space as columns."""
    n = rows.shape[1]
    if not rows.size:
        return Rank(0, float("inf"), np.zeros(0)), np.eye(n)
    tall, rows = len(rows) > n, factor(rows)
    if tall and n >= MANY and (small := small_end(rows, n if most is None else most)) is not None:
        s, right = small
        found = find_rank(s, most)
        return found, right[:, found.rank - n :] if found.rank < n else right[:, :0]
    _, s, right = svd(rows, full=True)
    found = find_rank(np.r_[s, np.zeros(n - len(s))], most)
    return found, right[found.rank :].T


def small_end(triangle: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray] | None:
    """(singular values of R, in order; vectors of the last of them), without those in between, which are NaN.

    X <- orthonormal basis of (R'R)^-1 X, from a random X of a few columns more than the null space has. A
    start that misses a null vector has probability 0; one that has less than 1e-9 of it, below 1e-9 times
    the number of columns (Edelman: the least singular value of a random square matrix), and every step
    brings it up by (sigma_r / sigma_(r+1))^2. That X has all of the null space is seen in its other columns:
    they are not null. None where it would be most of R^n, or R cannot be divided by.

    >>> values, vectors = small_end(np.diag(np.r_[np.linspace(2, 1, 120), np.zeros(3)]), 120)
    >>> find_rank(values).rank, bool(np.abs(vectors[:120, -3:]).max() < 1e-9)
    (120, True)
    """
    n = len(triangle)
    rng = np.random.default_rng(0)
    largest = _largest(triangle, rng)
    pivots = np.abs(np.diag(triangle))
    least = EPSILON * largest
    divisor = triangle + np.diag(np.where(pivots < least, least, 0.0))
    for count in (n - most + SPARE, 4 * (n - most + SPARE), n // 3):
        if 3 * count > n:
            return None
        basis = rng.standard_normal((n, count))
        for _ in range(STEPS):
            with np.errstate(over="ignore", invalid="ignore"):
                once = linalg.solve_triangular(divisor, basis, trans="T", check_finite=False)
                basis = linalg.solve_triangular(divisor, once / np.abs(once).max(), check_finite=False)
            if not np.isfinite(basis).all():
                return None
            basis = linalg.qr(basis / np.linalg.norm(basis, axis=0), mode="economic")[0]
        _, s, right = svd(triangle @ basis)
        if s[0] > SMALL * largest:
            return np.r_[largest, np.full(n - count - 1, np.nan), s], basis @ right.T
    return None


def _largest(matrix: np.ndarray, rng: np.random.Generator) -> float:
    """The largest singular value, to some per cent, by power iteration."""
    vector = rng.standard_normal(matrix.shape[1])
    for _ in range(20):
        vector = matrix.T @ (matrix @ (vector / np.linalg.norm(vector)))
    return float(np.linalg.norm(vector) ** 0.5)


def span(columns: np.ndarray, tolerance: float = INSIDE) -> np.ndarray:
    """An orthonormal basis of what some columns span."""
    if not columns.size:
        return np.zeros((len(columns), 0))
    left, s, _ = svd(columns)
    return left[:, s > tolerance * max(1.0, float(s[0]))]


def inside(basis: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Coefficients of the vectors of a subspace (orthonormal basis) that vanish outside the mask."""
    k = basis.shape[1]
    if not k:
        return np.zeros((0, 0))
    outside = basis[~mask]
    if not len(outside):
        return np.eye(k)
    # The vectors of the subspace whose part outside is 0; the squares are those of a matrix k x k.
    value, vector = np.linalg.eigh(outside.T @ outside)
    return vector[:, value < INSIDE**2 * 1e2]


def within(basis: np.ndarray, allowed: np.ndarray, tied: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Coefficients of the vectors of a subspace (orthonormal basis) that are, on the coordinates `tied`, some
    combination of the columns `allowed` other than 0, on those in `free` anything, and 0 elsewhere.

    For every such combination there is one column: what vanishes on `tied` altogether is left out.
    """
    k, held = basis.shape[1], ~(tied | free)
    if not k or not allowed.size:
        return np.zeros((k, 0))
    inner = span(allowed)
    off = basis[tied] - inner @ (inner.T @ basis[tied])
    value, vector = np.linalg.eigh(basis[held].T @ basis[held] + off.T @ off)
    found = vector[:, value < INSIDE**2 * 1e2]
    if not found.size:
        return np.zeros((k, 0))
    _, s, right = svd(basis[tied] @ found)
    result: np.ndarray = found @ right[s > 1e-5].T
    return result


def factors(matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of a space of matrices (rows x columns x how many): (U, V) with orthonormal columns, the largest with
    R^rows (x) U and V (x) R^columns inside it.

    >>> outer = np.einsum("ri,c->rci", np.eye(2), np.array([0.6, 0.8, 0.0]))
    >>> u, v = factors(outer)
    >>> u.shape, v.shape, bool(np.allclose(abs(u[:, 0]), [0.6, 0.8, 0.0]))
    ((3, 1), (2, 0), True)
    """
    rows, columns, _ = matrices.shape
    basis = span(matrices.reshape(rows * columns, -1)).reshape(rows, columns, -1)

    def common(inner: np.ndarray, times: int) -> np.ndarray:
        # u with e_i (x) u in the space for every i: the projections of all of them add up to |u|^2 times i.
        value, vector = np.linalg.eigh(times * np.eye(len(inner)) - inner)
        kept: np.ndarray = vector[:, value < 1e-8 * times]
        return kept

    return (
        common(np.einsum("ick,idk->cd", basis, basis), rows),
        common(np.einsum("ick,jck->ij", basis, basis), columns),
    )
