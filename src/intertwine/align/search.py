"""Coordinate descent over axes: bring weights onto a target by permutations, signs and rotations.

A start is a first guess; from it all axes are matched in turn, each with all others held, until nothing
moves. Every accepted step raises the inner product with the target (the norm does not change), so the
distance only falls. Ainsworth et al. 2022 (Git Re-Basin, Algorithm 1), for any architecture and group.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from intertwine.align.linear import rotations
from intertwine.align.match import Match, Matcher
from intertwine.align.move import Mover
from intertwine.align.scales import Slot
from intertwine.align.units import Forest, Spot, Unit, Weights
from intertwine.ir.ledger import Ids
from intertwine.symmetry import Element
from intertwine.symmetry.transform import fibre_map, identity, sample

_SWEEPS = 100


class State:
    """Parameters on their way, and the element that brought them there."""

    def __init__(self, forest: Forest, mover: Mover, weights: Weights) -> None:
        self.forest, self.mover = forest, mover
        self.weights: dict[str, Tensor] = dict(weights)
        base = identity(forest.structure)
        self._relabel, self._log_scale, self._sign = base.relabel, base.log_scale, base.sign
        self._linear = dict(base.linear)

    @property
    def element(self) -> Element:
        """All steps as one."""
        return Element(self.forest.structure, self._relabel, self._log_scale, self._sign, dict(self._linear))

    @property
    def origin(self) -> Ids:
        """Class -> the class that its channel had at first."""
        out = np.empty_like(self._relabel)
        out[self._relabel] = np.arange(len(out))
        return out

    def copy(self, params: Iterable[str] | None = None) -> State:
        """The same state, of some weights only."""
        out = State.__new__(State)
        vars(out).update(vars(self))
        names = self.weights if params is None else [p for p in params if p in self.weights]
        out.weights = {name: self.weights[name] for name in names}
        out._linear = dict(self._linear)
        return out

    def adopt(self, trial: State) -> None:
        """Go where a copy has gone."""
        vars(self).update({**vars(trial), "weights": {**self.weights, **trial.weights}})

    def match(self, found: Match, slots: Iterable[Slot]) -> None:
        """Permute and turn."""
        for orbit, matrices in found.linear.items():
            self.turn(orbit, matrices)
        self.mover.permute(self.weights, slots, found.relabel)
        self._relabel = found.relabel[self._relabel]

    def turn(self, orbit: int, matrices: np.ndarray) -> None:
        """Act with a matrix on each block of a linear axis."""
        self.mover.turn(self.weights, orbit, matrices)
        moved = matrices[fibre_map(self.forest.structure, orbit, self._relabel)]
        self._linear[orbit] = moved @ self._linear[orbit]

    def rescale(self, log_scale: np.ndarray, sign: np.ndarray, slots: Iterable[Slot]) -> None:
        """Multiply by sign and exp(log_scale), given for every position; `slots` are those that change."""
        self._log_scale, self._sign = self._log_scale.copy(), self._sign.copy()
        for slot in slots:
            # An element multiplies before it moves: what lies at p now was multiplied where it came from.
            start, stop = self.forest.structure.span[slot]
            source = self.mover.source(slot, self._relabel)
            first = start + (np.arange(stop - start) if source is None else source)
            self._log_scale[first] += log_scale[start:stop]
            self._sign[first] *= sign[start:stop]
        self.mover.multiply(self.weights, slots, np.exp(log_scale) * sign)


def agreement(matcher: Matcher, weights: Weights, params: Iterable[str] | None = None) -> float:
    """<target, weights> over the parameters."""
    names = matcher.scales.params if params is None else matcher.scales.params.intersection(params)
    return float(sum((matcher.target[n] * weights[n]).sum() for n in sorted(names)))


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
    for unit in root.family():
        spots = [s for s in unit.spots if s.param in matcher.scales.params]
        signed = matcher.signs and any(s.kind >= 0 and kinds[s.kind].sign[s.local].any() for s in spots)
        if (unit.moves or signed) and spots and unit.index not in matcher.extra:
            matrices = [s for s in spots if matcher.target[s.param].dim() > 1]
            if not any(settled(s.slot, done) for s in matrices or spots):
                return False
    return True


def _by_invariants(matcher: Matcher, root: Unit, weights: Weights) -> Match:
    def described(source: Weights) -> dict[str, Tensor]:
        out = dict(source)
        for spot in (spot for unit in root.family() for spot in unit.spots):
            if spot.groups == 1 and spot.param in matcher.scales.params:
                tensor = source[spot.param].movedim(spot.dim, 0)
                rows = tensor.reshape(len(tensor), -1).abs().sort(dim=1).values
                rows = rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-300)
                out[spot.param] = rows.reshape(tensor.shape).movedim(0, spot.dim)
        return out

    like = Matcher(
        matcher.forest, matcher.scales, described(matcher.target), signs=False, rotations=matcher.rotations
    )
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
        at = np.where(scales.free, sign[matcher.forest.structure.scales], 1.0)
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
    total = 0.0 if told else agreement(matcher, state.weights, (param for param, _ in root.reach))
    for unit in root.family():
        further = matcher.further(unit, state.origin)
        total += 0.0 if further is None else float(np.trace(further))
    return total


def random_start(state: State, rng: np.random.Generator) -> None:
    """Permute everything at random."""
    relabel = sample(state.forest.structure, rng, ("permutation",)).relabel
    state.match(Match(relabel, {}), state.forest.structure.span)


def total(matcher: Matcher, state: State) -> float:
    """The value by which starts are compared: agreement and all further gains."""
    further = [matcher.further(unit, state.origin) for unit in matcher.forest.units]
    return agreement(matcher, state.weights) + sum(float(np.trace(f)) for f in further if f is not None)
