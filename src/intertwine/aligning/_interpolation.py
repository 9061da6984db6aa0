"""What `interpolate` hands back: curves along the line between models, and their features layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from intertwine.aligning._interpolate import InterpolationCurve
from intertwine.aligning._llfc import LayerConnectivity
from intertwine.results import Result, Table

NAMES = {
    "none": "as they are", "permutation": "permutations", "full": "whole group", "aligned": "aligned",
    "reset": "aligned, statistics reset", "repair": "aligned, rescaled (REPAIR)",
    "least-squares": "aligned, layers solved for",
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class Interpolation(Result):
    """curves: one for each way of aligning, that of the largest group last, or for each stage of combining.
    layers: way -> how linearly the features of the first two models are connected."""

    curves: tuple[InterpolationCurve, ...]
    layers: Mapping[str, tuple[LayerConnectivity, ...]]

    @property
    def barrier(self) -> float:
        """That of the last curve."""
        return self.curves[-1].barrier

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `intertwine interpolate --json` prints it."""
        llfc = {way: [vars(layer) for layer in layers] for way, layers in self.layers.items()}
        return {"curves": [curve.to_dict() for curve in self.curves], "llfc": llfc}

    def tables(self) -> Sequence[Table]:
        """A row a line, and a row a layer."""
        columns = ["aligned by", "to model", "barrier", "worst loss", "least accuracy"]
        columns.append("accuracy of the mean")
        rows: list[list[Any]] = []
        for curve in self.curves:
            for line in curve.lines:
                worst, least = max(s.loss for s in line.scores), min(s.accuracy for s in line.scores)
                name = NAMES.get(curve.label, curve.label)
                rows.append([name, line.other + 1, line.barrier, worst, least, curve.mean.accuracy])
        alike = len({curve.repair for curve in self.curves}) == 1
        title = f"along the line; {self.curves[0].statistics}" if alike else "along the line, stage by stage"
        tables = [Table(title, columns, rows, columns[2:])]
        return [*tables, self._layer_table()] if self.layers else tables

    def _layer_table(self) -> Table:
        names = [NAMES.get(way, way) for way in self.layers]
        columns = ["layer", *names, *(f"{name}: two models" for name in names)]
        rows: list[list[Any]] = []
        for k, layer in enumerate(next(iter(self.layers.values()))):
            found = [way[k] for way in self.layers.values()]
            rows.append([layer.layer, *(f.cosine for f in found), *(f.ends for f in found)])
        title = "cosine between features of the mean and mean of features (LLFC)"
        return Table(title, columns, rows, columns[1:])
