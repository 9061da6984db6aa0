"""Whole heads of an attention (key-value groups with their queries): blocks of channels that go together.

What reads the heads' outputs h computes V h. With second moments C of h, P = C^-1, and B the channels of a
head, removing it costs tr(V_B (P_BB)^-1 V_B^T), and

    V_K <- V_K - V_B (P_BB)^-1 P_BK,      P <- P - P_B (P_BB)^-1 P_B^T,

which is the elimination of channels (`eliminate`) a block at a time, and zero for a head that the others can
give: a copy of another one, or one whose output nobody needs. Its queries, keys and values go with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from intertwine.merging.eliminate import best_from, ridge_for
from intertwine.merging.measured import Seen
from intertwine.merging.places import Place, find_places
from intertwine.merging.plan import HEADS, AxisPlan, Merge, PlacePlan, Reader
from intertwine.merging.positive import regular_factor
from intertwine.symmetry import Symmetry


def plan_heads(symmetry: Symmetry, weights: Mapping[str, Tensor], seen: Mapping[str, Seen]) -> list[AxisPlan]:
    """Every axis of blocks whose reader was measured, ready to be cut to any number of them."""
    found = []
    for axis in symmetry.axes:
        if axis.mergeable or axis.size < 2 or axis.group.linear or not axis.group.permutation:
            continue
        places = find_places(symmetry, axis)
        readers = [p for p in places if p.consumes and p.where.shape[1] > 1]
        if not readers or any(p.param not in seen or seen[p.param].dim != p.dim for p in readers):
            continue
        merges = _eliminate([_Blocks(p, weights[p.param], seen[p.param]) for p in readers])
        parts = tuple(PlacePlan.of(p) for p in places)
        costs = tuple(m.distance for m in merges)
        found.append(AxisPlan(axis.name, axis.size, merges, False, parts, True, (), costs, kind=HEADS))
    return found


def make_up_heads(axis: AxisPlan, seen: Mapping[str, Seen]) -> AxisPlan:
    """The axis with readers that make up for the heads that went, T = (C_KK)^-1 C_K over single channels."""
    if not axis.merges:
        return axis
    kept = np.setdiff1d(np.arange(axis.size), [m.drop for m in axis.merges])
    readers = []
    for part in axis.places:
        place = part.place(axis.size)
        if not place.consumes or place.where.shape[1] < 2 or place.param not in seen:
            continue
        known = seen[place.param]
        moment, size = _moment(place, known), place.where.shape[1]
        pick = (kept[:, None] * size + np.arange(size)).reshape(-1)
        matrix = best_from(pick, moment, _ridge(moment, known.rows), True)
        mean = known.mean.numpy()[place.where.reshape(-1)]
        readers.append(Reader(place.param, place.dim, matrix, mean - matrix.T @ mean[pick], _bias(known)))
    return replace(axis, readers=tuple(readers))


def _bias(seen: Seen) -> str:
    return seen.bias if seen.uses == 1 else ""


def _moment(place: Place, seen: Seen) -> np.ndarray:
    """Of the channels in the order of the blocks; the mean does not count where a bias can hold it."""
    index = torch.from_numpy(place.where.reshape(-1))
    out: np.ndarray = (seen.cov if _bias(seen) else seen.moment)[index][:, index].numpy()
    return out


def _ridge(moment: np.ndarray, rows: int) -> float:
    return ridge_for(moment, min(1.0, len(moment) / rows))


class _Blocks:
    """P = C^-1 and G = V^T V of one reader while blocks go."""

    def __init__(self, place: Place, weight: Tensor, seen: Seen) -> None:
        self.count, self.size = place.where.shape
        moment = _moment(place, seen)
        raised, factor, _ = regular_factor(torch.from_numpy(moment), _ridge(moment, seen.rows))
        index = torch.from_numpy(place.where.reshape(-1))
        rows = weight.to("cpu", torch.float64).movedim(place.dim, 0)[index].flatten(1)
        gram = (rows @ rows.T).numpy()
        self.inverse: np.ndarray = torch.cholesky_inverse(factor).numpy()
        self.gram = gram / max(float((gram * raised.numpy()).sum()), 1e-300)

    def block(self, head: int) -> slice:
        """The channels of a head."""
        return slice(head * self.size, (head + 1) * self.size)

    def cost(self, head: int) -> float:
        """tr(V_B (P_BB)^-1 V_B^T)."""
        own = self.block(head)
        return float(np.trace(np.linalg.solve(self.inverse[own, own], self.gram[own, own])))

    def remove(self, head: int) -> None:
        """Take a head out, and let the others make up for it; its own rows become zero."""
        own = self.block(head)
        share = -np.linalg.solve(self.inverse[own, own], self.inverse[own])  # of the head, for every channel
        change = np.eye(len(self.gram))
        change[own] = share
        change[own, own] = 0.0
        self.gram = change.T @ self.gram @ change
        self.inverse = self.inverse + self.inverse[:, own] @ share
        self.inverse[own, :] = self.inverse[:, own] = 0.0


def _eliminate(sides: list[_Blocks]) -> tuple[Merge, ...]:
    """The order in which heads go; distance: the relative error so far."""
    merges: list[Merge] = []
    alive, error = list(range(sides[0].count)), 0.0
    while len(alive) > 1:
        costs = [sum(side.cost(head) for side in sides) for head in alive]
        at = int(np.argmin(costs))
        head, error = alive.pop(at), error + max(costs[at], 0.0)
        for side in sides:
            side.remove(head)
        merges.append(Merge(alive[0], head, error, 1.0))
    return tuple(merges)
