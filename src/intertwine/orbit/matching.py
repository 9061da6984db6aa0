"""One step of the descent: match the channels of one unit, and of all that lies in it, to a target.

The gain of sending channel c to channel d is the inner product of their slices, summed over the weights that
carry the unit. The best permutation is a linear assignment; where signs are free, the gain is that of the
best signs; the channels of a head are matched inside every pair of heads first, and the heads by what that
gives; a linear unit is matched by a rotation, whose gain is the nuclear norm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from itertools import product

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from intertwine.ir.ledger import Ids
from intertwine.orbit.action import GroupAction
from intertwine.orbit.matrices import rotations
from intertwine.orbit.scales import sign_blocks
from intertwine.orbit.state import Match
from intertwine.orbit.units import Spot, Unit, Weights
from intertwine.symmetry.structure import Structure
from intertwine.symmetry.transform import carry

Array = np.ndarray
Usable = Callable[[Spot], bool]
_PATTERNS = 6  # signs of a channel that are tried in all combinations


class Matcher:
    """Matches units to the weights of `target`.

    signs: whether signs may be chosen; rotations: whether linear units turn (or are only permuted).
    extra: unit index -> (channels, channels) further gains, such as agreement of activations; alone: they
    replace those of the weights where there are any.
    """

    def __init__(
        self,
        action: GroupAction,
        target: Weights,
        *,
        signs: bool = True,
        rotations: bool = True,
        extra: Mapping[int, Array] | None = None,
        alone: bool = False,
    ) -> None:
        self.action, self.target = action, target
        self.forest, self.scales, self.params = action.forest, action.scales, action.params
        self.signs, self.rotations = signs, rotations
        self.extra, self.alone = dict(extra or {}), alone

    def step(
        self, root: Unit, weights: Weights, usable: Usable | None = None, origin: Ids | None = None
    ) -> Match:
        """The permutation (and rotations) of a root and its family that agree best with the target.

        origin: class -> the class that its channel had at first, where channels were moved since.
        """
        gains = {u.index: self.gain(u, weights, usable, origin) for u in root.family()}
        return place_family(self.action.structure, root, Solver(gains, self.rotations))

    def agreement(self, weights: Weights, some: Iterable[str] | None = None) -> float:
        """<target, weights> over the parameters, or over some of them."""
        return self.action.agreement(self.target, weights, some)

    def distance(self, weights: Weights, some: Iterable[str] | None = None) -> float:
        """|target - weights|^2 over the parameters, or over some of them."""
        return self.action.squared_distance(self.target, weights, some)

    def further(self, unit: Unit, origin: Ids | None = None) -> Array | None:
        """The further gains of a unit, for the channels as they lie now."""
        extra = self.extra.get(unit.index)
        if extra is None or origin is None:
            return extra
        flat = unit.classes.reshape(-1)
        rank = np.zeros(self.action.structure.classes.count, np.int64)
        rank[flat] = np.arange(len(flat))
        return extra[:, rank[origin[flat]]]

    def gain(
        self, unit: Unit, weights: Weights, usable: Usable | None = None, origin: Ids | None = None
    ) -> Array:
        """(channels of the target, channels of the weights): what sending the second to the first gives."""
        spots = [s for s in unit.spots if s.param in self.params and (usable is None or usable(s))]
        extra = self.further(unit, origin)
        if extra is not None and self.alone:
            return extra
        total = np.zeros((unit.size, unit.size))
        plain, blocks = self._sign_groups(spots)
        for spot in plain:
            total += self._inner(spot, weights)
        for patterns in blocks:
            tables = [
                (bits, np.sum([self._inner(s, weights) for s in found], axis=0))
                for bits, found in patterns.items()
            ]
            total += _best_of_signs(tables)
        return total if extra is None else total + extra

    def _inner(self, spot: Spot, weights: Weights) -> Array:
        left, right = spot.slices(self.target[spot.param]), spot.slices(weights[spot.param])
        return (left @ right.T).numpy()

    def _sign_groups(
        self, spots: Sequence[Spot]
    ) -> tuple[list[Spot], list[dict[tuple[int, ...], list[Spot]]]]:
        """Spots without a sign of their own, and for each block of signs its spots by exponents."""
        plain: list[Spot] = []
        groups: dict[tuple[int, int, int], dict[tuple[int, ...], list[Spot]]] = {}
        for spot in spots:
            kind = self.scales.kinds[spot.kind] if spot.kind >= 0 else None
            bits = kind.sign[spot.local] % 2 if kind is not None else np.zeros(0, np.int64)
            if not self.signs or not bits.any() or kind is None:
                plain.append(spot)
                continue
            for number, columns in enumerate(sign_blocks(kind.sign % 2)):
                if bits[columns].any():
                    group = groups.setdefault((spot.kind, int(spot.rows[0]), number), {})
                    group.setdefault(tuple(bits[columns].tolist()), []).append(spot)
        return plain, list(groups.values())


def _best_of_signs(tables: Sequence[tuple[tuple[int, ...], Array]]) -> Array:
    """Entry by entry the largest signed sum of the tables over all x, sign = (-1)^(bits x)."""
    width = len(tables[0][0])
    if len(tables) == 1 or width > _PATTERNS:
        bound: Array = np.sum([np.abs(table) for _, table in tables], axis=0)
        return bound
    signed = (
        np.sum([(1 - 2 * (np.dot(bits, x) % 2)) * table for bits, table in tables], axis=0)
        for x in product((0, 1), repeat=width)
    )
    return reduce(np.maximum, signed)


def assign(table: Array) -> Array:
    """The row for each column of a square table, all different, with the largest sum.

    >>> assign(np.array([[1.0, 3.0], [0.0, 2.5]])).tolist()
    [0, 1]
    """
    best: Array = table.argmax(axis=0)
    if np.bincount(best, minlength=len(table)).max() == 1:
        return best  # every column has its largest entry
    answer: Array = linear_sum_assignment(table.T, maximize=True)[1]
    return answer


def place_family(structure: Structure, root: Unit, solver: Solver) -> Match:
    """The match of a root and of all that lies in it, with what its channels carry along."""
    relabel = np.arange(structure.classes.count)
    linear: dict[int, Array] = {}
    if root.moves:
        for block in range(len(root.classes)):
            solver.place(root, block, block, relabel, linear)
    carry(structure, relabel, np.concatenate([u.classes.reshape(-1) for u in root.family()]))
    return Match(relabel, linear)


class Solver:
    """The best match of one block onto another, with everything inside, solved from the inside out.

    turns: linear unit -> (blocks, blocks) gains, where the matrices are found later.
    """

    def __init__(
        self, gains: Mapping[int, Array], rotations: bool, turns: Mapping[int, Array] | None = None
    ) -> None:
        self.gains, self.rotations, self.turns = gains, rotations, turns or {}
        self._known: dict[tuple[int, int, int], tuple[float, Array]] = {}

    def match(self, unit: Unit, there: int, here: int) -> tuple[float, Array]:
        """(gain, answer) for block `here` of the weights and block `there` of the target.

        The answer is a rotation, or the channel of the target for each channel here.
        """
        key = (unit.index, there, here)
        if key not in self._known:
            self._known[key] = self._match(unit, there, here)
        return self._known[key]

    def _match(self, unit: Unit, there: int, here: int) -> tuple[float, Array]:
        width = unit.classes.shape[1]
        if unit.index in self.turns:
            return float(self.turns[unit.index][there, here]), np.eye(width)
        rows, columns = there * width + np.arange(width), here * width + np.arange(width)
        table = self.gains[unit.index][np.ix_(rows, columns)].copy()
        if unit.linear is not None and self.rotations:
            turned, gain = rotations(torch.from_numpy(table)[None])
            return float(gain), turned[0].numpy()
        for child in unit.children:
            blocks = np.empty(unit.size, np.int64)
            blocks[child.parent_channel] = np.arange(len(child.classes))
            for i, j in product(range(width), range(width)):
                table[i, j] += self.match(child, int(blocks[rows[i]]), int(blocks[columns[j]]))[0]
        if not unit.permutes:
            return float(np.trace(table)), np.arange(width)
        target = assign(table)
        return float(table[target, np.arange(width)].sum()), target

    def place(self, unit: Unit, there: int, here: int, relabel: Ids, linear: dict[int, Array]) -> None:
        """Write the match of two blocks, and of what lies in them, into a relabelling and matrices."""
        _, answer = self.match(unit, there, here)
        classes = unit.classes
        if unit.linear is not None:
            relabel[classes[here]] = classes[there]
            # Rows of the unit matrix in the order of the answer: old channel c becomes channel answer[c].
            matrix = answer if self.rotations else np.eye(len(answer))[answer].T
            turns = linear.setdefault(unit.linear.orbit, np.zeros((len(classes), *matrix.shape)))
            turns[here] = matrix
            return
        relabel[classes[here]] = classes[there][answer]
        width = classes.shape[1]
        for child in unit.children:
            blocks = np.empty(unit.size, np.int64)
            blocks[child.parent_channel] = np.arange(len(child.classes))
            for c in range(width):
                goal = blocks[there * width + answer[c]]
                self.place(child, int(goal), int(blocks[here * width + c]), relabel, linear)
