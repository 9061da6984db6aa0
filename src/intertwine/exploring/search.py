"""Find parameters that compute the same function as theta, from many starts at once (Algorithm 1 of GENNI).

All starts are rows of one matrix and are trained together. A row whose J over all of C falls below the
tolerance leaves the race and is kept if it adds a direction to those already kept; a row that stops making
progress (a dead ReLU, a bad minimum), diverges, or adds no direction is restarted. What the loss of a
"found" parameter means is judged against a parameter obtained by a known symmetry (footnote 6 of the source).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from intertwine.checks import checked
from intertwine.errors import InputError, Unsupported
from intertwine.exploring.objective import FlatLayout, Inputs, Objective, function_distance
from intertwine.exploring.optimizers import RowOptimizer, make_optimizer
from intertwine.exploring.plan import threads_for
from intertwine.exploring.starts import Starts, make_starts
from intertwine.exploring.storage import read_result, write_result
from intertwine.progress import Progress
from intertwine.reading import parsing

# A new point must leave the span of the others by this share of its distance from the first.
INDEPENDENCE = 1e-3
ROUNDING = 1e-6  # of points closer together than this share of their length the difference is noise


@dataclass(frozen=True)
class EquivalenceSample:
    """Parameters theta_0 ... theta_(n-1) with the function of theta, as rows of `points`."""

    layout: FlatLayout
    theta: Tensor
    points: Tensor
    losses: tuple[float, ...]
    tolerance: float
    spread: float
    known_symmetry_loss: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    objective: Objective | None = field(default=None, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.points)

    def parameters(self, index: int) -> dict[str, Tensor]:
        """The named parameters of theta_index, ready for `load_state_dict(..., strict=False)`."""
        return {name: part.clone() for name, part in self.layout.unflatten(self.points[index]).items()}

    @checked
    def save(self, path: str | Path) -> Path:
        facts = {
            "names": self.layout.names, "shapes": self.layout.shapes, "losses": self.losses,
            "tolerance": self.tolerance, "spread": self.spread, "facts": self.facts, "notes": self.notes,
            "known_symmetry_loss": self.known_symmetry_loss,
        }  # fmt: skip
        return write_result(path, "sample", {"theta": self.theta, "points": self.points}, facts)

    @classmethod
    def load(cls, path: str | Path) -> EquivalenceSample:
        tensors, facts = read_result(path, "sample")
        with parsing(path):  # a file of others may lack anything
            layout = FlatLayout(tuple(facts["names"]), tuple(tuple(shape) for shape in facts["shapes"]))
            return cls(
                layout, tensors["theta"], tensors["points"], tuple(facts["losses"]), facts["tolerance"],
                facts["spread"], facts["known_symmetry_loss"], facts["facts"], tuple(facts["notes"]),
            )  # fmt: skip


class NotConverged(Unsupported):
    """Too few starts reached the tolerance; `best` holds the best points found so far."""

    exit_code = 1

    def __init__(self, what: str, *, best: EquivalenceSample, so: str = "", do: str = "") -> None:
        super().__init__(what, so=so, do=do)
        self.best = best


@checked
def find_equivalents(
    model: nn.Module | Objective,
    inputs: Inputs | None = None,
    n: int = 3,
    *,
    tolerance: float | None = None,
    optimizer: str = "sgd",
    learning_rate: float | None = None,
    momentum: float = 0.0,
    batch: int = 256,
    max_steps: int = 20_000,
    max_seconds: float | None = None,
    population: int | None = None,
    starts: str | Starts = "random",
    spread: float = 0.5,
    seed: int = 0,
    equivalent: Callable[[torch.Generator], Tensor] | None = None,
    progress: Progress | None = None,
) -> EquivalenceSample:
    """`n` parameters t with J(t) < tolerance whose differences are linearly independent.

    `tolerance` defaults to a thousandth of the variance of the model's own outputs on C. `population` starts
    run together (default 2n). `equivalent(generator)` returns a parameter vector by a known
    symmetry; its J is reported as the floor that the numerics allow. Raises `NotConverged`, with the best
    points, when fewer than n starts arrive within `max_steps` (and `max_seconds`, if given).

    >>> _ = torch.manual_seed(0)
    >>> net = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
    >>> sample = find_equivalents(net, torch.randn(256, 1), 3, optimizer="lbfgs", tolerance=1e-6)
    >>> len(sample), max(sample.losses) < 1e-6
    (3, True)
    """
    objective = _as_objective(model, inputs)
    tolerance = 1e-3 * objective.spread if tolerance is None else tolerance
    _check(objective, n, tolerance, batch, max_steps)
    population = max(population or 2 * n, 1)
    chosen, draw = make_optimizer(optimizer, learning_rate, momentum), make_starts(objective, starts, spread)
    began = time.perf_counter()
    with threads_for(objective.bytes_per_example() * min(batch, objective.size) * population):
        race = _Race(
            objective, n, tolerance, batch, seed, optimizer=chosen, draw=draw, population=population,
            # Two rows that meet are one point; starts near theta are never far apart.
            apart=min(INDEPENDENCE, 0.1 * spread) if starts == "perturbed" else INDEPENDENCE,
        )  # fmt: skip
        race.run(max_steps, progress, began + (max_seconds or float("inf")))
    known = None
    if equivalent is not None:
        copy = equivalent(torch.Generator().manual_seed(seed))
        known = float(objective.values(copy[None].to(objective.theta))[0])
    facts = {
        "started": f"perturbed, spread {spread:g}" if starts == "perturbed"
        else starts if isinstance(starts, str) else "given",
        "optimizer": optimizer, "lr": race.optimizer_rate, "batch": batch, "seed": seed,
        "inputs": objective.size, "steps": race.steps, "starts": race.drawn, "restarts": race.restarts,
        "dependent": race.dependent, "batched": race.batched,
        "seconds": round(time.perf_counter() - began, 3),
    }  # fmt: skip
    sample = race.sample(known, facts)
    if race.found < n:
        raise NotConverged(
            f"{race.found} of {n} starts reached J < {tolerance:.3g} within {race.steps} steps",
            best=sample,
            so=f"the best of the others has J = {race.best_other:.3g}"
            f" (the outputs of the model have variance {objective.spread:.3g})",
            do="give more steps, another optimizer (adam, lbfgs) or learning rate, a larger tolerance, "
            "or starts near theta (starts='perturbed')",
        )
    return sample


def _as_objective(model: nn.Module | Objective, inputs: Inputs | None) -> Objective:
    if isinstance(model, Objective):
        return model
    if inputs is None:
        raise InputError("find_equivalents needs inputs: the set C on which functions are compared")
    return function_distance(model, inputs)


def _check(objective: Objective, n: int, tolerance: float, batch: int, max_steps: int) -> None:
    if not tolerance > 0:
        raise InputError(
            f"the tolerance must be positive, not {tolerance}",
            so="J is never negative" if objective.spread else "the model is constant on these inputs",
        )
    if n < 1 or batch < 1 or max_steps < 1:
        raise InputError("n, batch and max_steps must be at least 1")
    if n - 1 > objective.layout.length:
        raise InputError(f"{n} points cannot be independent in {objective.layout.length} dimensions")


class _Race:
    """The state of one search: live rows, their optimizer, and the points that arrived."""

    def __init__(
        self, objective: Objective, n: int, tolerance: float, batch: int, seed: int, *,
        optimizer: RowOptimizer, draw: Starts, population: int, apart: float,
    ) -> None:  # fmt: skip
        self.objective, self.n, self.tolerance, self.seed, self.apart = objective, n, tolerance, seed, apart
        self.optimizer, self.draw = optimizer, draw
        whole = optimizer.full_batch or not objective.splittable
        self.batch = objective.size if whole else min(batch, objective.size)
        self.rows = draw(population, _stream(seed, 0)).to(objective.theta)
        self.drawn, self.restarts, self.dependent, self.steps = population, 0, 0, 0
        self.points: list[Tensor] = []
        self.losses: list[float] = []
        # The best places of rows that were given up: kept for the case that too few arrive.
        self.given_up: list[tuple[float, Tensor]] = []
        self.best = torch.full((population,), torch.inf, dtype=torch.float64)
        self.best_rows = self.rows.clone()
        # J at the last check at which a row had made real progress.
        self.mark = torch.full((population,), torch.inf, dtype=torch.float64)
        self.stale = torch.zeros(population, dtype=torch.long)
        self.batched = self._measure()

    @property
    def found(self) -> int:
        return len(self.points)

    @property
    def optimizer_rate(self) -> float:
        return float(getattr(self.optimizer, "lr", 0.0))

    @property
    def best_other(self) -> float:
        return min([float(self.best.min()), *(value for value, _ in self.given_up)])

    def run(self, max_steps: int, progress: Progress | None, deadline: float = float("inf")) -> None:
        # About once an epoch; never so often that noise of a few steps looks like being stuck.
        every = 10 if self.optimizer.full_batch else min(max(self.objective.size // self.batch, 25), 100)
        # A start near theta may have arrived already.
        self._check_rows()
        while self.steps < max_steps and self.found < self.n:
            # One step is always made, so that there are points to keep.
            if self.steps and time.perf_counter() >= deadline:
                break
            begin = (self.steps * self.batch) % self.objective.size
            examples = slice(begin, begin + self.batch)
            closure = partial(self.objective.gradients, examples=examples, batched=self.batched)
            self.rows, _ = self.optimizer.step(self.rows, closure)
            self.steps += 1
            if self.steps % every == 0 or self.steps == max_steps or time.perf_counter() >= deadline:
                self._check_rows()
                if progress is not None:
                    least = min([*self.losses, self.best_other])
                    progress(self.steps, max_steps, f"{self.found} of {self.n} found, least J {least:.2g}")

    def _check_rows(self, patience: int = 12) -> None:
        """Keep those that arrived, restart those that are stuck, diverged or dependent."""
        values = self.objective.values(self.rows, batched=self.batched, examples=1024).cpu()
        values = torch.where(torch.isfinite(values), values, torch.inf)
        better = values < self.best
        self.best = torch.where(better, values, self.best)
        self.best_rows[better] = self.rows[better]
        arrived = values < self.tolerance
        for index in torch.nonzero(arrived).flatten().tolist():
            if self.found < self.n:
                self._accept(self.rows[index], float(values[index]))
        progressed = values < 0.98 * self.mark
        self.mark = torch.where(progressed, values, self.mark)
        self.stale = torch.where(progressed, 0, self.stale + 1)
        self.optimizer.slow((self.stale > 0) & (self.stale % (patience // 3) == 0))
        again = arrived | (self.stale >= patience) | torch.isinf(values)
        if bool(again.any()) and self.found < self.n:
            self._give_up(again & ~arrived)
            self._restart(again)

    def _accept(self, row: Tensor, value: float) -> None:
        if is_independent(row, self.points, self.apart):
            self.points.append(row.clone())
            self.losses.append(value)
        else:
            self.dependent += 1

    def _give_up(self, mask: Tensor) -> None:
        for index in torch.nonzero(mask & torch.isfinite(self.best)).flatten().tolist():
            self.given_up.append((float(self.best[index]), self.best_rows[index].clone()))
        self.given_up = sorted(self.given_up, key=lambda pair: pair[0])[: self.n]

    def _restart(self, mask: Tensor) -> None:
        count = int(mask.sum())
        self.rows[mask] = self.draw(count, _stream(self.seed, self.drawn)).to(self.rows)
        self.optimizer.forget(mask)
        self.best[mask] = torch.inf
        self.mark[mask] = torch.inf
        self.stale[mask] = 0
        self.drawn += count
        self.restarts += count

    def _measure(self) -> bool:
        """Whether a step of all rows together beats one row after the other; what fails is not batched."""
        if len(self.rows) == 1:
            return False
        examples = slice(0, self.batch)
        streamed = self._seconds(examples, batched=False)
        # A slow step has nothing to warm up, and every try costs.
        tries = 3 if streamed < 0.2 else 0
        streamed = min([streamed, *(self._seconds(examples, batched=False) for _ in range(tries))])
        try:
            together = min(self._seconds(examples, batched=True) for _ in range(tries + 1))
        except Exception:  # vmap has no rule for an op of this model
            return False
        return together <= streamed

    def _seconds(self, examples: slice, batched: bool) -> float:
        began = time.perf_counter()
        self.objective.gradients(self.rows, examples, batched=batched)
        return time.perf_counter() - began

    def sample(self, known: float | None, facts: dict[str, Any]) -> EquivalenceSample:
        """The points that arrived; when too few did, the best of the others after them."""
        points, losses = list(self.points), list(self.losses)
        self._give_up(self.best >= self.tolerance)
        for value, row in self.given_up[: self.n - len(points)]:
            points.append(row)
            losses.append(value)
        objective = self.objective
        stacked = torch.stack(points) if points else objective.theta.new_zeros(0, objective.layout.length)
        return EquivalenceSample(
            objective.layout, objective.theta.clone(), stacked, tuple(losses), self.tolerance,
            objective.spread, known, facts, objective.notes, objective,
        )  # fmt: skip


def _stream(seed: int, drawn: int) -> int:
    """A seed away from the small numbers that models are made with: a start must not be theta itself."""
    return (seed * 1_000_003 + drawn + 0x5EED_0001) % 2**63


def is_independent(point: Tensor, points: list[Tensor], apart: float = ROUNDING) -> bool:
    """Whether point - points[0] leaves the span of the other differences by a thousandth of its length.

    It must be longer than `apart` times the length of points[0].

    >>> zero, e = torch.zeros(3), torch.eye(3)
    >>> is_independent(e[1], [zero, e[0]]), is_independent(2 * e[0], [zero, e[0]])
    (True, False)
    """
    if not points:
        return True
    step = (point - points[0]).double()
    length = step.norm()
    if len(points) > 1:
        basis, _ = torch.linalg.qr(torch.stack([p - points[0] for p in points[1:]]).double().T)
        step = step - basis @ (basis.T @ step)
    return bool(step.norm() > INDEPENDENCE * length) and bool(length > apart * points[0].double().norm())
