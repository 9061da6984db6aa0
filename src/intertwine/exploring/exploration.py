"""explore: search equivalents of a parameter, span their plane, evaluate J on a grid of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from intertwine.checks import checked
from intertwine.data.batches import Batches
from intertwine.errors import DataError, InputError, Unsupported
from intertwine.exploring._evaluate import Landscape, evaluate
from intertwine.exploring.budget import Attempt, plan_attempts, plan_bound, plan_inputs, plan_points
from intertwine.exploring.functional import zero_set
from intertwine.exploring.grid import Grid
from intertwine.exploring.known import Knowledge, KnownSymmetry, explain_sample
from intertwine.exploring.near import describe_sample
from intertwine.exploring.objective import Objective, data_loss, function_distance
from intertwine.exploring.plan import plan_evaluation
from intertwine.exploring.plane import Plane, plane_through, random_plane, span
from intertwine.exploring.quotient import Quotient
from intertwine.exploring.search import EquivalenceSample, NotConverged, find_equivalents
from intertwine.exploring.topology import Topology, find_topology
from intertwine.progress import Progress
from intertwine.reading import check_memory
from intertwine.results import Result, Table

MEMORY = 2**29  # bytes


@dataclass(frozen=True, repr=False)
class Exploration(Result):
    """sample: the equivalents found (None for another plane). epsilon: the level that is drawn. known: what
    the inferred symmetries explain. facts: every number by the name that the page gives it."""

    sample: EquivalenceSample | None
    plane: Plane
    landscape: Landscape
    epsilon: float
    topologies: tuple[Topology, ...]
    known: Knowledge | None
    seed: int
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `intertwine explore --json` prints it."""
        shape = self.landscape
        points = zip(shape.mark_names, shape.marks, shape.mark_values, strict=True)
        marks = [{"name": name, "coordinates": at, "value": value} for name, at, value in points]
        return {**self.facts, "marks": marks, "topology": [vars(topology) for topology in self.topologies]}

    def tables(self) -> Sequence[Table]:
        """The facts, and the topology of the set at several levels."""
        rows = [topology.row() for topology in self.topologies]
        facts = [(name, value) for name, value in self.facts.items() if name != "finding"]
        return [Table("explore", ["", ""], facts), Table("topology", Topology.COLUMNS, rows)]

    def remarks(self) -> Sequence[str]:
        """What was found, in a sentence: above all, whether it is anything but theta with noise."""
        return [str(self.facts["finding"])] if "finding" in self.facts else []

    def save(self, path: str | Path) -> Path:
        """The page (.html), the numbers (.json), or a folder with sample, plane and landscape."""
        if Path(path).suffix in (".html", ".json"):
            return super().save(path)
        if self.sample is not None:
            self.sample.save(Path(path) / "sample.safetensors")
        self.plane.save(Path(path) / "plane.safetensors")
        self.landscape.save(Path(path) / "landscape.safetensors")
        return Path(path)


