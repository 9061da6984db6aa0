"""Matrices beside scalings that reach further than one channel: a gain of a head, or of several.

In (g q) k' a head's gain g, its queries and its keys have one scaling for each channel (q_c by a, k_c by 1/a)
and one more (all q_c by a, g by 1/a). The first make the diagonal of GL(n): matrices take their place. The
others are the same for all channels of the head, so they commute with its matrices and stay scalings.

    null space of the equations  =  v_1 + ... + v_n  +  W,     v_c: +1 or -1 where channel c lies, else 0
                                                               W: 0 at one row of places, equal along all
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from intertwine.ir.ledger import ZERO, Ids
from intertwine.symmetry.scales import Scalings

_EXACT = 1e-9


@dataclass(frozen=True)
class Beside:
    """exponent: scale -> +1, -1 or 0, as v_c has it; owner: scale -> class of channel c, or -1; held: the
    scales that are 0 in W."""

    exponent: Ids
    owner: Ids
    held: Ids


def separate(scalings: Scalings, slots: Ids, blocks: Sequence[Ids], classes: Ids) -> Beside | None:
    """v_1, ..., v_n of every block, if its scalings fall apart so. slots: the scales of all weights; blocks:
    (rows, n), the scales of the channels of a block wherever they lie in a weight; classes: (blocks, n)."""
    total = len(scalings.kind_of)
    exponent, owner, held = np.zeros(total, np.int64), np.full(total, -1, np.int64), list[Ids]()
    known: dict[tuple[int, bytes, bytes], np.ndarray | None] = {}
    ours = np.zeros(total, bool)
    ours[slots] = True
    for rows, channels in zip(blocks, classes, strict=True):
        component = np.unique(scalings.component[rows])
        if len(component) > 1 or (rows == ZERO).any():
            return None
        first = int(rows.flat[0])
        kind = scalings.kinds[scalings.kind_of[first]]
        scales = kind.scales[scalings.row_of[first]]
        local, seen = scalings.local_of[rows], np.flatnonzero(ours[scales])
        key = int(scalings.kind_of[first]), local.tobytes(), seen.tobytes()
        if key not in known:
            known[key] = _channels(kind.real, local, np.setdiff1d(seen, local))
        alone = known[key]
        if alone is None:
            return None
        which, channel = np.nonzero(alone)
        exponent[scales[which]], owner[scales[which]] = alone[which, channel], channels[channel]
        held.append(rows[0])
    return Beside(exponent, owner, np.concatenate(held))


def _channels(space: np.ndarray, rows: Ids, others: Ids) -> np.ndarray | None:
    """(unknowns, n): the vectors v_c of a null space; rows: (rows, n) the places of the channels, others:
    places that are none of theirs. None where it does not fall apart.

    >>> space = np.array([[1., 0, 1], [0, 1, 1], [-1, 0, 0], [0, -1, 0], [0, 0, -1]])  # q1 q2 k1 k2 g
    >>> _channels(space, np.array([[2, 3], [0, 1]]), np.array([4])).T.tolist()
    [[-1, 0, 1, 0, 0], [0, -1, 0, 1, 0]]
    """
    rank, n = space.shape[1], rows.shape[1]
    pivot = space[rows[0]]
    left, values, right = np.linalg.svd(pivot)
    if len(values) < n or values.min() < _EXACT:
        return None
    some = right[:n].T @ (left.T / values[:, None])  # pivot @ some = 1
    rest = right[n:].T  # (rank, rank - n): what is 0 there
    shared = space @ rest
    if np.abs(shared[rows] - shared[rows[:, :1]]).max(initial=0.0) > _EXACT:
        return None
    sign = (space[rows[:, 0]] - space[rows[:, 1]]) @ some[:, 0]
    wanted = np.zeros((len(space), n))
    for c in range(n):
        wanted[rows[:, c], c] = sign
    places = np.concatenate([rows.reshape(-1), others])
    excess = (space @ some - wanted)[places]
    added = np.linalg.lstsq(shared[places], excess, rcond=None)[0] if rank > n else np.zeros((0, n))
    found = space @ some - shared @ added
    if np.abs(found[places] - wanted[places]).max() > _EXACT or np.abs(np.abs(sign) - 1).max() > _EXACT:
        return None
    whole = np.rint(found)
    one = (np.abs(found - whole) <= _EXACT) & (np.abs(whole) == 1)
    # What two channels scale together is none of one of them.
    one &= (np.abs(found) > _EXACT).sum(axis=1, keepdims=True) == 1
    answer: np.ndarray = np.where(one, whole, 0).astype(np.int64)
    return answer


def equal_along(scalings: Scalings, blocks: Sequence[Ids]) -> bool:
    """Whether scalings and signs are the same for all channels of each row."""
    for rows in blocks:
        kind = scalings.kinds[scalings.kind_of[int(rows.flat[0])]]
        local = scalings.local_of[rows]
        for table in (kind.real, kind.sign % 2):
            if (table[local] != table[local[:, :1]]).any():
                return False
    return True
