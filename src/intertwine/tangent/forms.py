"""Matrices that act on what a norm is taken of, and the quadratic form that they keep.

    x -> h x with h' Q h = Q

A norm divides x by the square root of x' Q x: an RMS norm with Q = 1, a layer norm with Q = 1 - 11'/n, with
other Q where gains or running statistics stand before it. If nothing but linear layers reads the quotient,
they can undo h. h is a rotation in the lengths that Q measures, and where Q has a null vector (1 for a layer
norm) multiples of it may be added.

    x -> S^-1 D S x    what ReLU is taken of is S x (x + P x, say): a positive D passes it
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from scipy import linalg

from intertwine.symmetry import Symmetry
from intertwine.tangent.coordinates import Coordinates
from intertwine.tangent.maps import Key, Places
from intertwine.tangent.spaces import svd

LIMIT = 40  # matrices of a space whose commutators are taken
EXACT = 1e-4  # of the largest: matrices come out of null spaces that are known to about this


def made_maps(
    symmetry: Symmetry, at: Coordinates, places: Sequence[Places]
) -> tuple[np.ndarray, np.ndarray] | None:
    """(coordinates x n^2: what E_ij does to what makes n channels, the coordinates of what makes them)."""
    roles, n = symmetry.inference.roles, len(places)
    makers: list[Key] = [key for key in places[0] if roles.get(key) in ("out", "bias")]
    if not makers or any(p[key].shape != places[0][key].shape for p in places for key in makers if key in p):
        return None
    if any(key not in p for p in places for key in makers):
        return None
    vectors, made = np.zeros((at.size, n, n)), np.zeros(at.size, bool)
    for i in range(n):
        for key in makers:
            made[places[i][key]] = True
            for j in range(n):
                vectors[places[i][key].reshape(-1), i, j] += at.theta[places[j][key].reshape(-1)]
    return vectors.reshape(at.size, n * n), made


def keeps_a_form(maps: np.ndarray, unseen: np.ndarray | None = None) -> np.ndarray:
    """Of a space of matrices (n x n x how many), a basis (as coefficients) of those that keep one quadratic
    form Q >= 0 of rank n - 1 or n; none if there is no such Q.

    unseen: columns v with v' x = 0 for all x that occur. Q is 1, 1 - 11'/n, or what their commutators keep.

    >>> turn, stretch = np.array([[0.0, 1.0], [-1.0, 0.0]]), np.diag([1.0, 0.0])
    >>> keeps_a_form(np.stack([turn], axis=2)).shape, keeps_a_form(np.stack([stretch], axis=2)).shape
    ((1, 1), (1, 0))
    """
    n, count = maps.shape[0], maps.shape[2]
    best = np.zeros((count, 0))
    if not count:
        return best
    each = [maps[..., k] / np.abs(maps[..., k]).max() for k in range(count)]
    # Among them may be multiples of 1 (a scale): commutators keep Q all the same.
    brackets = [a @ b - b @ a for a, b in combinations(each[:LIMIT], 2)]
    ones = np.full((n, n), 1 / n)
    forms = [np.eye(n), np.eye(n) - ones, _nearest_form(brackets, n)]
    x = np.eye(n) if unseen is None else linalg.null_space(unseen.T)
    for form in forms:
        value = np.linalg.eigvalsh(form)
        if value[0] >= -EXACT * value[-1] and (value > EXACT * value[-1]).sum() >= n - 1:
            kept = _kept(each, form, x)
            # What is in the null space of the form alone turns nothing: multiples of 1, say.
            turned = form @ np.einsum("kij,kq->qij", np.stack(each), kept) @ x
            if np.abs(turned).max(initial=0.0) < EXACT * np.linalg.norm(form):
                continue
            best = kept if kept.shape[1] > best.shape[1] else best
    result: np.ndarray = best / np.abs(maps).max(axis=(0, 1))[:, None]
    return result


def in_one_basis(maps: np.ndarray) -> bool:
    """Whether all of some matrices (n x n x how many) are S D S^-1 with one real S and real diagonal D.

    >>> sums, turn = np.array([[1.0, 1.0], [0.0, 2.0]]), np.array([[0.0, 1.0], [-1.0, 0.0]])
    >>> scale = sums @ np.diag([1.0, 0.0]) @ np.linalg.inv(sums)
    >>> in_one_basis(np.stack([np.eye(2), scale], axis=2)), in_one_basis(turn[..., None])
    (True, False)
    """
    each = maps / np.abs(maps).max(axis=(0, 1))
    value, basis = np.linalg.eig(each @ np.random.default_rng(0).standard_normal(maps.shape[2]))
    if np.abs(value.imag).max() > EXACT * np.abs(value).max() or np.linalg.cond(basis) > 1 / EXACT:
        return False
    inner = np.einsum("ij,jkq,kl->ilq", np.linalg.inv(basis), each, basis)
    inner[np.diag_indices(len(inner))] = 0.0
    return float(np.abs(inner).max()) < 10 * EXACT


def _kept(each: Sequence[np.ndarray], form: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Combinations of matrices that leave x' Q x as it is, for all x in a subspace."""
    changed = np.stack([(x.T @ (a.T @ form + form @ a) @ x).reshape(-1) for a in each], axis=1)
    _, s, right = svd(changed, full=True)
    s = np.r_[s, np.zeros(len(each) - len(s))]
    result: np.ndarray = right[s < EXACT * np.linalg.norm(form)].T
    return result


def _nearest_form(brackets: Sequence[np.ndarray], n: int) -> np.ndarray:
    """Of the symmetric Q with b' Q + Q b = 0 for all given b, the one nearest to the identity."""
    upper = np.triu_indices(n)
    basis = np.zeros((n, n, len(upper[0])))
    basis[upper[0], upper[1], np.arange(len(upper[0]))] = 1.0
    basis = basis + basis.transpose(1, 0, 2)
    basis /= np.linalg.norm(basis, axis=(0, 1))
    normal = np.zeros((basis.shape[2],) * 2)
    for b in brackets:
        change = np.einsum("ji,jkq->ikq", b, basis) + np.einsum("ijq,jk->ikq", basis, b)
        flat = change.reshape(n * n, -1)
        normal += flat.T @ flat
    value, vector = linalg.eigh(normal)
    kept = basis @ vector[:, value <= EXACT**2 * max(1.0, value[-1])]
    result: np.ndarray = np.einsum("ijq,q->ij", kept, np.einsum("iiq->q", kept))
    return result
