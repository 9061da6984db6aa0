"""Turn a MODEL string into a model in eval mode and an example input.

zoo:NAME                 the nets of the source papers (`intertwine.zoo.names()`)
torchvision:NAME         random weights, nothing is downloaded
timm:NAME                random weights, nothing is downloaded
hf:FAMILY                bert, gpt2, llama, vit, ...: a small model built from its transformers config
diffusers:NAME           unet2d, unet2d-condition: small, from their configs
path/to/file.py:factory  calls factory(): THIS RUNS THE CODE IN THE FILE
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from intertwine.errors import InputError, ModelError
from intertwine.numbers import count
from intertwine.reading import check_memory
from intertwine.text import quoted
from intertwine.zoo import registry

BATCH = 2
_DTYPES = {"float32": torch.float32, "float64": torch.float64, "int64": torch.int64, "bool": torch.bool}
# Integer inputs are indices into tables of unknown length; every vocabulary has at least this many entries.
_INDICES = 8
_DIMS = 16


@dataclass(frozen=True, eq=False)
class Source:
    """A model in eval mode with the arguments of one call: `model(*example, **kwargs)`.

    `idle` holds name prefixes of weights that published files have and this model leaves out (training-only
    heads).
    """

    name: str
    model: nn.Module
    example: tuple[Tensor, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    idle: tuple[str, ...] = ()


def resolve(spec: str, *, input: str | None = None, seed: int = 0) -> Source:
    """The model and example of a MODEL string; `input` ("1x3x32x32") replaces the default example.

    The seed fixes the initial weights and the example; the global random state is left alone.

    >>> source = resolve("zoo:tiny10", input="4x3x32x32")
    >>> source.name, tuple(source.example[0].shape)
    ('zoo:tiny10', (4, 3, 32, 32))
    """
    shapes = parse_input(input) if input is not None else None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        source = _dispatch(spec)
        if shapes is not None:
            source = _with_inputs(source, [_tensor(shape, dtype) for shape, dtype in shapes])
    if not source.example and not source.kwargs:
        raise InputError(
            f"{spec} does not say what its input looks like",
            do="give --input, as in --input 1x3x32x32, or return (model, example) from the factory",
        )
    _check_weights(source)
    source.model.eval()
    return source


def _check_weights(source: Source) -> None:
    """Every weight and every input has values here: neither lazy nor on the device meta."""
    named = [*source.model.named_parameters(), *source.model.named_buffers()]
    inputs = [(f"input {number}", tensor) for number, tensor in enumerate(source.example, 1)]
    for name, tensor in named + inputs:
        if is_lazy(tensor):
            raise ModelError(
                f"{name} of {source.name} has no shape yet",
                so="a lazy layer takes its shape from the first input",
                do="call the model once in the factory",
            )
        if tensor.is_meta and torch.get_default_device().type != "meta":  # the catalogue asks for no values
            raise ModelError(
                f"{name} of {source.name} is on the device meta and holds no values",
                do="build the model without torch.device('meta')",
            )


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


def _tensor(shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
    if dtype.is_floating_point:
        return torch.randn(tuple(shape), dtype=dtype)
    return torch.randint(0, 2 if dtype is torch.bool else _INDICES, tuple(shape)).to(dtype)


def _examples(shapes: Sequence[tuple[int, ...]]) -> tuple[Tensor, ...]:
    return tuple(_tensor((BATCH, *shape)) for shape in shapes)


def _dispatch(spec: str) -> Source:
    kind, _, name = spec.partition(":")
    if kind == "zoo":
        return Source(spec, registry.build(name), _examples([registry.entry(name).shape]))
    if kind in ("torchvision", "timm"):
        from intertwine.zoo import vision

        model, shapes = vision.build_torchvision(name) if kind == "torchvision" else vision.build_timm(name)
        idle = vision.AUXILIARY.get(name, ()) if kind == "torchvision" else ()
        return Source(spec, model, _examples(shapes), idle=idle)
    if kind == "diffusers":
        from intertwine.zoo.diffusion import build_diffusers

        model, example, kwargs = build_diffusers(name)
        return Source(spec, model, example, kwargs)
    if kind == "hf":
        from intertwine.zoo.huggingface import build_hf

        model, example, kwargs = build_hf(name)
        return Source(spec, model, example, kwargs)
    if ".py:" in spec:
        from intertwine.zoo.userfile import build_from_file

        model, example, kwargs = build_from_file(spec)
        return Source(spec, model, example, kwargs)
    raise ModelError(
        f"cannot read the model {quoted(spec)}",
        do="write zoo:NAME, torchvision:NAME, timm:NAME, hf:FAMILY or path/to/file.py:factory",
    )
