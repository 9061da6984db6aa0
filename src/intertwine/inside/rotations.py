"""Changes of basis: rotations drawn uniformly from SO(n), their powers, and elements of a layer's own group.

Q^alpha = exp(alpha log Q) is on the shortest path from 1 to Q (source 002, section 6). The real Schur form
Q = Z T Z' of an orthogonal Q has blocks of plane rotations by angles in (-pi, pi]; a power multiplies them.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import schur

from intertwine.inside.network import Basis


def random_rotation(size: int, seed: int = 0) -> np.ndarray:
    """Q of the QR of a Gaussian, made unique by a positive diagonal of R, with determinant 1 (Diaconis).

    >>> q = random_rotation(5)
    >>> bool(np.allclose(q @ q.T, np.eye(5))), round(float(np.linalg.det(q)), 6)
    (True, 1.0)
    """
    q, r = np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))
    q *= np.sign(np.diag(r))
    if np.linalg.slogdet(q)[0] < 0:
        q[:, 0] *= -1  # a fixed reflection carries the uniform measure of O(n) outside SO(n) to SO(n)
    return q


class Geodesic:
    """alpha -> Q^alpha, after one Schur decomposition.

    >>> q = random_rotation(6, 1)
    >>> path = Geodesic(q)
    >>> bool(np.allclose(path.power(0.5) @ path.power(0.5), q)), bool(np.allclose(path.power(0), np.eye(6)))
    (True, True)
    """

    def __init__(self, rotation: np.ndarray) -> None:
        form, self.basis = schur(rotation, output="real")
        size = len(rotation)
        self.planes: list[tuple[int, int]] = []
        angles: list[float] = []
        flips: list[int] = []
        k = 0
        while k < size:
            # a plane rotation is a block with equal diagonal and opposite entries beside it
            if k + 1 < size and abs(form[k + 1, k]) > 1e-9:
                self.planes.append((k, k + 1))
                angles.append(float(np.arctan2(form[k + 1, k], form[k, k])))
                k += 2
                continue
            if form[k, k] < 0:
                flips.append(k)
            k += 1
        # in SO(n) eigenvalues -1 come in pairs: half-turns of a plane
        for i, j in zip(flips[::2], flips[1::2], strict=True):
            self.planes.append((i, j))
            angles.append(float(np.pi))
        self.angles = np.array(angles)

    def power(self, alpha: float) -> np.ndarray:
        """Q^alpha."""
        turned = self.basis.copy()
        if self.planes:
            first, second = np.array(self.planes).T
            cosine, sine = np.cos(alpha * self.angles), np.sin(alpha * self.angles)
            one, other = self.basis[:, first], self.basis[:, second]
            turned[:, first], turned[:, second] = cosine * one + sine * other, cosine * other - sine * one
        result: np.ndarray = turned @ self.basis.T
        return result


def group_matrix(basis: Basis, size: int, seed: int = 0) -> np.ndarray:
    """A random element of the group on a value's channels, as a matrix that acts on rows from the right.

    Positive scales are powers of two: multiplying by them is exact, so what the theory says does not change
    does not change in the last bit. Where the group is linear this is a rotation of each block.
    """
    rng = np.random.default_rng(seed)
    matrix = np.zeros((size, size))
    rest = np.setdiff1d(np.arange(size), np.concatenate([np.zeros(0, int), *basis.groups]))
    matrix[rest, rest] = 1
    for group in basis.groups:
        if basis.linear:
            matrix[np.ix_(group, group)] = random_rotation(len(group), seed)
            continue
        scale = np.where(basis.scale[group], 2.0 ** rng.integers(-3, 4, len(group)), 1.0)
        scale *= np.where(basis.sign[group], rng.choice([-1.0, 1.0], len(group)), 1.0)
        matrix[group, rng.permutation(group)] = scale
    return matrix
