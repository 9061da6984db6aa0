"""Many pairs of networks from different seeds: Table 2, Figures 2, 5, 9 to 11 and 16 of Godfrey et al."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from intertwine.comparing._compare import compare
from intertwine.comparing.collecting import At
from intertwine.comparing.statistics import Interval, seed_interval
from intertwine.errors import InputError
from intertwine.progress import Progress


@dataclass(frozen=True)
class SeedComparison:
    """Means over pairs of seeds. mean[measure]: layers x layers. matched[measure][layer]: an interval.

    between[measure]: networks x networks x layers x layers, NaN on the diagonal of the first two.
    """

    layers: tuple[str, ...]
    networks: int
    mean: dict[str, np.ndarray]
    matched: dict[str, dict[str, Interval]]
    between: dict[str, np.ndarray]

    def same_depth(self, measure: str) -> np.ndarray:
        """Networks x networks x layers: each layer with the same one of the other network."""
        return np.diagonal(self.between[measure], axis1=2, axis2=3)

    def table(self) -> list[dict[str, Any]]:
        """One row a layer: value and half-width of the interval for each measure, as in Table 2."""
        rows = []
        for layer in self.layers:
            row: dict[str, Any] = {"layer": layer}
            for measure, found in self.matched.items():
                interval = found[layer]
                row[measure] = interval.value
                row[f"{measure} +-"] = (interval.high - interval.low) / 2
            rows.append(row)
        return rows


def compare_seeds(
    models: Sequence[nn.Module],
    data: Any,
    measures: Sequence[str] = ("procrustes-grelu", "procrustes"),
    *,
    at: At = "layers",
    progress: Progress | None = None,
    **options: Any,
) -> SeedComparison:
    """Every pair of networks of one architecture, with intervals over networks (pairs are dependent).

    `options` go to `compare`: `pixels`, `kernel_inputs`, `memory`.
    """
    count = len(models)
    if count < 3:
        raise InputError(f"{count} networks give no interval over seeds", do="pass at least three")
    grids: dict[str, np.ndarray] = {}
    layers: tuple[str, ...] = ()
    pairs = list(itertools.combinations(range(count), 2))
    for done, (i, j) in enumerate(pairs, 1):
        result = compare(models[i], models[j], data, measures, at=at, function=False, **options)
        if result.layers_a != result.layers_b or (layers and result.layers_a != layers):
            raise InputError("these networks do not have the same layers")
        layers = result.layers_a
        for measure, grid in result.values.items():
            whole = grids.setdefault(measure, np.full((count, count, len(layers), len(layers)), np.nan))
            whole[i, j], whole[j, i] = grid, grid.T
        if progress is not None:
            progress(done, len(pairs), "pairs of networks")
    off = ~np.eye(count, dtype=bool)
    return SeedComparison(
        layers=layers,
        networks=count,
        mean={measure: whole[off].mean(0) for measure, whole in grids.items()},
        matched={
            measure: {layer: seed_interval(whole[:, :, k, k]) for k, layer in enumerate(layers)}
            for measure, whole in grids.items()
        },
        between=grids,
    )
