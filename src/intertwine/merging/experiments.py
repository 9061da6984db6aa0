"""What the source's figures show, as functions that return plain data (Fig. 2 to 7, Table 2)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from intertwine.errors import InputError
from intertwine.graph.copying import copy_model
from intertwine.merging.decide import PAPER_BETAS, Options, Planner
from intertwine.merging.ifm import Interleaved
from intertwine.merging.pairs import distances
from intertwine.merging.places import find_axes, find_places, float64_weights
from intertwine.merging.shrink import apply_merge
from intertwine.merging.working import Target, gram
from intertwine.symmetry import Symmetry

Score = Callable[[nn.Module], float]


def normalized_distances(model: nn.Module, symmetry: Symmetry, axis: str) -> np.ndarray:
    """D_mn / max D of an axis (Fig. 2a and 7), 0 on the diagonal.

    >>> from intertwine import trace
    >>> mlp = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> table = normalized_distances(mlp, trace(mlp, torch.zeros(1, 3)), "0")
    >>> table.shape, float(table.max())
    ((4, 4), 1.0)
    """
    table = distances(_grams(model, symmetry, axis))
    np.fill_diagonal(table, 0.0)
    return table / max(float(table.max()), 1e-300)


def feature_norms(model: nn.Module, symmetry: Symmetry, axis: str) -> np.ndarray:
    """The size of every feature of an axis: of its weights on the side where they are smallest.

    Of a feature that nothing goes into, or that nothing reads, one side is 0: it is dead, whatever the other.
    """
    sides = [np.sqrt(np.maximum(np.diag(side), 0)) for side in _grams(model, symmetry, axis)]
    least: np.ndarray = np.min([side / max(float(side.max()), 1e-300) for side in sides], axis=0)
    return least


def _grams(model: nn.Module, symmetry: Symmetry, axis: str) -> list[np.ndarray]:
    """Inner products of features on each side of an axis: of what writes it, and of what reads it."""
    symmetry = symmetry.alike
    found = symmetry.axis(axis)
    target = Target(axis, found.size, find_places(symmetry, found), True)
    weights = float64_weights(symmetry, model)
    return [gram(side, weights, found.size) for side in target.matrices(weights)]


@dataclass(frozen=True)
class SwapPath:
    """Scores along (1 - lambda) theta + lambda pi(theta): pi swaps nearest pairs, or as many random ones."""

    swapped: int
    steps: tuple[float, ...]
    equivalent: tuple[float, ...]
    random: tuple[float, ...]


def swap_path(
    model: nn.Module,
    symmetry: Symmetry,
    score: Score,
    *,
    beta: float = 0.1,
    axes: Sequence[str] | None = None,
    steps: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0),
    seed: int = 0,
) -> SwapPath:
    """Fig. 2b: swap the features that weight matching finds equivalent, against random swaps of as many."""
    options = Options("ifm", order="independent", repair="none")
    plan = Planner(model, symmetry, options, axes, check=False).at_beta(beta)
    rng = np.random.default_rng(seed)
    near, far, swapped = {}, {}, 0
    for axis in plan.axes:
        free, pairs = set(range(axis.size)), []
        for merge in axis.merges:
            if {merge.keep, merge.drop} <= free:
                pairs.append((merge.keep, merge.drop))
                free -= {merge.keep, merge.drop}
        near[axis.name] = pairs
        far[axis.name] = list(zip(*rng.permutation(axis.size)[: 2 * len(pairs)].reshape(2, -1), strict=True))
        swapped += len(pairs)
    if not swapped:
        raise InputError(f"no two features are equivalent at beta {beta}", do="give a larger beta")
    paths = [_along(model, symmetry, pairs, score, steps) for pairs in (near, far)]
    return SwapPath(swapped, tuple(steps), paths[0], paths[1])


def _along(
    model: nn.Module,
    symmetry: Symmetry,
    pairs: dict[str, list[tuple[int, int]]],
    score: Score,
    steps: Sequence[float],
) -> tuple[float, ...]:
    symmetry = symmetry.alike
    moved = dict(float64_weights(symmetry, model))
    for name, swaps in pairs.items():
        axis = symmetry.axis(name)
        order = np.arange(axis.size)
        for a, b in swaps:
            order[[a, b]] = order[[b, a]]
        for place in find_places(symmetry, axis):
            index = np.arange(moved[place.param].shape[place.dim])
            index[place.where.reshape(-1)] = place.where[order].reshape(-1)
            moved[place.param] = moved[place.param].index_select(place.dim, torch.from_numpy(index))
    out = []
    for step in steps:
        between = copy_model(model)
        state = {**dict(between.named_parameters()), **dict(between.named_buffers())}
        with torch.no_grad():
            for name, tensor in moved.items():
                state[name].lerp_(tensor.to(state[name].dtype), step)
        out.append(score(between))
    return tuple(out)


@dataclass(frozen=True)
class CurvePoint:
    """One model on a curve of accuracy against kept parameters."""

    setting: float
    kept: float
    score: float


def merge_curve(
    planner: Planner, score: Score, *, betas: Sequence[float] = PAPER_BETAS, shares: Sequence[float] = ()
) -> list[CurvePoint]:
    """Scores over beta, or over shares of parameters (Fig. 3, 4 and 6)."""
    full = sum(p.numel() for p in planner.model.parameters())
    points = []
    plans = [(s, planner.at_share(s, "parameters")) for s in shares] or [
        (b, planner.at_beta(b)) for b in betas
    ]
    for setting, plan in plans:
        small = apply_merge(planner.model, plan)
        points.append(CurvePoint(setting, sum(p.numel() for p in small.parameters()) / full, score(small)))
    return points


def iteration_seconds(model: nn.Module, symmetry: Symmetry, rounds: int = 100) -> list[float]:
    """CPU seconds of each of the first rounds of the interleaved order, a merge on every axis each (Table 2).

    Of the process and not of the clock: other work on the machine does not count.
    """
    symmetry = symmetry.alike
    targets = [Target(a.name, a.size, find_places(symmetry, a), True) for a in find_axes(symmetry, None)]
    engine = Interleaved(targets, dict(float64_weights(symmetry, model)))
    seconds = []
    for _ in range(min(rounds, max((t.size for t in targets), default=1) - 1)):
        start = time.process_time()
        for k in range(len(targets)):
            engine.step(k, 1.0)
        seconds.append(time.process_time() - start)
    return seconds
