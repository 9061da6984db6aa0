"""Rescalings and signs in closed form: one small problem for each connected component of scales.

With E_i the exponents of scale i, a_i and b_i the weights that carry it, minimise over the free log-scales t

    sum_i |a_i - exp(E_i t) b_i|^2  =  sum_i  B_i exp(2 E_i t) - 2 C_i exp(E_i t) + const

by Gauss-Newton, all components of a kind at once; signs are the x in GF(2)^r with the largest
sum_i (-1)^(S_i x) C_i. B_i = |b_i|^2 and C_i = <a_i, b_i> are summed over all positions of the scale.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import product

import numpy as np
import torch
from torch import Tensor

from intertwine.ir.ledger import Ids
from intertwine.orbit.units import Weights
from intertwine.symmetry.positions import in_front, put_back
from intertwine.symmetry.scales import ScaleKind, invert_gf2
from intertwine.symmetry.structure import Structure
from intertwine.symmetry.subgroup import Subgroup

Slot = tuple[str, int]
_ENUMERATED = 8  # signs that are tried in all combinations
_STEPS = 12
_LARGEST_STEP = 2.0
_NOTHING = 1e-20  # squared norms below this share of the largest hold no information


class Scales:
    """The scale components of a model and where they lie in its parameters."""

    def __init__(self, group: Subgroup, params: Iterable[str]) -> None:
        self.group, self.kinds = group, group.kinds
        self.structure = group.symmetry.structure
        self.params = frozenset(params)
        self.free = self.structure.rescaled
        self.owner = self.structure.component_class

    def components(self, classes: Ids) -> np.ndarray:
        """Mask over components: those that rescale one of the classes."""
        return np.isin(self.owner, classes)

    def inner(self, left: Weights, right: Weights, slots: Iterable[Slot]) -> np.ndarray:
        """For every scale, the inner product of the weights that carry it."""
        s = self.structure
        total = np.zeros(len(s.scalings.kind_of))
        for param, dim in slots:
            if param in self.params and (param, dim) in s.span:
                start, stop = s.span[param, dim]
                product_ = along(left[param] * right[param], s.slots[param, dim].ids.shape, dim)
                np.add.at(total, s.scales[start:stop], np.where(self.free[start:stop], product_, 0.0))
        return total

    def positions(self, log_scale: np.ndarray) -> np.ndarray:
        """Log-scale of every scale -> of every position."""
        return np.where(self.free, log_scale[self.structure.scales], 0.0)

    def solve(self, quadratic: np.ndarray, linear: np.ndarray, which: np.ndarray) -> np.ndarray:
        """argmin of sum_i quadratic_i e^(2 E_i t) - 2 linear_i e^(E_i t), as log-scales."""
        out = np.zeros(len(self.structure.scalings.kind_of))
        component = self.structure.scalings.component
        for kind in self.kinds:
            rows = kind.scales[which[component[kind.scales[:, 0]]]]
            if kind.real.shape[1] and len(rows):
                free = _minimise(kind.real, quadratic[rows], linear[rows])
                out[rows] = free @ kind.real.T
        return out

    def signs(self, agreement: np.ndarray, which: np.ndarray) -> np.ndarray:
        """The sign of every scale that makes the agreement largest."""
        out = np.ones(len(self.structure.scalings.kind_of))
        component = self.structure.scalings.component
        for kind in self.kinds:
            rows = kind.scales[which[component[kind.scales[:, 0]]]]
            if kind.sign.shape[1] and len(rows):
                out[rows] = best_signs(kind.sign, agreement[rows])
        return out


def along(tensor: Tensor, shape: tuple[int, ...], dim: int) -> np.ndarray:
    """Sum over everything but the positions of one slot."""
    front = in_front(tensor, shape, dim)
    return front.sum(dim=list(range(front.dim() - 1))).numpy() if front.dim() > 1 else front.numpy()


def inner_products(
    a: Tensor, b: Tensor, dims: Iterable[tuple[tuple[int, ...], int]]
) -> list[list[np.ndarray]]:
    """<a, a>, <b, b> and <a, b> for every position along each dimension, given as its slot's shape and its
    number; one product of the whole tensors is held at a time."""
    wanted = list(dims)
    found: list[list[np.ndarray]] = [[] for _ in wanted]
    for left, right in ((a, a), (b, b), (a, b)):
        both = left * right
        for rows, (shape, dim) in zip(found, wanted, strict=True):
            rows.append(along(both, shape, dim).copy())  # of a vector it is the product itself
        del both
    return found


def _minimise(exponents: np.ndarray, quadratic: np.ndarray, linear: np.ndarray) -> np.ndarray:
    """(components, r): Gauss-Newton with halved steps from t = 0."""
    count, r = len(quadratic), exponents.shape[1]
    scale = np.maximum(quadratic.sum(1), 1e-300)
    free = np.zeros((count, r))

    def value(t: np.ndarray) -> np.ndarray:
        log = t @ exponents.T
        answer: np.ndarray = (quadratic * np.exp(2 * log) - 2 * linear * np.exp(log)).sum(1)
        return answer

    now = value(free)
    for _ in range(_STEPS):
        log = free @ exponents.T
        grown = quadratic * np.exp(2 * log)
        slope = 2 * (grown - linear * np.exp(log)) @ exponents
        # The curvature of |a - e^l b|^2 is 2 |e^l b|^2 where the residual vanishes.
        curvature = np.einsum("ki,ij,il->kjl", 2 * grown, exponents, exponents)
        curvature += 1e-12 * scale[:, None, None] * np.eye(r)
        step = -np.linalg.solve(curvature, slope[..., None])[..., 0]
        step *= np.minimum(1.0, _LARGEST_STEP / np.maximum(np.abs(step).max(1), 1e-300))[:, None]
        better = np.zeros(count, bool)
        for shrink in (1.0, 0.5, 0.1, 0.01):
            tried = free + shrink * step
            then = value(tried)
            take = ~better & (then < now)
            free[take], now[take] = tried[take], then[take]
            better |= take
        if not better.any() or np.abs(step[better]).max() < 1e-14:
            break
    return free


def best_signs(exponents: np.ndarray, agreement: np.ndarray) -> np.ndarray:
    """(components, unknowns): (-1)^(exponents x) with the largest sum of signed agreements, for each row."""
    exponents = exponents % 2
    out = np.ones_like(agreement)
    for columns in sign_blocks(exponents):
        touched = exponents[:, columns].any(axis=1)
        out[:, touched] = _enumerate(exponents[touched][:, columns], agreement[:, touched])
    return out


def _enumerate(exponents: np.ndarray, agreement: np.ndarray) -> np.ndarray:
    """All combinations of a few signs; of many, one after the other until nothing improves."""
    r = exponents.shape[1]
    if r <= _ENUMERATED:
        patterns = 1 - 2 * ((np.array(list(product((0, 1), repeat=r))) @ exponents.T) % 2)
        answer: np.ndarray = patterns[(agreement @ patterns.T).argmax(axis=1)].astype(np.float64)
        return answer
    signs = np.ones_like(agreement)
    for _ in range(r):
        before = signs.copy()
        for column in range(r):
            flipped = exponents[:, column] == 1
            worse = (signs * agreement)[:, flipped].sum(axis=1) < 0
            signs[np.ix_(worse, flipped)] *= -1
        if np.array_equal(before, signs):
            break
    return signs


def sign_blocks(exponents: np.ndarray) -> list[list[int]]:
    """Columns that share an unknown, together: blocks of signs that can be chosen independently.

    >>> sign_blocks(np.array([[1, 0, 0], [1, 0, 1], [0, 1, 0]]))
    [[0, 2], [1]]
    """
    small = np.ascontiguousarray(exponents, np.int64)
    if not small.size:
        return [[k] for k in range(small.shape[1])]
    return [list(block) for block in _blocks(small.shape[1], small.tobytes())]


@lru_cache(maxsize=1024)  # a model has few kinds of signs, asked for at every step of a descent
def _blocks(columns: int, data: bytes) -> tuple[tuple[int, ...], ...]:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    rows = np.frombuffer(data, np.int64).reshape(-1, columns)
    label = connected_components(csr_array(rows.T @ rows), directed=False)[1]
    return tuple(tuple(np.flatnonzero(label == k).tolist()) for k in range(int(label.max(initial=-1)) + 1))


def apply_factors(structure: Structure, weights: dict[str, Tensor], slot: Slot, factor: np.ndarray) -> None:
    """Multiply one dimension of one weight by a factor for each position (in the caller's dict)."""
    param, dim = slot
    tensor, shape = weights[param], structure.slots[slot].ids.shape
    scaled = in_front(tensor, shape, dim) * torch.from_numpy(factor)
    weights[param] = put_back(scaled, shape, dim, tensor.shape)


def solve_from(
    kind: ScaleKind, a: np.ndarray, b: np.ndarray, ab: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(components, unknowns): log-scales, signs, and which of them the evidence determines.

    With |a_i| = exp(E_i t) |b_i| and sign <a_i, b_i> = (-1)^(S_i x) for the unknowns that have evidence, t is
    a least-squares solution and x a solution over GF(2); those of the others follow if E_i and S_i lie in the
    row spaces of these.
    """
    floor = _NOTHING * max(float(a.max(initial=0.0)), float(b.max(initial=0.0)))
    have = (a > floor) & (b > floor)
    ratio = np.where(have, 0.5 * np.log(np.where(have, a, 1.0) / np.where(have, b, 1.0)), 0.0)
    log_scale, sign, known = np.zeros(a.shape), np.ones(a.shape), np.zeros(a.shape, bool)
    for pattern in np.unique(have, axis=0):
        rows = (have == pattern).all(axis=1)
        back = np.linalg.pinv(kind.real[pattern])
        log_scale[rows] = ratio[rows][:, pattern] @ back.T @ kind.real.T
        reached = np.abs(kind.real @ back @ kind.real[pattern] - kind.real).max(axis=1, initial=0.0) < 1e-9
        bits = kind.sign % 2
        chosen, inverse = invert_gf2(bits[pattern])
        x = (ab[rows][:, pattern][:, chosen] < 0) @ inverse.T
        sign[rows] = 1 - 2 * (x @ bits.T % 2)
        signs = (bits @ inverse @ bits[pattern][chosen] % 2 == bits).all(axis=1)
        known[rows] = reached & signs
    return log_scale, sign, known
