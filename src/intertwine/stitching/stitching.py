"""Stitch two networks at one or all layers, with one or several kinds of stitch: start, train, report.

penalty = (Acc f + Acc g) / 2 - Acc S(f, g, l, phi)        in points (eq. 4.3 of source 002)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from intertwine.checks import checked
from intertwine.data.batches import Batches, arguments, count_rows, take, tensors_of
from intertwine.data.evaluation import like_inputs
from intertwine.errors import DataError, ModelError
from intertwine.progress import Advance, Progress, counted
from intertwine.results import Result, Table
from intertwine.stitching.cache import MEMORY, Recorded, TensorStore, record
from intertwine.stitching.fit import (
    JUDGED,
    Held,
    Training,
    evaluate,
    fit,
    make_stitch,
    rank,
    reset_statistics,
    settle_alpha,
)
from intertwine.stitching.junctions import Junction, Skip, find_junctions
from intertwine.stitching.kinds import Kind, parse_kind
from intertwine.stitching.maps import FullMap
from intertwine.stitching.start import closed_form, sparsity
from intertwine.symmetry.surgery import Part, Surgeon

Labelled = tuple[Any, Tensor]  # inputs are a tensor, or named ones


@dataclass(frozen=True)
class Stitching:
    """One stitch at one layer. Penalties are points of accuracy on the test inputs; None: not computed.

    start: closed form, B's batch norms as they were. reset: closed form, batch norms measured again.
    trained: after training, or the start where no training was needed. sparsity: eq. D.1 of the final map.
    cuts: the values of A and B that are joined. alpha: that of the training, chosen or given; None where
    nothing was trained with it. epochs: of training.
    """

    layer: str
    kind: str
    inside: bool
    group: str
    widths: tuple[int, int]
    start: float
    reset: float
    trained: float
    training_needed: bool
    sparsity: float
    matrix: Tensor = field(repr=False)
    statistics: dict[str, Tensor] = field(repr=False)
    cuts: tuple[str, str] = field(repr=False)
    alpha: float | None = None
    epochs: int = 0

    @property
    def how(self) -> str:
        """Whether it was trained, or why not."""
        if parse_kind(self.kind).of.trained is None:
            return "none"
        if not self.training_needed:
            return "not needed"
        return "trained" if self.epochs else "none"


@dataclass(frozen=True, repr=False)
class StitchReport(Result):
    """Every stitching of a pair of networks."""

    accuracy_a: float
    accuracy_b: float
    train_inputs: int
    test_inputs: int
    stitchings: tuple[Stitching, ...]

    def __getitem__(self, key: tuple[str, str]) -> Stitching:
        layer, kind = key
        return next(s for s in self.stitchings if (s.layer, s.kind) == (layer, kind))

    @property
    def layers(self) -> list[str]:
        return list(dict.fromkeys(s.layer for s in self.stitchings))

    @property
    def kinds(self) -> list[str]:
        return list(dict.fromkeys(s.kind for s in self.stitchings))

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, without the maps."""
        hidden = ("matrix", "statistics", "cuts")
        rows = [{k: v for k, v in vars(s).items() if k not in hidden} for s in self.stitchings]
        mine = {k: v for k, v in vars(self).items() if k != "stitchings"}
        return {**mine, "stitchings": rows}

    def tables(self) -> Sequence[Table]:
        """A row a stitching; penalties in points."""
        columns = ["cut after", "kind", "in a block", "start", "norms reset", "final", "sparsity", "training"]
        rows = [
            [s.layer, s.kind, s.inside, round(s.start, 2), round(s.reset, 2), round(s.trained, 2),
             round(s.sparsity, 3), s.how]
            for s in self.stitchings
        ]  # fmt: skip
        title = f"penalties in points; A {self.accuracy_a:.2%}, B {self.accuracy_b:.2%}"
        return [Table(title, columns, rows, columns[3:7])]


