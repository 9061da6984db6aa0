"""interpolate: the line between models, as they are and after aligning, and their features layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from intertwine.aligning._align import By, GroupName, align
from intertwine.aligning._interpolate import InterpolationCurve, Mixer, interpolation_curve
from intertwine.aligning._llfc import LayerConnectivity, check_llfc
from intertwine.aligning._repair import Repair
from intertwine.checks import checked
from intertwine.data.batches import Batches, arguments
from intertwine.errors import InputError
from intertwine.orbit.same_graph import assert_same_ops, exported
from intertwine.progress import Progress, counted
from intertwine.results import Result, Table
from intertwine.symmetry import Symmetry, act, trace

NAMES = {"none": "as they are", "permutation": "permutations", "full": "whole group"}
_LLFC_INPUTS = 200


@dataclass(frozen=True, repr=False)
class Interpolation(Result):
    """curves: one for each way of aligning, that of the largest group last. layers: way -> how linearly the
    features of the first two models are connected."""

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
        tables = [Table(f"along the line; {self.curves[0].statistics}", columns, rows, columns[2:])]
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


@checked
def interpolate(
    models: Sequence[nn.Module],
    data: Any,
    *,
    train_data: Any = None,
    align: bool = False,
    by: By = "activations",
    repair: Repair = "none",
    points: int = 11,
    inputs: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    symmetry: Symmetry | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Interpolation:
    """Loss and accuracy on `data` along the line from the first model to each other one.

    align: also after aligning by permutations and by the whole group. train_data: what channels are compared
    and statistics repaired on (default: `data`). inputs, kwargs: an example for one call (default: the first
    batch); symmetry: that of the models, if it is known. The caller's models are not touched.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> data = torch.randn(20, 4), torch.randint(3, (20,))
    >>> round(interpolate([net, net], data, points=3).barrier, 6)
    0.0
    """
    if len(models) < 2:
        raise InputError("one model makes no line", do="give two or more models")
    calibration = data if train_data is None else train_data
    call = _call(inputs, kwargs, data)
    for number, other in enumerate(models[1:], 2):
        names = ("model 1", f"model {number}")
        graphs = exported((models[0], other), *call, names=names)
        if graphs is not None:
            assert_same_ops(graphs, names=names)
    ways: tuple[Literal["none"] | GroupName, ...] = ("none", "permutation", "full") if align else ("none",)
    ts = [k / max(points - 1, 1) for k in range(points)]
    advance = counted(progress, len(ways) * points * (len(models) - 1), "points")
    if align and symmetry is None:
        symmetry = trace(models[0], *call)
    curves: list[InterpolationCurve] = []
    layers: dict[str, tuple[LayerConnectivity, ...]] = {}
    for way in ways:
        moved = list(models)
        if way != "none" and symmetry is not None:
            moved[1:] = [_aligned(models[0], m, symmetry, by, way, calibration, seed) for m in models[1:]]
        curves.append(
            interpolation_curve(
                moved, data, ts, repair=repair, train_data=calibration, label=way, progress=advance
            )
        )
        middle = Mixer(moved[:2], repair, calibration).mixed([0.5, 0.5])
        layers[way] = check_llfc(moved[0], moved[1], calibration, middle=middle, limit=_LLFC_INPUTS)
    return Interpolation(tuple(curves), layers)


def _aligned(
    first: nn.Module, other: nn.Module, symmetry: Symmetry, by: By, group: GroupName, data: Any, seed: int
) -> nn.Module:
    return act(other, align(first, other, symmetry, by=by, group=group, data=data, seed=seed).element)


def _call(inputs: Any, kwargs: Mapping[str, Any] | None, data: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of one call: those given, or the first batch."""
    if inputs is None and not kwargs:
        return arguments(next(iter(Batches(data, limit=2)))[0])
    args = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    return args, dict(kwargs or {})
