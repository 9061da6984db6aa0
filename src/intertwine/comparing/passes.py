"""Covariance measures of every pair of layers, their intervals, and the outputs, in one pass over the data.

Moments stream over all inputs (`stream.StreamedMoments`); where those of all pairs of layers do not fit
`memory`, layers of one name are compared, in as many passes as they need.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intertwine.comparing.collecting import Batch
from intertwine.comparing.features import FEWEST_INPUTS, PIXELS, Pixels, pool
from intertwine.comparing.function import Outputs
from intertwine.comparing.grids import AskedMeasure, Grids, Sides
from intertwine.comparing.measures import Measure
from intertwine.comparing.moments import PairMoments
from intertwine.comparing.statistics import half_sample_interval
from intertwine.comparing.stream import StreamedMoments
from intertwine.data.batches import Batches, count_rows, take
from intertwine.errors import DataError, InputError
from intertwine.progress import Progress

_FEWEST = 2  # inputs at once: with one alone, what belongs to different inputs cannot be seen
_COPIES = 8  # of a batch's values: pixels are stacked in float64 for every size at which layers meet
_WORTH = 2**19  # numbers that are waited for: to call a product costs more than to take it of fewer
PARTS = 16  # parts of the data whose halves give the intervals


def run_passes(
    sides: Sides,
    plan: list[AskedMeasure],
    grids: Grids,
    outputs: Outputs | None,
    intervals: bool,
    memory: int,
    progress: Progress | None,
) -> Outputs | None:
    """Moments for every treatment of pixels, in parts for the intervals, and the outputs, in one pass; where
    the moments of all pairs do not fit, those of layers of one name, in as many passes as they need."""
    streamed = [p for p in plan if p.streams]
    pooled = all(p.pixels == "pool" for p in streamed)
    once = any(isinstance(data, Iterator) for _, data in sides)
    first = _Pass(streamed, grids, intervals, memory, None)
    done = 0
    for left, right in _paired(sides, () if not streamed else None, memory, pooled):
        first.update(left.values, right.values)
        if once and first.later:
            raise InputError(
                f"the moments do not fit {memory / 2**30:.1f} GB, and the data can be read only once",
                do="choose fewer layers with `at`, raise `memory`, or give data that can be read again",
            )
        if outputs is not None:
            try:
                outputs.update(left.output, right.output, left.labels)
            except DataError as error:
                grids.notes.append(f"functions not compared: {error.what}")
                outputs = None
        done += len(left.output)
        if progress is not None:
            progress(done, 0, "layers and outputs, inputs")
    if done < FEWEST_INPUTS:
        raise DataError(f"{done} inputs are too few", do=f"give at least {FEWEST_INPUTS}")
    first.read()
    for number, group in enumerate(first.later, 1):
        again = _Pass(streamed, grids, first.intervals, memory, group)
        for left, right in _paired(sides, group, memory, pooled):
            again.update(left.values, right.values)
        again.read()
        if progress is not None:
            progress(number, len(first.later), "further layers, passes")
    return outputs


class _Pass:
    """One pass over the data. group: the layers of both networks that are compared each with its namesake;
    None for the first pass, whose first batch shows whether all pairs fit `memory`. later: groups that are
    left for other passes."""

    def __init__(
        self,
        streamed: list[AskedMeasure],
        grids: Grids,
        intervals: bool,
        memory: int,
        group: Sequence[str] | None,
    ) -> None:
        self.streamed, self.grids, self.intervals = streamed, grids, intervals
        self.memory, self.group = memory, group
        self.treatments = [t for t in PIXELS if any(p.pixels == t for p in streamed)]
        self.later: list[list[str]] = []
        self._started = False

    def update(self, a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
        """Add one batch."""
        if not self._started:
            self._started = True
            if self.group is None:
                self.grids.layers = tuple(a), tuple(b)
                self._choose(a, b)
            self._start(a, b)
        a, b = self._mine(a), self._mine(b)
        for treatment in self.treatments:
            x, y = (_pooled(a), _pooled(b)) if treatment == "pool" else (a, b)
            for part in _slices(x, y, self.memory // _COPIES):
                self.wholes[treatment].update(*part)
            if self.intervals and self.grids.layers[0] == self.grids.layers[1]:
                self.parts[treatment].update(x, y)

    def read(self) -> None:
        """Values and intervals of the layers of this pass."""
        for item in self.streamed:
            whole = self.wholes[item.pixels]
            self.grids.inputs[item.measure.name] = whole.images
            of_pair = partial(_of_pair, item.measure, whole)
            self.grids.fill(item.measure.name, of_pair, None if self.group is None else set(self.group))
        for treatment in self.treatments:
            mine = [p.measure for p in self.streamed if p.pixels == treatment]
            parts = self.parts[treatment].read()
            _read_intervals(mine, parts, self.grids, self.group)

    def _mine(self, values: dict[str, Tensor]) -> dict[str, Tensor]:
        return values if self.group is None else {name: values[name] for name in self.group}

    def _choose(self, a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
        """All pairs if their moments fit; else layers of one name, in groups that fit."""
        widths = [sum(v.shape[1] for v in side.values()) for side in (a, b)]
        needed = 8 * widths[0] * widths[1] * len(self.treatments)
        if needed <= self.memory:
            return
        what = f"moments of {widths[0]} with {widths[1]} channels need {needed / 2**30:.1f} GB"
        do = "choose fewer layers with `at`, or raise `memory`"
        costs = [8 * len(self.treatments) * _triple(a[name], b[name]) for name in a if name in b]
        if list(a) != list(b) or max(costs) > self.memory:
            raise InputError(what, do=do)
        groups: list[list[str]] = []
        held = self.memory
        for name, cost in zip(a, costs, strict=True):
            if held + cost > self.memory:
                groups.append([])
                held = 0
            groups[-1].append(name)
            held += cost
        self.group, *self.later = groups
        self.grids.notes.append(f"only layers of one name are compared: {what}; for all pairs {do}")

    def _start(self, a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
        matched = self.group is not None
        self.wholes = {t: _moments(t, self.streamed, matched=matched) for t in self.treatments}
        self.parts = {
            t: _Parts([_moments(t, self.streamed, matched=True) for _ in range(PARTS)])
            for t in self.treatments
        }
        pairs = [name for name in self._mine(a) if name in b]
        needed = 8 * PARTS * len(self.treatments) * sum(_triple(a[name], b[name]) for name in pairs)
        if self.intervals and needed > self.memory:
            self.intervals = False
            self.grids.notes.append(
                "no intervals: moments of parts of the data would need more than `memory`"
            )


def _triple(x: Tensor, y: Tensor) -> int:
    """Entries of the moments of two layers: x with y, and each with itself."""
    return x.shape[1] * y.shape[1] + x.shape[1] ** 2 + y.shape[1] ** 2


def _of_pair(measure: Measure, whole: StreamedMoments, p: str, q: str) -> float:
    return measure.of_moments(whole.pair(p, q))


class _Parts:
    """Moments of parts of the data, for the intervals: pieces of each batch are dealt out to them in turn,
    more of the first batches, so that little data reaches all. Pieces wait until they are worth a product."""

    def __init__(self, moments: list[StreamedMoments]) -> None:
        self.moments = moments
        self._waiting: list[list[tuple[dict[str, Tensor], dict[str, Tensor]]]] = [[] for _ in moments]
        self._batches = 0

    def update(self, a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
        """Deal out one batch."""
        pieces = PARTS if self._batches < 4 else 4
        for piece, rows_of in enumerate(torch.arange(_rows(a)).chunk(pieces)):
            where = slice(int(rows_of[0]), int(rows_of[-1]) + 1)
            part = (pieces * self._batches + piece) % len(self.moments)
            self._waiting[part].append(
                ({n: v[where] for n, v in a.items()}, {n: v[where] for n, v in b.items()})
            )
            if sum(v.numel() for x, _ in self._waiting[part] for v in x.values()) > _WORTH:
                self._add(part)
        self._batches += 1

    def read(self) -> list[StreamedMoments]:
        """The moments of the parts that any input has reached."""
        for part in range(len(self.moments)):
            self._add(part)
        return [m for m in self.moments if m.images]

    def _add(self, part: int) -> None:
        if self._waiting[part]:
            both = zip(*self._waiting[part], strict=True)
            a, b = ({name: torch.cat([piece[name] for piece in side]) for name in side[0]} for side in both)
            self.moments[part].update(a, b)
            self._waiting[part] = []


def _moments(treatment: Pixels, streamed: list[AskedMeasure], *, matched: bool = False) -> StreamedMoments:
    mine = [p for p in streamed if p.pixels == treatment]
    return StreamedMoments(
        pixels=treatment,
        precise=any(p.precise for p in mine),
        debiased=any(p.measure.debiased for p in mine),
        matched=matched,
    )


def _read_intervals(
    measures: list[Measure], parts: list[StreamedMoments], grids: Grids, group: Sequence[str] | None
) -> None:
    """Intervals of matched layers from random halves of the parts, which all measures share."""
    if grids.layers[0] != grids.layers[1] or len(parts) < 8:
        return
    random = np.random.default_rng(0)
    chosen = [random.permutation(len(parts))[: len(parts) // 2] for _ in range(40)]
    for measure in measures:
        grids.intervals.setdefault(measure.name, {})
    for i, layer in enumerate(grids.layers[0]):
        if group is not None and layer not in group:
            continue
        values = {m.name: float(grids.values[m.name][i, i]) for m in measures}
        defined = [m for m in measures if not np.isnan(values[m.name])]
        if not defined:
            continue
        first = parts[0].pair(layer, layer).xy
        pairs = [part.pair(layer, layer).about(first.origin_x, first.origin_y) for part in parts]
        halves: dict[str, list[float]] = {m.name: [] for m in defined}
        for half in chosen:
            total = PairMoments.joined([pairs[j] for j in half])
            for measure in defined:
                halves[measure.name].append(measure.of_moments(total))
        for name, found in halves.items():
            grids.intervals[name][layer] = half_sample_interval(values[name], found)


def _rows(values: dict[str, Tensor]) -> int:
    return len(next(iter(values.values())))


def _pooled(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Means over pixels, N x C: taken once for the whole and the parts of the data."""
    return {name: pool(value) for name, value in values.items()}


