"""What `combine` is given: choices, shares, networks and inputs, brought into one form or refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from intertwine.combining._methods import floats
from intertwine.errors import InputError
from intertwine.graph.copying import copy_model
from intertwine.graph.export import named_tensors


def parts_of_one(shares: Sequence[float] | None, count: int) -> tuple[float, ...]:
    """The shares of so many models, of sum 1; without any, equal ones."""
    given = [1.0] * count if shares is None else [float(s) for s in shares]
    if len(given) != count:
        raise InputError(f"{len(given)} shares for {count} models", do="give one for each")
    if min(given) < 0 or not 0 < sum(given) < float("inf"):
        raise InputError(f"shares {given}: they are parts of a whole", do="give numbers from 0 on, not all 0")
    return tuple(s / sum(given) for s in given)


def distance(a: nn.Module, b: nn.Module) -> float:
    """|a - b| / |a| over the parameters and statistics."""
    left, right = floats(a), floats(b)
    apart = sum(float((left[name] - right[name]).square().sum()) for name in left)
    return math.sqrt(apart / max(sum(float(t.square().sum()) for t in left.values()), 1e-300))


def in_eval_mode(model: nn.Module) -> nn.Module:
    """The model, or a copy where it is being trained: running it would change its statistics."""
    return copy_model(model).eval() if any(m.training for m in model.modules()) else model


def in_precision(inputs: Any, dtype: torch.dtype) -> Any:
    """Numbers in the precision of the networks; tokens stay numbers."""
    return tree_map_only(torch.Tensor, lambda x: x.to(dtype) if x.is_floating_point() else x, inputs)


def all_equal(models: Sequence[nn.Module]) -> bool:
    """Whether all have the same weights, bit by bit."""
    first, *states = map(named_tensors, models)
    return all(
        s.keys() == first.keys() and all(torch.equal(t, s[n]) for n, t in first.items()) for s in states
    )


def choice(what: str, given: str, known: Sequence[str]) -> Any:
    """`given`, which is one of those that are known."""
    if given not in known:
        raise InputError(f"{what} is {given!r}", do=f"use one of {', '.join(known)}")
    return given


def device_of(model: nn.Module) -> torch.device:
    """Where its weights are."""
    return next((p.device for p in model.parameters()), torch.device("cpu"))
