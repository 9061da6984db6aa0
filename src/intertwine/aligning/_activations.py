"""How alike the channels of models are on data: a table for every unit and pair of models.

For every unit (an axis, the channels inside groups, the dimensions of a head) the values that carry it and
are read by a weight are recorded in all models on the same inputs; if there are none, the last value that
carries it, and for a linear unit those that a weight makes (queries and keys). The gain of matching two
channels is their Pearson correlation over inputs and pixels, its size where the axis may flip signs there;
of a unit that matrices act on it is their inner product, of which Procrustes takes the best rotation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from intertwine.data.batches import Batches, arguments, count_rows
from intertwine.data.evaluation import like_inputs
from intertwine.errors import DataError
from intertwine.graph.export import export
from intertwine.graph.record import Recorder, key_of
from intertwine.orbit.units import Forest, Unit
from intertwine.rules import facts
from intertwine.symmetry import Symmetry
from intertwine.symmetry.action import FactorAction, ValueAction

Tables = dict[int, np.ndarray]
PIXELS = 100  # of an input, drawn at random: more say the same


@dataclass(frozen=True, eq=False)
class Tap:
    """Node `name` carries unit `unit`: channel c lies at the flat positions where[c] of a factor's axes."""

    name: str
    unit: int
    where: np.ndarray
    signed: bool
    action: ValueAction
    factor: FactorAction

    def channels(self, x: Tensor, pick: Picked) -> Tensor:
        """(inputs, pixels and copies; channels of the unit) in float64 on the CPU; of many, some."""
        mine, sizes, places = self.factor.factor.axes, list[int](), dict[Any, int]()
        known = len(self.action.value.dims)
        if x.dim() != known:
            raise DataError(
                f"{self.name} has {x.dim()} dimensions on the data, and {known} on the example",
                do="trace the model on an example with as many dimensions as the data has",
            )
        for dim, size in zip(self.action.value.dims, x.shape, strict=True):
            held = [a for a in dim if a in mine]
            places |= {a: len(sizes) + k for k, a in enumerate(dim) if a in held}
            # Dimensions without channels may have any size: the symmetry is often traced on a single row.
            sizes += [a.size for a in dim] if held else [size]
        last = tuple(range(-len(mine), 0))
        flat = x.reshape(sizes).movedim(tuple(places[a] for a in mine), last).flatten(-len(mine))
        picked = flat[..., torch.from_numpy(self.where.T.copy()).to(x.device)]
        return pick(picked.reshape(-1, len(self.where)), x.shape[0]).to("cpu", torch.float64)


