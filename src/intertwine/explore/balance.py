"""The point of least norm on the orbit of a parameter, under the rescalings and matrices of its group.

Scales: argmin over l of sum_w |w|^2 exp(2 <e_w, l>), e_w the exponents with which the log-scales l act on w.
This is convex in l. Where a scaling only ever enlarges (the input side of batch norm) there is no least norm;
there a linear term is subtracted, which fixes the norm and is as invariant.

Matrices: X acts on what makes a linear axis as M -> X M and on what reads it as R -> X^-T R. R' M stays, and
the least |M|^2 + |R|^2 with this product is twice its nuclear norm: with R' M = U S V', M = sqrt(S) V' and
R = sqrt(S) U'. Where the product has a smaller rank than the axis, the rest is zero: a limit of the orbit,
which computes the same function.

Both problems are convex together (Kempf and Ness), so they are solved in turns until neither moves. What is
left between the results of equivalent parameters are permutations, signs and rotations.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, diags_array, vstack
from torch import Tensor

from intertwine.explore.subgroup import Subgroup, moved_by_scales
from intertwine.symmetry.structure import Linear

Weights = dict[str, Tensor]
# Below this the imbalance of a linear axis is rounding.
_EXACT = 1e-12


class Balance:
    """weights (float64, by name) -> the weights of least norm on their orbit."""

    def __init__(self, group: Subgroup, names: tuple[str, ...]) -> None:
        self.scales = _Scales(group, names)
        axes = group.symmetry.structure.linear.values()
        self.linear = tuple(sides for axis in axes if (sides := Sides.of(axis, names)))

    def __call__(self, weights: Mapping[str, Tensor], exact: float = _EXACT, turns: int = 60) -> Weights:
        """Turns of matrices and scales until neither moves by more than `exact` (it falls by 5 in a turn)."""
        now = dict(weights)
        for _ in range(turns):
            change = max([sides.balance(now) for sides in self.linear], default=0.0)
            now, moved = self.scales.balance(now)
            if not self.linear or max(change, moved) < exact:
                break
        return now


class Sides:
    """What makes a linear axis and what reads it, in one array (blocks, channels, everything else) each."""

    def __init__(self, axis: Linear, names: tuple[str, ...]) -> None:
        self.blocks, self.channels = axis.fibres.shape
        self.places: dict[int, list[tuple[str, int, NDArray[np.int64]]]] = {1: [], -1: []}
        for (name, dim), (where, fibre, exponent) in axis.places.items():
            for sign in (1, -1):
                rows = np.flatnonzero(exponent == sign)
                if len(rows) and name in names:
                    order = rows[np.argsort(fibre[rows], kind="stable")]
                    self.places[sign].append(
                        (name, dim, where[order].reshape(self.blocks, -1, self.channels))
                    )

    @classmethod
    def of(cls, axis: Linear, names: tuple[str, ...]) -> Sides | None:
        """None for an axis that has rotations only, one side only, or a weight from the axis to itself."""
        sides = cls(axis, names)
        used = {side: [name for name, dim, _ in places] for side, places in sides.places.items()}
        twice = any(
            len({dim for name, dim in axis.places if name == chosen}) > 1 for chosen in used[1] + used[-1]
        )
        return None if axis.orthogonal or not used[1] or not used[-1] or twice else sides

    def gather(self, weights: Mapping[str, Tensor], side: int) -> Tensor:
        """(blocks, channels, everything else) of one side."""
        parts = []
        for name, dim, where in self.places[side]:
            rows = weights[name].movedim(dim, 0)[torch.from_numpy(where)]
            parts.append(rows.flatten(3).transpose(1, 2).flatten(2) if rows.dim() > 3 else rows.mT)
        return torch.cat(parts, dim=2)

    def scatter(self, weights: Weights, side: int, values: Tensor) -> None:
        """Write back what `gather` read; changed weights are new tensors."""
        start = 0
        for name, dim, where in self.places[side]:
            moved = weights[name].movedim(dim, 0).clone()
            shape = moved[torch.from_numpy(where)].shape
            count = shape[1] * shape[3:].numel()
            part = values[:, :, start : start + count].reshape(self.blocks, self.channels, shape[1], -1)
            moved[torch.from_numpy(where)] = part.transpose(1, 2).reshape(shape)
            weights[name] = moved.movedim(0, dim).contiguous()
            start += count

    def balance(self, weights: Weights) -> float:
        """Balance the two sides in place; |M M' - R R'| / |M M'| before, which is zero at the least norm."""
        make, read = self.gather(weights, 1), self.gather(weights, -1)
        left, right = make @ make.mT, read @ read.mT
        before = float((left - right).norm() / left.norm().clamp_min(1e-300))
        if before < _EXACT:
            return before
        (qm, rm), (qr, rr) = torch.linalg.qr(make.mT), torch.linalg.qr(read.mT)
        u, values, vt = torch.linalg.svd(rr @ rm.mT, full_matrices=False)
        # What is zero but for rounding would leave the square root of the rounding behind.
        values = torch.where(values > 1e-14 * self.channels * values[:, :1], values, 0.0)
        root = values.sqrt()[:, :, None]
        for side, rows in ((1, root * (vt @ qm.mT)), (-1, root * (u.mT @ qr.mT))):
            full = rows.new_zeros(self.blocks, self.channels, rows.shape[2])
            full[:, : rows.shape[1]] = rows
            self.scatter(weights, side, full)
        return before


