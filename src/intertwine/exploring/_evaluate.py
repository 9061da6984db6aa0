"""Evaluate an objective on a grid of a plane: the full grid, or only where the epsilon-level can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from intertwine.checks import checked
from intertwine.errors import InputError
from intertwine.exploring.grid import Grid
from intertwine.exploring.objective import Objective
from intertwine.exploring.plan import DEFAULT_MEMORY, EvaluationPlan, plan_evaluation
from intertwine.exploring.plane import Plane
from intertwine.exploring.refine import Refinement, refine
from intertwine.exploring.storage import read_result, write_result
from intertwine.progress import Progress
from intertwine.reading import parsing


@dataclass(frozen=True)
class Landscape:
    """Values of an objective on a grid; where `evaluated` is false they are interpolated."""

    grid: Grid
    values: NDArray[np.float64]
    evaluated: NDArray[np.bool_]
    levels: tuple[float, ...]
    marks: NDArray[np.float64]
    mark_values: tuple[float, ...]
    mark_names: tuple[str, ...]
    name: str = "J"
    facts: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def evaluations(self) -> int:
        return int(self.evaluated.sum())

    def inside(self, epsilon: float) -> NDArray[np.bool_]:
        """The epsilon-equivalent set on the grid: J < epsilon."""
        check_levels((epsilon,))
        return self.values < epsilon

    @checked
    def save(self, path: str | Path) -> Path:
        tensors = {
            "values": torch.from_numpy(self.values),
            "evaluated": torch.from_numpy(self.evaluated),
            "marks": torch.from_numpy(self.marks),
        }
        facts = {
            "bounds": self.grid.bounds, "levels": self.levels, "mark_values": self.mark_values,
            "mark_names": self.mark_names, "name": self.name, "facts": self.facts, "notes": self.notes,
        }  # fmt: skip
        return write_result(path, "landscape", tensors, facts)

    @classmethod
    def load(cls, path: str | Path) -> Landscape:
        tensors, facts = read_result(path, "landscape")
        with parsing(path):  # a file of others may lack anything
            values = tensors["values"].numpy()
            grid = Grid(tuple((float(a), float(b)) for a, b in facts["bounds"]), values.shape)
            return cls(
                grid, values, tensors["evaluated"].numpy(), tuple(facts["levels"]), tensors["marks"].numpy(),
                tuple(facts["mark_values"]), tuple(facts["mark_names"]), facts["name"], facts["facts"],
                tuple(facts["notes"]),
            )  # fmt: skip


def check_levels(levels: Sequence[float]) -> tuple[float, ...]:
    """Epsilons must be positive and finite: J is never negative, so the set J < 0 is empty."""
    for epsilon in levels:
        if not (np.isfinite(epsilon) and epsilon > 0):
            raise InputError(f"epsilon must be positive, not {epsilon}", so="J is never negative")
    return tuple(sorted(float(epsilon) for epsilon in levels))


def evaluate(
    plane: Plane,
    grid: Grid,
    objective: Objective | None = None,
    *,
    epsilon: float | Sequence[float] | None = None,
    plan: EvaluationPlan | None = None,
    memory: int = DEFAULT_MEMORY,
    progress: Progress | None = None,
    refinement: Refinement | None = None,
    screen: float | None = None,
    precision: float = 0.0,
) -> Landscape:
    """The objective at origin + sum of c_i b_i for every c of the grid.

    Without `epsilon` every grid point is evaluated. With `epsilon` (one level or several) a coarse grid
    comes first and then only the points that the level needs; the others are interpolated.
    `screen` (say 4.0) stops adding inputs of C at a point once its J is that many standard errors away from
    every level, or known to a share `precision` (one standard error): values are then estimates on a part of
    C, and C must be in random order.
    `objective` defaults to the one the plane was made with, which a plane read from a file no longer has.
    """
    objective = objective or plane.objective
    if objective is None:
        raise InputError("this plane has no objective", do="pass function_distance(model, inputs)")
    if grid.dim != plane.dim:
        raise InputError(f"a {grid.dim}-dimensional grid for a {plane.dim}-dimensional plane")
    levels = check_levels(
        [] if epsilon is None else [epsilon] if isinstance(epsilon, (int, float)) else epsilon
    )
    plan = plan or plan_evaluation(objective, memory=memory, points=grid.size)
    if screen is not None and (not levels or not screen > 0):
        raise InputError("screening needs a positive number of standard errors, and epsilon")
    task = _Task(objective, plane, grid, plan, progress, levels, screen, precision)
    if levels:
        result = refine(task.at, grid.shape, levels, refinement or Refinement())
        values, evaluated, facts = result.values, result.evaluated, result.facts
    else:
        values = task.at(np.arange(grid.size)).reshape(grid.shape)
        evaluated, facts = np.ones(grid.shape, dtype=bool), {}
    mark_values = objective.values(plane.points(plane.marks), examples=plan.examples)
    return Landscape(
        grid, values, evaluated, levels, plane.marks.double().cpu().numpy(),
        tuple(float(v) for v in mark_values), plane.names, objective.name,
        {**facts, "screen": screen, "precision": precision, "inputs_per_point": task.inputs_per_point,
         "plan": asdict(plan), "how": plan.describe(), "spread": objective.spread,
         "inputs": objective.size, "parameters": plane.layout.length},
        plane.notes,
    )  # fmt: skip


class _Task:
    """Evaluates grid points by flat index, in the pieces of the plan, and reports progress."""

    def __init__(
        self, objective: Objective, plane: Plane, grid: Grid, plan: EvaluationPlan, progress: Progress | None,
        levels: tuple[float, ...], screen: float | None, precision: float,
    ) -> None:  # fmt: skip
        self.objective, self.plane, self.grid, self.plan = objective, plane, grid, plan
        self.progress, self.done = progress, 0
        self.levels, self.inputs = levels, 0
        self.screen, self.precision = screen, precision

    @property
    def inputs_per_point(self) -> float:
        return self.inputs / max(self.done, 1)

    def at(self, flat: NDArray[np.int64]) -> NDArray[np.float64]:
        values = np.empty(len(flat))
        for start in range(0, len(flat), self.plan.vectors):
            part = flat[start : start + self.plan.vectors]
            rows = self.plane.points(self.grid.coordinates(part).to(self.plane.origin.device))
            values[start : start + len(part)] = self._rows(rows)
            self.done += len(part)
            if self.progress is not None:
                self.progress(self.done, self.grid.size, "grid points")
        return _finite(values)

    def _rows(self, rows: Tensor) -> NDArray[np.float64]:
        if self.screen is None:
            self.inputs += len(rows) * self.objective.size
            found = self.objective.values(rows, batched=self.plan.batched, examples=self.plan.examples)
            return np.asarray(found.cpu().numpy())
        look = partial(
            self.objective.screen, levels=self.levels, sigmas=self.screen, precision=self.precision
        )
        pairs = [look(row) for row in rows]
        self.inputs += sum(count for _, count in pairs)
        return np.array([mean for mean, _ in pairs])


def _finite(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """A diverging network is far outside, not a hole in the picture."""
    return np.where(np.isfinite(values), values, np.finfo(np.float64).max)
