"""Choose the size of an exploration by what it costs here: inputs, starts, steps and grid points.

The number of operations of a model says little about its speed, so one forward pass and one gradient are
timed. Random starts are for models that can afford hundreds of steps; the others start near theta, as far
away as the steps that they can afford lead back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from intertwine.exploring.objective import Objective
from intertwine.exploring.plane import Plane
from intertwine.exploring.starts import make_starts

# Fewer steps than this never brought a random start to theta's function.
_FEWEST_FOR_RANDOM = 200
_SPREADS = (0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5)
_MOST_POINTS = {1: 201, 2: 100, 3: 50, 4: 20}
_FEWEST_POINTS = {1: 33, 2: 17, 3: 7, 4: 5}


@dataclass(frozen=True)
class Attempt:
    """One search: where it starts, how many steps and how many starts together, its learning rate; None means
    the default."""

    starts: str
    spread: float
    steps: int
    lr: float | None = None
    population: int | None = None

    def describe(self) -> str:
        """
        >>> Attempt("perturbed", 0.1, 200).describe()
        'starts within 0.1 of theta, 200 steps'
        """
        where = "random starts" if self.starts == "random" else f"starts within {self.spread:g} of theta"
        return f"{where}, {self.steps:,} steps"


def plan_inputs(objective: Objective, seconds: float = 0.25, most: int = 1024) -> int:
    """The size of C (8 to `most`) for passes of `seconds` each, measured on an objective of a few inputs."""
    each = _seconds(lambda: objective.values(objective.theta[None])) / objective.size
    return int(max(8, min(most, seconds / each)))


def plan_attempts(
    objective: Objective, tolerance: float, *, n: int, batch: int, seconds: float,
    optimizer: str = "adam", steps: int | None = None, most: int = 5000, seed: int = 0,
) -> tuple[Attempt, ...]:  # fmt: skip
    """Searches for n points to try one after the other, the first within about `seconds`.

    Twice as many starts as points run together where that is affordable, so that losers do not count.
    """
    batch = objective.size if optimizer == "lbfgs" else min(batch, objective.size)
    step = n * _seconds(lambda: objective.gradients(objective.theta[None], examples=slice(0, batch)))
    population = 2 * n if seconds / step > 2 * most else n
    affordable = steps or int(min(most, seconds / step))
    attempts = []
    if affordable >= _FEWEST_FOR_RANDOM or steps is not None:
        attempts.append(Attempt("random", 0.0, affordable, population=population))
    fewer = steps or max(10, affordable // 4)
    # A step of Adam moves every parameter by the learning rate: fifty steps lead back.
    size = float(objective.theta.double().square().mean().sqrt())
    near = _near(objective, fewer / 5 * tolerance, tolerance / 2, seed)
    rate = 0.02 * size if optimizer == "adam" else None
    attempts += [Attempt("perturbed", spread, fewer, rate and rate * spread, n) for spread in near]
    return tuple(attempts)


def plan_bound(plane: Plane, objective: Objective, level: float, bound: float) -> float:
    """The bound, doubled up to eight times until J is above the level at the end of every axis.

    Points found near theta lie closer together than the level: a picture as wide as they are is all inside.
    """
    ends = torch.cat([torch.eye(plane.dim), -torch.eye(plane.dim)]).double()
    for _ in range(8):
        if bool((objective.values(plane.points(bound * ends), examples=1024) > level).all()):
            break
        bound *= 2
    return bound


def plan_points(seconds_per_point: float, dim: int, seconds: float) -> int:
    """The most grid points along an axis for which refinement takes about `seconds`.

    >>> plan_points(1e-5, 2, 60.0), plan_points(0.1, 2, 60.0), plan_points(9.0, 2, 60.0)
    (100, 37, 17)
    """
    points = _MOST_POINTS[dim]
    while points > _FEWEST_POINTS[dim] and _evaluations(points, dim) * seconds_per_point > seconds:
        points -= 1
    return points


def _evaluations(points: int, dim: int) -> float:
    """What a level costs by experience: a coarse lattice, and 15 points for each of a line across."""
    result: float = min(points**dim, (points / 8 + 1) ** dim + 15 * points ** (dim - 1))
    return result


def _near(objective: Objective, reachable: float, arrived: float, seed: int) -> list[float]:
    """The two largest spreads with a J that can be reduced, and the largest that has arrived as it is."""
    found: list[float] = []
    for spread in _SPREADS:
        value = _start_value(objective, spread, seed)
        if value < arrived or (value < reachable and len(found) < 2) or spread == _SPREADS[-1]:
            found.append(spread)
        if value < arrived:
            break
    return found


def _start_value(objective: Objective, spread: float, seed: int) -> float:
    row = make_starts(objective, "perturbed", spread)(1, seed)
    return float(objective.values(row, examples=1024)[0])


def _seconds(call: Callable[[], object], enough: float = 0.2) -> float:
    """The shortest of up to three timings; a slow call has nothing to warm up and is timed once."""
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - began)
        if best > enough:
            break
    return best