class _Scales:
    """The convex problem in the log-scales: least sum over k of s_k exp(2 (E l)_k) - 2 <pull, l>.

    k runs over the entries of all weights, summed over the dims that no scale acts on (the pixels of a
    kernel); s_k is a sum of squares and a row of E holds the exponents with which the free scales act on it.
    """

    def __init__(self, group: Subgroup, names: tuple[str, ...]) -> None:
        self.structure = structure = group.symmetry.structure
        self.kinds = [kind for kind in group.kinds if kind.real.shape[1]]
        self.names = [
            name for name in names if any((name, d) in structure.span for d in range(self._rank(name)))
        ]
        self.free = self._free_scales()
        self.exponents = vstack([self._rows(name) for name in self.names]).tocsr() if self.names else None
        self.pull = self._one_sided()

    def _rank(self, name: str) -> int:
        return len(self.structure.inference.shapes.get(name, ()))

    def _free_scales(self) -> csr_array:
        """Positions x free scales: the log-scale of every position of every slot is this times l."""
        sizes = [len(kind.scales) * kind.real.shape[1] for kind in self.kinds]
        starts = np.cumsum([0, *sizes])
        rows, columns, data = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0)]
        for kind, start, size in zip(self.kinds, starts, sizes, strict=False):
            own = (start + np.arange(size)).reshape(len(kind.scales), 1, -1)
            shape = (*kind.scales.shape, kind.real.shape[1])
            rows.append(np.broadcast_to(kind.scales[:, :, None], shape).reshape(-1))
            columns.append(np.broadcast_to(own, shape).reshape(-1))
            data.append(np.broadcast_to(kind.real[None], shape).reshape(-1).astype(np.float64))
        shape = (len(self.structure.scalings.kind_of), int(starts[-1]))
        table = coo_array((np.concatenate(data), (np.concatenate(rows), np.concatenate(columns))), shape)
        return (
            diags_array(moved_by_scales(self.structure).astype(float)) @ table.tocsr()[self.structure.scales]
        )

    def _positions(self, name: str) -> list[NDArray[np.int64]]:
        """For every dim with scales the positions of its entries, in a shape that broadcasts."""
        rank, found = self._rank(name), []
        for dim in range(rank):
            if (name, dim) in self.structure.span:
                places = np.arange(*self.structure.span[name, dim])
                shape = self.structure.slots[name, dim].ids.shape
                if len(shape) > 1:
                    # A grouped weight: its input channels differ from group to group of its output channels.
                    each = self.structure.inference.shapes[name][0] // shape[0]
                    places = np.repeat(places.reshape(shape), each, axis=0)
                    found.append(places.reshape(*places.shape, *[1] * (rank - 2)))
                else:
                    found.append(places.reshape([-1 if d == dim else 1 for d in range(rank)]))
        return found

    def _rows(self, name: str) -> csr_array:
        return sum(self.free[p.reshape(-1)] for p in np.broadcast_arrays(*self._positions(name)))

    def _one_sided(self) -> NDArray[np.float64]:
        """+1 or -1 for the free scales that act on parameters with one sign only, else 0."""
        if self.exponents is None:
            return np.zeros(0)
        up, down = (np.asarray((part > 0).sum(0)) > 0 for part in (self.exponents, -self.exponents))
        return (up & ~down).astype(np.float64) - (down & ~up)

    def balance(self, weights: Weights) -> tuple[Weights, float]:
        """The weights of least norm under the scales, and the largest log-scale that was needed."""
        if self.exponents is None or not self.exponents.nnz:
            return weights, 0.0
        squares = [self._reduce(name, weights[name].square()) for name in self.names]
        log_scale = self.free @ minimise(self.exponents, np.concatenate(squares), self.pull)
        moved = dict(weights)
        for name in self.names:
            factor = np.exp(sum(log_scale[p] for p in self._positions(name)))
            moved[name] = weights[name] * torch.from_numpy(factor)
        return moved, float(np.abs(log_scale).max())

    def _reduce(self, name: str, square: Tensor) -> NDArray[np.float64]:
        """Sum over the dims that no scale acts on, as a flat array."""
        shape = np.broadcast_shapes(*(p.shape for p in self._positions(name)))
        still = [dim for dim in range(square.dim()) if shape[dim] != square.shape[dim]]
        return (square.sum(still) if still else square).reshape(-1).numpy()


