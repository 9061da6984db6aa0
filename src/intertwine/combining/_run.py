"""One call of `combine`, stage by stage: what was given, checked, and what has been made of it so far."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import nn

from intertwine.aligning import mix
from intertwine.combining._by_loss import learn_elements
from intertwine.combining._calibrate import calibrated
from intertwine.combining._depths import Deepened, differ_in_depth, equal_depths
from intertwine.combining._distil import Teachers, distilled, scores_of, teachers
from intertwine.combining._folded import Folded, unfolded
from intertwine.combining._given import (
    all_equal,
    choice,
    device_of,
    distance,
    in_eval_mode,
    in_precision,
    parts_of_one,
)
from intertwine.combining._hidden import HiddenValues
from intertwine.combining._join import HEADS, Heads
from intertwine.combining._layerwise import solved
from intertwine.combining._lockstep import cut
from intertwine.combining._methods import METHODS, Settings
from intertwine.combining._result import Combination, CombineStage
from intertwine.combining._statistics import REPAIRS, Repair, rescaled, reset
from intertwine.combining._together import By, align_all
from intertwine.combining._widths import differ_in_width, equal_widths
from intertwine.combining._worth import MeanEmbedding, Worth
from intertwine.combining._zip import Zipped, zipped
from intertwine.data.batches import Batches, arguments, count_rows
from intertwine.data.evaluation import call, like_inputs
from intertwine.errors import DataError, InputError, ModelError
from intertwine.graph.copying import copy_model
from intertwine.graph.export import Traced, check_values
from intertwine.merging.folding import Folding
from intertwine.merging.repair import norms_of
from intertwine.orbit.same_graph import assert_same_ops, assert_same_shapes, exported
from intertwine.progress import Progress
from intertwine.symmetry import Element, Symmetry, act

Align = Literal["weights", "activations", "loss", "none"]
ALIGN: tuple[Align, ...] = ("weights", "activations", "loss", "none")
# "layerwise" is the average whose layers are then solved for; "zip" keeps what the networks do not share.
HOW = ("layerwise", "zip", *METHODS)
MEANS = ("layerwise", "average", "slerp", "soup", "fisher")  # of one network, several times, they are it
ONE = 1e-5  # relative distance of weights below which two networks are one


class Combining:
    """What was given, and what has been made of it; a method is a stage."""

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
        heads: Heads | None,
        progress: Progress | None,
    ) -> None:
        choice("how", how, HOW)
        if how == "zip" and (align is not None or repair is not None):
            raise InputError("zip matches channels by merging them", do="leave align and repair out")
        common_start = how in ("task", "ties", "soup", "slerp", "fisher", "zip")
        self.align = choice("align", align or ("none" if common_start else "activations"), ALIGN)
        default = "least-squares" if how == "layerwise" else "none" if how == "zip" else "reset"
        self.repair = choice("repair", repair or default, REPAIRS)
        self.models, self.how = [in_eval_mode(model) for model in models], how
        if len(self.models) < 2:
            raise InputError("one model is combined already", do="give at least two models")
        self.names = list(names or (f"model {k + 1}" for k in range(len(models))))
        if len(self.names) != len(models):
            raise InputError(f"{len(self.names)} names for {len(models)} models", do="give each its own")
        for name, model in zip(self.names, self.models, strict=True):
            try:
                check_values(model)
            except ModelError as error:
                raise ModelError(f"{name}: {error.what}", so=error.so, do=error.do) from error
        if len({frozenset(p.dtype for p in model.parameters()) for model in self.models}) > 1:
            raise ModelError("the models are in different precisions", do="call float() on all of them first")
        self.shares = parts_of_one(shares, len(models))
        self.progress = progress
        self.clock, self.notes, self.stages = time.perf_counter(), list[str](), list[CombineStage]()
        source = train_data if train_data is not None else data
        self.train: Any = None
        if source is not None:
            if train_data is None:
                self.notes.append(
                    "no train_data: the inputs of the data served for alignment and statistics too"
                )
            self.labelled = source
            several = isinstance(source, list) and len(source) > 0 and train_data is None and how == "zip"
            first = source[0] if several else source
            whole = Batches(first, limit=train_limit, device=device_of(self.models[0])).whole()[0]
            self.train = in_precision(whole, like_inputs(self.models[0]).dtype)
        self.heads = self._heads(heads)
        self.deepened: Deepened | None = None
        if how != "zip":
            self._make_equal()
        widths = [self._outputs(m) for m in self.models] if self.heads == "each" else None
        if how == "zip" and isinstance(data, list) and widths is None:
            raise DataError("several data sets for one output", do="give one, or heads='each'")
        self.worth = Worth(data, widths, MeanEmbedding(self.models, self.shares))
        self.moved: list[nn.Module] = list(self.models)
        self.given = self.models[0]
        self.folding: Folding | None = None
        self.folded: Folded | None = None
        self.elements: tuple[Element, ...] = ()
        self.zipped: Zipped | None = None
        self.model = self.models[0]

    def say(self, what: str) -> None:
        """A stage begins; how much there is to do in it is not known yet."""
        if self.progress is not None:
            self.progress(0, 0, what)

    def _try(self) -> None:
        """Every network on two of the inputs; one that does not take them is named."""
        for name, model in zip(self.names, self.models, strict=True):
            try:
                with torch.no_grad():
                    call(model, cut(self.train, 2), like_inputs(model).dtype)
            except ModelError as error:
                so = "networks are combined on inputs that all of them take"
                raise InputError(
                    f"{name} does not run on the inputs: {error.what}", so=so, do=error.do
                ) from error

    def _heads(self, given: Heads | None) -> Heads:
        if given is not None:
            choice("heads", given, HEADS)
        if self.how == "zip" and self.train is not None:
            self._try()
        if self.how != "zip":
            if given == "each":
                raise InputError(f"heads='each' is not of how={self.how!r}", do="use how='zip'")
            return "one"
        if given is not None:
            return given
        return "one" if len({self._outputs(m) for m in self.models}) == 1 else "each"

    def _outputs(self, model: nn.Module) -> int:
        self._need_inputs("zip")
        with torch.no_grad():
            return int(scores_of(model, cut(self.train, 2)).shape[-1])

    def _make_equal(self) -> None:
        """Equal depths, equal widths, where that is all that differs; then the graphs are the same, or there
        is no mean."""
        if self.train is not None and differ_in_depth(self.models):
            self._try()
            self.deepened = equal_depths(self.models, self.train, self.names)
            self.models = self.deepened.models
            self.notes.append(
                "unequal depths: blocks that do nothing were put into the shallower networks, exactly"
            )
        unequal = differ_in_width(self.models)
        if not unequal or self.train is None:
            assert_same_shapes(self.models)
        if self.train is None:
            return
        self._try()
        if unequal:
            self.models = equal_widths(self.models, arguments(cut(self.train, 2)))
            self.notes.append("unequal widths: narrower networks were widened, exactly, before all else")
            assert_same_shapes(self.models)
        args, kwargs = arguments(cut(self.train, 2))
        for k, model in enumerate(self.models[1:], 1):
            names = self.names[0], self.names[k]
            graphs = exported((self.models[0], model), args, kwargs, names=names)
            if graphs is not None:
                assert_same_ops(graphs, names=names)

    def flip(self) -> None:
        """Mirror images beside the images, pair by pair."""
        self._need_inputs("flip")
        self._need_images("flip mirrors")
        self.train = torch.stack([self.train, self.train.flip(-1)], 1).flatten(0, 1)

    def fold(self, fold: bool | None, symmetry: Symmetry | None) -> None:
        """Plain norms in every network; what they compute does not change."""
        matched = self.align in ("activations", "loss") and self.how in ("layerwise", "average")
        if not fold and (fold is False or symmetry is not None or self.train is None or not matched):
            return
        self._need_inputs("folding")
        self.folded = Folded(self.models, self.train, fold)
        self.folding, self.models = self.folded.folding, self.folded.models
        self.moved = list(self.models)

    def unfold(self) -> None:
        """The norms that the networks had, where that changes nothing."""
        if self.folding is None:
            return
        plain = unfolded(self.model, self.folding, self.given, cut(self.train, 8))
        if plain is None:
            self.notes.append(
                "folded: load the weights into intertwine.fold(model, example), or write a folder"
            )
        else:
            self.model, self.folding = plain, None

    def finished(self) -> bool:
        """Measures what was given; whether there is nothing to do, as all models are one."""
        for k, (name, model) in enumerate(zip(self.names, self.models, strict=True)):
            self.stages.append(self.worth.network(name, model, k))
        if self.heads == "each" or not all_equal(self.models):
            return False
        self.notes.append("the models are one and the same: that is what comes back")
        self.model = copy_model(self.models[0]).eval()
        return True

    def zip(
        self,
        symmetry: Symmetry | None,
        target_params: float | None,
        trunk: str | None,
        ridge: float | None,
        sweeps: int,
        together: int,
        seed: int,
    ) -> None:
        """Side by side, then merged, then solved for."""
        self._need_inputs("zip")
        if trunk is not None and self.heads == "one":
            raise InputError("networks with one output share all of their layers", do="give heads='each'")
        found = symmetry or self._symmetry()
        self.say("zip")
        self.zipped = zipped(
            self.models, found, self.train, shares=self.shares, heads=self.heads, ridge=ridge, seed=seed,
            target_params=target_params, trunk=trunk, sweeps=sweeps, together=together,
            progress=self.progress,
        )  # fmt: skip
        self.model = self.zipped.model

    def move(self, symmetry: Symmetry | None, seed: int) -> None:
        """Bring the networks onto each other."""
        if self.align == "none":
            return
        if self.align != "weights" or symmetry is None:
            self._need_inputs(f"align={self.align!r}")
        self.found = symmetry or self._symmetry()
        self.say(f"alignment by {self.align}")
        by: By = "activations" if self.align == "loss" else self.align
        elements = align_all(self.models, self.found, by=by, data=self.train, limit=None, seed=seed)
        if self.worth and self.repair != "none":
            self.stages.append(self.worth.stage("averaged as they are", mix(self.models, self.shares)))
        self._place(elements)

    def move_by_loss(self, steps: int, permute: bool, seed: int) -> None:
        """From where they are, by gradients."""
        if self.align != "loss":
            return
        elements = learn_elements(
            self.models, self.elements, self.found, self.shares, self.train, steps=steps, permute=permute,
            seed=seed, progress=self.progress,
        )  # fmt: skip
        self._place(elements)

    def _place(self, elements: Sequence[Element]) -> None:
        pairs = list(zip(self.models, elements, strict=True))
        self.moved = [act(model, element) if k else model for k, (model, element) in enumerate(pairs)]
        if self.deepened is not None:
            self.moved = self.deepened.filled(self.moved)
        self.elements = tuple(elements)

    def one_orbit(self) -> bool:
        """Whether moving them has made all networks one; that one is the result, and nothing is fitted."""
        brought = self.align != "none" and self.how in MEANS
        if not brought or any(distance(self.moved[0], m) > ONE for m in self.moved[1:]):
            return False
        self.notes.append("the models are one up to a symmetry: the first is what comes back")
        self.model, self.folding = copy_model(self.given).eval(), None
        return True

    def average(self, settings: Settings) -> None:
        """The mean of the weights, or another of `METHODS`."""
        name = "average" if self.how == "layerwise" else self.how
        self.say(name)
        soup = self.how == "soup" and self.train is not None
        data = self.labelled if soup else self.train
        mended = partial(reset, data=self.train) if soup and self.repair == "reset" else None
        self.model = METHODS[name](self.moved, replace(settings, data=data, mended=mended))
        if self.repair != "none" and self.worth:
            self.stages.append(self.worth.stage("averaged", self.model))

    def mend(self, ridge: float | None, sweeps: int, follow: float, together: int, seed: int) -> None:
        """Statistics of the average, or all of its layers."""
        self.say(f"repair: {self.repair}")
        if self.repair == "none" or (self.repair == "reset" and not norms_of(self.model)):
            return
        if self.repair == "reset" and self.how == "soup":  # which was chosen with its statistics reset
            return
        self._need_inputs(f"repair={self.repair!r}")
        if self.repair == "reset":
            self.model = reset(self.model, self.train)
        elif self.repair == "rescale":
            self.model = rescaled(self.moved, self.shares, self.train)
        else:
            self.model = solved(
                self._graph(), self.moved, self.model, self.shares, self.train, ridge=ridge, sweeps=sweeps,
                follow=follow, together=together, seed=seed, progress=self.progress,
            )  # fmt: skip

    def _graph(self) -> Traced:
        """That of a batch; made once, where the symmetry was inferred on it."""
        self.folded = self.folded or Folded(self.models, self.train, False)
        return self.folded.claimed.traced

    def calibrate(self) -> None:
        """As sure as it may be."""
        self._need_inputs("calibrating")
        self.model = calibrated(self.model, self._taught(), self.train)

    def _taught(self) -> Teachers:
        return teachers(self.models, self.shares, self.train, self.heads)

    def learn(self, epochs: int, learning_rate: float, augment: bool, hidden: float, seed: int) -> None:
        """On the outputs of the networks, without labels."""
        self._need_inputs("learning")
        if augment:
            self._need_images("augment shifts")
        inside = self._inside() if hidden else None
        if self.worth:
            self.stages.append(self.worth.stage("combined, not learned", self.model))
        self.model = distilled(
            self.model, self._taught(), self.train, epochs=epochs, learning_rate=learning_rate,
            augment=augment, hidden=(hidden, inside) if inside is not None else None, seed=seed,
            progress=self.progress,
        )  # fmt: skip

    def _inside(self) -> HiddenValues:
        """The hidden values that the combined network should have."""
        if self.folded is not None and self.folded.folding is not None:
            raise InputError(
                "the norms of the networks were folded",
                so="their hidden values are not those of the combined network",
                do="leave hidden out, or give fold=False",
            )
        if self.zipped is None:
            return HiddenValues(self._graph(), self.moved, self.shares)
        return self.zipped.hidden()

    def result(self) -> Combination:
        """What came out, measured."""
        seconds = time.perf_counter() - self.clock
        spoilt = [name for name, p in self.model.named_parameters() if not p.isfinite().all()]
        if spoilt:
            raise InputError(
                f"the combined weights are not finite, {spoilt[0]} among them",
                so="nothing was written",
                do="give a smaller --scale, --shares or --learning-rate",
            )
        self.stages.append(self.worth.stage("combined", self.model))
        inputs = count_rows(self.train) if self.train is not None else 0
        elements = (None, *self.elements[1:]) if self.elements else (None,) * len(self.models)
        return Combination(
            self.model, elements, tuple(self.stages), self.how, self.align, self.repair,
            self.shares, inputs, seconds, self.heads, tuple(self.notes), self.folding,
            0 if self.deepened is None else self.deepened.deepest,
        )  # fmt: skip

    def _symmetry(self) -> Symmetry:
        self.say("symmetries")
        self.folded = self.folded or Folded(self.models, self.train, False)
        return self.folded.symmetry()

    def _need_images(self, what: str) -> None:
        if not isinstance(self.train, torch.Tensor) or self.train.dim() != 4:
            raise DataError(f"{what} images, and the inputs are none", do=f"leave {what.split()[0]} out")

    def _need_inputs(self, what: str) -> None:
        if self.train is None:
            raise DataError(f"{what} needs inputs", do="give train_data (--train-data), or data")
