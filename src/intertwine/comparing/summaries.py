"""Kernel measures of every pair of layers, which need all inputs at once: summaries, then pairs.

Kernels are N x N matrices of the first inputs; layers are collected in groups that fit `memory`, one pass a
group.
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from intertwine.comparing.collecting import Runner
from intertwine.comparing.features import FEWEST_INPUTS, rows
from intertwine.comparing.grids import AskedMeasure, Grids, Sides
from intertwine.comparing.kernels import TILE
from intertwine.data.batches import Batches
from intertwine.errors import DataError, InputError
from intertwine.progress import Progress

_Summaries = dict[tuple[str, str], Tensor | DataError]  # (measure, layer) -> what is kept of the layer


def run_summaries(
    sides: Sides,
    plan: list[AskedMeasure],
    grids: Grids,
    inputs: int,
    memory: int,
    progress: Progress | None,
) -> None:
    """Summaries (kernels, ranks, neighbours) of every layer on the first inputs, then every pair of them."""
    planned = [p for p in plan if not p.streams]
    if not planned:
        return
    if inputs < FEWEST_INPUTS:
        raise InputError(f"{inputs} inputs for kernel measures", do=f"give at least {FEWEST_INPUTS}")
    summaries: list[_Summaries] = [{}, {}]
    layers: list[tuple[str, ...]] = []
    count = 0
    for side, (runner, source) in enumerate(sides):
        groups = _groups(runner, source, inputs, memory)
        layers.append(tuple(itertools.chain.from_iterable(groups)))
        for group in groups:
            kept: dict[str, list[Tensor]] = {name: [] for name in group}
            for batch in runner.over(source, limit=inputs, only=group):
                for name, value in batch.values.items():
                    kept[name].append(value)
            for name in group:
                features = torch.cat(kept.pop(name))
                count = len(features)
                for item in planned:
                    summaries[side][item.measure.name, name] = _summary(item, features)
                if progress is not None:
                    progress(len(summaries[side]) // len(planned), len(layers[-1]), f"kernels of {name}")
    if count < FEWEST_INPUTS:
        raise DataError(f"{count} inputs are too few", do=f"give at least {FEWEST_INPUTS}")
    grids.layers = layers[0], layers[1]
    for item in planned:
        name = item.measure.name
        grids.inputs[name] = count
        grids.fill(name, partial(_between, item, summaries[0], summaries[1]))


def _summary(item: AskedMeasure, features: Tensor) -> Tensor | DataError:
    try:
        return item.measure.summary(rows(features, "pool") if item.pixels == "pool" else features)
    except DataError as error:
        return error


def _between(item: AskedMeasure, of_a: _Summaries, of_b: _Summaries, p: str, q: str) -> float:
    x, y = of_a[item.measure.name, p], of_b[item.measure.name, q]
    if isinstance(x, DataError):
        raise x
    if isinstance(y, DataError):
        raise y
    return item.measure.between_summaries(x, y)


def _groups(runner: Runner, data: Any, inputs: int, memory: int) -> list[list[str]]:
    """Layers in order, cut so that the features of a group fit `memory` (float32, with room for tiles)."""
    first, _ = next(iter(Batches(data, limit=inputs, device=runner.device)), (None, None))
    if first is None:
        raise DataError("the data set is empty")
    groups: list[list[str]] = [[]]
    used = 0
    for value in runner.wanted(first):
        size = 4 * math.prod(value.shape[1:]) * (inputs + 2 * TILE)
        if groups[-1] and used + size > memory:
            groups.append([])
            used = 0
        groups[-1].append(value.name)
        used += size
    return groups
