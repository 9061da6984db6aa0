"""The pairs of channels that a rotary embedding turns: z -> w z for a complex number w of each pair.

A rotary embedding multiplies the pair (x_p, x_q), read as one complex number, by numbers that depend on the
position alone, so it commutes with any other complex number. Which pairs these are is inferred in two steps.
The graph is run on labels once more, with every rotary embedding (`rules.rotary`) left out. Where an axis has
GL(n) or O(n) then, every op but the rotary ones commutes with its matrices; those matrices that multiply one
pair by a complex number commute with the rotary ones too. So they are symmetries of the model as it is.

    keys    W_k, pair      times w                    queries    W_q, pair      times 1 / conj(w)

The scale |w| is in the group already where the labels show it (`rescaled`); the angle never is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intertwine.errors import Unsupported
from intertwine.ir.ledger import Ids
from intertwine.symmetry.action import FactorAction
from intertwine.symmetry.pairs import Slot, Turns
from intertwine.symmetry.sampling import sample_relabel
from intertwine.symmetry.structure import Linear, Structure
from intertwine.symmetry.transform import destinations


def find_turns(structure: Structure, relaxed: Structure) -> Turns:
    """The pairs of `structure`; relaxed: the same model with its rotary embeddings left out."""
    rows: dict[Slot, list[tuple[int, int, int, int]]] = {}
    scaled: list[bool] = []
    for axis in relaxed.linear.values():
        for fibre, first, second in _pairs_of(relaxed, axis):
            found = _placed(structure, axis, fibre, first, second)
            if found is None:
                continue
            for slot, a, b, exponent in found:
                rows.setdefault(slot, []).append((a, b, len(scaled), exponent))
            scaled.append(not axis.orthogonal and not _any_rescaled(structure, found))
    places = {
        slot: (table[:, :2], table[:, 2], table[:, 3])
        for slot, listed in rows.items()
        if len(table := np.array(listed, np.int64))
    }
    turns = Turns(len(scaled), places, np.array(scaled, bool))
    return _kept_together(structure, turns)


def _pairs_of(relaxed: Structure, axis: Linear) -> list[tuple[int, int, int]]:
    """(fibre, rank, rank) of the pairs of a linear axis that every rotary embedding turns together, or
    leaves as they are."""
    partners: dict[tuple[int, int], set[int]] = {}
    for value, pairs in relaxed.inference.rotations:
        last = value.dims[-1]
        for factor in value.factors_on(last):
            order = [*(a for a in factor.axes if a not in last), *(a for a in last if a in factor.axes)]
            try:
                turn = FactorAction(relaxed, factor.on(order)).turn_of(axis)
            except Unsupported:
                return []
            if turn is None:
                continue
            if len(last) != 1 or len(value.factors_on(last)) != 1:
                return []  # it is not clear which channel lies where
            row, place = np.divmod(turn.where, len(pairs))
            partner = row * len(pairs) + pairs[place]
            for k, fibre in enumerate(turn.fibre.tolist()):
                for rank, (here, there) in enumerate(zip(turn.where[k], partner[k], strict=True)):
                    if here != there:  # what is left as it is here is free to turn
                        found = np.flatnonzero(turn.where[k] == there)
                        other = int(found[0]) if len(found) == 1 else -1
                        partners.setdefault((fibre, rank), set()).add(other)
    only = {place: next(iter(found)) for place, found in partners.items() if len(found) == 1}
    return [(f, r, s) for (f, r), s in only.items() if r < s and only.get((f, s)) == r]


def _placed(
    structure: Structure, axis: Linear, chosen: int, first: int, second: int
) -> list[tuple[Slot, int, int, int]] | None:
    """(slot, place of one, place of the other, exponent) wherever the pair lies in a weight."""
    found = []
    for slot, (where, fibre, exponent) in axis.places.items():
        if slot not in structure.slots or structure.slots[slot].ids.ndim > 1:
            return None
        for row in np.flatnonzero(fibre == chosen):
            a, b = int(where[row, first]), int(where[row, second])
            found.append((slot, a, b, 1 if axis.orthogonal else int(exponent[row])))
    # Matrices do not pass a rotation, nor do scales unless both have the same.
    for slot, a, b, _ in found:
        others = [linear.places[slot][0] for linear in structure.linear.values() if slot in linear.places]
        if any(np.isin((a, b), where).any() for where in others):
            return None
        start = structure.span[slot][0]
        if _scale(structure, start + a) != _scale(structure, start + b):
            return None
    return found


def _scale(structure: Structure, position: int) -> tuple[object, ...]:
    """How a position is rescaled: by which numbers, with which exponents."""
    if not structure.rescaled[position]:
        return ()
    scale = int(structure.scales[position])
    kind = structure.scalings.kinds[structure.scalings.kind_of[scale]]
    local = structure.scalings.local_of[scale]
    real, sign = kind.real[local], kind.sign[local] % 2
    if not real.any() and not sign.any():
        return ()
    return int(structure.component[position]), real.tobytes(), sign.tobytes()


def _any_rescaled(structure: Structure, found: Sequence[tuple[Slot, int, int, int]]) -> bool:
    return any(_scale(structure, structure.span[slot][0] + a) for slot, a, _, _ in found)


def _kept_together(structure: Structure, turns: Turns) -> Turns:
    """Without pairs that a permutation of the group would take apart, or turn round."""
    if not turns.count:
        return turns
    for seed in range(3):
        relabel = sample_relabel(structure, np.random.default_rng(seed))
        image = turns.moved(structure.span, destinations(structure, relabel))
        if (image < 0).any() or len(np.unique(image)) < turns.count:
            return Turns()
        for where, pair, exponent in turns.places.values():
            if len(where) and not _alike(turns, image, pair, exponent):
                return Turns()
    return turns


def _alike(turns: Turns, image: Ids, pair: Ids, exponent: Ids) -> bool:
    """Whether a pair and its image have the same exponents in a slot, and the same freedom."""
    mine = sorted(zip(image[pair].tolist(), exponent.tolist(), strict=True))
    theirs = sorted(zip(pair.tolist(), exponent.tolist(), strict=True))
    return mine == theirs and bool((turns.scaled[image] == turns.scaled).all())
