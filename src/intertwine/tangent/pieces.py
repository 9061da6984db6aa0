"""Functions that stay on one piece on the inputs, as the polynomial that they are there.

    abs(x) of what is positive is x; hardswish(x) of |x| < 3 is x (x + 3) / 6

With the polynomial in its place, of any numbers, layers around such a function join to one region
(`tangent.regions`), of which only the coefficients are seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, fx

from intertwine.graph.example import Example
from intertwine.graph.export import Traced
from intertwine.graph.run import run
from intertwine.tangent.regions import AFFINE, MOST, Activations

POINTS = 8  # between the least and the largest of an entry, at which the polynomial must be the function


def on_pieces(traced: Traced, weights: Mapping[str, Tensor], examples: Iterable[Example]) -> Traced | None:
    """The graph with polynomials of degree 2 at most in place of functions; None if there is none."""
    given = list(examples)
    graph = Activations(traced, weights, given[0])
    if len(graph.nodes) > MOST or not graph.plain:
        return None
    functions = {n: n.all_input_nodes[0] for n in graph.heads if graph.is_function(n)}
    functions = {n: x for n, x in functions.items() if graph.depends[x]}
    least, largest = dict(graph.values), dict(graph.values)
    for example in given[1:] if functions else ():
        values = graph.at(example)
        for x in functions.values():
            least[x], largest[x] = torch.minimum(least[x], values[x]), torch.maximum(largest[x], values[x])
    found = {
        node: piece
        for node, x in functions.items()
        if (piece := _polynomial(graph, node, x, least[x].double(), largest[x].double())) is not None
    }
    return _replaced(traced, found) if found else None


def _polynomial(
    graph: Activations, node: fx.Node, x: fx.Node, low: Tensor, high: Tensor
) -> Callable[[Tensor], Tensor] | None:
    """The polynomial that a function is between the bounds of each of its entries."""
    alone, half = graph.alone(node, [x]), (high - low) / 2
    if not bool((half > 0).all()):
        return None

    def value(at: Tensor) -> Tensor:
        return run(alone, graph.weights, [at])[0]

    middle = (low + high) / 2
    first, centre, last = value(low), value(middle), value(high)
    slope, bend = (last - first) / (2 * half), (first - 2 * centre + last) / (2 * half**2)

    def piece(x: Tensor) -> Tensor:
        return centre + slope * (x - middle) + bend * (x - middle) ** 2

    generator = torch.Generator().manual_seed(0)
    spread = (last - first).abs() + (centre - first).abs()
    for _ in range(POINTS):
        at = low + (high - low) * torch.rand(low.shape, generator=generator, dtype=torch.float64)
        if not bool(((piece(at) - value(at)).abs() <= AFFINE * spread).all()):
            return None
    return piece


def _replaced(traced: Traced, functions: Mapping[fx.Node, Callable[[Tensor], Tensor]]) -> Traced:
    new, made = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in traced.graph.nodes:
        made[node] = new.node_copy(node, made.__getitem__)
        if node in functions:
            made[node].target = functions[node]
            made[node].args, made[node].kwargs = (made[node.all_input_nodes[0]],), {}
    return replace(traced, graph=new, module=fx.GraphModule(traced.module, new))