@checked
def explore(
    model: nn.Module,
    inputs: Any,
    *,
    data: Any = None,
    limit: int | None = None,
    loss: Literal["J", "cross_entropy"] = "J",
    batch_norm: str = "stored",
    plane: Literal["equivalents", "random"] | Mapping[str, nn.Module] = "equivalents",
    dim: int = 2,
    points: int | None = None,
    bound: float | None = None,
    epsilon: float | None = None,
    full: bool = False,
    memory: int = MEMORY,
    seconds: float = 60.0,
    quotient: bool = False,
    orbit: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
    **search: Any,
) -> Exploration:
    """The set of parameters that compute what `model` computes, near it: J < epsilon in a plane.

    inputs: an example for one call. C are `limit` inputs of `data`, or random ones of the example's shape.
    plane: through equivalents that a search finds (source 004), random and filter-normalised, or through the
    weights of 2 to 5 named models. search: optimizer, learning_rate, momentum, steps, population, tolerance,
    starts, spread, batch. seconds: about how long searching, and evaluating, may take. quotient: divide known
    symmetries out first. orbit: infer symmetries and say what they explain.

    >>> _ = torch.manual_seed(0)
    >>> net = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
    >>> options = {"optimizer": "lbfgs", "steps": 400, "tolerance": 1e-7}
    >>> found = explore(net, torch.randn(2, 1), limit=32, points=5, orbit=False, **options)
    >>> found.landscape.grid.shape, max(found.sample.losses) < 1e-7
    ((5, 5), True)
    """
    example = inputs if isinstance(inputs, tuple | Mapping) else (inputs,)
    objective = _objective(model, example, data, limit, loss, batch_norm, seed)
    sample: EquivalenceSample | None = None
    notes: list[str] = []
    if plane == "equivalents":
        if objective.name != "J":
            raise InputError("equivalents are found by J", do="use a random plane, or one through models")
        wanted = _Search(**search)
        sample, notes = wanted.run(objective, dim, seconds, seed, progress)
        if quotient:
            sample = Quotient(KnownSymmetry(model, example, objective)).sample(sample)
        drawn = _spanned(sample, dim, quotient)
    elif isinstance(plane, Mapping):
        if not all(isinstance(each, nn.Module) for each in plane.values()):
            raise InputError("a plane goes through models", do="give a mapping of names to torch.nn.Module")
        weights = [dict(each.named_parameters()) for each in plane.values()]
        drawn = plane_through(objective, weights, list(plane))
    else:
        drawn = random_plane(objective, dim, seed=seed)
    level = epsilon or 10 * (sample.tolerance if sample else 1e-3 * objective.spread)
    how = plan_evaluation(objective, memory=memory)
    count = points or plan_points(how.seconds_per_point, drawn.dim, seconds)
    grid = Grid.cube(drawn.dim, bound or _bound(objective, drawn, level), count)
    # A data loss is a picture of all heights, not of one level.
    levels = None if full or objective.name != "J" else level
    landscape = evaluate(drawn, grid, objective, epsilon=levels, plan=how, progress=progress)
    topologies = find_topology(landscape, [level * 10.0**k for k in (-1, -0.5, 0, 0.5, 1)])
    known = None
    if orbit and sample is not None:
        try:
            known = explain_sample(model, example, objective, sample, drawn, seed=seed)
        except Unsupported as error:
            notes.append(f"no orbit: {error.what}")
    facts = _facts(objective, sample, landscape, level, known, notes)
    if objective.name == "J" and not quotient:
        facts |= zero_set(objective, drawn)
    return Exploration(sample, drawn, landscape, level, topologies, known, seed, facts)


def _objective(
    model: nn.Module, example: tuple[Any, ...] | Mapping[str, Any], data: Any, limit: int | None, loss: str,
    batch_norm: str, seed: int,
) -> Objective:  # fmt: skip
    if data is not None:
        device = next((p.device for p in model.parameters()), None)
        images, labels = Batches(data, limit=limit, device=device).whole(labelled=loss != "J")
        if loss != "J" and labels is not None:
            return data_loss(model, images, labels, batch_norm=batch_norm)
        return function_distance(model, images, batch_norm=batch_norm)
    if loss != "J":
        raise InputError("a data loss needs data", do="give data, for example --data digits")
    held = example.values() if isinstance(example, Mapping) else example
    if not held or not all(isinstance(each, Tensor) for each in held):
        raise InputError(
            "the model takes other inputs than tensors", so="explore calls a model with tensors only",
            do="wrap it in a module with tensor arguments",
        )  # fmt: skip
    drawn = draw_inputs(example, limit or _affordable(model, example, batch_norm), seed)
    return function_distance(model, drawn, batch_norm=batch_norm)


