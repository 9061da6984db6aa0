"""How alike the channels of two models are on data: correlations of activations, axis by axis.

For every axis the values that carry it whole and are read by a weight (or, if there are none, the last value
that carries it) are recorded in both models on the same inputs. The gain of matching two channels is their
Pearson correlation over inputs and pixels, its size where the axis may flip signs there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from intertwine.data.batches import Batches, arguments, count_rows
from intertwine.errors import DataError
from intertwine.graph.export import export
from intertwine.graph.record import Recorder
from intertwine.orbit.units import Forest, Unit
from intertwine.rules import facts
from intertwine.symmetry import Symmetry


@dataclass(frozen=True, eq=False)
class Tap:
    """Node `name` carries unit `unit` along `dim`; order: channel of the unit -> position along the dim."""

    name: str
    unit: int
    dim: int
    order: np.ndarray
    signed: bool


def find_taps(symmetry: Symmetry, forest: Forest) -> list[Tap]:
    """Where in the graph the activations of each unit can be read."""
    found: dict[int, list[tuple[bool, Tap]]] = {}
    users = {n.name: list(n.users) for n in symmetry.traced.graph.nodes if n.op == "call_function"}
    for name, value in symmetry.structure.inference.values.items():
        if not name.startswith("%") or name[1:] not in users:
            continue
        read = any(facts(user).contracts for user in users[name[1:]])
        for unit in forest.units:
            if unit.permutes and unit.linear is None and unit.parent is None and len(unit.classes) == 1:
                for dim, axes in enumerate(value.dims):
                    tap = _tap(symmetry, unit, name[1:], dim, value.factors_on(axes), axes)
                    if tap is not None:
                        found.setdefault(unit.index, []).append((read, tap))
    taps: list[Tap] = []
    for candidates in found.values():
        best = [tap for read, tap in candidates if read] or [candidates[-1][1]]
        taps += list({tap.name: tap for tap in best}.values())
    return taps


def _tap(
    symmetry: Symmetry, unit: Unit, name: str, dim: int, factors: Sequence[Any], axes: tuple[Any, ...]
) -> Tap | None:
    if len(factors) != 1 or factors[0].axes != axes or factors[0].ids.size != unit.size:
        return None
    s = symmetry.structure
    classes = s.classes.of[factors[0].ids.reshape(-1)]
    flat = unit.classes.reshape(-1)
    if not np.array_equal(np.sort(classes), np.sort(flat)):
        return None
    place = np.full(s.classes.count, -1, np.int64)
    place[classes] = np.arange(len(classes))
    scale = int(factors[0].scale.reshape(-1)[0])
    signed = bool((s.scalings.exponents(scale)[3] % 2).any())
    return Tap(name, unit.index, dim, place[flat], signed)


def correlations(
    symmetry: Symmetry, forest: Forest, models: tuple[nn.Module, nn.Module], data: Any, *, limit: int = 1000
) -> dict[int, np.ndarray]:
    """Unit -> (channels of A, channels of B): correlations, averaged over the values of the unit."""
    taps = find_taps(symmetry, forest)
    sums = {tap: _Sums(forest.units[tap.unit].size) for tap in taps}
    graphs: dict[Any, list[Recorder]] = {}
    wanted = {tap.name for tap in taps}
    device = next(models[0].parameters()).device
    inputs = 0
    for batch, _ in Batches(data, limit=limit, device=device):
        args, kwargs = arguments(batch)
        key = tuple(tuple(leaf.shape[1:]) for leaf in (*args, *kwargs.values()))
        if key not in graphs:  # the symmetry's own graph is often one of a single row
            traced = export(models[0], args, kwargs)
            graphs[key] = [Recorder(traced, model) for model in models]
        recorded = [recorder(args, kwargs, wanted)[0] for recorder in graphs[key]]
        for tap in taps:
            sums[tap].add(*(_channels(record, tap) for record in recorded))
        inputs += count_rows(batch)
    if inputs < 2:
        raise DataError("activations need at least 2 inputs", do="give more data")
    found: dict[int, list[np.ndarray]] = {}
    for tap, total in sums.items():
        table = total.correlation()
        found.setdefault(tap.unit, []).append(np.abs(table) if tap.signed else table)
    return {unit: np.mean(tables, axis=0) for unit, tables in found.items()}


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


def _channels(record: Mapping[str, Tensor], tap: Tap) -> Tensor:
    """(inputs and pixels, channels of the unit) in float64 on the CPU."""
    value = record[tap.name].movedim(tap.dim, -1)
    flat = value.reshape(-1, value.shape[-1])[:, torch.from_numpy(tap.order).to(value.device)]
    return flat.to("cpu", torch.float64)
