"""Axes on which matrices act: the basis in which cutting them costs least, from what was measured.

General linear (query-key or value-output of a head, LoRA, a bottleneck). Only products count: a value x of
the axis meets a value or a weight y of it as x . y, and A x . A^-T y is the same. With second moments X of x
and Y of y, E (x . y)^2 = |X^1/2 Y^1/2|^2 for independent ones, so the best axis of width m is the truncated
singular value decomposition (Eckart and Young)

    X^1/2 Y^1/2 = U S V^T,   x <- S^1/2 U^T X^-1/2 x,   y <- S^1/2 V^T Y^-1/2 y,   cost = sum_{i>m} S_i^2.

Orthogonal (the stream of a folded pre-norm network): every reader sees z = x / rms(x), and z Q for x Q. The
principal components of z lose least of it; cost = sum_{i>m} eigenvalue_i. Cutting n coordinates to m changes
rms by sqrt(n / m), which the writers and the readers take on exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from intertwine.ir.ledger import Ids
from intertwine.merging.measured import Seen
from intertwine.merging.plan import RANK, STREAM, AxisPlan, Merge, NewBasis, PlacePlan
from intertwine.symmetry import Axis, Symmetry
from intertwine.symmetry.structure import Linear


def plan_linear(
    symmetry: Symmetry, weights: Mapping[str, Tensor], seen: Mapping[str, Seen]
) -> list[AxisPlan]:
    """Every linear axis that was measured, ready to be cut to any width; the last coordinates go first."""
    orbit_of = symmetry.structure.classes.orbit
    found = []
    for axis in symmetry.axes:
        linear = symmetry.structure.linear.get(int(orbit_of[axis.classes.flat[0]]))
        if linear is None or axis.group.linear == "" or _by_group(symmetry, linear):
            continue
        plan = _Plan(symmetry, axis, linear, weights, seen)
        made = plan.stream() if linear.orthogonal else plan.rank()
        if made is not None:
            found.append(made)
    return found


def _by_group(symmetry: Symmetry, linear: Linear) -> bool:
    """Whether a basis would differ in each group of a weight's dimension 0: no width of a layer says that."""
    return any(symmetry.structure.slots[place].ids.ndim > 1 for place in linear.places)


class _Plan:
    def __init__(
        self,
        symmetry: Symmetry,
        axis: Axis,
        linear: Linear,
        weights: Mapping[str, Tensor],
        seen: Mapping[str, Seen],
    ) -> None:
        self.axis, self.linear, self.weights, self.seen = axis, linear, weights, seen
        self.roles = symmetry.structure.inference.roles
        self.blocks, self.size = linear.fibres.shape

    def rank(self) -> AxisPlan | None:
        """Both sides of the products, block by block."""
        sides = {side: np.zeros((self.blocks, self.size, self.size)) for side in (+1, -1)}
        readers = [key for key in self.linear.places if self.roles.get(key) == "in"]
        if {int(e) for key in readers for e in self.linear.places[key][2]} == {+1, -1}:
            return None
        for (param, dim), (where, fibre, exponent) in self.linear.places.items():
            if self.weights[param].dim() < 2:
                continue
            if (param, dim) in readers:
                read = self._read(param, dim)
                if read is None:
                    return None
                rows = self._slices(param, dim).flatten(1).numpy()
                for r, b, e in zip(where, fibre, exponent, strict=True):
                    sides[int(e)][b] += rows[r] @ rows[r].T
                    sides[-int(e)][b] += read[np.ix_(r, r)]
            elif len(readers) == 1 and param not in self.seen:
                # A table that is looked up: tokens that the inputs do not show must still mean something.
                rows = self._slices(param, dim).flatten(1).numpy()
                for r, b, e in zip(where, fibre, exponent, strict=True):
                    sides[int(e)][b] += rows[r] @ rows[r].T / max(1, rows.shape[1])
            elif not readers:
                made = self._made(param, dim)
                if made is None:
                    return None
                for r, b, e in zip(where, fibre, exponent, strict=True):
                    sides[int(e)][b] += made(r)
        bases, losses = _bases(sides[+1], sides[-1])
        power = dict.fromkeys(self.linear.places, 0.0)
        return self._plan(bases, losses, power, RANK)

    def stream(self) -> AxisPlan | None:
        """Principal components of what the readers see."""
        total = np.zeros((self.size, self.size))
        power = {}
        for (param, dim), (where, _, _) in self.linear.places.items():
            reads = self.roles.get((param, dim)) == "in"
            power[param, dim] = -0.5 if reads else 0.5
            if len(where) != 1:
                return None
            if reads:
                read = self._read(param, dim)
                if read is None:
                    return None
                part = read[np.ix_(where[0], where[0])]
                total += part / max(float(np.trace(part)), 1e-300)
        values, vectors = np.linalg.eigh(total)
        basis = vectors.T[::-1][None]
        return self._plan({+1: basis, -1: basis}, np.maximum(values[::-1], 0), power, STREAM)

    def _plan(
        self,
        bases: Mapping[int, np.ndarray],
        losses: np.ndarray,
        power: Mapping[tuple[str, int], float],
        kind: str,
    ) -> AxisPlan:
        turns, places = [], []
        for (param, dim), (where, fibre, exponent) in self.linear.places.items():
            matrix = np.stack([bases[int(e)][b] for b, e in zip(fibre, exponent, strict=True)])
            turns.append(NewBasis(param, dim, where, matrix, power[param, dim]))
            rows = tuple(tuple(row) for row in where.T.tolist())
            places.append(PlacePlan(param, dim, self.roles.get((param, dim), "other"), rows))
        lost = np.cumsum(losses[::-1])[:-1] / max(float(losses.sum()), 1e-300)
        merges = tuple(Merge(0, self.size - 1 - k, float(cost), 1.0) for k, cost in enumerate(lost))
        costs = tuple(float(c) for c in lost)
        return AxisPlan(
            self.axis.name, self.size, merges, False, tuple(places), True, (), costs, (), tuple(turns), kind
        )

    def _slices(self, param: str, dim: int) -> Tensor:
        return self.weights[param].to("cpu", torch.float64).movedim(dim, 0)

    def _read(self, param: str, dim: int) -> np.ndarray | None:
        seen = self.seen.get(param)
        return None if seen is None or seen.dim != dim else np.asarray(seen.moment)

    def _made(self, param: str, dim: int) -> _Made | None:
        seen = self.seen.get(param)
        if seen is None or seen.dim == dim:
            return None
        summed = seen.dim - (seen.dim > dim)  # among the dimensions that are left once `dim` is in front
        rows = self._slices(param, dim).movedim(summed + 1, -1)
        return _Made(rows, seen, self.weights.get(seen.bias) if rows.dim() == 2 else None)


