"""Networks of unequal widths: each is widened, exactly, to the most channels that one has on an axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import nn

from intertwine.errors import InputError, IntertwineError
from intertwine.graph.export import named_tensors
from intertwine.merging import widen
from intertwine.symmetry import trace

Call = tuple[tuple[Any, ...], Mapping[str, Any]]


def equal_widths(models: Sequence[nn.Module], call: Call) -> list[nn.Module]:
    """The same functions with equal widths: a channel of the narrower network becomes several, whose readers
    share it out. call: the arguments of one call.

    >>> import torch
    >>> a, b = (nn.Sequential(nn.Linear(3, n), nn.ReLU(), nn.Linear(n, 2)) for n in (4, 6))
    >>> x = torch.randn(5, 3)
    >>> wide, same = equal_widths([a, b], ((x,), {}))
    >>> wide[0].out_features, torch.allclose(wide(x), a(x), atol=1e-6)
    (6, True)
    """
    traced = [trace(model, *call) for model in models]
    sizes = [{a.name: a.size for a in s.alike.axes if a.mergeable} for s in traced]
    if any(found.keys() != sizes[0].keys() for found in sizes):
        raise InputError(
            "the networks differ in more than their widths", do="combine networks of one architecture"
        )
    most = {name: max(found[name] for found in sizes) for name in sizes[0]}
    out: list[nn.Module] = []
    for model, symmetry, own in zip(models, traced, sizes, strict=True):
        copies = {name: np.arange(n) % own[name] for name, n in most.items() if n > own[name]}
        try:
            out.append(
                widen(model, symmetry, {k: v.tolist() for k, v in copies.items()}) if copies else model
            )
        except IntertwineError as error:
            raise InputError(
                f"the networks have unequal widths, and one cannot be widened: {error}"
            ) from error
    states = [named_tensors(model) for model in out]
    for name in states[0]:
        shapes = {tuple(state[name].shape): None for state in states}
        if len(shapes) > 1:
            raise InputError(
                f"the networks have unequal widths that cannot be made equal: {name} is "
                f"{' and '.join(map(str, shapes))}",
                so="no channel there can become two (channels of groups cannot) with nothing else changed",
                do="combine networks that are equally wide there; how='zip' keeps unlike outputs",
            )
    return out


def differ_in_width(models: Sequence[nn.Module]) -> bool:
    """Whether their weights have the same names and numbers of dimensions, but not the same shapes."""
    states = [{n: tuple(t.shape) for n, t in named_tensors(m).items()} for m in models]
    ranks = [{n: len(s) for n, s in state.items()} for state in states]
    return any(s != states[0] for s in states) and all(r == ranks[0] for r in ranks)
