"""Several networks of one graph, run side by side over the same inputs, one op at a time.

Every value is computed once and kept until its last reader has run, so that a pass which stops at every layer
costs one pass over the data and not one for each layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_flatten

from intertwine.data.batches import Batches, arguments, count_rows
from intertwine.errors import DataError
from intertwine.graph.export import Traced, named_tensors
from intertwine.orbit.same_graph import assert_same_ops

Leaves = list[Any]
ROWS = 125  # inputs of a batch: what one op holds beside the cached values
PIECES = 4  # at least, where there are inputs for them: some are left out while pulls and steps are chosen


def whole_batches(inputs: Any, rows: int = ROWS) -> list[Leaves]:
    """The arguments of equal batches, flattened; left over inputs (fewer than batches) are dropped."""
    count = count_rows(inputs)
    if count < 2:
        raise DataError(f"{count} inputs are too few", do="give more train_data")
    pieces = max(-(-count // rows), min(PIECES, count // 2))
    size = count // pieces
    return [tree_flatten(arguments(part))[0] for part, _ in Batches(inputs, batch=size, limit=pieces * size)]


def cut(inputs: Any, rows: int) -> Any:
    """The first rows."""
    return next(iter(Batches(inputs, batch=rows)))[0]


class Lockstep:
    """env[node] -> for every network, for every batch, the value; freed after the last use.

    narrow: the graph of the last network, if that has other widths than the first; its ops are the same.
    """

    def __init__(
        self,
        traced: Traced,
        models: Sequence[nn.Module],
        batches: Sequence[Leaves],
        narrow: Traced | None = None,
    ) -> None:
        self.traced, self.nodes = traced, short_branches_first(traced.graph)
        self.states = [_state(model) for model in models]
        self.programs = [_Program(traced, traced)] * len(models)
        if narrow is not None:
            self.programs[-1] = _Program(traced, narrow)
        self.batches = batches
        self.env: dict[fx.Node, list[list[Any]]] = {}
        self._given = iter(range(len(batches[0])))
        self._left = {node: len(node.users) for node in self.nodes}
        self._done: set[fx.Node] = set()

    @property
    def count(self) -> int:
        """How many networks."""
        return len(self.states)

    def weight(self, node: Any, net: int) -> Tensor | None:
        """The weight of one network that a placeholder stands for."""
        name = self.traced.weights.get(node.name) if isinstance(node, fx.Node) else None
        return None if name is None else self.states[net][name]

    def known(self, node: Any, net: int) -> Tensor:
        """The weight of a node that stands for one."""
        found = self.weight(node, net)
        assert found is not None
        return found

    def walk(self, stop: Callable[[fx.Node], None], last: Callable[[fx.Node], None] | None = None) -> None:
        """Run every op in every network in turn; `stop(node)` is called before an op, when what it reads is
        known. `last(node)` is called with the output."""
        for node in self.nodes:
            if node.op == "call_function":
                stop(node)
            if node.op == "output":
                if last is not None:
                    last(node)
                return
            for net in range(self.count):
                self.run(node, net)
            self._free(node)

    def run(self, node: fx.Node, net: int) -> list[Any]:
        """The values of a node in one network, batch by batch."""
        found = self.env.setdefault(node, [[] for _ in self.states])
        if not found[net]:
            found[net] = self._compute(node, net)
        return found[net]

    def forget(self, node: fx.Node, net: int) -> None:
        """Compute a node again, with new weights."""
        self.env[node][net] = []

    @torch.no_grad()
    def _compute(self, node: fx.Node, net: int) -> list[Any]:
        if node.op == "placeholder":
            return self._placeholder(node, net)
        program = self.programs[net]
        if node.op != "call_function":
            assert isinstance(node.target, str)  # the name of a constant
            value = getattr(program.own.module, node.target)
            return [value] * len(self.batches)
        out, own = [], program.mine[node]
        for k in range(len(self.batches)):

            def at(n: fx.Node, k: int = k) -> Any:
                return self.env[program.theirs[n]][net][k]

            out.append(own.target(*fx.node.map_arg(own.args, at), **fx.node.map_arg(own.kwargs, at)))
        return out

    def _placeholder(self, node: fx.Node, net: int) -> list[Any]:
        fixed = self.weight(node, net)
        if fixed is None:
            program = self.programs[net]
            fixed = program.own.constants.get(program.mine[node].name)
        if fixed is not None:
            return [fixed] * len(self.batches)
        if net:
            return self.env[node][0]
        index = next(self._given)
        return [leaves[index] for leaves in self.batches]

    def _free(self, node: fx.Node) -> None:
        self._done.add(node)
        self.release(node.all_input_nodes)

    def hold(self, nodes: Iterable[fx.Node]) -> None:
        """Keep values beyond their last reader, until they are released."""
        for node in nodes:
            self._left[node] += 1

    def release(self, nodes: Iterable[fx.Node]) -> None:
        """One reader has run: a value that no other one needs is freed."""
        for node in nodes:
            self._left[node] -= 1
            if not self._left[node]:
                self.env.pop(node, None)


class _Program:
    """The graph that one network runs: the first one's, or its own with the same ops and other sizes."""

    def __init__(self, traced: Traced, own: Traced) -> None:
        assert_same_ops((traced, own))
        self.own = own
        self.mine = dict(zip(traced.graph.nodes, own.graph.nodes, strict=True))
        self.theirs = {mine: node for node, mine in self.mine.items()}


def short_branches_first(graph: fx.Graph) -> list[fx.Node]:
    """The nodes in an order that does not depend on how forward was written.

    Of what an op reads, the shortest branch runs first. So it is the end of the long branch of a residual
    block that makes up for what the other side of the sum got wrong, and not a projection on the shortcut.

    >>> graph = fx.Graph()
    >>> x = graph.placeholder("x")
    >>> long = graph.call_function(torch.relu, (graph.call_function(torch.relu, (x,)),))
    >>> _ = graph.output(graph.call_function(torch.add, (long, graph.call_function(torch.neg, (x,)))))
    >>> [node.name for node in short_branches_first(graph)]
    ['x', 'neg', 'relu', 'relu_1', 'add', 'output']
    """
    depth = dict[fx.Node, int]()
    for node in graph.nodes:
        depth[node] = 1 + max((depth[n] for n in node.all_input_nodes), default=0)
    order = dict.fromkeys(node for node in graph.nodes if node.op == "placeholder")
    for root in (*graph.output_node().all_input_nodes, *graph.nodes):  # what nobody reads runs last
        stack = [root]
        while stack:
            waiting = [n for n in stack[-1].all_input_nodes if n not in order]
            if waiting:
                stack += sorted(waiting, key=depth.__getitem__, reverse=True)
            else:
                order[stack.pop()] = None
    return list(order)


def _state(model: nn.Module) -> dict[str, Tensor]:
    named = named_tensors(model)
    return {name: tensor.detach() for name, tensor in named.items()}
