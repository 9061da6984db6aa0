"""Rotary embeddings: parts of a graph that turn pairs of channels by angles that no weight decides.

    y_p = a x_p - b x_q,    y_q = a x_q + b x_p        for pairs (p, q) of the last dimension of x

However it is written (halves or neighbours, cosines and sines or complex numbers), entries of y are sums of
entries of x times numbers, so that is how the graph is read here (`rules.terms`), forward from every value
that branches. `cat([f, f]).cos()` has two halves of equal numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import fx

from intertwine.rules.registry import facts
from intertwine.rules.tails import ONE, NotLinear, Numbers, Tail, of_rank, op_of, shape_of
from intertwine.rules.terms import read

MOST = 1024  # entries of a tail; beyond that only the last dimension is told apart


@dataclass(frozen=True)
class Rotary:
    """`result` is `source` with the pairs (p, partner[p]) of its last dimension turned; partner[p] = p: kept.

    inner: the nodes between the two, which nothing else reads.
    """

    source: fx.Node
    result: fx.Node
    partner: np.ndarray
    inner: frozenset[fx.Node]


def find_rotations(graph: fx.Graph, weights: Iterable[str]) -> dict[fx.Node, Rotary]:
    """Result -> rotary embedding. weights: the placeholders that a group may act on; no number depends on
    them."""
    reader = _Reader(graph, set(weights))
    found: dict[fx.Node, Rotary] = {}
    taken: set[fx.Node] = set()
    for source in reversed(list(graph.nodes)):
        # From the last backwards: the shortest way to a result is taken.
        if source in reader.moved and (len(source.users) > 1 or _starts(source)):
            rotation = reader.rotation(source)
            if rotation is not None and not taken & {*rotation.inner, rotation.result}:
                found[rotation.result] = rotation
                taken |= {*rotation.inner, rotation.result}
    return found


def _starts(node: fx.Node) -> bool:
    return any(op_of(user) in _STARTS for user in node.users)


class _Reader:
    """One graph: which values depend on weights, and the numbers of those that do not."""

    def __init__(self, graph: fx.Graph, weights: set[str]) -> None:
        self.numbers = Numbers()
        self.order = {node: k for k, node in enumerate(graph.nodes)}
        self.moved: set[fx.Node] = set()
        self._fixed: dict[fx.Node, Any] = {}
        self._following = iter(graph.nodes)
        for node in graph.nodes:
            if node.name in weights or any(n in self.moved for n in node.all_input_nodes):
                self.moved.add(node)

    def fixed(self, node: fx.Node) -> Any:
        """The numbers of a value that depends on no weight (several, of an op with several results)."""
        while node not in self._fixed:
            following = next(self._following)
            if following not in self.moved:
                self._fixed[following] = self._numbered(following)
        return self._fixed[node]

    def _numbered(self, node: fx.Node) -> Any:
        if node.op != "call_function":
            return self._fresh(node)
        try:
            found = read(node, self._fixed, self.numbers)
        except NotLinear:
            return self._fresh(node)
        if isinstance(found, Tail) and found.entries.size > MOST and found.entries.ndim > 1:
            others = found.lead + found.entries.ndim - 1
            return Tail(of_rank(found, 1, self.numbers), others, complex=found.complex)
        return found

    def _fresh(self, node: fx.Node) -> Any:
        shape = shape_of(node)
        if shape is None:
            return None
        entries = [self.numbers.of(node, k) for k in range(shape[-1])] if shape else self.numbers.of(node)
        complex_ = node.meta["val"].is_complex()
        return Tail(np.array(entries, dtype=object), max(len(shape) - 1, 0), complex=complex_)

    def rotation(self, source: fx.Node) -> Rotary | None:
        """The first value after `source` that is `source` with pairs of channels turned."""
        shape = shape_of(source)
        if not shape or shape[-1] < 2 or not source.meta["val"].is_floating_point():
            return None
        start = np.empty(shape[-1], object)
        start[:] = [((p, ONE),) for p in range(shape[-1])]
        known: dict[fx.Node, Any] = {source: Tail(start, len(shape) - 1, form=True)}
        queue = sorted(source.users, key=self.order.__getitem__)
        while queue:
            node = queue.pop(0)
            if node in known:
                continue
            try:
                inputs = {n: known[n] if n in known else self._other(n) for n in node.all_input_nodes}
                known[node] = read(node, inputs, self.numbers)
            except NotLinear:
                continue
            tail = known[node]
            if isinstance(tail, Tail) and shape_of(node) != (*shape[:-1], *tail.entries.shape):
                del known[node]  # laid against something that is larger in other dimensions
                continue
            if isinstance(tail, Tail) and shape_of(node) == shape:
                partner = _pairs(tail)
                if partner is not None:
                    return self._closed(source, node, partner, known)
            queue = sorted({*queue, *node.users}, key=self.order.__getitem__)
        return None

    def _other(self, node: fx.Node) -> Any:
        if node in self.moved:
            raise NotLinear
        return self.fixed(node)

    def _closed(
        self, source: fx.Node, result: fx.Node, partner: np.ndarray, known: Mapping[fx.Node, Any]
    ) -> Rotary | None:
        inner, queue = set[fx.Node](), [n for n in result.all_input_nodes if n in known]
        while queue:
            node = queue.pop()
            if node is not source and node not in inner:
                inner.add(node)
                queue += [n for n in node.all_input_nodes if n in known]
        inside = {*inner, result}
        if any(not facts(u).checks and u not in inside for node in inner for u in node.users):
            return None
        checks = {u for node in inner for u in node.users if facts(u).checks}
        return Rotary(source, result, partner, frozenset(inner | checks))


def _pairs(tail: Tail) -> np.ndarray | None:
    """Who is turned with whom, if that is all that happens, and it happens to somebody."""
    if not tail.form or tail.complex or tail.entries.ndim != 1:
        return None
    terms = [dict(entry) for entry in tail.entries]
    partner = np.arange(len(terms))
    for p, own in enumerate(terms):
        if own == {p: ONE}:
            continue
        others = [q for q in own if q != p]
        if len(own) != 2 or len(others) != 1:
            return None
        q = others[0]
        if terms[q] != {q: own[p], p: -own[q]}:
            return None
        partner[p] = q
    return partner if (partner != np.arange(len(partner))).any() else None


_STARTS = {
    "slice.Tensor",
    "split.Tensor",
    "split_with_sizes.default",
    "view_as_complex.default",
    "unbind.int",
}
_STARTS |= {"view.default", "select.int"}