def minimise(
    exponents: csr_array, squares: NDArray[np.float64], pull: NDArray[np.float64], steps: int = 100
) -> NDArray[np.float64]:
    """argmin over l of sum_k s_k exp(2 (E l)_k) - 2 <pull, l>, by Newton's method.

    A step changes no (E l)_k by more than 1/2, within which the exponentials are nearly quadratic; the last
    steps are whole and give all digits, which a line search on values would not.

    >>> E = csr_array(np.array([[1.0], [-1.0]]))
    >>> float(minimise(E, np.array([1.0, 16.0]), np.zeros(1))[0] / np.log(2))
    1.0
    """
    found = np.zeros(exponents.shape[1])
    # Scales of dead channels (all squares zero) have nothing to balance, and nothing may pull at them.
    alive = np.asarray(abs(exponents).T @ squares) > 0
    pull = np.where(alive, pull, 0.0)
    for _ in range(steps):
        heights = squares * np.exp(2 * (exponents @ found))
        gradient = 2 * (exponents.T @ heights) - 2 * pull
        step = _solve(exponents, heights, -gradient)
        size = float(np.abs(exponents @ step).max())
        found = found + step * min(1.0, 0.5 / max(size, 1e-300))
        # The next step would be about the square of this one.
        if size < 1e-8:
            break
    return found


def _solve(
    exponents: csr_array, heights: NDArray[np.float64], right: NDArray[np.float64]
) -> NDArray[np.float64]:
    """d with 4 E' diag(heights) E d = right, by conjugate gradients with the diagonal divided out."""
    diagonal = 4 * (exponents.power(2).T @ heights)
    inverse = np.where(diagonal > 0, 1 / np.maximum(diagonal, 1e-300), 0.0)
    found, rest = np.zeros_like(right), right
    direction = inverse * rest
    square = rest @ direction
    goal = 1e-24 * square
    for _ in range(2 * len(right) + 10):
        if not square > goal:
            break
        bent = 4 * (exponents.T @ (heights * (exponents @ direction)))
        length = square / (direction @ bent)
        found, rest = found + length * direction, rest - length * bent
        before, square = square, rest @ (inverse * rest)
        direction = inverse * rest + (square / before) * direction
    return found