def _slices(
    a: dict[str, Tensor], b: dict[str, Tensor], memory: int
) -> Iterator[tuple[dict[str, Tensor], ...]]:
    """The values of both networks in slices of rows that fit `memory`."""
    sides = {id(v): v for v in (*a.values(), *b.values())}.values()
    count = _rows(a)
    rows = max(_FEWEST, memory * count // max(sum(v.numel() * v.element_size() for v in sides), 1))
    for start in range(0, count, rows):
        part = slice(start, start + rows)
        yield {n: v[part] for n, v in a.items()}, {n: v[part] for n, v in b.items()}


def _paired(
    sides: Sides, only: Sequence[str] | None, memory: int, pooled: bool
) -> Iterator[tuple[Batch, Batch]]:
    """Batches of both networks side by side, of no more inputs at once than have their values in `memory`."""
    (a, _), (b, _) = sides
    for (inputs, labels), (inputs_b, labels_b) in _read(sides):
        count = count_rows(inputs)
        held = a.held(inputs, only, pooled=pooled) + b.held(inputs_b, only, pooled=pooled)
        rows = max(_FEWEST, memory // max(held, 1))
        if rows < count:
            a.at_most(rows)
            b.at_most(rows)
        for start in range(0, count, rows):
            part = slice(start, start + rows)
            yield (
                Batch(
                    *a.run(take(inputs, part), only, pooled=pooled), None if labels is None else labels[part]
                ),
                Batch(
                    *b.run(take(inputs_b, part), only, pooled=pooled),
                    None if labels_b is None else labels_b[part],
                ),
            )


def _read(sides: Sides) -> Iterator[tuple[Any, Any]]:
    """(inputs, labels) for both. When both read the same data it is read once."""
    (a, data), (b, data_b) = sides
    if data is data_b:
        yield from ((batch, batch) for batch in Batches(data, device=a.device))
        return
    both = Batches(data, device=a.device), Batches(data_b, device=b.device)
    for left, right in itertools.zip_longest(*both):
        if left is None or right is None or count_rows(left[0]) != count_rows(right[0]):
            raise DataError(
                "the two data sets do not pair up batch by batch",
                do="give both the same inputs in the same order",
            )
        yield left, right
