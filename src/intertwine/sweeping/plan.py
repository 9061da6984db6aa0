"""From a sweep to its tasks: training first, then everything that reads trained networks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations, pairwise, permutations
from pathlib import Path
from typing import Any

from intertwine.sweeping.spec import ComparePart, Sweep, parse_seeds
from intertwine.sweeping.task import Task
from intertwine.training.data import find_cifar10
from intertwine.training.recipe import Recipe


@dataclass(frozen=True)
class Planned:
    """A network that the sweep trains."""

    model: str
    seed: int
    task: Task


def plan_sweep(sweep: Sweep) -> list[list[Task]]:
    """Tasks in waves: a task needs only tasks of earlier waves. Recipe, data and code are hashed once."""
    recipe, seeds = sweep.recipe(), parse_seeds(sweep.train.seeds)
    data = describe_data(sweep, recipe)
    nets = [net for model in sweep.train.models for net in _train(sweep, recipe, data, model, seeds)]
    waves: list[list[Task]] = [[net.task for net in nets], [], []]
    if sweep.compare is not None:
        for a, b in combinations(nets, 2):
            if sweep.compare.pairs == "all" or a.model == b.model:
                for wave, tasks in enumerate(_compare(data, sweep.compare, a, b), start=1):
                    waves[wave] += tasks
    if sweep.merge is not None:
        for net in nets:
            inputs = {**data, **_side(net), "betas": sweep.merge.betas, "inputs": sweep.merge.inputs}
            inputs["method"] = sweep.merge.method
            waves[1].append(Task.of("merge", inputs, [net.task], f"merge {net.model} seed {net.seed}"))
    # A stitch has a direction, a barrier has none.
    for kind, part, pairs in (("stitch", sweep.stitch, permutations), ("align", sweep.align, combinations)):
        asked = asdict(part) if part is not None else {}
        for a, b in pairs(nets, 2) if asked else ():
            if a.model == b.model:
                inputs = {**data, **_sides(a, b), **asked}
                label = f"{kind} {a.model} seed {a.seed} with seed {b.seed}"
                waves[1].append(Task.of(kind, inputs, [a.task, b.task], label))
    return [wave for wave in waves if wave]


def _train(
    sweep: Sweep, recipe: Recipe, data: dict[str, Any], model: str, seeds: Sequence[int]
) -> Iterator[Planned]:
    """The networks of one architecture."""
    inputs = {**data, "model": model, "code": _code(model), "recipe": replace(recipe, about="").to_dict()}
    inputs |= {"classes": sweep.train.classes, "limit": sweep.train.limit}
    for seed in seeds:
        task = Task.of("train", {**inputs, "seed": seed}, label=f"train {model} seed {seed}")
        yield Planned(model, seed, task)


def _compare(
    data: dict[str, Any], part: ComparePart, a: Planned, b: Planned
) -> tuple[list[Task], list[Task]]:
    """Moments of every shard, then the measures that read their sum; and those that need kernels."""
    from intertwine.comparing.measures import find_measure

    label = f"{a.model} seed {a.seed} with {b.model} seed {b.seed}"
    sides = _sides(a, b)
    common = {**data, **sides, "at": part.at, "layers": part.layers}
    streamed = [name for name in part.measures if find_measure(name).streams]
    kernels = [name for name in part.measures if name not in streamed]
    moments, values = [], []
    if streamed:
        pixels = sorted({find_measure(name).streamed for name in streamed})
        wanted = {**common, "pixels": pixels, "debiased": "cka-debiased" in streamed}
        for start, stop in cut(part.inputs, part.shards):
            piece = {**wanted, "start": start, "stop": stop}
            text = f"moments {label}, inputs {start} to {stop}"
            moments.append(Task.of("moments", piece, [a.task, b.task], text))
        values.append(Task.of("compare", {**sides, "measures": streamed}, moments, f"compare {label}"))
    if kernels:
        inputs = {**common, "measures": kernels, "inputs": part.inputs}
        values.append(Task.of("kernels", inputs, [a.task, b.task], f"kernels {label}"))
    return moments, values


def cut(count: int, parts: int) -> list[tuple[int, int]]:
    """0..count in `parts` pieces of almost equal length.

    >>> cut(10, 3)
    [(0, 3), (3, 6), (6, 10)]
    """
    edges = [count * i // parts for i in range(parts + 1)]
    return list(pairwise(edges))


def _sides(a: Planned, b: Planned) -> dict[str, Any]:
    return {**_side(a), **{f"{key}_b": value for key, value in _side(b).items()}}


def _side(net: Planned) -> dict[str, Any]:
    return {"model": net.model, "seed": net.seed}


def describe_data(sweep: Sweep, recipe: Recipe) -> dict[str, Any]:
    """What the data is: the strings, and the hash of the files that they name."""
    normalize = sweep.normalize or recipe.normalize or "none"
    if sweep.normalize is None and sweep.data.partition(":")[0] in ("digits", "fashion-mnist"):
        normalize = "none"
    files = [_file_digest(spec) for spec in (sweep.data, sweep.test) if spec is not None]
    return {"data": sweep.data, "test": sweep.test, "normalize": normalize, "files": files}


def _file_digest(spec: str) -> str:
    """The hash of the file or the two parquet files of a DATA string; empty for named data and folders."""
    kind, _, rest = spec.partition(":")
    place = find_cifar10(rest) if kind == "cifar10" else Path(rest).expanduser()
    if kind not in ("cifar10", "parquet", "npz") or not place.exists():
        return ""
    paths = [place] if place.is_file() else [place / "train.parquet", place / "test.parquet"]
    return "-".join(_hash(path) for path in paths if path.is_file())


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def _code(model: str) -> str:
    """The hash of the file of a FILE.py:factory model; empty for models that a package defines."""
    file = Path(model.rpartition(":")[0])
    return _hash(file) if file.suffix == ".py" and file.is_file() else ""
