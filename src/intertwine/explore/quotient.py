"""Divide the known group out: a representative of the orbit of a parameter, equal for equivalent parameters.

Scales and matrices: the point of least norm on the orbit (`balance`). Permutations of channels and of blocks,
signs, and the rotations that are left of the matrices: matched to the balanced theta (`matching`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from intertwine.explore.balance import Balance
from intertwine.explore.known import KnownSymmetry
from intertwine.explore.matching import Matcher
from intertwine.explore.search import EquivalenceSample


class Quotient:
    """`canonical(vector)`: balanced, then matched to the balanced theta, which is `reference`."""

    def __init__(self, known: KnownSymmetry) -> None:
        self.known = known
        names = known.objective.layout.names
        self._balancer = Balance(known.group, names)
        balanced = self._balance(known.objective.theta)
        self._matcher = Matcher(known.group, names, balanced)
        self.reference = self._vector(balanced)

    def canonical(self, vector: Tensor) -> Tensor:
        """The representative of the orbit of `vector`."""
        return self._vector(self._matcher(self._balance(vector)))

    def sample(self, sample: EquivalenceSample) -> EquivalenceSample:
        """The same points in the quotient: what remains different there, the group does not explain."""
        points = torch.stack([self.canonical(point) for point in sample.points])
        values = self.known.objective.values(points, examples=1024)
        return EquivalenceSample(
            sample.layout, self.reference, points, tuple(float(v) for v in values), sample.tolerance,
            sample.spread, sample.known_symmetry_loss, sample.facts, (*sample.notes, "in the quotient"),
            sample.objective,
        )  # fmt: skip

    def _balance(self, vector: Tensor) -> dict[str, Tensor]:
        weights = self.known.objective.layout.unflatten(vector.detach().to("cpu", torch.float64))
        return self._balancer(weights, exact=max(1e-12, torch.finfo(vector.dtype).eps))

    def _vector(self, weights: dict[str, Tensor]) -> Tensor:
        return self.known.objective.layout.flatten(weights).to(self.known.objective.theta)
