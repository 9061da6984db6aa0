"""combine(models, data): align, average, repair; or solve for the layers that make all of them."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import nn

from intertwine.aligning import mix
from intertwine.checks import checked
from intertwine.combining._distil import distilled
from intertwine.combining._layerwise import RIDGE, Layerwise
from intertwine.combining._lockstep import cut, whole_batches
from intertwine.combining._methods import METHODS, Settings
from intertwine.combining._result import Combination, CombineStage
from intertwine.combining._statistics import REPAIRS, Repair, rescaled, reset
from intertwine.combining._together import align_all
from intertwine.data import evaluate
from intertwine.data.batches import Batches, arguments, count_rows
from intertwine.errors import DataError, InputError
from intertwine.graph.export import check_values, export
from intertwine.merging import fold as fold_norms
from intertwine.orbit.same_graph import assert_same_ops, assert_same_shapes, exported
from intertwine.symmetry import Element, Symmetry, act, trace

Align = Literal["weights", "activations", "none"]
ALIGN: tuple[Align, ...] = ("weights", "activations", "none")
# "layerwise" is the average whose layers are then solved for.
HOW = ("layerwise", *METHODS)


@checked
def combine(
    models: Sequence[nn.Module],
    data: Any = None,
    *,
    train_data: Any = None,
    how: str = "layerwise",
    align: Align | None = None,
    repair: Repair | None = None,
    shares: Sequence[float] | None = None,
    base: nn.Module | None = None,
    scale: float = 1.0,
    density: float = 0.2,
    train_limit: int = 2000,
    ridge: float = RIDGE,
    epochs: int = 0,
    learning_rate: float = 1e-3,
    fold: bool = False,
    symmetry: Symmetry | None = None,
    names: Sequence[str] | None = None,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Combination:
    """One network of the same shape that does what all of `models` do.

    data: labelled inputs on which every stage is measured; nothing is fitted to them unless there is no
    train_data. train_data: inputs for alignment, statistics and least squares, of which train_limit are
    used; their labels are read by how="soup" only. how: "layerwise" or one of `METHODS`. align: what
    channels are matched by (default: activations; models that share their start, for task, ties and soup,
    are not moved). repair: what is done about the average's statistics (default: least-squares for
    layerwise, else reset). shares: how much of each, normalised to sum 1. epochs: passes over the inputs
    in which the combined network learns the models' mean outputs. fold: of pre-norm networks, move the
    gains of norms into the weights that read them first, so that the stream can be rotated; the result is
    a folded network. base, scale, density: for task and ties.

    >>> import torch
    >>> from intertwine import act, trace
    >>> net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> x = torch.randn(64, 3)
    >>> other = act(net, trace(net, x[:2]).sample(0, parts=("permutation",)))
    >>> result = combine([net, other], train_data=x)
    >>> bool((result.model(x) - net(x)).abs().max() < 1e-4)
    True
    """
    run = _Run(models, data, train_data, how, align, repair, shares, names, train_limit, progress)
    if fold:
        run.fold()
    settings = Settings(run.shares, base, None, scale, density, seed=seed)
    return run.combined(settings, ridge, symmetry, epochs, learning_rate)


class _Run:
    """One call of `combine`: what was given, checked, and the stages so far."""

    def __init__(
        self,
        models: Sequence[nn.Module],
        data: Any,
        train_data: Any,
        how: str,
        align: Align | None,
        repair: Repair | None,
        shares: Sequence[float] | None,
        names: Sequence[str] | None,
        train_limit: int,
        progress: Callable[[str], None] | None,
    ) -> None:
        _choice("how", how, HOW)
        common_start = how in ("task", "ties", "soup", "slerp", "fisher")
        self.align = _choice("align", align or ("none" if common_start else "activations"), ALIGN)
        self.repair = _choice(
            "repair", repair or ("least-squares" if how == "layerwise" else "reset"), REPAIRS
        )
        self.models, self.data, self.how = list(models), data, how
        if len(self.models) < 2:
            raise InputError("one model is combined already", do="give at least two models")
        for model in self.models:
            check_values(model)
        assert_same_shapes(self.models)
        self.names = list(names or (f"model {k + 1}" for k in range(len(models))))
        self.shares = _shares(shares, len(models))
        self.say = progress or (lambda _: None)
        self.clock, self.notes, self.stages = time.perf_counter(), list[str](), list[CombineStage]()
        source = train_data if train_data is not None else data
        self.train: Any = None
        if source is not None:
            if train_data is None:
                self.notes.append(
                    "no train_data: the inputs of the data served for alignment and statistics too"
                )
            self.labelled = source
            self.train = Batches(source, limit=train_limit, device=_device(self.models[0])).whole()[0]
        self.moved: list[nn.Module] = list(self.models)

    def fold(self) -> None:
        """Plain norms in every network; what they compute does not change."""
        self._need_inputs("folding")
        args, kwargs = arguments(cut(self.train, 2))
        self.models = [fold_norms(model, args, kwargs) for model in self.models]
        self.moved = list(self.models)
        self.notes.append("folded: load the weights into intertwine.fold(model, example)")

    def combined(
        self, settings: Settings, ridge: float, symmetry: Symmetry | None, epochs: int, learning_rate: float
    ) -> Combination:
        """All of it."""
        for name, model in zip(self.names, self.models, strict=True):
            self._measure(name, model)
        if _all_equal(self.models):
            self.notes.append("the models are one and the same: that is what comes back")
            return self._result(copy.deepcopy(self.models[0]).eval(), [None] * len(self.models))
        elements = self._aligned(symmetry, settings.seed)
        self.say(f"{'average' if self.how == 'layerwise' else self.how}")
        data = self.labelled if self.how == "soup" and self.train is not None else self.train
        chosen = METHODS["average" if self.how == "layerwise" else self.how]
        model = chosen(self.moved, Settings(**{**vars(settings), "data": data}))
        if self.repair != "none" and self.data is not None:
            self._measure("averaged", model)
        self.say(f"repair: {self.repair}")
        model = self._repaired(model, ridge, settings.seed)
        if epochs:
            self._need_inputs("learning")
            self._measure("combined, not learned", model)
            model = distilled(
                model, self.models, self.shares, self.train, epochs=epochs, learning_rate=learning_rate,
                seed=settings.seed, progress=self.say,
            )  # fmt: skip
        return self._result(model, elements)

    def _aligned(self, symmetry: Symmetry | None, seed: int) -> list[Element | None]:
        if self.align == "none":
            return [None] * len(self.models)
        self._need_inputs(f"align={self.align!r}")
        args, kwargs = arguments(cut(self.train, 2))
        for k, model in enumerate(self.models[1:], 1):
            graphs = exported((self.models[0], model), args, kwargs, names=(self.names[0], self.names[k]))
            if graphs is not None:
                assert_same_ops(graphs, names=(self.names[0], self.names[k]))
        self.say("symmetries")
        found = symmetry or trace(self.models[0], args, kwargs)
        self.say(f"alignment by {self.align}")
        elements = align_all(self.models, found, by=self.align, data=self.train, limit=None, seed=seed)
        if self.data is not None and self.repair != "none":
            self._measure("averaged as they are", mix(self.models, self.shares))
        self.moved = [
            act(m, e) if k else m for k, (m, e) in enumerate(zip(self.models, elements, strict=True))
        ]
        return [None if k == 0 else e for k, e in enumerate(elements)]

    def _repaired(self, model: nn.Module, ridge: float, seed: int) -> nn.Module:
        if self.repair == "none":
            return model
        if self.repair == "reset" and not _has_norms(model):
            return model
        self._need_inputs(f"repair={self.repair!r}")
        if self.repair == "reset":
            return reset(model, self.train)
        if self.repair == "rescale":
            return rescaled(self.moved, self.shares, self.train)
        batches = whole_batches(self.train)
        args, kwargs = arguments(cut(self.train, count_rows(self.train) // len(batches)))
        traced = export(self.models[0], args, kwargs)
        return Layerwise(
            traced, self.moved, model, self.shares, batches, ridge=ridge, seed=seed,
            progress=lambda: self.say("layers"),
        ).solve()  # fmt: skip

    def _need_inputs(self, what: str) -> None:
        if self.train is None:
            raise DataError(f"{what} needs inputs", do="give train_data (--train-data), or data")

    def _measure(self, name: str, model: nn.Module) -> None:
        score = evaluate(model, self.data) if self.data is not None else None
        self.stages.append(
            CombineStage(name) if score is None else CombineStage(name, score.accuracy, score.loss)
        )

    def _result(self, model: nn.Module, elements: Sequence[Element | None]) -> Combination:
        seconds = time.perf_counter() - self.clock
        spoilt = [name for name, p in model.named_parameters() if not p.isfinite().all()]
        if spoilt:
            raise InputError(
                f"the combined weights are not finite, {spoilt[0]} among them",
                so="nothing was written",
                do="give a smaller --scale, --shares or --learning-rate",
            )
        self._measure("combined", model)
        inputs = count_rows(self.train) if self.train is not None else 0
        return Combination(
            model, tuple(elements), tuple(self.stages), self.how, self.align, self.repair, self.shares,
            inputs, seconds, tuple(self.notes),
        )  # fmt: skip


def _shares(shares: Sequence[float] | None, count: int) -> tuple[float, ...]:
    given = [1.0] * count if shares is None else [float(s) for s in shares]
    if len(given) != count:
        raise InputError(f"{len(given)} shares for {count} models", do="give one for each")
    if min(given) < 0 or not 0 < sum(given) < float("inf"):
        raise InputError(f"shares {given}: they are parts of a whole", do="give numbers from 0 on, not all 0")
    return tuple(s / sum(given) for s in given)


def _all_equal(models: Sequence[nn.Module]) -> bool:
    first = models[0].state_dict()
    return all(torch.equal(t, m.state_dict()[name]) for m in models[1:] for name, t in first.items())


def _choice(what: str, given: str, known: Sequence[str]) -> Any:
    if given not in known:
        raise InputError(f"{what} is {given!r}", do=f"use one of {', '.join(known)}")
    return given


def _device(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def _has_norms(model: nn.Module) -> bool:
    from intertwine.merging.repair import norms_of

    return bool(norms_of(model))
