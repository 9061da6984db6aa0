"""Whole heads of an attention (key-value groups with their queries): blocks of channels that go together.

What reads the heads' outputs h computes V h. With second moments C of h, P = C^-1, and B the channels of a
head, removing it costs tr(V_B (P_BB)^-1 V_B^T), and

    V_K <- V_K - V_B (P_BB)^-1 P_BK,      P <- P - P_B (P_BB)^-1 P_B^T,

which is the elimination of channels (`eliminate`) a block at a time, and zero for a head that the others can
give: a copy of another one, or one whose output nobody needs. Its queries, keys and values go with it.

Heads that share keys and values lie in groups, and a forward has as many in each: of those one of every group
goes at a time, the cheapest there, with its queries. Heads of their own group make up for it, so that a group
that goes as well (its keys and values, with all its queries) takes nothing of it along.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
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


def plan_heads(
    symmetry: Symmetry,
    weights: Mapping[str, Tensor],
    seen: Mapping[str, Seen],
    rigid: Container[str] = (),
) -> list[AxisPlan]:
    """Every axis of blocks whose reader was measured, ready to be cut to any number of them.

    rigid: axes that the forward does not narrow as channels; the blocks of queries that share one key and
    value are such, and a forward that is told how many there are may narrow them.
    """
    found = []
    for axis in symmetry.axes:
        if axis.group.linear or not axis.group.permutation or (axis.mergeable and axis.name not in rigid):
            continue
        groups, size = axis.classes.shape
        places = find_places(symmetry, axis)
        readers = [p for p in places if p.consumes and p.where.shape[1] > 1]
        if size < 2 or not readers or any(p.param not in seen or seen[p.param].dim != p.dim for p in readers):
            continue
        gone = _eliminate([_Blocks(p, weights[p.param], seen[p.param]) for p in readers], groups)
        merges, places = _in_order(gone, places) if groups > 1 else (_merges(gone), places)
        parts = tuple(PlacePlan.of(p) for p in places)
        costs = tuple(m.distance for m in merges)
        plan = AxisPlan(axis.name, size, merges, False, parts, True, (), costs, kind=HEADS, groups=groups)
        found.append(plan)
    return found


def _merges(gone: list[tuple[list[int], float]]) -> tuple[Merge, ...]:
    """Heads by their numbers, in the order in which they go."""
    alive, merges = list(range(len(gone) + 1)), []
    for (head,), error in gone:
        alive.remove(head)
        merges.append(Merge(alive[0], head, error, 1.0))
    return tuple(merges)


def _in_order(
    gone: list[tuple[list[int], float]], places: tuple[Place, ...]
) -> tuple[tuple[Merge, ...], tuple[Place, ...]]:
    """One head of every group is a channel; the last go first, and the places are those of their heads."""
    last = len(gone)
    everything = np.arange(len(places[0].where)).reshape(len(gone[0][0]), -1)
    stay = [int(np.setdiff1d(own, [heads[g] for heads, _ in gone])[0]) for g, own in enumerate(everything)]
    order = np.array([stay, *(heads for heads, _ in reversed(gone))])
    moved = tuple(replace(p, where=p.where[order].reshape(last + 1, -1)) for p in places)
    return tuple(Merge(0, last - k, error, 1.0) for k, (_, error) in enumerate(gone)), moved


def make_up_heads(axis: AxisPlan, seen: Mapping[str, Seen]) -> AxisPlan:
    """The axis with readers that make up for the heads that went, T = (C_KK)^-1 C_K over single channels.

    Where there are groups, T is that of each group alone, and zero between them.
    """
    if not axis.merges:
        return axis
    kept = np.setdiff1d(np.arange(axis.size), [m.drop for m in axis.merges])
    readers = []
    for part in axis.places:
        place = part.place(axis.size)
        if not place.consumes or place.where.shape[1] < 2 or place.param not in seen:
            continue
        known, copies = seen[place.param], place.where.shape[1]
        moment, channels = _moment(place, known), np.arange(place.where.size).reshape(axis.size, -1)
        matrix = np.zeros((len(kept) * copies, place.where.size))
        for own in np.split(channels, axis.groups, 1):
            pick, rows = own[kept].reshape(-1), channels[: len(kept)][:, own[0]].reshape(-1)
            own = own.reshape(-1)
            inside = moment[np.ix_(own, own)]
            solved = best_from(np.searchsorted(own, pick), inside, _ridge(inside, known.rows), True)
            matrix[np.ix_(rows, own)] = solved
        pick = channels[kept].reshape(-1)
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


def _eliminate(sides: list[_Blocks], groups: int) -> list[tuple[list[int], float]]:
    """The heads that go together, one of every group, in their order, and the relative error so far."""
    alive = np.arange(sides[0].count).reshape(groups, -1).tolist()
    found: list[tuple[list[int], float]] = []
    error = 0.0
    while len(alive[0]) > 1:
        heads = []
        for own in alive:
            costs = [sum(side.cost(head) for side in sides) for head in own]
            at = int(np.argmin(costs))
            heads.append(own.pop(at))
            error += max(costs[at], 0.0)
            for side in sides:
                side.remove(heads[-1])
        found.append((heads, error))
    return found