@checked
def stitch(
    a: nn.Module,
    b: nn.Module,
    train_data: Any,
    data: Any,
    *,
    at: str | Sequence[str] = "all",
    at_b: str | Sequence[str] | None = None,
    kinds: Sequence[str | Kind] = ("full",),
    training: Training | None = None,
    skip: Skip = "a",
    enough: float = 1.0,
    batch: int = 100,
    memory: int = MEMORY,
    inputs_b: tuple[Any, Any] | None = None,
    progress: Progress | None = None,
    each: Callable[[Stitching], None] | None = None,
    **options: Any,
) -> StitchReport:
    """The stitching penalty at every layer of `at` for every kind; A below, B above.

    train_data, data: labelled data of any form, to train and to measure on. options: those of `Training`
    (epochs, learning_rate, alpha, method, loss, seed). A stitch whose closed form is within `enough`
    points of the networks on the training inputs is not trained. inputs_b: training and test inputs as B
    wants them, where its normalisation differs. each: called with every result as it is ready.
    The caller's models are never touched.

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    >>> x = torch.randn(60, 6); data = x, net(x).argmax(1)
    >>> report = stitch(net, net, data, data, at="1", kinds=["group"], batch=20)
    >>> report["1", "group"].trained, report["1", "group"].training_needed
    (0.0, False)
    """
    wanted = [parse_kind(kind) for kind in kinds]
    plan = replace(training or Training(), **options)
    given = checked_data(train_data, data)
    _assert_one_precision(a, b)
    batch = min(batch, len(given[0][1]))
    other = (given[0][0], given[1][0]) if inputs_b is None else _as_b_wants(inputs_b, given)
    firsts = ((a, given[0][0], "A"), (b, other[0], "B"))
    sides = [make_surgeon(model, take(inputs, slice(batch)), name) for model, inputs, name in firsts]
    check_labels(given, {"A": sides[0], "B": sides[1]})
    junctions = find_junctions(sides[0], sides[1], at, at_b, skip=skip)
    _check_widths(junctions, wanted)
    with TensorStore(memory) as store:
        recorded = []
        for (inputs, labels), mine, name in zip(given, other, ("training", "test"), strict=True):
            advance = counted(progress, len(labels), f"{name} inputs")
            recorded.append(
                record(sides[0], sides[1], junctions, inputs, labels, store, inputs_b=mine,
                       moments=name == "training", progress=advance)
            )  # fmt: skip
        accuracy = recorded[1].accuracy()
        found = []
        for k, junction in enumerate(junctions):
            suffix = sides[1].suffix(junction.b)
            for kind in wanted:
                advance = counted(progress, 0, f"{junction.name}, {kind}")
                found.append(_one(junction, k, kind, suffix, recorded, plan, enough, advance))
                if each is not None:
                    each(found[-1])
    return StitchReport(*accuracy, len(given[0][1]), len(given[1][1]), tuple(found))


def _as_b_wants(inputs: Sequence[Any], given: Sequence[tuple[Any, Tensor]]) -> tuple[Any, ...]:
    """Training and test inputs for B, as many as there are for A."""
    found = tuple(Batches(each).whole(name="inputs_b")[0] for each in inputs)
    if [count_rows(each) for each in found] != [len(labels) for _, labels in given]:
        raise DataError("inputs_b are not the training and the test inputs of A, prepared for B")
    return found


def _one(
    junction: Junction,
    k: int,
    kind: Kind,
    suffix: Part,
    recorded: Sequence[Recorded],
    plan: Training,
    enough: float,
    progress: Advance | None,
) -> Stitching:
    like = next((p for p in suffix.parameters()), recorded[0].output_b)
    train, test = (Held(junction, suffix, r.values[k], r.labels, like.device, r.output_b) for r in recorded)
    base_train, base_test = (sum(r.accuracy(n)) / 2 for r, n in zip(recorded, (JUDGED, None), strict=True))
    start = closed_form(kind, recorded[0].moments[k], junction.group).to(like)
    judge = train.only(slice(0, JUDGED))
    suffix.restore_statistics()
    first = evaluate(start, test)[0]
    at_start = evaluate(start, judge)
    reset_statistics(start, train)
    second = evaluate(start, test)[0]
    after_reset = evaluate(start, judge)
    # Measuring batch norms again costs a little where the stitch is all but exact; training inputs decide.
    keep = rank(at_start) <= rank(after_reset)
    best, matrix, final = at_start if keep else after_reset, start, first if keep else second
    shortfall = 100 * (base_train - best[0])
    if keep:
        suffix.restore_statistics()
    statistics = _statistics(suffix)
    forced = plan.start == "random"  # then the closed form is neither where training starts nor its rival
    needed = (forced or shortfall > enough) and kind.of.trained is not None
    alpha = None
    if needed and plan.epochs:
        settled = settle_alpha(kind, start, train, plan)
        alpha = None if settled.alpha == "cv" or kind.name != "group" else settled.alpha
        moved = fit(kind, start, train, settled, progress)
        reset_statistics(moved, train)
        if forced or rank(evaluate(moved, judge)) <= rank(best):
            matrix, final = moved, evaluate(moved, test)[0]
            statistics = _statistics(suffix)
    return Stitching(
        layer=junction.name,
        cuts=(junction.a.name, junction.b.name),
        kind=str(kind),
        inside=junction.inside,
        group=junction.group.name,
        widths=junction.widths,
        start=100 * (base_test - first),
        reset=100 * (base_test - second),
        trained=100 * (base_test - final),
        training_needed=needed,
        sparsity=sparsity(matrix),
        matrix=matrix.detach().cpu(),
        statistics=statistics,
        alpha=alpha,
        epochs=plan.epochs if needed else 0,
    )


def _statistics(suffix: Part) -> dict[str, Tensor]:
    names = [name for norm in suffix.norms() for name in (norm.mean, norm.var)]
    return {name: suffix.get_buffer(f"body.{name}").clone().cpu() for name in names}


