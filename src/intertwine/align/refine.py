"""With channels matched, the rescalings and matrices that bring weights closest to a target.

Axis after axis in closed form (`scales`, `linear`): first by settled weights, which is exact for two models
of one orbit, then by all weights. A step that would move the weights away from the target is not taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from intertwine.align.linear import best_matrices, stacked
from intertwine.align.match import Matcher
from intertwine.align.search import State
from intertwine.align.units import Unit, Weights


def squared_distance(left: Weights, right: Weights, names: Iterable[str]) -> float:
    """|left - right|^2 over the named weights."""
    return float(sum((left[n] - right[n]).square().sum() for n in sorted(names)))


def refine(matcher: Matcher, state: State, sweeps: int = 8) -> None:
    """Rescale and turn until it gains less than 1e-6 of the distance, or `sweeps` are over."""
    _settled_pass(matcher, state)
    names = matcher.scales.params
    distance = squared_distance(matcher.target, state.weights, names)
    for _ in range(sweeps):
        for unit in matcher.forest.units:
            _closer(matcher, state, unit)
        now = squared_distance(matcher.target, state.weights, names)
        if now >= distance * (1 - 1e-6):
            break
        distance = now


def _settled_pass(matcher: Matcher, state: State) -> None:
    """Every unit by what its matched neighbours determine; kept only if the whole comes closer."""
    forest, names = matcher.forest, matcher.scales.params
    trial = state.copy()
    done: set[int] = set()
    for unit in forest.units:
        slots = {s for s in unit.slots if forest.settled(s, done)}
        _step(matcher, trial, unit, slots)
        done.add(unit.index)
    before, after = (squared_distance(matcher.target, s.weights, names) for s in (state, trial))
    if after < before:
        state.adopt(trial)


def _closer(matcher: Matcher, state: State, unit: Unit) -> None:
    """One step by all weights of a unit, taken if it brings them closer."""
    trial = state.copy(param for param, _ in unit.slots)
    names = matcher.scales.params.intersection(trial.weights)
    _step(matcher, trial, unit, set(unit.slots))
    before, after = (squared_distance(matcher.target, s.weights, names) for s in (state, trial))
    if after < before:
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
    params = matcher.scales.params
    usable = replace(unit, spots=tuple(s for s in unit.spots if (s.param, s.dim) in slots))
    left, right = (stacked(usable, w, params) for w in (matcher.target, state.weights))
    if not left[0].shape[2] and not left[1].shape[2]:
        return
    matrices = best_matrices((left[0], right[0]), (left[1], right[1]), unit.linear.orthogonal).numpy()
    condition = np.linalg.cond(matrices)
    matrices[~(condition < 1e8)] = np.eye(matrices.shape[1])
    state.turn(unit.linear.orbit, matrices)
