"""interpolate: the line between models, as they are, after aligning, and after every stage of combining."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from torch import nn

from intertwine.aligning import (
    Interpolation,
    InterpolationCurve,
    LayerConnectivity,
    Mixer,
    align,
    check_llfc,
    interpolation_curve,
    mix,
)
from intertwine.aligning._align import By, GroupName
from intertwine.aligning._repair import Repair
from intertwine.checks import checked
from intertwine.combining._by_loss import STEPS, learn_elements
from intertwine.combining._folded import Folded
from intertwine.combining._layerwise import solved
from intertwine.combining._together import By as AllBy
from intertwine.combining._together import align_all
from intertwine.comparing.collecting import Runner
from intertwine.data.batches import Batches, arguments
from intertwine.data.evaluation import like_inputs
from intertwine.errors import InputError
from intertwine.graph.export import Traced
from intertwine.merging.repair import norms_of
from intertwine.orbit.same_graph import assert_same_ops, exported
from intertwine.progress import Progress, counted
from intertwine.symmetry import Symmetry, act, trace

PathBy = Literal["weights", "activations", "both", "loss"]
_LLFC_INPUTS = 200


@checked
def interpolate(
    models: Sequence[nn.Module],
    data: Any,
    *,
    train_data: Any = None,
    align: bool = False,
    by: PathBy = "activations",
    repair: Repair = "none",
    stages: bool = False,
    fold: bool | None = None,
    points: int = 11,
    inputs: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    symmetry: Symmetry | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Interpolation:
    """Loss and accuracy on `data` along the line from the first model to each other one.

    align: also after aligning by permutations and by the whole group. stages: instead, a curve after each
    stage of `combine`: as they are, aligned, statistics reset, rescaled, layers solved for by least squares;
    `by` may then be "loss", and `fold` rotates the stream of pre-norm networks (default: where it can).
    train_data: what channels are compared and statistics repaired on (default: `data`). inputs, kwargs: an
    example for one call (default: the first batch); symmetry: that of the models, if it is known. The
    caller's models are not touched.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> data = torch.randn(20, 4), torch.randint(3, (20,))
    >>> round(interpolate([net, net], data, points=3).barrier, 6)
    0.0
    """
    if len(models) < 2:
        raise InputError("one model makes no line", do="give two or more models")
    calibration = data if train_data is None else train_data
    call = _call(models[0], inputs, kwargs, data)
    path = _Path(list(models), data, calibration, call, points, progress)
    if stages:
        path.stages(by, fold, symmetry, seed)
    elif by == "loss" or fold:
        raise InputError(f"{'fold' if fold else 'by loss'} is of the stages of combine", do="give stages too")
    else:
        path.ways(align, by, repair, symmetry, seed)
    return Interpolation(tuple(path.curves), path.layers)


class _Path:
    """The line between models, walked in several ways."""

    def __init__(
        self,
        models: list[nn.Module],
        data: Any,
        train: Any,
        call: tuple[tuple[Any, ...], dict[str, Any]],
        points: int,
        progress: Progress | None,
    ) -> None:
        for number, other in enumerate(models[1:], 2):
            names = ("model 1", f"model {number}")
            graphs = exported((models[0], other), *call, names=names)
            if graphs is not None:
                assert_same_ops(graphs, names=names)
        self.models, self.data, self.train, self.call = models, data, train, call
        self.ts = [k / max(points - 1, 1) for k in range(points)]
        self.progress, self.advance = progress, None  # type: Progress | None, Any
        self.curves: list[InterpolationCurve] = []
        self.runner = Runner(models[0])  # of all lines that start there
        self.layers: dict[str, tuple[LayerConnectivity, ...]] = {}

    def ways(self, align: bool, by: By, repair: Repair, symmetry: Symmetry | None, seed: int) -> None:
        """As they are, and by parts of the group."""
        ways: tuple[Literal["none"] | GroupName, ...] = (
            ("none", "permutation", "full") if align else ("none",)
        )
        self._count(len(ways))
        if align and symmetry is None:
            symmetry = trace(self.models[0], *self.call)
        for way in ways:
            moved = list(self.models)
            if way != "none" and symmetry is not None:
                first, *others = self.models
                moved[1:] = [_aligned(first, m, symmetry, by, way, self.train, seed) for m in others]
            self._walk(way, moved, repair)

    def stages(self, by: PathBy, fold: bool | None, symmetry: Symmetry | None, seed: int) -> None:
        """What every stage of combining does to the line."""
        if by == "both":
            raise InputError("combine aligns by weights, activations or loss, not by both")
        repairs: list[Repair] = ["none", "reset", "repair", "least-squares"]
        if not norms_of(self.models[0]):
            repairs.remove("reset")
        self._count(1 + len(repairs))
        inputs = Batches(self.train, device=like_inputs(self.models[0]).device).whole()[0]
        folded = Folded(self.models, inputs, fold, self.call)
        models = folded.models
        self.runner = Runner(models[0], symmetry=folded.claimed)
        self._walk("none", models, "none")
        symmetry = symmetry if folded.folding is None else None
        moved = align_models(models, inputs, by, symmetry or folded.symmetry(), seed=seed)
        for repair in repairs:
            mixer = (
                SolvedMixer(moved, inputs, folded.claimed.traced, seed) if repair == "least-squares" else None
            )
            self._walk("aligned" if repair == "none" else repair, moved, repair, mixer)

    def _count(self, curves: int) -> None:
        total = curves * len(self.ts) * (len(self.models) - 1)
        self.advance = counted(self.progress, total, "points")

    def _walk(
        self, way: str, models: Sequence[nn.Module], repair: Repair, mixer: Mixer | None = None
    ) -> None:
        mixer = mixer or Mixer(models, repair, self.train)
        self.curves.append(
            interpolation_curve(
                models, self.data, self.ts, repair=repair, train_data=self.train, label=way, mixer=mixer,
                progress=self.advance,
            )
        )  # fmt: skip
        middle = mixer.mixed([0.5, 0.5, *[0.0] * (len(models) - 2)])
        self.layers[way] = check_llfc(
            models[0], models[1], self.train, middle=middle, limit=_LLFC_INPUTS, runner=self.runner
        )


class SolvedMixer(Mixer):
    """Networks along the line whose layers are solved for (`_layerwise`); the ends are the models."""

    def __init__(self, models: Sequence[nn.Module], inputs: Any, traced: Traced, seed: int) -> None:
        super().__init__(models, "none", inputs)
        self.seed, self.traced = seed, traced

    def mixed(self, shares: Sequence[float]) -> nn.Module:
        """sum_k shares_k theta_k, then layer by layer."""
        plain = mix(self.models, shares)
        if max(shares) == 1:
            return plain
        return solved(self.traced, self.models, plain, shares, self.data, seed=self.seed)


def align_models(
    models: Sequence[nn.Module], inputs: Any, by: PathBy, symmetry: Symmetry, *, seed: int = 0
) -> list[nn.Module]:
    """All of them brought onto each other, as `combine` does it with equal shares."""
    closed: AllBy = "weights" if by == "weights" else "activations"
    elements = align_all(models, symmetry, by=closed, data=inputs, limit=None, seed=seed)
    if by == "loss":
        shares = [1 / len(models)] * len(models)
        elements = learn_elements(models, elements, symmetry, shares, inputs, steps=STEPS, seed=seed)
    return [act(m, e) if k else m for k, (m, e) in enumerate(zip(models, elements, strict=True))]


def _aligned(
    first: nn.Module, other: nn.Module, symmetry: Symmetry, by: By, group: GroupName, data: Any, seed: int
) -> nn.Module:
    return act(other, align(first, other, symmetry, by=by, group=group, data=data, seed=seed).element)


def _call(
    model: nn.Module, inputs: Any, kwargs: Mapping[str, Any] | None, data: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of one call: those given, or the first batch, where the model is."""
    if inputs is None and not kwargs:  # the data says where there are none
        return arguments(Batches(data, limit=2, device=like_inputs(model).device).whole()[0])
    args = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    return args, dict(kwargs or {})