class Stitched(nn.Module):
    """x -> g_(>l)(phi(f_(<=l)(x))) as one module; only phi has parameters that train."""

    def __init__(
        self, junction: Junction, a: Part, phi: nn.Module, b: Part, skip: Part | None, names: Sequence[str]
    ) -> None:
        super().__init__()
        self._names = tuple(names)
        self.prefix, self.stitch, self.suffix, self.skip = a, phi, b, skip
        self._inside = junction.inside

    def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor:
        if named.keys() != set(self._names[len(inputs) :]):
            raise DataError(f"inputs named {', '.join(named)}", do=f"give {', '.join(self._names) or 'one'}")
        given = (*inputs, *(named[name] for name in self._names[len(inputs) :]))
        value, *live = self.prefix(*given)
        if self.skip is not None:
            live = self.skip(*given)[1:]
        out: Tensor = self.suffix(self.stitch(value), *(live if self._inside else ()))
        return out


def stitched_model(
    a: nn.Module,
    b: nn.Module,
    example: Any,
    stitching: Stitching | None = None,
    *,
    at: str | None = None,
    at_b: str | None = None,
    matrix: Tensor | None = None,
    skip: Skip = "a",
) -> Stitched:
    """The stitched network of a report's entry, or of a layer and a matrix, to keep and to train."""
    if stitching is not None:
        (at, at_b), matrix = stitching.cuts, stitching.matrix
    if at is None or matrix is None:
        raise DataError("neither a stitching nor a layer with a matrix is given")
    sides = [make_surgeon(model, example, name) for model, name in ((a, "A"), (b, "B"))]
    (junction,) = find_junctions(sides[0], sides[1], at, at_b, skip=skip)
    suffix = sides[1].suffix(junction.b)
    for name, tensor in (stitching.statistics if stitching is not None else {}).items():
        suffix.get_buffer(f"body.{name}").copy_(tensor)
    like = next((p for p in suffix.parameters()), like_inputs(b))
    phi = make_stitch(junction, FullMap(matrix.to(like)))
    other = sides[1].prefix(junction.b) if skip == "b" and junction.inside else None
    named = tuple(example) if isinstance(example, dict) else ()
    return Stitched(junction, sides[0].prefix(junction.a), phi, suffix, other, named)


def checked_data(train: Any, test: Any) -> list[Labelled]:
    """Training and test data as pairs of tensors of one shape."""
    given: list[Labelled] = [
        Batches(data).whole(labelled=True, name=name)  # type: ignore[misc]
        for data, name in ((train, "training data"), (test, "test data"))
    ]
    (first, _), (second, labels) = given
    if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        given[1] = {name: second[name] for name in first}, labels  # in one order, in which they are handed on
    shapes = [_shapes(inputs) for inputs, _ in given]
    if shapes[0] != shapes[1]:
        raise DataError(f"training inputs have shape {shapes[0]}, test inputs {shapes[1]}")
    return given


def _shapes(inputs: Any) -> Any:
    """Of one input; of named ones by their names."""
    named = isinstance(inputs, dict)
    return [(k, _shapes(v)) for k, v in inputs.items()] if named else tuple(inputs.shape[1:])


def _assert_one_precision(a: nn.Module, b: nn.Module) -> None:
    """What B reads is what A computes, so both compute in one dtype."""
    found = [next((p.dtype for p in m.parameters() if p.is_floating_point()), None) for m in (a, b)]
    if None not in found and found[0] != found[1]:
        words = [str(dtype).removeprefix("torch.") for dtype in found]
        raise ModelError(f"A is in {words[0]} and B in {words[1]}", do="call float() on both")


def make_surgeon(model: nn.Module, inputs: Any, name: str) -> Surgeon:
    """A Surgeon for inputs in the model's dtype; says which model does not run on them."""
    like = next((p for p in model.parameters() if p.is_floating_point()), None)
    if (
        like is not None and like.element_size() < 4
    ):  # maps are fitted, and weights tuned, in the model's dtype
        raise ModelError(f"{name} is in {str(like.dtype).removeprefix('torch.')}", do="call float() on it")
    held = tensors_of(inputs, like_inputs(model))
    example = dict(zip(inputs, held, strict=True)) if isinstance(inputs, dict) else held[0]
    try:
        return Surgeon(model, *arguments(example))
    except ModelError as error:
        raise ModelError(error.what, where=f"{name}: {error.where}", do="check that model and data belong "
                         "together (channels, image size)") from error  # fmt: skip


def check_labels(given: Sequence[Labelled], sides: Mapping[str, Surgeon]) -> None:
    """DataError where a network does not score every class that the labels name."""
    least = min(int(labels.min()) for _, labels in given)
    most = max(int(labels.max()) for _, labels in given)
    if least < 0:
        raise DataError(f"a label is {least}", do="number the classes from 0")
    for name, side in sides.items():
        shape = side.output_shape
        if len(shape) != 1 or shape[0] <= most:
            raise DataError(
                f"{name} returns {list(shape)} for an input, the labels go up to {most}",
                so="its accuracy is not defined",
            )


def _check_widths(junctions: Sequence[Junction], kinds: Sequence[Kind]) -> None:
    for junction in junctions:
        for kind in kinds:
            if kind.of.square and junction.widths[0] != junction.widths[1]:
                raise DataError(
                    f"{junction.widths[0]} channels of A onto {junction.widths[1]} of B",
                    where=junction.name,
                    so=f"there is no {kind.name} stitch between different widths",
                    do="use full, rank:R or lasso:L",
                )