def _affordable(model: nn.Module, example: tuple[Tensor, ...] | Mapping[str, Tensor], batch_norm: str) -> int:
    """How many inputs take a quarter of a second and write at most 512 MB in a forward pass."""
    few = function_distance(model, draw_inputs(example, 8, 0), batch_norm=batch_norm)
    return max(8, min(plan_inputs(few), MEMORY // few.bytes_per_example()))


def draw_inputs(
    example: Sequence[Tensor] | Mapping[str, Tensor], count: int, seed: int
) -> list[Tensor] | dict[str, Tensor]:
    """Gaussian inputs in the shape of the example; whole numbers are drawn from the example's range.

    Whole numbers that are all one, and yes or no, are as in the example: a mask that lets all through.
    """
    if isinstance(example, Mapping):
        return dict(zip(example, _draw(example.values(), count, seed), strict=True))
    return _draw(example, count, seed)


def _draw(example: Iterable[Tensor], count: int, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inputs = []
    for each in example:
        if not each.numel() or each.is_meta:
            raise DataError("the example holds no values", do="give an example with at least one input")
        if each.is_complex():
            raise Unsupported("no complex inputs are drawn", do="give data")
        shape = (count, *each.shape[1:])
        check_memory(math.prod(shape) * each.element_size(), f"{count:,} inputs", do="give a smaller limit")
        if each.is_floating_point():
            drawn = torch.randn(shape, generator=generator)
        elif each.dtype == torch.bool or bool((each == 1).all()):
            drawn = each[torch.arange(count) % len(each)]
        else:
            low, high = min(0, int(each.min())), int(each.max())
            drawn = torch.randint(low, high + 1, shape, generator=generator)
        inputs.append(drawn.to(each))
    return inputs


@dataclass(frozen=True)
class _Search:
    """How equivalents are searched for; see `find_equivalents`."""

    optimizer: Literal["sgd", "adam", "lbfgs"] = "adam"
    learning_rate: float | None = None
    momentum: float = 0.0
    steps: int | None = None
    population: int | None = None
    tolerance: float | None = None
    starts: str = "auto"
    spread: float | None = None
    batch: int = 256

    def run(
        self, objective: Objective, dim: int, seconds: float, seed: int, progress: Progress | None
    ) -> tuple[EquivalenceSample, list[str]]:
        """The attempts one after the other; when all fail, the error of the best with its points."""
        failed: list[NotConverged] = []
        notes: list[str] = []
        for attempt in self._attempts(objective, dim, seconds, seed):
            try:
                # The clock ends a search whose steps the user did not count.
                return find_equivalents(
                    objective, n=dim + 1, tolerance=self.tolerance, optimizer=self.optimizer,
                    learning_rate=self.learning_rate or attempt.lr, momentum=self.momentum, batch=self.batch,
                    max_steps=attempt.steps, max_seconds=seconds if self.steps is None else None,
                    population=self.population or attempt.population, starts=attempt.starts,
                    spread=attempt.spread, seed=seed, progress=progress,
                ), notes  # fmt: skip
            except NotConverged as error:
                failed.append(error)
                notes.append(f"{attempt.describe()}: {error.what}")
        raise min(failed, key=lambda error: max(error.best.losses, default=float("inf")))

    def _attempts(self, objective: Objective, dim: int, seconds: float, seed: int) -> Sequence[Attempt]:
        if self.starts == "perturbed" or self.spread is not None:
            return (Attempt("perturbed", self.spread or 0.5, self.steps or 5000),)
        if self.starts == "random":
            return (Attempt("random", 0.0, self.steps or 5000),)
        return plan_attempts(
            objective, self.tolerance or 1e-3 * objective.spread, n=dim + 1, batch=self.batch,
            seconds=seconds, optimizer=self.optimizer, steps=self.steps, seed=seed,
        )  # fmt: skip


def _spanned(sample: EquivalenceSample, dim: int, quotient: bool) -> Plane:
    try:
        return span(sample, dim)
    except InputError as error:
        if not quotient:
            raise
        raise InputError(
            "in the quotient the points found do not span a plane",
            so="known symmetries explain them, all or but for fewer dimensions",
            do="draw without the quotient, or in fewer dimensions",
        ) from error


def _bound(objective: Objective, plane: Plane, epsilon: float) -> float:
    """Half as much again as the marks need, and for J until the level is left.

    A random plane has no second point: one length of theta's filters, as Li et al. draw.
    """
    reach = plane.reach() if len(plane.names) > 1 else float(objective.theta.norm())
    return plan_bound(plane, objective, epsilon, 1.5 * reach) if objective.name == "J" else 1.5 * reach


def _facts(
    objective: Objective, sample: EquivalenceSample | None, landscape: Landscape, epsilon: float,
    known: Knowledge | None, notes: Sequence[str],
) -> dict[str, Any]:  # fmt: skip
    facts: dict[str, Any] = {
        "parameters": objective.layout.length, "inputs": objective.size,
        "drawn": objective.name, "epsilon": epsilon, "variance of the outputs": objective.spread,
        "grid points": landscape.grid.size, "evaluations": landscape.evaluations,
        "how": landscape.facts["how"], "audited": landscape.facts.get("audited"),
        "wrong in the audit": landscape.facts.get("audit_wrong"),
        "wrong of the others at most (95 %)": landscape.facts.get("wrong_share_at_most"),
    }  # fmt: skip
    if sample is not None:
        facts = {"finding": describe_sample(sample, objective), **facts}
        facts |= {"losses": [f"{loss:.3g}" for loss in sample.losses], "tolerance": sample.tolerance}
        searched = ("started", "optimizer", "lr", "steps", "starts", "restarts")
        facts |= {key: sample.facts[key] for key in searched}
    if known is not None:
        facts |= known.facts()
    return facts | {f"note {number}": note for number, note in enumerate([*landscape.notes, *notes], 1)}
