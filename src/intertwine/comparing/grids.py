"""What a comparison computes, measure by measure, and the result while it grows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from intertwine.comparing.collecting import Runner
from intertwine.comparing.features import Pixels
from intertwine.comparing.measures import Measure, find_measure, measure_for
from intertwine.comparing.statistics import Interval
from intertwine.errors import DataError
from intertwine.ir.groups import Group

Sides = tuple[tuple[Runner, Any], tuple[Runner, Any]]  # each network and what it is shown


@dataclass(frozen=True)
class AskedMeasure:
    """A measure and what becomes of pixels in this comparison.

    precise: a Procrustes distance is the root of a difference; to tell 0 from 1e-6 it needs float64.
    """

    measure: Measure
    pixels: Pixels
    streams: bool
    precise: bool = False

    @classmethod
    def of(cls, name: str, pixels: Pixels | None, precise: bool = False) -> AskedMeasure:
        measure = find_measure(name)
        if measure.streams and not (pixels == "flatten" and measure.prepare is not None):
            treatment = pixels if pixels in ("pool", "samples") else measure.streamed
            return cls(measure, treatment, True, precise or measure.needs_precision)
        return cls(measure, "pool" if pixels == "pool" else "flatten", False)


class Grids:
    """The result while it grows."""

    def __init__(self, plan: list[AskedMeasure], notes: list[str]) -> None:
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
