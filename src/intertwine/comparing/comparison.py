"""Compare every layer of one network with every layer of another, and the two as functions, in one pass over
the data.

Covariance measures stream over all inputs (`stream.Moments`). Kernel measures need N x N matrices and use
the first `kernel_inputs` inputs; layers are collected in groups that fit `memory`, one pass a group.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from intertwine.checks import checked
from intertwine.comparing.collecting import At, Batch, Runner
from intertwine.comparing.features import FEWEST_INPUTS, PIXELS, Pixels, check_pixels, rows
from intertwine.comparing.function import FunctionalSimilarity, Kind, Outputs
from intertwine.comparing.kernels import TILE
from intertwine.comparing.measures import Measure, find_measure, measure_for
from intertwine.comparing.statistics import Interval, half_sample_interval
from intertwine.comparing.stream import StreamedMoments
from intertwine.data.batches import Batches
from intertwine.errors import DataError, InputError, NotFound
from intertwine.ir.groups import Group
from intertwine.progress import Progress
from intertwine.results import Result, Table
from intertwine.symmetry import Symmetry

_Sides = tuple[tuple[Runner, Any], tuple[Runner, Any]]  # each network and what it is shown
_Summaries = dict[tuple[str, str], Tensor | DataError]  # (measure, layer) -> what is kept of the layer
KERNEL_INPUTS = 1000
MEMORY = 2**31
PARTS = 16  # parts of the data whose halves give the intervals


@dataclass(frozen=True, repr=False)
class Comparison(Result):
    """values[measure][i, j]: similarity of layer i of A with layer j of B; NaN only where `notes` says
    why."""

    layers_a: tuple[str, ...]
    layers_b: tuple[str, ...]
    values: dict[str, np.ndarray]
    pixels: dict[str, str]
    inputs: dict[str, int]
    intervals: dict[str, dict[str, Interval]]
    function: FunctionalSimilarity | None
    notes: tuple[str, ...] = field(default=())

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures computed, in the order asked for."""
        return tuple(self.values)

    def matched(self, measure: str) -> list[tuple[str, str, float]]:
        """(layer of A, layer of B, value): layers of the same name, or else each layer of A with its most
        similar one."""
        grid = self._grid(measure)
        if self.layers_a == self.layers_b:
            return [(p, p, float(grid[i, i])) for i, p in enumerate(self.layers_a)]
        best = [int(np.argmax(np.nan_to_num(row, nan=-np.inf))) for row in grid]
        return [
            (p, self.layers_b[j], float(grid[i, j]))
            for i, (p, j) in enumerate(zip(self.layers_a, best, strict=True))
        ]

    def identification(self, measure: str) -> float:
        """Share of layers of A whose most similar layer of B has the same name (section 6.1 of Kornblith et
        al.)."""
        if self.layers_a != self.layers_b:
            raise InputError("layer identification needs two networks with the same layers")
        grid = self._grid(measure)
        others = grid[~np.eye(len(grid), dtype=bool)]
        if others.size and np.isnan(others).all():
            raise InputError("only layers of one name were compared", do="raise `memory`, or choose fewer")
        best = np.argmax(np.nan_to_num(grid, nan=-np.inf), axis=1)
        return float(np.mean(best == np.arange(len(best))))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; an undefined value is null."""
        return {
            "layers_a": list(self.layers_a),
            "layers_b": list(self.layers_b),
            "measures": {
                name: {
                    "pixels": self.pixels[name],
                    "inputs": self.inputs[name],
                    "values": [[None if math.isnan(v) else float(v) for v in row] for row in grid],
                    "intervals": {
                        layer: {"value": i.value, "low": i.low, "high": i.high, "level": i.level}
                        for layer, i in self.intervals.get(name, {}).items()
                    },
                }
                for name, grid in self.values.items()
            },
            "function": None if self.function is None else self.function.to_dict(),
            "notes": list(self.notes),
        }

    def tables(self) -> list[Table]:
        """A row a layer of A, a column a measure; then the two as functions."""
        matched = [self.matched(measure) for measure in self.measures]
        rows = [[name, *(each[i][2] for each in matched)] for i, name in enumerate(self.layers_a)]
        same = self.layers_a == self.layers_b
        title = "layers of the same name" if same else "with the most similar layer of B"
        tables = [Table(title, ["layer of A", *self.measures], rows)]
        if self.function is not None:
            tables.append(Table("as functions", FunctionalSimilarity.COLUMNS, self.function.rows()))
        return tables

    def remarks(self) -> list[str]:
        """What could not be computed."""
        return [f"note: {note}" for note in self.notes]

    def _grid(self, measure: str) -> np.ndarray:
        if measure not in self.values:
            raise NotFound(f"{measure!r} was not computed", do=f"computed: {', '.join(self.values)}")
        return self.values[measure]


@checked
def compare(
    model_a: nn.Module,
    model_b: nn.Module,
    data: Any,
    measures: Sequence[str] | str = ("cka",),
    *,
    at: At = "layers",
    at_b: At | None = None,
    data_b: Any = None,
    pixels: Pixels | None = None,
    symmetry: Symmetry | None = None,
    kernel_inputs: int = KERNEL_INPUTS,
    memory: int = MEMORY,
    function: bool = True,
    intervals: bool = True,
    kind: Kind = "logits",
    seed: int = 0,
    progress: Progress | None = None,
) -> Comparison:
    """All layers of A against all layers of B under each measure, with intervals, and the two as functions.

    `data` must be re-iterable when a kernel measure is asked for. `data_b` gives network B its own form of
    the same inputs (another normalisation, say). `pixels` overrides the treatment of maps: by default CKA
    and CCA stream means over pixels ("pool"), Procrustes streams pixels ("samples", eq. D.2), kernels sum
    over pixels ("flatten"). "flatten" turns linear CKA into a kernel measure. `"auto"` among the measures
    takes, for each layer of A, the measure of the group that acts there. symmetry: that of A, if it is known
    already. `intervals=False` skips the intervals. memory: bytes for moments and features; where those of all
    pairs of layers need more, layers of one name are compared, in several passes, and a note says so.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> result = compare(net, net, torch.randn(40, 3), ["cka", "procrustes-grelu"])
    >>> [(a, b, round(value, 6)) for a, b, value in result.matched("cka")]
    [('1', '1', 1.0), ('2', '2', 1.0)]
    """
    names = [measures] if isinstance(measures, str) else list(measures)
    if pixels is not None:
        check_pixels(pixels)
    plan = [_Planned.of(name, pixels) for name in names if name != "auto"]
    a = Runner(model_a, at, symmetry)
    b = Runner(model_b, at if at_b is None else at_b, like=a)
    groups: list[Group] = []
    if "auto" in names:
        first, data = _first(a, data)
        groups = [value.group for value in a.wanted(first)]
        plan += [_Planned.of(name, pixels, precise=True) for name in dict.fromkeys(map(measure_for, groups))]
    plan = list({p.measure.name: p for p in plan}.values())
    second = data if data_b is None else data_b
    grids = _Grids(plan, notes=[])
    outputs = Outputs(kind) if function else None
    sides = (a, data), (b, second)
    outputs = _stream(sides, plan, grids, outputs, intervals, memory, progress)
    _run_kernels(sides, plan, grids, kernel_inputs, memory, progress)
    if "auto" in names:
        grids.add_auto(groups)
    wanted = {name: grids.values[name] for name in names}
    return Comparison(
        layers_a=grids.layers[0],
        layers_b=grids.layers[1],
        values=wanted,
        pixels={name: grids.pixels.get(name, "by layer") for name in names},
        inputs={name: grids.inputs.get(name, max(grids.inputs.values())) for name in names},
        intervals={name: grids.intervals.get(name, {}) for name in names},
        function=None if outputs is None else outputs.result(seed=seed),
        notes=tuple(grids.notes),
    )


@dataclass(frozen=True)
class _Planned:
    """A measure and what becomes of pixels in this comparison.

    precise: a Procrustes distance is the root of a difference; to tell 0 from 1e-6 it needs float64.
    """

    measure: Measure
    pixels: Pixels
    streams: bool
    precise: bool = False

    @classmethod
    def of(cls, name: str, pixels: Pixels | None, precise: bool = False) -> _Planned:
        measure = find_measure(name)
        if measure.streams and not (pixels == "flatten" and measure.prepare is not None):
            treatment = pixels if pixels in ("pool", "samples") else measure.streamed
            return cls(measure, treatment, True, precise or measure.needs_precision)
        return cls(measure, "pool" if pixels == "pool" else "flatten", False)


class _Grids:
    """The result while it grows."""

    def __init__(self, plan: list[_Planned], notes: list[str]) -> None:
        self.layers: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self.values: dict[str, np.ndarray] = {}
        self.intervals: dict[str, dict[str, Interval]] = {}
        self.pixels: dict[str, str] = {p.measure.name: p.pixels for p in plan}
        self.inputs: dict[str, int] = {}
        self.notes = notes

    def fill(
        self, measure: str, value: Callable[[str, str], float], namesakes: Collection[str] | None = None
    ) -> None:
        """Every pair of layers, or each of these with its namesake; a pair without a value is NaN, with a
        note."""
        shape = len(self.layers[0]), len(self.layers[1])
        grid = self.values.setdefault(measure, np.full(shape, np.nan))
        for (i, p), (j, q) in itertools.product(enumerate(self.layers[0]), enumerate(self.layers[1])):
            if namesakes is not None and (p != q or p not in namesakes):
                continue
            try:
                grid[i, j] = value(p, q)
            except DataError as error:
                self.notes.append(f"{measure}, {p} with {q}: {error.what}")

    def add_auto(self, groups: list[Group]) -> None:
        """Row i of "auto" is row i of the measure of the group of layer i."""
        chosen = [measure_for(group) for group in groups]
        self.values["auto"] = np.stack([self.values[m][i] for i, m in enumerate(chosen)])
        self.notes += [
            f"auto, {p}: {m} ({g})" for p, m, g in zip(self.layers[0], chosen, groups, strict=True)
        ]


def _stream(
    sides: _Sides,
    plan: list[_Planned],
    grids: _Grids,
    outputs: Outputs | None,
    intervals: bool,
    memory: int,
    progress: Progress | None,
) -> Outputs | None:
    """Moments for every treatment of pixels, in parts for the intervals, and the outputs, in one pass; where
    the moments of all pairs do not fit, those of layers of one name, in as many passes as they need."""
    streamed = [p for p in plan if p.streams]
    once = any(isinstance(data, Iterator) for _, data in sides)
    first = _Pass(streamed, grids, intervals, memory, None)
    done = 0
    for left, right in _paired(sides, () if not streamed else None):
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
        for left, right in _paired(sides, group):
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
        streamed: list[_Planned],
        grids: _Grids,
        intervals: bool,
        memory: int,
        group: Sequence[str] | None,
    ) -> None:
        self.streamed, self.grids, self.intervals = streamed, grids, intervals
        self.memory, self.group = memory, group
        self.treatments = [t for t in PIXELS if any(p.pixels == t for p in streamed)]
        self.later: list[list[str]] = []
        self._batches = 0

    def update(self, a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
        """Add one batch."""
        if not self._batches:
            if self.group is None:
                self.grids.layers = tuple(a), tuple(b)
                self._choose(a, b)
            self._start(a, b)
        a, b = self._mine(a), self._mine(b)
        for treatment in self.treatments:
            self.wholes[treatment].update(a, b)
            if self.intervals and self.grids.layers[0] == self.grids.layers[1]:
                _update_parts(self.parts[treatment], self._batches, a, b)
        self._batches += 1

    def read(self) -> None:
        """Values and intervals of the layers of this pass."""
        for item in self.streamed:
            whole = self.wholes[item.pixels]
            self.grids.inputs[item.measure.name] = whole.images
            of_pair = partial(_of_pair, item.measure, whole)
            self.grids.fill(item.measure.name, of_pair, None if self.group is None else set(self.group))
        for treatment in self.treatments:
            mine = [p.measure for p in self.streamed if p.pixels == treatment]
            parts = [m for m in self.parts[treatment] if m.images]
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
            t: [_moments(t, self.streamed, matched=True) for _ in range(PARTS)] for t in self.treatments
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


def _update_parts(
    parts: list[StreamedMoments], number: int, a: dict[str, Tensor], b: dict[str, Tensor]
) -> None:
    """Deal pieces of each batch out to the parts; the first batches reach all parts, so little data does."""
    count = len(next(iter(a.values())))
    pieces = PARTS if number < 4 else 4
    for piece, rows_of in enumerate(torch.arange(count).chunk(pieces)):
        where = slice(int(rows_of[0]), int(rows_of[-1]) + 1)
        part = parts[(pieces * number + piece) % len(parts)]
        part.update({n: v[where] for n, v in a.items()}, {n: v[where] for n, v in b.items()})


def _moments(treatment: Pixels, streamed: list[_Planned], *, matched: bool = False) -> StreamedMoments:
    mine = [p for p in streamed if p.pixels == treatment]
    return StreamedMoments(
        pixels=treatment,
        precise=any(p.precise for p in mine),
        debiased=any(p.measure.debiased for p in mine),
        matched=matched,
    )


def _read_intervals(
    measures: list[Measure], parts: list[StreamedMoments], grids: _Grids, group: Sequence[str] | None
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
            total = pairs[half[0]]
            for j in half[1:]:
                total = total + pairs[j]
            for measure in defined:
                halves[measure.name].append(measure.of_moments(total))
        for name, found in halves.items():
            grids.intervals[name][layer] = half_sample_interval(values[name], found)


def _paired(sides: _Sides, only: Iterable[str] | None) -> Iterable[tuple[Batch, Batch]]:
    """Batches of both networks side by side. When both read the same data it is read once."""
    (a, data), (b, data_b) = sides
    if data is data_b:
        for inputs, labels in Batches(data, device=a.device):
            yield Batch(*a.run(inputs, only), labels), Batch(*b.run(inputs, only), labels)
        return
    runs = (runner.over(source, only=only) for runner, source in sides)
    for left, right in itertools.zip_longest(*runs):
        if left is None or right is None or len(left.output) != len(right.output):
            raise DataError(
                "the two data sets do not pair up batch by batch",
                do="give both the same inputs in the same order",
            )
        yield left, right


def _first(runner: Runner, data: Any) -> tuple[Any, Any]:
    """The first inputs, and the data with them still in it (an iterator can be read only once)."""
    source = iter(data) if isinstance(data, Iterator) else None
    if source is None:
        return next(iter(Batches(data, device=runner.device)), (None, None))[0], data
    head = next(source, None)
    if head is None:
        raise DataError("the data set is empty")
    return next(iter(Batches([head], device=runner.device)))[0], itertools.chain([head], source)


def _run_kernels(
    sides: _Sides,
    plan: list[_Planned],
    grids: _Grids,
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


def _summary(item: _Planned, features: Tensor) -> Tensor | DataError:
    try:
        return item.measure.summary(rows(features, "pool") if item.pixels == "pool" else features)
    except DataError as error:
        return error


def _between(item: _Planned, of_a: _Summaries, of_b: _Summaries, p: str, q: str) -> float:
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
