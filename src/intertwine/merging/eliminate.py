"""Remove channels whose readers can make up for them best (the optimal brain surgeon on an axis).

A reader computes V h. Given the second moments C of the features h, the best that the kept features K can do
for it is V' = V C_K (C_KK)^-1. Removing channel j from what is left costs, with P = C^-1 and v_j as updated
so far,

    |v_j|^2 / P_jj,       h_j ~ - sum_k (P_jk / P_jj) h_k,      P <- P - P_j P_j^T / P_jj

and the cost is divided by the whole variance of the output (with the skip that it is added to), so that it
is a relative error, comparable across axes. Several readers of one axis add up. No weight is read again: all
of it follows from C and V^T V, in one inverse and rank-one steps that are applied a block at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from intertwine.merging.plan import AxisPlan, Merge, Reader
from intertwine.merging.positive import regular, regular_factor
from intertwine.merging.readers import Reading

RIDGE = 1e-3  # of the mean variance: propagated moments are not to be trusted further
BLOCK = 64
ROUNDS = 3
Progress = Callable[[int], None]


def _importance(reading: Reading, weights: Mapping[str, Tensor]) -> np.ndarray:
    """V^T V over everything but the axis, outputs weighted by the slope of the batch norm that follows."""
    tensor = weights[reading.place.param].to("cpu", torch.float64)
    if reading.slope is not None:
        tensor = tensor * reading.slope.cpu().reshape(-1, *[1] * (tensor.dim() - 1))
    rows = reading.place.rows(tensor)
    return (rows @ rows.T).numpy()


def ridge_for(moment: np.ndarray, doubt: float) -> float:
    """What second moments are raised by: a share of the mean variance."""
    return max(RIDGE * doubt * float(np.trace(moment)) / len(moment), 1e-12)


def eliminate(
    readings: Sequence[Reading], weights: Mapping[str, Tensor], progress: Progress | None = None
) -> tuple[Merge, ...]:
    """The order in which channels go. distance: the relative error so far; keep: what absorbs most."""
    sides, spreads = [], []
    for reading in readings:
        moment = reading.second_moment()
        raised, factor, _ = regular_factor(moment, ridge_for(moment.numpy(), reading.doubt))
        gram = _importance(reading, weights)
        total = max(float((gram * raised.numpy()).sum()) + reading.beside, 1e-300)
        # P = C^-1: the one cube
        sides.append(_Side(torch.cholesky_inverse(factor).numpy(), gram / total))
        spreads.append(raised.diagonal().sqrt().numpy())
    names, spread = np.arange(len(spreads[0])), spreads[0]
    merges: list[Merge] = []
    error = 0.0
    while len(names) > 1:
        steps = min(BLOCK, len(names) - 1)
        alive = np.ones(len(names), bool)
        for side in sides:
            side.begin(steps)
        for _ in range(steps):
            cost = np.sum([side.costs() for side in sides], axis=0)
            j = int(np.where(alive, cost, np.inf).argmin())
            error += float(cost[j])
            columns = [side.remove(j) for side in sides]
            alive[j] = False
            absorbed = np.where(alive, np.abs(columns[0]) * spread, -1.0)
            merges.append(Merge(int(names[absorbed.argmax()]), int(names[j]), error, 1.0))
        for side in sides:
            side.finish(alive)
        names, spread = names[alive], spread[alive]
        if progress is not None:
            progress(steps)
    return tuple(merges)


class _Side:
    """P = C^-1 and G = V^T V of one reader while channels go, a block of them at a time.

    Inside a block only the two diagonals and the columns of what went are brought up to date, which costs
    O(n) a pair; the rest follows in one product, so that all removals together cost one cube.
    """

    def __init__(self, inverse: np.ndarray, gram: np.ndarray) -> None:
        self.inverse, self.gram = inverse, gram

    def begin(self, steps: int) -> None:
        """Ready for so many removals."""
        n = len(self.gram)
        self.p, self.g = self.inverse.diagonal().copy(), self.gram.diagonal().copy()
        # P loses sum a a^T; G gains sum a b^T + b a^T.
        self.a, self.b, self.count = np.zeros((n, steps)), np.zeros((n, steps)), 0

    def costs(self) -> np.ndarray:
        """|v_j|^2 / P_jj of every channel."""
        out: np.ndarray = np.maximum(self.g, 0) / np.maximum(self.p, 1e-300)
        return out

    def remove(self, j: int) -> np.ndarray:
        """Take channel j out; the column of P that it had."""
        k = self.count
        a, b = self.a[:, :k], self.b[:, :k]
        column = self.inverse[j] - a @ a[j]
        row = self.gram[j] + a @ b[j] + b @ a[j]
        pivot = max(float(column[j]), 1e-300)
        # h_j ~ sum share_k h_k, so v_k <- v_k + share_k v_j, and v_j <- 0.
        scaled = column / np.sqrt(pivot)
        share = -scaled / np.sqrt(pivot)
        rise = -(row + 0.5 * share * row[j]) / np.sqrt(pivot)
        self.a[:, k], self.b[:, k], self.count = scaled, rise, k + 1
        self.p -= scaled**2
        self.g += 2 * scaled * rise
        result: np.ndarray = column
        return result

    def finish(self, alive: np.ndarray) -> None:
        """Bring all of P and G up to date, and drop what is gone."""
        index = torch.from_numpy(np.flatnonzero(alive))
        a, b, inverse, gram = map(torch.from_numpy, (self.a[alive], self.b[alive], self.inverse, self.gram))
        inverse, gram = (x.index_select(0, index).index_select(1, index) for x in (inverse, gram))
        self.inverse = inverse.addmm_(a, a.T, alpha=-1).numpy()
        self.gram = gram.addmm_(a, b.T).addmm_(b, a.T).numpy()


def best_from(pick: np.ndarray, moment: np.ndarray, ridge: float, measured: bool) -> np.ndarray:
    """T = (M C M^T)^-1 M C, C raised by a ridge; iterated where measured, so that what is exact stays so.

    pick: M, or the numbers of the channels that are kept: those are given by themselves, T_KK = I, and only
    the others are solved for. Each round takes the error in a direction of variance s down by
    ridge / (s + ridge).
    """
    rounds, size = ROUNDS if measured else 0, len(moment)
    if pick.ndim > 1:
        raised, plain = (pick @ c for c in (regular(moment, ridge), moment))
        factor = torch.linalg.cholesky(torch.from_numpy(raised @ pick.T))
        matrix = torch.cholesky_solve(torch.from_numpy(raised), factor)
        rows, own = torch.from_numpy(plain), torch.from_numpy(plain @ pick.T)
        for _ in range(rounds):
            matrix = matrix + torch.cholesky_solve(rows - own @ matrix, factor)
        return np.asarray(matrix.numpy())
    gone = np.setdiff1d(np.arange(size), pick)
    rows = torch.from_numpy(moment[pick])
    _, factor, ridge = regular_factor(rows[:, torch.from_numpy(pick)], ridge)
    step = matrix = torch.cholesky_solve(rows[:, torch.from_numpy(gone)], factor)
    for _ in range(rounds):  # what a round leaves of the right side is the ridge times its step
        step = torch.cholesky_solve(ridge * step, factor)
        matrix = matrix + step
    out = np.zeros((len(pick), size))
    out[np.arange(len(pick)), pick] = 1.0
    out[:, gone] = matrix.numpy()
    return out


def make_up(axis: AxisPlan, readings: Sequence[Reading]) -> AxisPlan:
    """The axis with readers that make up for its merges in the least-squares sense, T = (M C M^T)^-1 M C.

    M picks the kept channels (`select`) or averages the classes.
    """
    if not axis.merges or not readings:
        return axis
    dropped = {m.drop for m in axis.merges}
    kept = [c for c in range(axis.size) if c not in dropped]
    pick = np.array(kept) if axis.select else _averages(axis)
    readers = []
    for reading in readings:
        moment = reading.second_moment().numpy()
        matrix = best_from(pick, moment, ridge_for(moment, reading.doubt), reading.doubt < 1)
        mean = reading.mean.numpy()
        lost = mean - matrix.T @ (mean[pick] if axis.select else pick @ mean)
        place = reading.place
        readers.append(Reader(place.param, place.dim, matrix, lost, reading.absorber, reading.sign))
    return replace(axis, readers=tuple(readers), sums_first=False)


def _averages(axis: AxisPlan) -> np.ndarray:
    """M that averages every class of merged channels."""
    classes = axis.classes()
    out = np.zeros((len(classes), axis.size))
    for k, members in enumerate(classes):
        out[k, members] = 1.0 / len(members)
    return out
