"""Remove channels whose readers can make up for them best (the optimal brain surgeon on an axis).

A reader computes V h. Given the second moments C of the features h, the best that the kept features K can do
for it is V' = V C_K (C_KK)^-1. Removing channel j from what is left costs, with P = C^-1 and v_j as updated
so far,

    |v_j|^2 / P_jj,       h_j ~ - sum_k (P_jk / P_jj) h_k,      P <- P - P_j P_j^T / P_jj

and the cost is divided by the whole variance of the output (with the skip that it is added to), so that it
is a relative error, comparable across axes. Several readers of one axis add up. No weight is read again: all
of it follows from C and V^T V.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from intertwine.merging.plan import AxisPlan, Merge, Reader
from intertwine.merging.readers import Reading

RIDGE = 1e-3  # of the mean variance: estimated moments are not to be trusted further
Progress = Callable[[int], None]


def _importance(reading: Reading, weights: Mapping[str, Tensor]) -> np.ndarray:
    """V^T V over everything but the axis, outputs weighted by the slope of the batch norm that follows."""
    tensor = weights[reading.place.param].to("cpu", torch.float64)
    if reading.slope is not None:
        tensor = tensor * reading.slope.cpu().reshape(-1, *[1] * (tensor.dim() - 1))
    rows = reading.place.rows(tensor)
    return (rows @ rows.T).numpy()


def _regular(reading: Reading) -> np.ndarray:
    moment = reading.second_moment().numpy()
    return moment + max(RIDGE * float(np.trace(moment)) / len(moment), 1e-12) * np.eye(len(moment))


def eliminate(
    readings: Sequence[Reading], weights: Mapping[str, Tensor], progress: Progress | None = None
) -> tuple[Merge, ...]:
    """The order in which channels go. distance: the relative error so far; keep: what absorbs most."""
    moments = [_regular(r) for r in readings]
    inverse = [np.linalg.inv(m) for m in moments]
    grams = [_importance(r, weights) for r in readings]
    totals = [
        max(float((g * m).sum()) + r.beside, 1e-300) for g, m, r in zip(grams, moments, readings, strict=True)
    ]
    names = np.arange(len(moments[0]))
    alive = np.ones(len(names), bool)
    spread = np.sqrt(np.diag(moments[0]))
    merges: list[Merge] = []
    error = 0.0
    for _ in range(len(names) - 1):
        cost = sum(
            np.maximum(np.diag(g), 0) / np.maximum(np.diag(p), 1e-300) / t
            for g, p, t in zip(grams, inverse, totals, strict=True)
        )
        j = int(np.where(alive, cost, np.inf).argmin())
        error += float(np.asarray(cost)[j])
        absorbed = np.abs(inverse[0][j]) * spread
        absorbed[j], absorbed[~alive] = -1.0, -1.0
        merges.append(Merge(int(names[absorbed.argmax()]), int(names[j]), error, 1.0))
        for gram, p in zip(grams, inverse, strict=True):
            _remove(gram, p, j)
        alive[j] = False
        if alive.sum() < 0.75 * len(alive):
            grams, inverse = ([m[np.ix_(alive, alive)] for m in ms] for ms in (grams, inverse))
            names, spread, alive = names[alive], spread[alive], np.ones(int(alive.sum()), bool)
        if progress is not None:
            progress(1)
    return tuple(merges)


def _remove(gram: np.ndarray, inverse: np.ndarray, j: int) -> None:
    share = -inverse[j] / inverse[j, j]
    share[j] = 0.0
    row, own = gram[j].copy(), gram[j, j]
    half = np.outer(share, row + 0.5 * own * share)
    gram += half
    gram += half.T
    inverse += np.outer(inverse[j], share)
    gram[j], gram[:, j] = 0.0, 0.0
    inverse[j], inverse[:, j] = 0.0, 0.0
    inverse[j, j] = 1.0


def make_up(axis: AxisPlan, readings: Sequence[Reading]) -> AxisPlan:
    """The axis with readers that make up for its merges in the least-squares sense, T = (M C M^T)^-1 M C.

    M picks the kept channels (`select`) or averages the classes.
    """
    if not axis.merges or not readings:
        return axis
    dropped = {m.drop for m in axis.merges}
    kept = [c for c in range(axis.size) if c not in dropped]
    pick = np.zeros((len(kept), axis.size))
    if axis.select:
        pick[np.arange(len(kept)), kept] = 1.0
    else:
        for k, members in enumerate(axis.classes()):
            pick[k, members] = 1.0 / len(members)
    readers = []
    for reading in readings:
        moment = _regular(reading)
        new = pick @ moment
        matrix = np.linalg.solve(new @ pick.T, new)
        mean = reading.mean.numpy()
        lost = mean - matrix.T @ (pick @ mean)
        place = reading.place
        readers.append(Reader(place.param, place.dim, matrix, lost, reading.absorber, reading.sign))
    return replace(axis, readers=tuple(readers), sums_first=False)
