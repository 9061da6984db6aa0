"""Refuse to match models whose graphs differ: their channels do not correspond, whatever their weights are.

Models that surely run the same program (`graph.alike`) are let through at once. Others are exported on
the inputs that the symmetry was traced with, and their ops compared one by one.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import nn
from torch.fx.node import map_arg

from intertwine.errors import InputError, ModelError
from intertwine.graph.alike import same_program
from intertwine.graph.export import Traced, export, stored_tensors

_ADVICE = {
    "so": "their channels cannot be matched one to one",
    "do": "use `intertwine compare` or `intertwine stitch` for different architectures",
}


def exported(
    models: tuple[nn.Module, nn.Module],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    names: tuple[str, str] = ("A", "B"),
) -> tuple[Traced, Traced] | None:
    """The graphs of two models, or None if they surely have the same."""
    if same_program(*models):
        return None
    first = export(models[0], args, kwargs)
    try:
        return first, export(models[1], args, kwargs)
    except ModelError as error:
        raise InputError(
            f"{names[1]} does not take the inputs of {names[0]}: {error.what}", where=error.where, **_ADVICE
        ) from error


def assert_same_ops(
    graphs: tuple[Traced, Traced], *, names: tuple[str, str] = ("A", "B"), settings: bool = False
) -> None:
    """Raise `InputError` if two graphs differ in an op or, with `settings`, in its strides, slopes and so on.

    >>> nets = nn.Sequential(nn.Linear(3, 2), nn.ReLU()), nn.Sequential(nn.Linear(3, 2), nn.GELU())
    >>> graphs = exported(nets, (torch.zeros(1, 3),))
    >>> assert_same_ops(graphs)
    Traceback (most recent call last):
    intertwine.errors.InputError: the graphs of A and B differ: relu against gelu
      so   their channels cannot be matched one to one
      do   use `intertwine compare` or `intertwine stitch` for different architectures
    """
    left, right = (_ops(graph, settings) for graph in graphs)
    odd = next((pair for pair in zip_longest(left, right) if pair[0] != pair[1]), None)
    if odd is not None:
        first, second = (op or "the end" for op in odd)
        raise InputError(
            f"the graphs of {names[0]} and {names[1]} differ: {first} against {second}", **_ADVICE
        )


def assert_same_shapes(models: Sequence[nn.Module]) -> None:
    """Raise `InputError` if the weights of a model have other names or shapes than the first one's.

    >>> assert_same_shapes([nn.Linear(3, 2), nn.Linear(3, 4)])
    Traceback (most recent call last):
    intertwine.errors.InputError: model 2 has other weights than the first: bias
      so   only models of one architecture and of equal widths have a mean
      do   use `intertwine compare` or `intertwine stitch` for different architectures
    """
    shapes = [{name: tuple(t.shape) for name, t in stored_tensors(m).items()} for m in models]
    for k, other in enumerate(shapes[1:], 2):
        odd = sorted(set(shapes[0].items()) ^ set(other.items()))
        if odd:
            what = f"model {k} has other weights than the first: {odd[0][0]}"
            so = "only models of one architecture and of equal widths have a mean"
            raise InputError(what, so=so, do=_ADVICE["do"])


def _ops(traced: Traced, settings: bool) -> list[str]:
    """The ops of a graph in order; with settings, their arguments too."""
    found: list[str] = []
    names: dict[str, str] = dict(traced.weights)

    def show(value: Any) -> Any:
        return map_arg(value, lambda node: names.get(node.name, node.name))

    for node in traced.graph.nodes:
        if node.op == "placeholder":
            names.setdefault(node.name, f"input {len(names)}")
        elif node.op == "call_function":
            name = str(getattr(node.target, "__name__", node.target)).removesuffix(".default")
            given = [*show(node.args), *(f"{key}={show(value)}" for key, value in node.kwargs.items())]
            found.append(f"{name}({', '.join(map(str, given))})" if settings else name)
    return found


def inputs_of(traced: Traced, model: nn.Module) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Zeros of the shapes that a graph was traced with, as arguments of the model's `forward`."""
    given = {
        node.name: torch.zeros(tuple(node.meta["val"].shape), dtype=node.meta["val"].dtype)
        for node in traced.graph.nodes
        if node.op == "placeholder"
        and node.name not in traced.weights
        and node.name not in traced.constants
        and isinstance(node.meta.get("val"), torch.Tensor)
    }
    known = inspect.signature(model.forward).parameters
    if not set(given) <= set(known):
        return tuple(given.values()), {}  # nested or gathered inputs, in order
    args = []
    for name, parameter in known.items():
        if name not in given or parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            break
        args.append(given.pop(name))
    return tuple(args), given
