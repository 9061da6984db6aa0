"""Divide the group out: one point for each orbit, equal for weights that an element carries into each other.

Scales and matrices: the point of least norm on the orbit (`balance`). Permutations of channels and of blocks,
signs, and the rotations that are left of the matrices: matched to a reference. What lies on the orbit of the
reference is brought onto it in closed form. For all else the first match takes the axes in such an order, and
of each only such weights, that all other dimensions of these weights are matched already (`propagate`). So
the result depends neither on the order nor on the signs nor on the rotations that the weights came with,
wherever the first layer tells its channels apart.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from intertwine.orbit.action import GroupAction
from intertwine.orbit.balance import Balance
from intertwine.orbit.closed_form import bring_onto
from intertwine.orbit.descent import descend, propagate, rotate
from intertwine.orbit.matching import Matcher
from intertwine.orbit.state import State
from intertwine.orbit.units import Weights

_SAME = 1e-5  # distance, in norms of the reference, up to which weights count as those of its orbit


class Canonical:
    """`canonical(weights)`: the point of least norm on their orbit that is nearest to `reference`'s."""

    def __init__(self, action: GroupAction, reference: Weights, exact: float = 1e-12) -> None:
        self.action = action
        self._balance = Balance(action, limit=True)
        self.reference = self._balanced(reference, exact).weights
        self._matcher = Matcher(action, self.reference)

    def __call__(self, weights: Weights, exact: float = 1e-12) -> dict[str, Tensor]:
        """The point that stands for the orbit of `weights`; exact: how well their norm is balanced."""
        state = self._balanced(weights, exact)
        onto = state.copy()
        if self._brought_onto_reference(onto):
            state = onto
        else:
            propagate(self._matcher, state)
            descend(self._matcher, state, np.random.default_rng(0))
        rotate(self._matcher, state)
        return state.held

    def _brought_onto_reference(self, state: State) -> bool:
        """Bring the state onto the reference; False, with the state left midway, if no element does."""
        if not bring_onto(self.action, self.reference, state):
            return False
        near = _SAME**2 * self.action.squared_norm(self.reference)
        return self._matcher.distance(state.weights) <= near

    def _balanced(self, weights: Weights, exact: float) -> State:
        state = self.action.state(weights)
        self._balance(state, exact)
        return state
