"""Which scores are never equal, but for inputs of measure 0: then the places of the largest mean something.

torch.topk says of equal entries that "the indices of tied elements are not guaranteed": what a model computes
there is not determined, and where scores tie on an open set of inputs (after ReLU), nothing can be claimed of
the chosen places. Scores W x, or W x + b, with a weight W of their own tie where (w_i - w_j) x = b_j - b_i:
on a hyperplane, unless x is 0 and there is no b. So W x is followed back from its ranking through functions
that keep different numbers apart, and it is asked whether x can vanish on an open set, or at inputs that
people give (black images, padding), at weights that are in no special position:

    lookups, weights                  do not vanish
    inputs, rows of a padding token   may be 0
    W x, x / |x|, silu(x), views      where x does
    W x + b                           does not
    a + b                             where both do, or where the same weights decide about both (a - a)
    a * b                             where one of them does
    all others (ReLU)                 may
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import fx

from intertwine.graph.export import Traced
from intertwine.rules.registry import facts
from intertwine.rules.tails import op_of

# Strictly monotone in every entry, alike for all.
MONOTONE = frozenset(
    "sigmoid.default tanh.default log_sigmoid.default exp.default softplus.default neg.default".split()
)
SOFTMAX = frozenset("softmax.int _softmax.default log_softmax.int _log_softmax.default".split())
SCALED = frozenset("mul.Tensor mul.Scalar div.Tensor div.Scalar".split())
NONZERO = SOFTMAX | frozenset(
    "exp.default rsqrt.default sigmoid.default reciprocal.default softplus.default cosh.default".split()
)
# 0 only where the operand is, and at single other numbers.
VANISHING_ALIKE = frozenset(
    """silu.default gelu.default tanh.default mish.default neg.default sin.default erf.default
    rms_norm.default""".split()
)
SHIFTED = frozenset("layer_norm.default group_norm.default".split())  # with their shift as argument 3


class Ties:
    """A graph read for that."""

    def __init__(self, traced: Traced) -> None:
        self._graph, self._weights = traced.graph, traced.weights

    def scorers(self, ranked: fx.Node, dim: int) -> list[str]:
        """The weights whose rows are ranked along a dimension, if no two scores are equal but by accident."""
        at, beside, moved = ranked.args[0], list[str](), False
        while isinstance(at, fx.Node) and at.op == "call_function" and _real(at):
            about, op = facts(at), op_of(at)
            if about.product is not None:
                return self._products(at, *about.product[:2], beside)
            if op in SOFTMAX:
                if moved or at.args[1] % len(at.meta["val"].shape) != dim:  # type: ignore[operator]
                    return []
            elif about.adds and self._weight(at, 1) and not at.kwargs:
                beside += self._weight(at, 1)
            elif about.carries and not about.same:
                moved = True
            elif not (op in MONOTONE or about.same or ((op in SCALED or about.adds) and _number(at))):
                return []
            at = at.args[0]
        return []

    def _products(self, node: fx.Node, weight: int, bias: int | None, beside: list[str]) -> list[str]:
        matrix = self._weight(node, weight)
        added = self._weight(node, bias) if bias is not None else []
        if not matrix or not (added or beside or node.args[weight - 1] not in self._vanishing):
            return []
        return [*matrix, *added, *beside]

    def _weight(self, node: fx.Node, argument: int) -> list[str]:
        """The name of that argument of a node, if it is a weight, perhaps in another order or precision."""
        at: Any = node.args[argument] if argument < len(node.args) else None
        while isinstance(at, fx.Node) and at.op == "call_function":
            if not (facts(at).same or facts(at).carries) or not _real(at):
                return []
            at = at.args[0]
        name = self._weights.get(at.name) if isinstance(at, fx.Node) else None
        return [name] if name is not None else []

    @cached_property
    def _vanishing(self) -> set[fx.Node]:
        """What may be 0 for an open set of inputs."""
        may, depends = set[fx.Node](), dict[fx.Node, int]()
        bits: dict[str, int] = {}
        for node in self._graph.nodes:
            inputs = node.all_input_nodes
            depends[node] = 0
            for source in inputs:
                depends[node] |= depends[source]
            if node.op == "placeholder":
                name = self._weights.get(node.name)
                if name is not None:
                    depends[node] = bits.setdefault(name, 1 << len(bits))
                else:
                    may.add(node)
            elif node.op != "call_function" or self._vanishes(node, inputs, may, depends):
                may.add(node)
        return may

    def _vanishes(
        self, node: fx.Node, inputs: Sequence[fx.Node], may: set[fx.Node], depends: Mapping[fx.Node, int]
    ) -> bool:
        about, op = facts(node), op_of(node)
        if not _real(node) or not inputs:
            return True
        if op in NONZERO:
            return False
        if about.looks_up:
            padded = len(inputs) != len(node.args) or bool(
                node.kwargs
            )  # its row is 0, and stays so in training
            return padded or not self._weight(node, 0)
        if about.product is not None:
            weight, bias, _ = about.product
            if bias is not None and self._weight(node, bias):
                return False
            return not self._weight(node, weight) or node.args[weight - 1] in may
        if op in SHIFTED:
            return not self._weight(node, 3)
        if about.adds:
            if len(inputs) < 2:
                return not _number(node)
            return all(n in may for n in inputs) or len({depends[n] for n in inputs}) < 2
        if op in SCALED:
            return any(n in may for n in inputs) or (len(inputs) < 2 and not _number(node))
        if op in VANISHING_ALIKE or about.same or (about.carries and not about.fills):
            return inputs[0] in may
        return True


def _number(node: fx.Node) -> float:
    """The number beside the first operand of an op of two; 0 where there is none."""
    beside = node.args[1] if len(node.args) > 1 else 0
    return float(beside) if isinstance(beside, (int, float)) and not node.kwargs else 0.0


def _real(node: fx.Node) -> bool:
    """Whether it is one tensor of real numbers, and not rounded: of 256 numbers many are equal."""
    value, beside = node.meta.get("val"), [n.meta.get("val") for n in node.all_input_nodes[:1]]
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return False
    finer = (v.dtype.itemsize for v in beside if isinstance(v, torch.Tensor) and v.is_floating_point())
    return value.dtype.itemsize >= min((4, *finer))
