"""Divide the known group out: a representative of the orbit of a parameter, equal for equivalent parameters.

That of `intertwine.orbit.Canonical`, for flat vectors, with theta as the reference.
"""

from __future__ import annotations

import torch
from torch import Tensor

from intertwine.exploring.known import KnownSymmetry
from intertwine.exploring.search import EquivalenceSample
from intertwine.orbit import Canonical, GroupAction


class Quotient:
    """`canonical(vector)`: balanced, then matched to the balanced theta, which is `reference`."""

    def __init__(self, known: KnownSymmetry) -> None:
        self.known = known
        theta = known.objective.theta
        self._layout = known.objective.layout
        action = GroupAction(known.group, set(self._layout.names) & set(known.symmetry.shapes))
        self._canonical = Canonical(action, self._weights(theta), _rounding(theta))
        self.reference = self._vector({**self._weights(theta), **self._canonical.reference})

    def canonical(self, vector: Tensor) -> Tensor:
        """The representative of the orbit of `vector`."""
        weights = self._weights(vector)
        return self._vector({**weights, **self._canonical(weights, _rounding(vector))})

    def sample(self, sample: EquivalenceSample) -> EquivalenceSample:
        """The same points in the quotient: what remains different there, the group does not explain."""
        points = torch.stack([self.canonical(point) for point in sample.points])
        values = self.known.objective.values(points, examples=1024)
        return EquivalenceSample(
            sample.layout, self.reference, points, tuple(float(v) for v in values), sample.tolerance,
            sample.spread, sample.known_symmetry_loss, sample.facts, (*sample.notes, "in the quotient"),
            sample.objective,
        )  # fmt: skip

    def _weights(self, vector: Tensor) -> dict[str, Tensor]:
        return self._layout.unflatten(vector.detach().to("cpu", torch.float64))

    def _vector(self, weights: dict[str, Tensor]) -> Tensor:
        return self._layout.flatten(weights).to(self.known.objective.theta)


def _rounding(vector: Tensor) -> float:
    return max(1e-12, torch.finfo(vector.dtype).eps)
