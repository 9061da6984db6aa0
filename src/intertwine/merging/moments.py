"""Means and covariances of every hidden feature without data: moments propagated through the graph.

How they pass through an op is part of its rule (`rules.moments`). Batch norm is why this works: it stores the
scale of every channel on the training data, only correlations are propagated. It steers which channels are
removed and how their readers make up for it, never what is exact; where an op is not known the features are
taken as uncorrelated.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx

from intertwine.rules import facts
from intertwine.rules.moments import Moments
from intertwine.symmetry import Symmetry


def propagate_moments(symmetry: Symmetry, weights: Mapping[str, Tensor]) -> dict[str, Moments]:
    """Node name -> moments, for every node that has them."""
    traced = symmetry.traced
    env: dict[str, Any] = {}
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            if node.name in traced.weights:
                env[node.name] = weights[traced.weights[node.name]].detach().to("cpu", torch.float64)
            elif node.name not in traced.constants:
                env[node.name] = _input(node)
        elif node.op == "call_function":
            env[node.name] = _call(node, env)
    return {name: value for name, value in env.items() if isinstance(value, Moments)}


def _input(node: fx.Node) -> Moments | None:
    """Colours of a picture go together; anything else is taken as uncorrelated."""
    value = node.meta.get("val")
    if not isinstance(value, Tensor) or value.ndim < 2 or not value.is_floating_point():
        return None
    shape = tuple(int(s) for s in value.shape)
    dim = 1 if len(shape) > 3 else len(shape) - 1
    size = shape[dim]
    shared = 0.9 if len(shape) == 4 and size <= 4 else 0.0
    cov = shared * torch.ones(size, size, dtype=torch.float64) + (1 - shared) * torch.eye(
        size, dtype=torch.float64
    )
    return Moments(torch.zeros(size, dtype=torch.float64), cov, dim)


def _call(node: fx.Node, env: Mapping[str, Any]) -> Any:
    args = fx.node.map_arg(node.args, lambda n: env.get(n.name))
    if node.target is operator.getitem:
        return args[0] if isinstance(args[0], Moments) and args[1] == 0 else None
    passes = facts(node).moments
    try:
        return None if passes is None else passes(node, *args)
    except (RuntimeError, IndexError, TypeError, ValueError):
        return None  # an unusual form of a known op: its features count as uncorrelated


__all__ = ["Moments", "propagate_moments"]
