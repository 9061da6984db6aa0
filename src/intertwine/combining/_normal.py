"""The sums that one layer is solved from, and what follows from them.

    W(r) = argmin  E |W h - t|^2 + r m |W - W_0|^2        m: the mean square of what the layer reads

The pull r is the one that errs least on inputs that were left out. What W makes varies less than what was
asked for, and least in the directions that h tells little about. `Sums.spread_out` gives it back:

    T W,   T = R (R C R)^(-1/2) R,   R = Cov(t)^(1/2),   C = Cov(W h)

the least move of W h that gives it the covariance of t (optimal transport between Gaussians).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from intertwine.errors import DataError

PULLS = (1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
LEFT_OUT = 4  # every fourth part of the inputs is left out when the pull is chosen
_FLOOR = 1e-6  # of the largest variance


class Sums:
    """The moments of the rows of one layer and of what it should make, in float64."""

    def __init__(self) -> None:
        self.count = 0
        self.parts: list[Tensor] = []

    def add(self, rows: Tensor, goal: Tensor) -> None:
        """rows: (groups, n, inputs); goal: (n, outputs)."""
        cross, square, first = _goal_terms(rows, goal)
        self._add([(rows.mT @ rows).double(), cross, square, rows.sum(1).double(), first], len(goal))

    def aimed(self, parts: Iterable[tuple[Tensor, Tensor]]) -> Sums:
        """The same rows with other goals; what belongs to the rows alone is not summed again."""
        out = Sums()
        gram, _, _, mean, _ = self.parts
        terms = [torch.zeros_like(self.parts[k]) for k in (1, 2, 4)]
        for rows, goal in parts:
            terms = [a + b for a, b in zip(terms, _goal_terms(rows, goal), strict=True)]
        out._add([gram, terms[0], terms[1], mean, terms[2]], self.count)
        return out

    def __add__(self, other: Sums) -> Sums:
        out = Sums()
        for each in (self, other):
            if each.parts:
                out._add(each.parts, each.count)
        return out

    def _add(self, new: list[Tensor], count: int) -> None:
        self.parts = [a + b for a, b in zip(self.parts, new, strict=True)] if self.parts else new
        self.count += count

    def moments(self, *, centred: bool) -> tuple[Tensor, Tensor, Tensor]:
        """E h h', E t h', E t t'; about the means if centred."""
        *products, mean, goal = (part / self.count for part in self.parts)
        if not all(bool(torch.isfinite(product).all()) for product in products):
            raise DataError(
                "what a layer of the networks reads or makes on these inputs is not finite",
                so="the layer cannot be solved for",
                do="prepare the inputs as the networks expect them",
            )
        if not centred:
            return products[0], products[1], products[2]
        pairs = ((mean, mean), (goal, mean), (goal, goal))
        found = [p - a[:, :, None] * b[:, None, :] for p, (a, b) in zip(products, pairs, strict=True)]
        return found[0], found[1], found[2]

    def solve(self, before: Tensor, ridge: float, *, centred: bool) -> Tensor:
        """(groups, outputs, inputs); ridge: relative to the rows' mean square."""
        gram, cross, _ = self.moments(centred=centred)
        pull = ridge * _size(gram)
        gram = gram + pull * torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        found: Tensor = torch.linalg.solve(gram, (cross + pull * before.to(gram)).mT)
        return found.mT

    def shift(self, matrix: Tensor) -> Tensor:
        """The constant that goes with a matrix."""
        mean, goal = (part / self.count for part in self.parts[3:])
        return (goal - (matrix @ mean[:, :, None]).squeeze(-1)).reshape(-1)

    def spread_out(self, matrix: Tensor) -> Tensor:
        """A matrix whose outputs have the covariance of what was asked for, and are moved least for that."""
        gram, _, wanted = self.moments(centred=True)
        sizes = wanted.diagonal(dim1=1, dim2=2).clamp_min(0).sqrt()
        found = torch.einsum("goi,gij,goj->go", matrix, gram, matrix).clamp_min(0).sqrt()
        matrix = matrix * (sizes / found.clamp_min(1e-12))[:, :, None].clamp_max(1e3)
        root = _power(wanted, 0.5)
        inner = root @ (matrix @ gram @ matrix.mT) @ root
        return root @ _power(inner, -0.5) @ root @ matrix

    def output_moments(self, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of what a matrix makes of the rows."""
        gram, _, _ = self.moments(centred=True)
        first = matrix @ (self.parts[3] / self.count)[:, :, None]
        second = torch.einsum("goi,gij,goj->go", matrix, gram, matrix).clamp_min(0)
        return first.reshape(-1), second.reshape(-1)

    def goal_mean(self) -> Tensor:
        """The mean of what is asked for."""
        return (self.parts[4] / self.count).reshape(-1)


def _goal_terms(rows: Tensor, goal: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sums of t h', of t t' and of t."""
    split = goal.reshape(len(goal), len(rows), -1).movedim(1, 0)
    return (split.mT @ rows).double(), (split.mT @ split).double(), split.sum(1).double()


def best_pull(fit: Sums, left_out: Sums, before: Tensor, *, centred: bool) -> float:
    """The one of `PULLS` whose solution on some inputs errs least on others."""
    gram, cross, _ = fit.moments(centred=centred)
    other_gram, other_cross, _ = left_out.moments(centred=centred)
    values, turn = torch.linalg.eigh(gram)
    cross, before = cross @ turn, before.to(gram) @ turn
    other_gram, other_cross = turn.mT @ other_gram @ turn, other_cross @ turn

    def error(pull: float) -> float:
        weight = pull * _size(gram)
        matrix = (cross + weight * before) / (values[:, None, :] + weight)
        return float(((matrix @ other_gram) * matrix).sum() - 2 * (matrix * other_cross).sum())

    return min(PULLS, key=error)


class Spread:
    """Mean and deviation of every channel, over rows that come in parts."""

    def __init__(self) -> None:
        self.count, self.first, self.second = 0, torch.zeros(()), torch.zeros(())

    def add(self, rows: Tensor) -> None:
        """rows: (n, channels)."""
        rows = rows.double()
        self.count += len(rows)
        self.first, self.second = self.first + rows.sum(0), self.second + rows.square().sum(0)

    def deviation(self) -> Tensor:
        """(channels)."""
        mean = self.first / self.count
        return (self.second / self.count - mean.square()).clamp_min(0).sqrt()


def _size(gram: Tensor) -> Tensor:
    return gram.diagonal(dim1=1, dim2=2).mean(1).clamp_min(1e-10)[:, None, None]


def _power(matrix: Tensor, exponent: float) -> Tensor:
    """Of a symmetric matrix; directions of next to no variance count as if they had a little."""
    values, turn = torch.linalg.eigh(matrix)
    least = (_FLOOR * values.amax(-1, keepdim=True)).clamp_min(1e-30)
    found: Tensor = turn @ (values.maximum(least).pow(exponent)[..., None] * turn.mT)
    return found
