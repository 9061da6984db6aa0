"""The package's own kinds of tasks: train, moments, compare, kernels, merge, stitch, align.

Each is a function of its inputs and of the results that it needs; it writes only below its own folder.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from intertwine import trace, zoo
from intertwine.comparing._compare import compare
from intertwine.comparing.collecting import Runner
from intertwine.comparing.measures import find_measure
from intertwine.comparing.moments import Cross, PairMoments
from intertwine.comparing.stream import StreamedMoments
from intertwine.files import write_tensors
from intertwine.sweeping.task import Need, Row, Task, task_kind
from intertwine.training import train
from intertwine.training.data import Splits, load_splits
from intertwine.training.models import build_model
from intertwine.training.recipe import from_dict
from intertwine.training.state import MODEL

Inputs = Mapping[str, Any]
_MOMENTS = "moments.safetensors"
WEIGHTS = f"run/{MODEL}"  # the result of a train task, below its folder
_BATCH = 250


@lru_cache(maxsize=2)
def _load(data: str, test: str | None, normalize: str, limit: int | None) -> Splits:
    return load_splits(data, test=test, normalize=normalize, limit=limit)


def _splits(inputs: Inputs) -> Splits:
    return _load(inputs["data"], inputs["test"], inputs["normalize"], inputs.get("limit"))


def load_data_of(task: Task) -> Splits:
    """The data of a planned task."""
    return _splits(json.loads(task.inputs))


def _trained(need: Need) -> nn.Module:
    """The network of a finished train task: built as the task was planned, with the weights that it wrote."""
    task = need.inputs
    model = build_model(task["model"], _splits(task), seed=task["seed"], classes=task["classes"])
    return zoo.load_weights(model, need.file(WEIGHTS)).eval()


_RUNNERS: OrderedDict[tuple[Path, str, str], Runner] = OrderedDict()
_KEPT_RUNNERS = 8


def _runner(need: Need, at: str) -> Runner:
    """A trained network with its trace, which the next pair can use again; results never change."""
    key = (need.folder, need.digests.get(WEIGHTS, ""), at)
    if key not in _RUNNERS:
        _RUNNERS[key] = Runner(_trained(need), _at(at))
    _RUNNERS.move_to_end(key)
    while len(_RUNNERS) > _KEPT_RUNNERS:
        _RUNNERS.popitem(last=False)
    return _RUNNERS[key]


def _names(inputs: Inputs) -> Row:
    keys = ("model", "seed", "model_b", "seed_b")
    return {key: inputs[key] for key in keys if key in inputs}


@task_kind("train", version=1, files=[WEIGHTS])
def train_task(inputs: Inputs, needs: Sequence[Need], folder: Path) -> list[Row]:
    """One model with one seed; goes on where a killed worker left it."""
    data = _splits(inputs)
    recipe, seed = from_dict(inputs["recipe"]), inputs["seed"]
    model = build_model(inputs["model"], data, seed=seed, classes=inputs["classes"])
    run = train(model, data, recipe, folder / "run", seed=seed, name=inputs["model"])
    rows = [
        {**_names(inputs), "epoch": epoch["epoch"], "quantity": quantity, "value": epoch[quantity]}
        for epoch in run.history
        for quantity in ("loss", "accuracy", "test_loss", "test_accuracy")
        if epoch[quantity] is not None
    ]
    kept = {**_names(inputs), "epoch": run.epoch}
    return [*rows, {**kept, "quantity": "final_accuracy", "value": run.accuracy}]


@task_kind("moments", version=1, files=[_MOMENTS])
def moments_task(inputs: Inputs, needs: Sequence[Need], folder: Path) -> list[Row]:
    """Sums over one shard of the test inputs; no rows of its own."""
    a, b = (_runner(need, inputs["at"]) for need in needs)
    images = _splits(inputs).test.images[inputs["start"] : inputs["stop"]]
    matched = inputs["layers"] == "matched"
    moments = {
        pixels: StreamedMoments(pixels=pixels, debiased=inputs["debiased"], matched=matched)
        for pixels in inputs["pixels"]
    }
    layers: tuple[list[str], list[str]] = ([], [])
    for batch in images.split(_BATCH):
        left, right = a.run(batch)[0], b.run(batch)[0]
        layers = list(left), list(right)
        for part in moments.values():
            part.update(left, right)
    pairs = [(p, q) for p in layers[0] for q in layers[1] if p == q or not matched]
    tensors = {k: v for pixels, part in moments.items() for k, v in _flat(pixels, part, pairs)}
    write_tensors(folder / _MOMENTS, tensors)
    return []


def _at(text: str) -> str | list[str]:
    return text if text in ("layers", "all") else [part.strip() for part in text.split(",")]


def _flat(
    pixels: str, moments: StreamedMoments, pairs: list[tuple[str, str]]
) -> Iterator[tuple[str, Tensor]]:
    for p, q in pairs:
        found = moments.pair(p, q)
        for side in ("xy", "xx", "yy"):
            cross = getattr(found, side)
            for field in fields(Cross):
                value = getattr(cross, field.name)
                if value is not None:
                    yield json.dumps([pixels, p, q, side, field.name]), torch.as_tensor(value)


Key = tuple[str, str, str]  # treatment of pixels, layer of A, layer of B


def read_moments(path: Path) -> dict[Key, PairMoments]:
    """What a moments task wrote, sorted by name."""
    sides: dict[Key, dict[str, dict[str, Any]]] = {}
    for key, value in zoo.read_weights(path).items():
        pixels, p, q, side, name = json.loads(key)
        entry: Any = int(value) if name == "n" else value
        sides.setdefault((pixels, p, q), {}).setdefault(side, {})[name] = entry
    return {
        pair: PairMoments(**{side: Cross(**entries) for side, entries in found.items()})
        for pair, found in sorted(sides.items())
    }


@task_kind("compare", version=1)
def compare_task(inputs: Inputs, needs: Sequence[Need], folder: Path) -> list[Row]:
    """Measures of the sum of the moments of all shards."""
    total = read_moments(needs[0].file(_MOMENTS))
    for need in needs[1:]:
        total = {key: total[key] + part for key, part in read_moments(need.file(_MOMENTS)).items()}
    rows = []
    for (pixels, p, q), moments in total.items():
        for name in (name for name in inputs["measures"] if find_measure(name).streamed == pixels):
            row = {**_names(inputs), "layer": p, "layer_b": q, "quantity": name}
            rows.append({**row, "value": find_measure(name).of_moments(moments)})
    return rows


@task_kind("kernels", version=1)
def kernels_task(inputs: Inputs, needs: Sequence[Need], folder: Path) -> list[Row]:
    """Measures that need the N x N kernels of all inputs at once."""
    a, b = map(_trained, needs)
    test = _splits(inputs).test.take(inputs["inputs"])
    result = compare(
        a, b, test, inputs["measures"], at=_at(inputs["at"]), kernel_inputs=inputs["inputs"], function=False,
        intervals=False,
    )  # fmt: skip
    matched = inputs["layers"] == "matched"
    return [
        {**_names(inputs), "layer": p, "layer_b": q, "quantity": name, "value": float(grid[i, j])}
        for name, grid in result.values.items()
        for i, p in enumerate(result.layers_a)
        for j, q in enumerate(result.layers_b)
        if p == q or not matched
    ]


@task_kind("merge", version=1)
def merge_task(inputs: Inputs, needs: Sequence[Need], folder: Path) -> list[Row]:
    """Accuracy and share of parameters over beta (Fig. 3 of source 000), one row each."""
    from intertwine.data import evaluate
    from intertwine.merging import Options, Planner
    from intertwine.merging.experiments import merge_curve

    model = _trained(needs[0])
    test = _splits(inputs).test.take(inputs["inputs"])
    planner = Planner(model, trace(model, test.images[:2]), Options(inputs["method"]))
    curve = merge_curve(planner, lambda net: evaluate(net, test).accuracy, betas=inputs["betas"])
    return [
        {**_names(inputs), "setting": point.setting, "quantity": quantity, "value": value}
        for point in curve
        for quantity, value in (("merged_accuracy", point.score), ("parameters_kept", point.kept))
    ]


@task_kind("stitch", version=1)
def stitch_task(inputs: Inputs, needs: Sequence[Need], folder: Path) -> list[Row]:
    """Penalties of every kind at every cut, A below and B above: of the closed form and after training."""
    from intertwine.stitching import Training, stitch

    a, b = map(_trained, needs)
    data = _splits(inputs)
    report = stitch(
        a, b, data.train.take(inputs["train_inputs"]), data.test.take(inputs["inputs"]), at=inputs["at"],
        kinds=inputs["kinds"], training=Training(epochs=inputs["epochs"]),
    )  # fmt: skip
    return [
        {**_names(inputs), "layer": found.layer, "layer_b": found.layer, "quantity": name, "value": value}
        for found in report.stitchings
        for name, value in (
            (f"penalty_start_{found.kind}", found.start),
            (f"penalty_{found.kind}", found.trained),
        )
    ]


@task_kind("align", version=1)
def align_task(inputs: Inputs, needs: Sequence[Need], folder: Path) -> list[Row]:
    """Distance and barrier of a pair: as it is, after permutations, after the whole group."""
    from intertwine.aligning import align, interpolation_curve
    from intertwine.symmetry import act

    a, b = map(_trained, needs)
    data = _splits(inputs)
    train, test = (part.take(inputs["inputs"]) for part in (data.train, data.test))
    symmetry = trace(a, test.images[:2])
    ts = [k / (inputs["points"] - 1) for k in range(inputs["points"])]
    rows = []
    for group in ("none", "permutation", "full"):
        moved, values = b, {}
        if group != "none":
            found = align(a, b, symmetry, by=inputs["by"], group=group, data=train)  # type: ignore[arg-type]
            moved = act(b, found.element)
            values = {f"distance_{group}": found.distance_after, "distance_none": found.distance_before}
        curve = interpolation_curve([a, moved], test, ts, repair=inputs["repair"], train_data=train)
        values[f"barrier_{group}"] = curve.barrier
        rows += [{**_names(inputs), "quantity": name, "value": value} for name, value in values.items()]
    return list({row["quantity"]: row for row in rows}.values())
