"""Residual branches: the layers before the one that writes to a sum, which nothing else reads.

    x + f(h; W_1 ... W_n)     with t what the sum should be:   minimise over all W_k at once

Solved one by one, every layer makes the networks' mean as well as it can. But nobody needs the mean inside a
branch: what counts is what the branch adds. So once its last layer is solved for, all of its layers move
together (`_gauss_newton`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, fx

from intertwine.combining._branch_made import BranchMade
from intertwine.combining._gauss_newton import Aim, nearer
from intertwine.combining._lockstep import Lockstep
from intertwine.combining._normal import LEFT_OUT, Spread
from intertwine.combining._rows import SolvableLayer, find_layer
from intertwine.rules import facts

ROWS = (
    100_000  # of what the branch makes, in whole batches: a branch is linearised on few inputs of many pixels
)
LEFT_OUT_ROWS = 25_000


@dataclass(frozen=True)
class ResidualBranch:
    """layers: all of them, the last one last. nodes: what lies between, in order, before the last one.
    reads: what comes from elsewhere."""

    layers: tuple[SolvableLayer, ...]
    nodes: tuple[fx.Node, ...]
    reads: tuple[fx.Node, ...]


def find_branch(
    last: SolvableLayer, order: Sequence[fx.Node], weights: Mapping[str, str]
) -> ResidualBranch | None:
    """The branch that ends in a layer; None where that is the only one of it."""
    inside, layers, waiting = set[fx.Node](), [last], [last.source]
    while waiting:
        node = waiting.pop()
        layer = find_layer(node, weights) if node.op == "call_function" else None
        if node in inside or len(node.users) > 1 or not (layer or _passes(node)):
            continue
        inside.add(node)
        if layer is not None:
            layers.append(layer)
        waiting += [layer.source] if layer is not None else node.all_input_nodes
    # What no layer of the branch stands before does not move.
    moves = {layer.node for layer in layers[1:]}
    nodes = []
    for node in order:
        if node in inside and (node in moves or any(n in moves for n in node.all_input_nodes)):
            moves.add(node)
            nodes.append(node)
    if len(layers) == 1:
        return None
    place = {node: k for k, node in enumerate(order)}
    layers.sort(key=lambda layer: place[layer.node])
    reads = dict.fromkeys(n for node in nodes for n in node.all_input_nodes if n not in moves)
    return ResidualBranch(tuple(layers), tuple(nodes), tuple(reads))


def _passes(node: fx.Node) -> bool:
    """Whether a node is one that derivatives go through value by value."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return facts(node.args[0]).statistics is not None
    return facts(node).statistics is not None or facts(node).family == "pointwise"


def refine(
    run: Lockstep,
    own: int,
    branch: ResidualBranch,
    after: Sequence[fx.Node],
    goal: Callable[[int], tuple[Tensor, Tensor | None]],
    steps: int,
) -> None:
    """Move all layers of a branch of network `own`.

    after: the last layer, its norm and the sum that it goes into. goal(k): of batch k, as rows, what the sum
    should be, and where nothing should come through a rectifier after it.
    """
    last = branch.layers[-1]
    nodes = [*branch.nodes, *after]
    moving = [node for layer in branch.layers for node in _moving(run, own, layer)]
    fit, left_out = list[Aim](), list[Aim]()
    rows = last.count(run.env[after[-1]][0][0])
    for k in range(len(run.batches)):
        most, into = (LEFT_OUT_ROWS, left_out) if k % LEFT_OUT == LEFT_OUT - 1 else (ROWS, fit)
        if len(into) * rows < most:
            into.append(Aim(BranchMade(run, own, branch.layers, nodes, moving, k), *goal(k)))
    if not left_out:
        return
    start = tuple(run.known(node, own).clone() for node in moving)
    found = nearer(fit, left_out, start, steps)
    for node, tensor in zip(moving, found, strict=True):
        run.known(node, own).copy_(tensor)
    for node in (*branch.nodes, last.node):
        run.env.setdefault(node, [[] for _ in range(run.count)])[own] = []
        if facts(node).statistics is not None:
            _measure(run, own, node)
        run.run(node, own)
    for node in after[1:]:
        if facts(node).statistics is not None:
            _measure(run, own, node)
    for node in branch.nodes:
        if node is not last.source:
            run.env.pop(node, None)


def _moving(run: Lockstep, own: int, layer: SolvableLayer) -> list[fx.Node]:
    """The weight, and what shifts what the layer makes: the shift of its norm where there is one."""
    norm = next(iter(layer.node.users)) if len(layer.node.users) == 1 else None
    if norm is not None and facts(norm).statistics is not None and norm.args[0] is layer.node:
        shift = norm.args[2]
    else:
        shift = layer.bias
    if isinstance(shift, fx.Node) and run.weight(shift, own) is not None:
        return [layer.weight, shift]
    return [layer.weight]


def _measure(run: Lockstep, own: int, norm: fx.Node) -> None:
    """The statistics of what a norm reads now; what it makes of it stays as it is."""
    gain, shift, mean, variance = (run.weight(a, own) for a in norm.args[1:5])
    if gain is None or shift is None or mean is None or variance is None:
        return
    spread = Spread()
    for value in run.env[norm.args[0]][own]:  # type: ignore[index]
        spread.add(value.movedim(1, -1).flatten(0, -2))
    where = facts(norm).statistics
    assert where is not None
    eps = float(norm.args[where[2]])  # type: ignore[arg-type]
    before, slope = mean.double(), gain.double() * (variance.double() + eps).rsqrt()
    mean.copy_(spread.first / spread.count)
    variance.copy_(spread.deviation().square())
    gain.copy_(slope * (variance.double() + eps).sqrt())
    shift.add_(slope * (mean.double() - before))
