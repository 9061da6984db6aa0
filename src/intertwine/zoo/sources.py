"""Turn a MODEL string into a model in eval mode and an example input.

What may stand before the colon is a registry: `@model_source` adds to it, and help texts, hints and the
question whether a string runs code are answered from it (`zoo/builtin.py` has those that come with us).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from intertwine.data.preparation import Preparation
from intertwine.errors import InputError, ModelError
from intertwine.foreign import user_code
from intertwine.graph.copying import assert_itself
from intertwine.numbers import count
from intertwine.reading import check_memory
from intertwine.text import quoted
from intertwine.zoo.building import bounded
from intertwine.zoo.weights import classes_of, load_weights, read_weights

BATCH = 2
MERGED = "folder"  # the source of what merge wrote
MOST_CLASSES = 200_000  # that a model is built with; ImageNet-21k has 21,841
_DTYPES = {"float32": torch.float32, "float64": torch.float64, "int64": torch.int64, "bool": torch.bool}
# Integer inputs are indices into tables of unknown length; every vocabulary has at least this many entries.
_INDICES = 8
_DIMS = 16


@dataclass(frozen=True, eq=False)
class Source:
    """A model in eval mode with the arguments of one call: `model(*example, **kwargs)`.

    `idle` holds name prefixes of weights that published files have and this model leaves out (training-only
    heads). `prepare` is what belongs to its weights: normalisation, size, tokenizer. `folder` is where a
    model of Hugging Face came from, and `family` the library whose form it is saved in (MERGED: none).
    """

    name: str
    model: nn.Module
    example: tuple[Tensor, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    idle: tuple[str, ...] = ()
    prepare: Preparation = field(default_factory=Preparation)
    folder: Path | None = None
    family: str = ""


@dataclass(frozen=True)
class Wanted:
    """What is asked of a source beside the name: classes, trained weights, leave to run code."""

    classes: int | None = None
    pretrained: bool = False
    run_code: bool = False


@dataclass(frozen=True)
class ModelSource:
    """One kind of MODEL string: how it is written and built, a line of help, whether that runs code."""

    prefix: str
    form: str
    help: str
    build: Callable[[str, Wanted], Source]
    runs_code: bool
    matches: Callable[[str], bool]
    file: Callable[[str], str] | None = None


MODEL_SOURCES: dict[str, ModelSource] = {}
Build = Callable[[str, Wanted], Source]


def model_source(
    prefix: str,
    *,
    form: str = "NAME",
    help: str = "",
    runs_code: bool = False,
    matches: Callable[[str], bool] | None = None,
    file: Callable[[str], str] | None = None,
) -> Callable[[Build], Build]:
    """Register what `prefix:...` means: the function gets the whole string and what else is wanted.

    runs_code: building it runs code that is no installed package's. `matches` replaces the prefix: a path is
    known by its ending. file: which file a string begins with; merged models remember where that was. A
    prefix that is registered again is replaced.

    >>> @model_source("line", form="WIDTH", help="a linear layer")
    ... def line(spec, wanted):
    ...     width = int(spec.partition(":")[2])
    ...     return Source(spec, nn.Linear(width, width), (torch.zeros(2, width),))
    >>> resolve("line:3").model
    Linear(in_features=3, out_features=3, bias=True)
    >>> _ = MODEL_SOURCES.pop("line")
    """

    def register(build: Build) -> Build:
        own = matches or (lambda spec: spec.partition(":")[0] == prefix and ":" in spec)
        written = form if matches else f"{prefix}:{form}"
        MODEL_SOURCES[prefix] = ModelSource(prefix, written, help, build, runs_code, own, file)
        return build

    return register


def find_source(spec: str) -> ModelSource:
    """The source that a MODEL string belongs to: that of its prefix before those that look at its ending."""
    by_prefix = MODEL_SOURCES.get(spec.partition(":")[0])
    if by_prefix is not None and by_prefix.matches(spec):
        return by_prefix
    for source in MODEL_SOURCES.values():
        if source.matches(spec):
            return source
    raise ModelError(f"cannot read the model {quoted(spec)}", do=_near(spec) or f"write {model_forms()}")


def _near(spec: str) -> str:
    """What was meant by a path that is there."""
    path = Path(spec)
    with suppress(OSError, ValueError):  # no path at all
        if path.suffix == ".py" and path.is_file():
            return f"write {spec}:NAME, where NAME is the function in it that returns the model"
        if (path / "config.json").is_file():
            return f"write hf:{spec}"
        if path.is_file():
            return f"weights alone are no model: write MODEL --weights {spec}, with a MODEL as in --help"
    return ""


def runs_code(spec: str) -> bool:
    """Whether building this model runs code that is no installed package's.

    >>> runs_code("zoo:mlp"), runs_code("net.py:make")
    (False, True)
    """
    return find_source(spec).runs_code


def file_named(spec: str) -> str | None:
    """The file that a MODEL string begins with, if it is of such a kind.

    >>> file_named("nets/a.py:make"), file_named("zoo:mlp")
    ('nets/a.py', None)
    """
    source = find_source(spec)
    return source.file(spec) if source.file is not None else None


def model_forms() -> str:
    """How MODEL strings are written, in a line."""
    forms = [source.form for source in MODEL_SOURCES.values()]
    return ", ".join(forms[:-1]) + f" or {forms[-1]}"


def model_help() -> str:
    """The registered sources, a line each."""
    rows = [f"  {s.form:<24} {s.help}\n" for s in MODEL_SOURCES.values()]
    return "MODEL is one of\n" + "".join(rows)


def resolve(
    spec: str,
    *,
    input: str | None = None,
    seed: int = 0,
    weights: str | Path | None = None,
    classes: int | None = None,
    pretrained: bool = False,
    run_code: bool = False,
    shapes_only: bool = False,
    input_of: Callable[[Source], str | None] | None = None,
) -> Source:
    """The model and example of a MODEL string; `input` ("1x3x32x32") replaces the default example.

    The seed fixes the initial weights and the example; the global random state is left alone. `weights` is a
    file to load; where its last layer has another number of classes, the model is built with that one, unless
    `classes` says otherwise. `pretrained` asks the library for its trained weights, `run_code` allows a
    folder to bring its own code. input_of: called for the input of a model that does not say what it takes.
    shapes_only: the model is on the device meta; no weight is read or drawn, and none can be asked for.

    >>> source = resolve("zoo:tiny10", input="4x3x32x32")
    >>> source.name, tuple(source.example[0].shape)
    ('zoo:tiny10', (4, 3, 32, 32))
    """
    if classes is not None and classes > MOST_CLASSES:
        raise InputError(f"{classes:,} classes are more than {MOST_CLASSES:,}", do="give fewer")
    if shapes_only and (weights is not None or pretrained):
        raise InputError("on the device meta no weights are read", do="leave out --weights and --pretrained")
    shapes = parse_input(input) if input is not None else None
    builder, wanted = find_source(spec), Wanted(classes, pretrained, run_code)
    with torch.random.fork_rng(devices=[]), torch.device("meta") if shapes_only else nullcontext():
        torch.manual_seed(seed)
        with bounded(spec):
            source = builder.build(spec, wanted)
        if weights is not None:
            source = _with_weights(source, builder, spec, wanted, weights)
        if shapes is None and input_of is not None and not source.example and not source.kwargs:
            found = input_of(source)
            shapes = parse_input(found) if found is not None else None
        if shapes is not None:
            source = _with_inputs(source, [tensor_of(shape, dtype) for shape, dtype in shapes])
    if not source.example and not source.kwargs:
        raise InputError(
            f"{spec} does not say what its input looks like",
            do="give --data, or --input 1x3x32x32, or return (model, example) from the factory",
        )
    _check_weights(source, shapes_only)
    with user_code(f"{spec}: eval()"):
        assert_itself(source.model.eval(), source.model)
    return source


def _with_weights(
    source: Source, builder: ModelSource, spec: str, wanted: Wanted, weights: str | Path
) -> Source:
    """The source with the weights of a file, built again where only its number of classes differs."""
    state = read_weights(weights)
    if wanted.classes is None:
        found = classes_of(source.model, state, ignore=source.idle)
        if found is not None:
            # what cannot be built with other classes is told what does not fit
            with suppress(InputError), bounded(spec):
                source = builder.build(spec, replace(wanted, classes=found))
    load_weights(source.model, weights, ignore=source.idle, state=state)
    return source


def _check_weights(source: Source, shapes_only: bool) -> None:
    """Every weight and every input has values here, unless shapes are enough: neither lazy nor on meta."""
    with user_code(f"the parameters of {source.name}"):  # a model may have its own way to list them, or none
        named = [*source.model.named_parameters(), *source.model.named_buffers()]
    inputs = [(f"input {number}", tensor) for number, tensor in enumerate(source.example, 1)]
    for name, tensor in named + inputs:
        if not isinstance(tensor, Tensor):
            raise ModelError(
                f"{name} of {source.name} is no tensor, but of type {type(tensor).__name__}",
                do="let named_parameters() and named_buffers() list tensors",
            )
        if is_lazy(tensor):
            raise ModelError(
                f"{name} of {source.name} has no shape yet",
                so="a lazy layer takes its shape from the first input",
                do="call the model once in the factory",
            )
        without = shapes_only or torch.get_default_device().type == "meta"  # the catalogue's
        if tensor.is_meta and not without:
            raise ModelError(
                f"{name} of {source.name} is on the device meta and holds no values",
                do="build the model without torch.device('meta')",
            )
    for name, tensor in inputs:
        if tensor.is_nested or tensor.layout != torch.strided or tensor.is_quantized:
            raise ModelError(f"{name} of {source.name} is no plain tensor", do="give a dense one")


def _with_inputs(source: Source, tensors: list[Tensor]) -> Source:
    """The source with other inputs: positional ones first, then keyword ones in their order."""
    positional = len(source.example) if source.example or source.kwargs else len(tensors)
    if len(tensors) > positional + len(source.kwargs):
        raise InputError(f"{source.name} takes {positional + len(source.kwargs)} inputs, not {len(tensors)}")
    example = (*tensors[:positional], *source.example[len(tensors) :])
    named = dict(zip(source.kwargs, tensors[positional:], strict=False))
    return replace(source, example=example, kwargs={**source.kwargs, **named})


def parse_input(text: str) -> list[tuple[tuple[int, ...], torch.dtype]]:
    """Shapes and dtypes of "1x3x32x32", "2x16:int64", or several separated by commas.

    >>> parse_input("1x3,2x5:int64")
    [((1, 3), torch.float32), ((2, 5), torch.int64)]
    """
    parsed = []
    for part in text.split(","):
        shape, _, kind = part.strip().partition(":")
        dtype = _DTYPES.get(kind or "float32")
        try:
            sizes = tuple(count(size) for size in shape.split("x"))
        except InputError:
            sizes = ()
        if dtype is None or not 1 <= len(sizes) <= _DIMS:
            raise InputError(
                f"cannot read the input shape {quoted(part.strip())}",
                do="write 1x3x32x32, or 2x16:int64 for token ids; commas separate several inputs",
            )
        check_memory(math.prod(sizes) * dtype.itemsize, f"an input of {quoted(shape)}")
        parsed.append((sizes, dtype))
    return parsed


def tensor_of(shape: Sequence[int], dtype: torch.dtype = torch.float32, below: int = _INDICES) -> Tensor:
    """A random tensor; whole numbers lie below `below`."""
    if dtype.is_floating_point:
        return torch.randn(tuple(shape), dtype=dtype)
    return torch.randint(0, 2 if dtype is torch.bool else below, tuple(shape)).to(dtype)


def examples(shapes: Sequence[tuple[int, ...]], tokens: int = 0) -> tuple[Tensor, ...]:
    """One batch of real numbers for each shape, or of whole numbers below `tokens`."""
    dtype = torch.int64 if tokens else torch.float32
    return tuple(tensor_of((BATCH, *shape), dtype, tokens) for shape in shapes)