class _Made:
    """Second moments of W x + b on chosen rows, from those of x."""

    def __init__(self, rows: Tensor, seen: Seen, bias: Tensor | None) -> None:
        self.rows, self.moment, self.mean, self.bias = rows, seen.moment, seen.mean, bias

    def __call__(self, where: Ids) -> np.ndarray:
        rows = self.rows[torch.from_numpy(where)]
        out = torch.einsum("i...k,kl,j...l->ij", rows, self.moment, rows)
        if self.bias is not None:
            bias = self.bias.to("cpu", torch.float64)[torch.from_numpy(where)]
            cross = torch.outer(rows @ self.mean, bias)
            out = out + cross + cross.T + torch.outer(bias, bias)
        return out.numpy()


def _bases(plus: np.ndarray, minus: np.ndarray) -> tuple[dict[int, np.ndarray], np.ndarray]:
    """The two bases of every block, and the squared singular values, added up over the blocks."""
    left, right, losses = [], [], np.zeros(plus.shape[1])
    for x, y in zip(plus, minus, strict=True):
        root_x, back_x = _root(x)
        root_y, back_y = _root(y)
        u, s, vt = np.linalg.svd(root_x @ root_y)
        half = np.sqrt(np.maximum(s, 1e-12 * max(float(s[0]), 1e-300)))[:, None]
        left.append(half * (u.T @ back_x))
        right.append(half * (vt @ back_y))
        losses += s**2
    return {+1: np.stack(left), -1: np.stack(right)}, losses


def _root(moment: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """X^1/2 and X^-1/2; directions that never occur count as very small ones."""
    values, vectors = np.linalg.eigh((moment + moment.T) / 2)
    values = np.maximum(values, 1e-10 * max(float(values[-1]), 1e-300))
    return (vectors * np.sqrt(values)) @ vectors.T, (vectors / np.sqrt(values)) @ vectors.T


def join(plans: list[AxisPlan]) -> AxisPlan:
    """Several axes of one size that the forward keeps at one width, as one; costs add up."""
    first = plans[0]
    if len(plans) == 1:
        return first
    costs = tuple(float(sum(c)) for c in zip(*(p.costs for p in plans), strict=True))
    merges = tuple(Merge(0, m.drop, c, 1.0) for m, c in zip(first.merges, costs, strict=True))
    return replace(
        first,
        name=" + ".join(p.name for p in plans),
        merges=merges,
        places=tuple(place for p in plans for place in p.places),
        costs=costs,
        turns=tuple(turn for p in plans for turn in p.turns),
    )
