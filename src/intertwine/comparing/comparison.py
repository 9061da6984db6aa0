"""What `intertwine.compare` returns: every pair of layers under every measure, and the two as functions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from intertwine.comparing.function import FunctionalSimilarity
from intertwine.comparing.statistics import Interval
from intertwine.errors import InputError, NotFound
from intertwine.results import Result, Table


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
