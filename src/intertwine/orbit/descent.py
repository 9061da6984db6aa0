"""Coordinate descent over axes: bring weights onto a target by permutations, signs and rotations.

A start is a first guess; from it all axes are matched in turn, each with all others held, until nothing
moves. Every accepted step raises the inner product with the target (the norm does not change), so the
distance only falls. Ainsworth et al. 2022 (Git Re-Basin, Algorithm 1), for any architecture and group.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from intertwine.orbit.matching import Matcher
from intertwine.orbit.matrices import rotations
from intertwine.orbit.state import Match, State
from intertwine.orbit.units import Forest, Spot, Unit, Weights
from intertwine.symmetry import Element
from intertwine.symmetry.sampling import sample

_SWEEPS = 100


def search(matcher: Matcher, weights: Weights, restarts: int, seed: int) -> Element:
    """The best of the descents from the first guesses and from random starts."""
    action, rng = matcher.action, np.random.default_rng(seed)
    starts: list[Callable[[State], None]] = [partial(propagate, matcher), lambda state: None]
    if matcher.alone:
        starts, restarts = starts[:1], 0  # activations decide at once
    starts += [partial(random_start, rng=rng)] * restarts
    norms = action.squared_norm(matcher.target) * action.squared_norm(weights)
    exact = (1 - 1e-8) * float(np.sqrt(norms))
    found: list[tuple[float, Element]] = []
    for begin in starts:
        state = action.state(weights)
        begin(state)
        if matcher.agreement(state.weights) < exact:
            descend(matcher, state, rng)
        found.append((total(matcher, state), state.element))
        if matcher.agreement(state.weights) >= exact:
            break  # nothing can be better
    return max(found, key=lambda pair: pair[0])[1]


def propagate(matcher: Matcher, state: State) -> None:
    """A start: match axes one after the other, from both ends of the net, each by settled weights only.

    A weight is settled for an axis if all its other axes are matched already. For two models of one orbit
    every step is exact. An axis that nothing settled describes is matched by what no permutation changes:
    the sorted sizes of its entries.
    """
    forest = matcher.forest
    done: set[int] = set()
    left = list(forest.roots)
    while left:
        root = next((r for r in left if _described(matcher, r, done)), None)
        if root is None:
            root = left[0]
            state.match(_by_invariants(matcher, root, state.weights), root.reach)
        else:
            _by_settled(matcher, state, root, done)
        left.remove(root)
        done |= {u.index for u in root.family()}
        if matcher.signs:
            fix_signs(matcher, state, root, done)


def _by_settled(matcher: Matcher, state: State, root: Unit, done: set[int]) -> None:
    """Match a family by settled weights; what something crosses, once that is matched."""
    left = root.family()
    while left:
        settled = partial(_settled, matcher.forest, frozenset(done))
        state.match(matcher.step(root, state.weights, settled, state.origin), root.reach)
        told = [unit for unit in left if any(settled(spot) for spot in unit.spots)]
        done |= {above.index for unit in told for above in unit.lineage()}
        left = [unit for unit in left if told and unit.index not in done]


def _settled(forest: Forest, done: frozenset[int], spot: Spot) -> bool:
    return forest.settled(spot.slot, done) and spot.crossed <= done


def _described(matcher: Matcher, root: Unit, done: set[int]) -> bool:
    """Whether settled matrices (vectors, if there are no matrices) describe every moving unit of a family.

    A unit with free signs counts as moving: until they are chosen, its weights describe nothing else.
    """
    settled, kinds = matcher.forest.settled, matcher.scales.kinds
    shapes = matcher.action.structure.inference.shapes
    for unit in root.family():
        spots = [s for s in unit.spots if s.param in matcher.params]
        signed = matcher.signs and any(s.kind >= 0 and kinds[s.kind].sign[s.local].any() for s in spots)
        if (unit.moves or signed) and spots and unit.index not in matcher.extra:
            matrices = [s for s in spots if s.has_several(shapes[s.param])]
            if not any(settled(s.slot, done) for s in matrices or spots):
                return False
    return True


def _by_invariants(matcher: Matcher, root: Unit, weights: Weights) -> Match:
    def described(source: Weights) -> dict[str, Tensor]:
        out = dict(source)
        for spot in (spot for unit in root.family() for spot in unit.spots):
            if spot.groups == 1 and spot.param in matcher.params:
                tensor = source[spot.param].movedim(spot.dim, 0)
                rows = tensor.reshape(len(tensor), -1).abs().sort(dim=1).values
                rows = rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-300)
                out[spot.param] = rows.reshape(tensor.shape).movedim(0, spot.dim)
        return out

    like = Matcher(matcher.action, described(matcher.target), signs=False, rotations=matcher.rotations)
    return like.step(root, described(weights))


def fix_signs(matcher: Matcher, state: State, root: Unit, done: set[int] | None = None) -> None:
    """Choose the signs of a family anew, by settled weights if `done` is given."""
    scales = matcher.scales
    which = scales.components(np.concatenate([u.classes.reshape(-1) for u in root.family()]))
    if not which.any():
        return
    slots = root.reach
    used = slots if done is None else {slot for slot in slots if matcher.forest.settled(slot, done)}
    sign = scales.signs(scales.inner(matcher.target, state.weights, used), which)
    if (sign < 0).any():
        at = np.where(scales.free, sign[matcher.action.structure.scales], 1.0)
        state.rescale(np.zeros(len(at)), at, slots)


def descend(matcher: Matcher, state: State, rng: np.random.Generator) -> int:
    """Sweeps over all axes in random order until nothing moves; how many sweeps it took."""
    roots = matcher.forest.roots
    touched = [{param for param, _ in root.reach} for root in roots]
    stale = np.ones(len(roots), bool)  # whether anything that an axis sees has changed since it was matched
    for sweep in range(_SWEEPS):
        for k in rng.permutation(len(roots)):
            if stale[k]:
                stale[k] = False
                if _improve(matcher, state, roots[k]):
                    for j, params in enumerate(touched):
                        stale[j] |= j != k and not params.isdisjoint(touched[k])
        if not stale.any():
            return sweep
    return _SWEEPS


def _improve(matcher: Matcher, state: State, root: Unit) -> bool:
    trial = state.copy(param for param, _ in root.reach)
    if any(unit.moves for unit in root.family()):
        trial.match(matcher.step(root, trial.weights, origin=state.origin), root.reach)
    if matcher.signs:
        fix_signs(matcher, trial, root)
    before, after = (objective(matcher, s, root) for s in (state, trial))
    if after <= before + 1e-9 * abs(before):
        return False
    state.adopt(trial)
    return True


def rotate(matcher: Matcher, state: State, exact: float = 1e-12, sweeps: int = 50) -> None:
    """Procrustes on every linear axis in turn until nothing moves: rotations with all their digits.

    The descent goes by values, which tell an angle only to the square root of their rounding.
    """
    linear = [unit for unit in matcher.forest.units if unit.linear is not None]
    for _ in range(sweeps):
        change = 0.0
        for unit in linear:
            assert unit.linear is not None
            blocks, width = unit.classes.shape
            table = matcher.gain(unit, state.weights).reshape(blocks, width, blocks, width)
            own = np.stack([table[b, :, b] for b in range(blocks)])
            matrices = rotations(torch.from_numpy(own))[0].numpy()
            state.turn(unit.linear.orbit, matrices)
            # What is zero may turn in any way.
            moved = np.linalg.norm(matrices @ own - own) / max(float(np.linalg.norm(own)), 1e-300)
            change = max(change, float(moved))
        if change < exact:
            break


def objective(matcher: Matcher, state: State, root: Unit) -> float:
    """What the descent raises, as far as a family has part in it: agreement, and further gains."""
    told = matcher.alone and any(unit.index in matcher.extra for unit in root.family())
    total = 0.0 if told else matcher.agreement(state.weights, (param for param, _ in root.reach))
    for unit in root.family():
        further = matcher.further(unit, state.origin)
        total += 0.0 if further is None else float(np.trace(further))
    return total


def random_start(state: State, rng: np.random.Generator) -> None:
    """Permute everything at random."""
    relabel = sample(state.structure, rng, ("permutation",)).relabel
    state.match(Match(relabel, {}), state.structure.span)


def total(matcher: Matcher, state: State) -> float:
    """The value by which starts are compared: agreement and all further gains."""
    further = [matcher.further(unit, state.origin) for unit in matcher.forest.units]
    return matcher.agreement(state.weights) + sum(float(np.trace(f)) for f in further if f is not None)
