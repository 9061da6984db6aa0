"""Divide the known group out: a representative of the orbit of a parameter, equal for equivalent parameters.

Scales and matrices: the point of least norm on the orbit. Permutations of channels and of blocks, signs, and
the rotations that are left of the matrices: matched to the balanced theta. A point on the orbit of theta is
brought onto it in closed form (`find_orbit`). For all others the first match takes the axes in such an order,
and of each only such weights, that all other dimensions of these weights are matched already (`propagate`).
So the result depends neither on the order nor on the signs nor on the rotations that the weights came with,
wherever the first layer tells its channels apart.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from intertwine.align.balance import Balance
from intertwine.align.match import Matcher
from intertwine.align.move import Mover
from intertwine.align.orbit import find_orbit
from intertwine.align.refine import squared_distance
from intertwine.align.scales import Scales
from intertwine.align.search import State, descend, propagate, rotate
from intertwine.align.units import find_units
from intertwine.explore.known import KnownSymmetry
from intertwine.explore.search import EquivalenceSample

_SAME = 1e-5  # distance, in norms of theta, up to which a point counts as one of the orbit


class Quotient:
    """`canonical(vector)`: balanced, then matched to the balanced theta, which is `reference`."""

    def __init__(self, known: KnownSymmetry) -> None:
        self.known = known
        self._forest = find_units(known.group)
        self._mover = Mover(self._forest.structure)
        scales = Scales(known.group, set(known.objective.layout.names) & set(known.symmetry.shapes))
        self._balance = Balance(self._forest, scales, limit=True)
        balanced = self._balanced(known.objective.theta).weights
        self._matcher = Matcher(self._forest, scales, balanced)
        self._norm = float(sum(tensor.square().sum() for tensor in balanced.values())) ** 0.5
        self.reference = self._vector(balanced)

    def canonical(self, vector: Tensor) -> Tensor:
        """The representative of the orbit of `vector`."""
        state = self._balanced(vector)
        exact = state.copy()
        if self._brought_onto_theta(exact):
            state = exact
        else:
            propagate(self._matcher, state)
            descend(self._matcher, state, np.random.default_rng(0))
        rotate(self._matcher, state)
        return self._vector(state.weights)

    def _brought_onto_theta(self, state: State) -> bool:
        """Bring the state onto the balanced theta; False, with the state left midway, if no element does."""
        scales, target = self._matcher.scales, self._matcher.target
        if not find_orbit(self._forest, scales, target, state):
            return False
        return squared_distance(target, state.weights, scales.params) <= (_SAME * self._norm) ** 2

    def sample(self, sample: EquivalenceSample) -> EquivalenceSample:
        """The same points in the quotient: what remains different there, the group does not explain."""
        points = torch.stack([self.canonical(point) for point in sample.points])
        values = self.known.objective.values(points, examples=1024)
        return EquivalenceSample(
            sample.layout, self.reference, points, tuple(float(v) for v in values), sample.tolerance,
            sample.spread, sample.known_symmetry_loss, sample.facts, (*sample.notes, "in the quotient"),
            sample.objective,
        )  # fmt: skip

    def _balanced(self, vector: Tensor) -> State:
        weights = self.known.objective.layout.unflatten(vector.detach().to("cpu", torch.float64))
        state = State(self._forest, self._mover, weights)
        self._balance(state, exact=max(1e-12, torch.finfo(vector.dtype).eps))
        return state

    def _vector(self, weights: dict[str, Tensor]) -> Tensor:
        return self.known.objective.layout.flatten(weights).to(self.known.objective.theta)
