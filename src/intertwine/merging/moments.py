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

from intertwine.reading import check_memory
from intertwine.rules import facts
from intertwine.rules.moments import Moments
from intertwine.symmetry import Symmetry

_DO = "take another method: --method magnitude, or ifm"


def propagate_moments(symmetry: Symmetry, weights: Mapping[str, Tensor]) -> dict[str, Moments]:
    """Node name -> moments, for every node that a weight reads or that is added to another.

    All others are forgotten as soon as nobody needs them; what only outputs depend on is never computed (the
    covariance of all tokens of a vocabulary).
    """
    traced = symmetry.traced
    needed, kept = _needed(traced.graph)
    check_memory(8.0 * sum(_width(node) ** 2 for node in kept), "covariances of all features", do=_DO)
    env: dict[str, Any] = {}
    waiting = {node: sum(user in needed for user in node.users) for node in traced.graph.nodes}
    for node in traced.graph.nodes:
        if node.op == "placeholder" and node.name not in {*traced.weights, *traced.constants}:
            env[node.name] = _input(node)
        elif node.op == "call_function" and node in needed:
            env[node.name] = _call(node, env, traced.weights, weights)
        for old in node.all_input_nodes if node in needed else ():
            waiting[old] -= 1
            if not waiting[old] and old not in kept:
                env.pop(old.name, None)
    return {name: value for name, value in env.items() if isinstance(value, Moments)}


def _needed(graph: fx.Graph) -> tuple[set[fx.Node], set[fx.Node]]:
    """The nodes whose moments matter to somebody, and those among them that are asked for."""
    needed: set[fx.Node] = set()
    kept: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        users = [user for user in node.users if user.op == "call_function"]
        if any(facts(user).rows is not None or facts(user).adds for user in users):
            kept.add(node)
        if node in kept or any(user in needed for user in users):
            needed.add(node)
    return needed, kept


def _width(node: fx.Node) -> int:
    value = node.meta.get("val")
    if not isinstance(value, Tensor) or value.ndim < 2 or facts(node).moments is None:
        return 0
    return int(value.shape[_channels(value.ndim)])


def _channels(dims: int) -> int:
    """Where the channels lie: those of pictures are second, those of rows last."""
    return 1 if dims > 3 else dims - 1


def _input(node: fx.Node) -> Moments | None:
    """Colours of a picture go together; anything else is taken as uncorrelated."""
    value = node.meta.get("val")
    if not isinstance(value, Tensor) or value.ndim < 2 or not value.is_floating_point():
        return None
    shape = tuple(int(s) for s in value.shape)
    dim = _channels(len(shape))
    size = shape[dim]
    shared = 0.9 if len(shape) == 4 and size <= 4 else 0.0
    cov = shared * torch.ones(size, size, dtype=torch.float64) + (1 - shared) * torch.eye(
        size, dtype=torch.float64
    )
    return Moments(torch.zeros(size, dtype=torch.float64), cov, dim)


def _call(
    node: fx.Node, env: Mapping[str, Any], names: Mapping[str, str], weights: Mapping[str, Tensor]
) -> Any:
    def given(old: fx.Node) -> Any:
        if old.name in names:
            known = weights.get(names[old.name])  # none of what a forward does not read
            return None if known is None else known.detach().to("cpu", torch.float64)
        return env.get(old.name)

    args = fx.node.map_arg(node.args, given)
    if node.target is operator.getitem:
        return args[0] if isinstance(args[0], Moments) and args[1] == 0 else None
    passes = facts(node).moments
    try:
        return None if passes is None else passes(node, *args)
    except (RuntimeError, IndexError, TypeError, ValueError, AttributeError):
        return None  # an unusual form of a known op, as a weight that is computed: uncorrelated features


__all__ = ["Moments", "propagate_moments"]
