"""Parts of a graph that are affine in what they read: only what their layers do together is seen.

    region    ops joined along every edge that enters an op which is affine in its activations, that is
              F(x) - 2 F(x + y) + F(x + 2 y) = 0, tried on random x and y. Ops that are not begin a region: a
              norm's gain belongs to the layers after it.

All that the rest of the model sees of a region is a function of what the region reads. A direction of its
weights that leaves that function as it is, with any numbers in place of what is read, is a redundancy of the
region alone: matrices between linear layers, kernels of which only a mean over pixels is read, gains beside
weights. A region is a graph itself, and its Jacobian is taken as that of a model. With gates and squares in
it a region is a polynomial, and all that is seen of its weights are the coefficients. Functions in a row,
each of every entry alone, are regions too: of the slopes of two PReLUs only what both do is seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

from intertwine.graph.example import Example
from intertwine.graph.export import Traced
from intertwine.graph.run import results, run

MOST = 500  # ops of a graph up to which regions are looked for
AFFINE = 1e-9
TRIES = 2


@dataclass(frozen=True, eq=False)
class Region:
    """A graph of its own that reads activations. weights: those of its weights that nothing else reads."""

    traced: Traced
    weights: tuple[str, ...]


def regions(
    traced: Traced, weights: Mapping[str, Tensor], example: Example, products: bool = False
) -> Iterator[Region]:
    """Every region that has more than one weight of its own.

    products: ops that multiply entry by entry (gates, squares) join too; only regions that have one.
    """
    graph = Activations(traced, weights, example)
    if len(graph.nodes) > MOST or not graph.plain:
        return
    if products:
        gates = {node for node in graph.heads if graph.multiplies(node)}
        graph.heads -= gates
        if not gates:
            return
    for nodes, own in graph.own_parts():
        if not products or gates.intersection(nodes):
            yield Region(graph.part(nodes), own)


def function_regions(traced: Traced, weights: Mapping[str, Tensor], example: Example) -> Iterator[Region]:
    """Functions in a row, of every entry alone, that have more than one weight of their own."""
    graph = Activations(traced, weights, example)
    if len(graph.nodes) <= MOST and graph.plain:
        readers = Counter(name for node in graph.nodes for name in graph.weights_of([node]))
        graph.nodes, graph.heads = [node for node in graph.nodes if graph.is_function(node)], set()
        for nodes, names in graph.own_parts():
            own = tuple(
                name for name in names if readers[name] == sum(name in graph.weights_of([n]) for n in nodes)
            )
            if len(own) > 1:
                yield Region(graph.part(nodes), own)


def has_jumps(traced: Traced, weights: Mapping[str, Tensor], example: Example) -> bool:
    """Whether some op on activations is constant around what it reads, not everywhere (rounding, argmax)."""
    graph = Activations(traced, weights, example)
    return len(graph.nodes) <= MOST and graph.plain and any(graph.jumps(node) for node in graph.nodes)


class Activations:
    """The activations of a graph: what depends on the inputs, and their values in one run."""

    def __init__(self, traced: Traced, weights: Mapping[str, Tensor], example: Example) -> None:
        self.traced, self.weights, self.example = traced, weights, example
        stored = {*traced.weights, *traced.constants}
        self.given = [n for n in traced.graph.nodes if n.op == "placeholder" and n.name not in stored]
        self.depends: dict[fx.Node, bool] = {}
        for node in traced.graph.nodes:
            self.depends[node] = node in self.given or any(self.depends[n] for n in node.all_input_nodes)
        self.nodes = [n for n, d in self.depends.items() if d and n.op == "call_function"]

    @property
    def plain(self) -> bool:
        """Whether every activation is a tensor or several, and no size that depends on the input."""
        leaves = [leaf for node in self.nodes for leaf in tree_leaves(node.meta.get("val"))]
        return all(leaf is None or isinstance(leaf, Tensor) for leaf in leaves)

    @cached_property
    def values(self) -> dict[fx.Node, Any]:
        """The inputs and the real activations in one run."""
        return self.at(self.example)

    @cached_property
    def _whole(self) -> tuple[list[fx.Node], Traced]:
        real = [n for n in self.nodes if _is_real(n)]
        given = dict(zip(self.given, self.example.leaves, strict=True))
        return real, self._copied(self.nodes, real, set(), given)

    def at(self, example: Example) -> dict[fx.Node, Any]:
        """The inputs and the real activations of a run on other inputs of the same shapes."""
        real, whole = self._whole
        found = run(whole, self.weights, example.leaves)
        return {
            **dict(zip(self.given, example.leaves, strict=True)),
            **dict(zip(real, found, strict=True)),
        }

    @cached_property
    def heads(self) -> set[fx.Node]:
        """The ops that are not affine in what they read: what enters them comes from outside."""
        return {node for node in self.nodes if not self._affine(node)}

    def read(self, nodes: Iterable[fx.Node]) -> list[fx.Node]:
        """What a region reads, in order: what it does not make, and what its heads read."""
        inside = set(nodes)
        found = {
            n for node in inside for n in node.all_input_nodes
            if self.depends[n] and (n not in inside or node in self.heads)
        }  # fmt: skip
        return [n for n in self.depends if n in found]

    def seen(self, nodes: Iterable[fx.Node]) -> list[fx.Node]:
        """What others see of a region: what something else reads, or a head."""
        inside = set(nodes)
        return [n for n in self.depends if n in inside and not (inside - self.heads).issuperset(n.users)]

    def weights_of(self, nodes: Iterable[fx.Node]) -> list[str]:
        """The weights that some ops read, be it through ops on weights alone."""
        behind = self._behind(nodes)
        names = [self.traced.weights.get(n.name) for n in self.depends if n in behind]
        return list(dict.fromkeys(name for name in names if name is not None))

    def _behind(self, nodes: Iterable[fx.Node]) -> set[fx.Node]:
        """All that some ops read and that depends on no input: weights, constants, ops on them."""
        queue, known = list(nodes), set[fx.Node]()
        while queue:
            new = [n for n in queue.pop().all_input_nodes if not self.depends[n] and n not in known]
            known.update(new)
            queue += new
        return known

    def parts(self) -> list[list[fx.Node]]:
        """The regions: an op belongs to that of what it reads if it is affine in it."""
        region: dict[fx.Node, list[fx.Node]] = {}
        for node in self.nodes:
            region[node] = [node]
            for other in node.all_input_nodes if node not in self.heads else ():
                if other in region and region[other] is not region[node]:
                    region[other].extend(region[node])
                    region.update(dict.fromkeys(region[node], region[other]))
        return [list(nodes) for nodes in {id(r): r for r in region.values()}.values()]

    def own_parts(self) -> Iterator[tuple[list[fx.Node], tuple[str, ...]]]:
        """The regions with those of their weights that no other reads, if there is more than one."""
        parts = self.parts()
        read = [self.weights_of(nodes) for nodes in parts]
        times = Counter(name for names in read for name in names)
        for nodes, names in zip(parts, read, strict=True):
            own = tuple(name for name in names if times[name] == 1)
            if len(own) > 1 and all(n in self.values for n in self.read(nodes)):
                yield nodes, own

    def part(self, nodes: Sequence[fx.Node]) -> Traced:
        """A region as a graph."""
        given = {node: self.values[node] for node in self.read(nodes)}
        return self._copied(nodes, self.seen(nodes), self.heads, given)

    def _affine(self, node: fx.Node) -> bool:
        """Whether an op is affine in all that it reads together."""
        read = [n for n in node.all_input_nodes if self.depends[n]]
        if not all(_is_real(n) for n in read):
            return all(not isinstance(n.meta.get("val"), Tensor) for n in read)  # one of several results
        return self._vanishes(node, read, (1, -2, 1))

    def multiplies(self, node: fx.Node) -> bool:
        """Whether an op is quadratic, and each entry of its result one of those at the same place."""
        read = [n for n in node.all_input_nodes if self.depends[n]]
        return self._entrywise(node, read) and self._vanishes(node, read, (1, -3, 3, -1))

    def is_function(self, node: fx.Node) -> bool:
        """Whether an op is a function of one operand, of every entry alone."""
        read = [n for n in node.all_input_nodes if self.depends[n]]
        return len(read) == 1 and node.all_input_nodes[0] is read[0] and self._entrywise(node, read)

    def _entrywise(self, node: fx.Node, read: Sequence[fx.Node]) -> bool:
        shapes = {tuple(n.meta["val"].shape) for n in (node, *read) if _is_real(n)}
        if not all(_is_real(n) and n.meta["val"].numel() for n in (node, *read)) or len(shapes) > 1:
            return False
        one = self.alone(node, read)
        generator = torch.Generator().manual_seed(0)
        given = [torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in one.example.args]
        first = torch.zeros(given[0].shape, dtype=torch.float64)
        first.view(-1)[0] = 1.0
        moved = [x + first for x in given]
        changed = (run(one, self.weights, moved)[0] - run(one, self.weights, given)[0]).reshape(-1)
        return not bool(changed[1:].any())

    def jumps(self, node: fx.Node) -> bool:
        """Whether a small change of what an op reads leaves a result as it is, and a large one does not."""
        read = [n for n in node.all_input_nodes if self.depends[n]]
        if not all(_is_real(n) and n in self.values for n in read):
            return False
        one, generator = self.alone(node, read), torch.Generator().manual_seed(0)
        start, step = (
            [torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in one.example.args]
            for _ in range(2)
        )
        first, near, far = (
            results(one, self.weights, [x + k * y for x, y in zip(start, step, strict=True)])
            for k in (0.0, 1e-9, 1.0)
        )
        return any(
            torch.equal(a, b) and not torch.equal(a, c) for a, b, c in zip(first, near, far, strict=True)
        )

    def alone(self, node: fx.Node, read: Sequence[fx.Node]) -> Traced:
        return self._copied([node], [node], set(), {n: self.values[n] for n in read})

    def _vanishes(self, node: fx.Node, read: Sequence[fx.Node], difference: Sequence[int]) -> bool:
        """Whether a difference of an op along random lines is zero: of order n for degree n - 1."""
        one, generator = self.alone(node, read), torch.Generator().manual_seed(0)
        for _ in range(TRIES):
            start, step = (
                [torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in one.example.args]
                for _ in range(2)
            )
            points = [
                run(one, self.weights, [x + k * y for x, y in zip(start, step, strict=True)])
                for k in range(len(difference))
            ]
            for along in zip(*points, strict=True):
                size = 1 + max(float(x.abs().max()) for x in along) if along[0].numel() else 1.0
                total = sum(c * x for c, x in zip(difference, along, strict=True))
                if not bool((torch.as_tensor(total).abs() <= AFFINE * size).all()):
                    return False
        return True

    def _copied(
        self,
        nodes: Iterable[fx.Node],
        outputs: Iterable[fx.Node],
        heads: set[fx.Node],
        given: dict[fx.Node, Any],
    ) -> Traced:
        """Some ops as a graph. given: what is read from outside, by the heads in any case."""
        new, inside = fx.Graph(), set(nodes)
        read = {node: new.placeholder(f"read_{node.name}") for node in given}
        made: dict[fx.Node, fx.Node] = {}
        needed = inside | self._behind(inside)
        for node in self.depends:
            if node in needed:
                # A head reads what is given even where the region makes it.
                first, second = (read, made) if node in heads else (made, read)
                copies = {n: first[n] if n in first else second[n] for n in node.all_input_nodes}
                made[node] = new.node_copy(node, copies.__getitem__)
        new.output(tuple(made[node] for node in outputs))
        module = fx.GraphModule(self.traced.module, new)
        return replace(self.traced, graph=new, module=module, example=Example(tuple(given.values()), {}))


def _is_real(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.is_floating_point()
