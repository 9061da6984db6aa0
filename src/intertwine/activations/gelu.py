"""xi(lambda)^2 = E|GELU(lambda X) - lambda GELU(X)|^2, X ~ N(0, 1): how far GELU is from homogeneous.

Godfrey et al. 2022, eq. E.22, which it estimates by sampling. Both integrals below are exact. With
GELU(x) = x Phi(x), Stein's lemma and E[Phi(aX) Phi(bX)] = 1/4 + atan(ab/r)/(2 pi), r^2 = 1 + a^2 + b^2, give

    T(a, b) = E[X^2 Phi(aX) Phi(bX)] = 1/4 + (atan(ab/r) + (ab/r) (1/(1+a^2) + 1/(1+b^2))) / (2 pi)
    xi^2 = lambda^2 (T(lambda, lambda) - 2 T(lambda, 1) + T(1, 1))

which cancels near lambda = 1. As Phi(lambda x) - Phi(x) is x times the integral of phi(t x) over [1, lambda],

    xi^2 = lambda^2 3/(2 pi) times the integral of (1 + s^2 + t^2)^(-5/2) over s, t in [1, lambda]

which does not cancel: the integrand is positive, and smooth enough for Gauss-Legendre to reach rounding.
"""

from __future__ import annotations

import math
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


@overload
def xi(lam: float) -> float: ...
@overload
def xi(lam: ArrayLike) -> Array: ...
def xi(lam: ArrayLike) -> float | Array:
    """xi(lambda) = sqrt(E|GELU(lambda X) - lambda GELU(X)|^2) for one lambda or an array of them (eq. E.22).

    >>> xi(1.0)
    0.0
    >>> np.round(xi([0.5, 2.0, 100.0]), 6)
    array([ 0.068734,  0.176699, 12.675312])
    """
    values = np.asarray(lam, dtype=np.float64)
    near = np.abs(values - 1) <= 0.5
    # Each formula sees only the lambdas it is good for; the others are set to a harmless one.
    close = _by_quadrature(np.where(near, values, 1.0))
    far = _closed_form(np.where(near, 3.0, values))
    result = np.abs(values) * np.sqrt(np.where(near, close, far))
    return float(result) if result.ndim == 0 else result


def xi_slope() -> float:
    """lim xi(lambda)/lambda = sqrt(E|X (1[X >= 0] - Phi(X))|^2), about 0.127 (ibid., below E.23).

    >>> round(xi_slope(), 6)
    0.126754
    """
    return math.sqrt(1 / 12 - (1 - 1 / math.sqrt(3)) / (2 * math.pi))


def _second_moment(a: Array, b: Array | float) -> Array:
    """T(a, b) = E[X^2 Phi(aX) Phi(bX)]."""
    ratio = a * b / np.sqrt(1 + a * a + b * b)
    return 0.25 + (np.arctan(ratio) + ratio * (1 / (1 + a * a) + 1 / (1 + b * b))) / (2 * math.pi)


def _closed_form(lam: Array) -> Array:
    at_one = _second_moment(np.ones(()), 1.0)
    return _second_moment(lam, lam) - 2 * _second_moment(lam, 1.0) + at_one


def _by_quadrature(lam: Array) -> Array:
    nodes, weights = np.polynomial.legendre.leggauss(16)
    half = (lam[..., None] - 1) / 2
    t = 1 + half * (nodes + 1)
    kernel = (1 + t[..., :, None] ** 2 + t[..., None, :] ** 2) ** -2.5
    integral = half[..., 0] ** 2 * np.einsum("...st,s,t->...", kernel, weights, weights)
    result: Array = 3 / (2 * math.pi) * integral
    return result