class Picked:
    """At most PIXELS rows for each input, the same ones for one number of rows: all models are compared on
    the same pixels."""

    def __init__(self, seed: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.known: dict[int, Tensor] = {}

    def __call__(self, rows: Tensor, inputs: int) -> Tensor:
        """Some rows, or all."""
        total, most = len(rows), PIXELS * inputs
        if total <= most:
            return rows
        if total not in self.known:
            self.known[total] = torch.randperm(total, generator=self.generator)[:most].sort().values
        return rows[self.known[total].to(rows.device)]


def find_taps(symmetry: Symmetry, forest: Forest) -> list[Tap]:
    """Where in the graph the activations of each unit can be read."""
    s = symmetry.structure
    owner, rank = np.full(s.classes.count, -1, np.int64), np.zeros(s.classes.count, np.int64)
    for unit in forest.units:
        if unit.moves:
            owner[unit.classes] = unit.index
            rank[unit.classes.reshape(-1)] = np.arange(unit.size)
    found: dict[int, list[tuple[bool, bool, Tap]]] = {}
    nodes = {n.name: n for n in symmetry.traced.graph.nodes if n.op == "call_function"}
    for name, value in s.inference.values.items():
        node = nodes.get(name[1:]) if name.startswith("%") else None
        if node is None:
            continue
        read = any(facts(user).contracts for user in node.users)
        action = ValueAction(s, value)
        for factor in action.factors:
            own = s.classes.of[factor.labels]
            for index in np.unique(owner[own]).tolist():
                tap = _tap(forest.units[index], node.name, action, factor, own, rank) if index >= 0 else None
                if tap is not None:
                    found.setdefault(index, []).append((read, facts(node).contracts, tap))
    taps: list[Tap] = []
    for index, candidates in found.items():
        made = [tap for _, made, tap in candidates if made] if forest.units[index].linear is not None else []
        # Behind their rectifiers: with what lies before them too, networks of tiny10 are matched worse.
        best = [tap for read, _, tap in candidates if read] or made or [candidates[-1][2]]
        taps += list({tap.name: tap for tap in best}.values())
    return taps


def _tap(
    unit: Unit, name: str, action: ValueAction, factor: FactorAction, own: np.ndarray, rank: np.ndarray
) -> Tap | None:
    """The unit's channels in one factor of a value, if all are there equally often."""
    classes = unit.classes.reshape(-1)
    here = np.flatnonzero(np.isin(own, classes))
    counts = np.bincount(rank[own[here]], minlength=unit.size)
    if counts.min() < 1 or counts.min() != counts.max():
        return None
    s = factor.structure
    colour = s.classes.colour[factor.labels[here]]
    order = here[np.lexsort((here, colour, rank[own[here]]))]
    signed = bool((s.scalings.exponents(int(factor.scales[order[0]]))[3] % 2).any())
    return Tap(name, unit.index, order.reshape(unit.size, -1), signed, action, factor)


def correlations(
    symmetry: Symmetry, forest: Forest, models: tuple[nn.Module, nn.Module], data: Any, *, limit: int = 1000
) -> Tables:
    """Unit -> (channels of A, channels of B): how alike they are, averaged over the values of the unit."""
    return pairwise(symmetry, forest, models, data, limit=limit)[0, 1]


def pairwise(
    symmetry: Symmetry,
    forest: Forest,
    models: Sequence[nn.Module],
    data: Any,
    *,
    limit: int | None = 1000,
) -> dict[tuple[int, int], Tables]:
    """(k, l) with k < l -> the tables of models k and l; every model runs once over the data."""
    taps = find_taps(symmetry, forest)
    pairs = list(combinations(range(len(models)), 2))
    sums = {(tap, pair): _Sums(forest.units[tap.unit].size) for tap in taps for pair in pairs}
    graphs: dict[Any, list[Recorder]] = {}
    wanted = {tap.name for tap in taps}
    device = like_inputs(models[0]).device
    inputs, pick = 0, Picked()
    own = symmetry.traced
    held = min((shape[0] if shape else 0 for shape in own.example.shapes), default=0)
    for batch, _ in Batches(data, limit=limit, device=device):
        args, kwargs = arguments(batch)
        key = key_of([*args, *kwargs.values()])
        if key not in graphs:
            # The symmetry's own graph is often one of a single row: batches would go through it in crumbs.
            same = key == key_of(own.example.leaves) and 4 * held >= count_rows(batch)
            traced = own if same else export(models[0], args, kwargs)
            graphs[key] = [Recorder(traced, model) for model in models]
        recorded = [recorder(args, kwargs, wanted)[0] for recorder in graphs[key]]
        for tap in taps:
            rows = [tap.channels(record[tap.name], pick) for record in recorded]
            for k, l in pairs:
                sums[tap, (k, l)].add(rows[k], rows[l])
        inputs += count_rows(batch)
    if inputs < 2:
        raise DataError("activations need at least 2 inputs", do="give more data")
    found: dict[tuple[int, int], dict[int, list[np.ndarray]]] = {pair: {} for pair in pairs}
    for (tap, pair), total in sums.items():
        if forest.units[tap.unit].linear is not None:
            table = total.inner()
        else:
            table = np.abs(total.correlation()) if tap.signed else total.correlation()
        found[pair].setdefault(tap.unit, []).append(table)
    return {
        pair: {unit: np.mean(tables, axis=0) for unit, tables in each.items()} for pair, each in found.items()
    }


class _Sums:
    """Running sums for a correlation table."""

    def __init__(self, size: int) -> None:
        self.count = 0
        self.first = torch.zeros(2, size, dtype=torch.float64)
        self.second = torch.zeros(2, size, dtype=torch.float64)
        self.cross = torch.zeros(size, size, dtype=torch.float64)

    def add(self, left: Tensor, right: Tensor) -> None:
        both = torch.stack([left, right])
        self.count += left.shape[0]
        self.first += both.sum(1)
        self.second += both.square().sum(1)
        self.cross += left.T @ right

    def correlation(self) -> np.ndarray:
        mean = self.first / self.count
        spread = (self.second / self.count - mean.square()).clamp_min(0).sqrt()
        table = self.cross / self.count - mean[0][:, None] * mean[1][None, :]
        scale = spread[0][:, None] * spread[1][None, :]
        # A dead channel is like no other.
        return torch.where(scale > 1e-12, table / scale.clamp_min(1e-300), 0.0).numpy()

    def inner(self) -> np.ndarray:
        """<x_c, y_d> relative to |X| |Y|."""
        norms = self.second.sum(1).sqrt()
        return (self.cross / (norms[0] * norms[1]).clamp_min(1e-300)).numpy()
