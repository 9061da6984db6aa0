"""Gradients of a value with respect to what the network reads, with or without gates at the rectifiers.

Guided backpropagation (Springenberg et al. 2015, as in source 000): through a rectifier y = sigma(z) with the
incoming gradient u pass

    sigma'(z) u   where u > 0 and y > 0,   and 0 elsewhere,

which is u 1[z > 0] 1[u > 0] for a ReLU. Which ops are rectifiers is said by their rules (`Rule.backward`);
every other op passes its plain gradient. The graph is functional: shared, in-place and functional ReLUs are
nodes like any other, and sums and concatenations are differentiated as they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from intertwine.errors import Unsupported
from intertwine.inside.inputs import Rows
from intertwine.inside.network import Network
from intertwine.rules.registry import find_rule


class _Rectifier(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, sigma: Callable[[Tensor], Tensor]) -> Tensor:
        y = sigma(z)
        ctx.save_for_backward(z, y)
        ctx.sigma = sigma
        return y

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        z, y = ctx.saved_tensors
        (u,) = upstream
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            (passed,) = torch.autograd.grad(ctx.sigma(z), z, torch.where((u > 0) & (y > 0), u, 0))
        return passed, None


class _Interpreter(fx.Interpreter):
    """Runs the graph; its leaf is the input, or the embeddings where the input is tokens."""

    def __init__(self, body: fx.GraphModule, leaf: fx.Node, given: Tensor | None, guided: bool) -> None:
        super().__init__(body)
        self.leaf, self.given, self.guided = leaf, given, guided

    def run_node(self, n: fx.Node) -> Any:
        if n is not self.leaf:
            return super().run_node(n)
        if self.given is None:
            self.given = super().run_node(n)
        elif n.op == "placeholder":
            next(self.args_iter)  # the row itself, whose place is taken
        return self.given

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rule = find_rule(target) if self.guided else None
        if rule is None or rule.backward != "rectifier":
            return super().call_function(target, args, kwargs)
        return _Rectifier.apply(args[0], _with_rest(target, args[1:], kwargs))  # type: ignore[no-untyped-call]


def _with_rest(target: Any, rest: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[Tensor], Tensor]:
    return partial(lambda z: target(z, *rest, **kwargs))


class Backward:
    """The value `name` of a network as a function of its leaf, any number of rows at a time.

    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> _ = [nn.init.constant_(net[i].weight, -1.0) for i in (0, 2)]
    >>> back = Backward(Network(net, torch.zeros(4, 2)), "2", dim=1)
    >>> x = torch.tensor([[-1.0, -2.0]])
    >>> back.gradient(x, torch.ones(1, 1))[0].tolist(), back.gradient(x, torch.ones(1, 1), guided=True)[0].tolist()
    ([[3.0, 3.0]], [[0.0, 0.0]])
    """  # noqa: E501

    def __init__(self, network: Network, name: str, dim: int) -> None:
        part = network.upto(name)
        self.network, self.dim, self.body = network, dim, part.body
        self.leaf = _leaf(self.body, network.batch)
        self.tokens = self.leaf.op != "placeholder"

    def leaves(self, rows: Rows | Tensor) -> Tensor:
        """What attributions refer to: the rows themselves, or the embeddings of their tokens."""
        rows = Rows.of(rows)
        return self._all(rows, None)[0] if self.tokens else rows.first

    def values(self, rows: Rows | Tensor, leaf: Tensor | None = None) -> Tensor:
        """The value itself; `leaf` takes the place of what is made from the rows."""
        return self._all(Rows.of(rows), leaf)[1]

    def score(self, rows: Rows | Tensor, weights: Tensor, leaf: Tensor | None = None) -> Tensor:
        """F = sum over positions of sum_c weights_c a_c, for every row: what attributions are of."""
        return _seed(self.values(rows, leaf), weights, self.dim)

    def gradient(
        self, rows: Rows | Tensor, weights: Tensor, *, guided: bool = False, leaf: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """(dF / d leaf, F) for every row; weights: (rows, channels)."""
        rows = Rows.of(rows)
        leaf = self.leaves(rows) if leaf is None else leaf
        gradients, scores = [], []
        for index, count in self._chunks(len(rows)):
            given = leaf[index].detach().requires_grad_()
            with torch.enable_grad():
                out = self._run(rows[index], given, guided)[1]
                found = _seed(out, weights[index], self.dim)
                (gradient,) = torch.autograd.grad(found.sum(), given, allow_unused=True)
            gradient = torch.zeros_like(given) if gradient is None else gradient
            gradients.append(gradient[:count].detach())
            scores.append(found[:count].detach())
        return torch.cat(gradients), torch.cat(scores)

    @torch.no_grad()
    def _all(self, rows: Rows, leaf: Tensor | None) -> tuple[Tensor, Tensor]:
        pairs = []
        for index, count in self._chunks(len(rows)):
            found = self._run(rows[index], None if leaf is None else leaf[index], False)
            pairs.append([part[:count] for part in found])
        return torch.cat([p[0] for p in pairs]), torch.cat([p[1] for p in pairs])

    def _run(self, rows: Rows, leaf: Tensor | None, guided: bool) -> tuple[Tensor, Tensor]:
        interpreter = _Interpreter(self.body, self.leaf, leaf, guided)
        (out,) = interpreter.run(rows.first, *(rows.beside or self.network.others))
        assert interpreter.given is not None
        return interpreter.given, out

    def _chunks(self, rows: int) -> Iterator[tuple[Tensor, int]]:
        """Numbers of the rows of every batch; the last batch is filled up by going round."""
        for start in range(0, rows, self.network.batch):
            index = torch.arange(start, min(start + self.network.batch, rows))
            yield index[torch.arange(self.network.batch) % len(index)], len(index)


def _leaf(body: fx.GraphModule, batch: int) -> fx.Node:
    """The first input, or the first floating value with a row for each input that is made from it."""
    nodes: list[fx.Node] = list(body.graph.nodes)
    first = next(n for n in nodes if n.op == "placeholder")
    held = first.meta.get("val")
    if not isinstance(held, Tensor) or held.is_floating_point():
        return first
    reached = {first}
    for node in nodes:
        if any(n in reached for n in node.all_input_nodes):
            reached.add(node)
            value = node.meta.get("val")
            if isinstance(value, Tensor) and value.is_floating_point() and value.ndim > held.ndim:
                return node
    raise Unsupported(
        "the input holds integers and no embedding of them was found",
        so="there is nothing to differentiate with respect to",
    )


def _seed(value: Tensor, weights: Tensor, dim: int) -> Tensor:
    summed = value.movedim(dim, 1).flatten(2).sum(2) if value.ndim > 2 else value
    return (summed * weights).sum(1)
