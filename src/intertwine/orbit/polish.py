"""With channels matched, the rescalings and matrices that bring weights closest to a target.

Axis after axis in closed form (`scales`, `matrices`): first by settled weights, which is exact for two models
of one orbit, then by all weights. A step that would move the weights away from the target is not taken.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from intertwine.orbit.matching import Matcher
from intertwine.orbit.matrices import best_matrices, stacked
from intertwine.orbit.state import State
from intertwine.orbit.units import Unit


def polish(matcher: Matcher, state: State, sweeps: int = 8) -> None:
    """Rescale and turn until it gains less than 1e-6 of the distance, or `sweeps` are over."""
    _settled_pass(matcher, state)
    distance = matcher.distance(state.weights)
    for _ in range(sweeps):
        for unit in matcher.forest.units:
            _closer(matcher, state, unit)
        now = matcher.distance(state.weights)
        if now >= distance * (1 - 1e-6):
            break
        distance = now


def _settled_pass(matcher: Matcher, state: State) -> None:
    """Every unit by what its matched neighbours determine; kept only if the whole comes closer."""
    forest = matcher.forest
    trial = state.copy()
    done: set[int] = set()
    for unit in forest.units:
        slots = {s for s in unit.slots if forest.settled(s, done)}
        _step(matcher, trial, unit, slots)
        done.add(unit.index)
    if matcher.distance(trial.weights) < matcher.distance(state.weights):
        state.adopt(trial)


def _closer(matcher: Matcher, state: State, unit: Unit) -> None:
    """One step by all weights of a unit, taken if it brings them closer."""
    trial = state.copy(param for param, _ in unit.slots)
    _step(matcher, trial, unit, set(unit.slots))
    if matcher.distance(trial.weights, trial.weights) < matcher.distance(state.weights, trial.weights):
        state.adopt(trial)


def _step(matcher: Matcher, state: State, unit: Unit, slots: set[tuple[str, int]]) -> None:
    if unit.linear is not None:
        _turn(matcher, state, unit, slots)
        return
    scales = matcher.scales
    which = scales.components(unit.classes)
    if not which.any() or not slots:
        return
    own = scales.inner(state.weights, state.weights, slots)
    both = scales.inner(matcher.target, state.weights, slots)
    found = scales.solve(own, both, which)
    if np.abs(found).max(initial=0.0) > 0:
        at = scales.positions(found)
        state.rescale(at, np.ones(len(at)), unit.slots)


def _turn(matcher: Matcher, state: State, unit: Unit, slots: set[tuple[str, int]]) -> None:
    assert unit.linear is not None
    params = matcher.params
    usable = replace(unit, spots=tuple(s for s in unit.spots if (s.param, s.dim) in slots))
    left, right = (stacked(usable, w, params) for w in (matcher.target, state.weights))
    if not left[0].shape[2] and not left[1].shape[2]:
        return
    matrices = best_matrices((left[0], right[0]), (left[1], right[1]), unit.linear.orthogonal).numpy()
    condition = np.linalg.cond(matrices)
    matrices[~(condition < 1e8)] = np.eye(matrices.shape[1])
    state.turn(unit.linear.orbit, matrices)
