"""Control flow by its bodies: what holds a graph of its own is written out in ops before anything reads it.

    cond(p, f, g, x)       where(p, f(x), g(x))
    scan(f, h, x)          f after f, one for each slice of x; what it returns besides h is stacked
    map(f, x)              f of every slice, stacked

    while_loop(p, f, h)    a rule of its own: f and p of any h

The graph is that of one size, so that the number of steps of a scan is known. That of a while_loop depends on
numbers. An element g acts on what it gives out if there is one rho such that

    h0(g theta) = rho h0(theta),  f(rho h; g theta) = rho f(h; theta),  p(rho h; g theta) = p(h; theta)

for the start h0 and every h, which is seen by one run of both bodies on an h of which nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_map

from intertwine.graph.bodies import INLINED
from intertwine.graph.kernels import KERNELS
from intertwine.ir.ledger import UNMERGEABLE
from intertwine.ir.value import Extent, Value, fixed, parameter
from intertwine.rules.registry import Context, is_value, rule

aten, control = torch.ops.aten, torch.ops.higher_order
_MOST_NODES = 20_000  # of a loop that is written out

Results = Sequence[Any]


class _Writer:
    """Writes ops before one node, with the values that tracing would have found."""

    def __init__(self, node: fx.Node) -> None:
        self.node, self.graph = node, node.graph

    def call(self, target: Any, *args: Any) -> fx.Node:
        """One op."""
        made = self.graph.call_function(target, args)
        made.meta = {k: v for k, v in self.node.meta.items() if k in ("nn_module_stack", "stack_trace")}
        made.meta["val"] = target(*fx.map_arg(args, lambda n: n.meta["val"]))
        return made

    def body(self, graph: fx.Graph, inputs: Sequence[Any]) -> Results:
        """All ops of a body on these inputs, and what it returns."""
        places = [n for n in graph.nodes if n.op == "placeholder"]
        found = self.graph.graph_copy(graph, dict(zip(places, inputs, strict=True)))
        return found if isinstance(found, (list, tuple)) else [found]


def _branches(write: _Writer, bodies: Sequence[fx.Graph], chosen: Any, inputs: Results) -> Results | None:
    if not isinstance(chosen, fx.Node) or not all(isinstance(x, fx.Node) for x in inputs):
        return None
    chosen = write.call(aten.reshape.default, chosen, []) if chosen.meta["val"].dim() else chosen
    made = [write.body(body, inputs) for body in bodies]
    return [a if a is b else write.call(aten.where.self, chosen, a, b) for a, b in zip(*made, strict=True)]


def _steps(
    write: _Writer, bodies: Sequence[fx.Graph], carry: Results, slices: Results, others: Results
) -> Results | None:
    (body,) = bodies
    count = slices[0].meta["val"].shape[0] if slices else 0
    if not isinstance(count, int) or not 0 < count * len(body.nodes) <= _MOST_NODES:
        return None
    rows: list[Results] = []
    for k in range(count):
        now = [write.call(aten.select.int, x, 0, k) for x in slices]
        out = write.body(body, [*carry, *now, *others])
        carry, row = out[: len(carry)], out[len(carry) :]
        rows.append(row)
    return [*carry, *(write.call(aten.stack.default, list(column)) for column in zip(*rows, strict=True))]


def _inline_cond(node: fx.Node, bodies: Sequence[fx.Graph]) -> Results | None:
    chosen, _, _, inputs = node.args
    return _branches(_Writer(node), bodies, chosen, inputs)  # type: ignore[arg-type]


def _inline_scan(node: fx.Node, bodies: Sequence[fx.Graph]) -> Results | None:
    _, carry, slices, others = node.args
    return _steps(_Writer(node), bodies, carry, slices, others)  # type: ignore[arg-type]


def _inline_map(node: fx.Node, bodies: Sequence[fx.Graph]) -> Results | None:
    _, slices, others = node.args
    return _steps(_Writer(node), bodies, [], slices, others)  # type: ignore[arg-type]


INLINED[control.cond] = _inline_cond
INLINED[control.scan] = _inline_scan
INLINED[control.map_impl] = _inline_map


@rule("while_loop")
def while_loop(
    ctx: Context, goes_on: fx.Graph, body: fx.Graph, carry: Sequence[Any], others: Sequence[Any] = ()
) -> list[Any]:
    """h <- f(h) while p(h): what the start, f and p of any h move alike, however many steps there are."""
    if not all(is_value(x) for x in (*carry, *others)):  # whole numbers of no known size
        return [_still(ctx, x) for x in carry]
    states = [_anything(ctx, start) for start in carry]
    for question in ctx.through(goes_on, [*states, *others]):
        ctx.fix(question, "it says how often a loop runs")
    ends = ctx.through(body, [*states, *others])
    return [ctx.add(a, b) if is_value(b) else _still(ctx, a) for a, b in zip(states, ends, strict=True)]


def _anything(ctx: Context, start: Value) -> Value:
    """A value that moves as the start does, and of which nothing else is known (not that it is 0, say)."""
    free = parameter(ctx.ledger, start.shape)
    for d, dim in enumerate(start.dims):
        if dim and not (start.zero or start.factors_on(dim) or all(a.wild for a in dim)):
            dims = (*free.dims[:d], (Extent(start.shape[d]),), *free.dims[d + 1 :])
            free = Value(dims, tuple(f for f in free.factors if f.axes != free.dims[d]))
    for factor in free.factors:
        ctx.ledger.mark(factor.ids, UNMERGEABLE)
    return ctx.add(free, start)


def _still(ctx: Context, value: Any) -> Any:
    return fixed(ctx.fix(value, "a loop that counts by sizes").shape) if is_value(value) else value


# The same on numbers, for a module that runs in another precision: it reaches into the bodies.


def _run_cond(chosen: Any, yes: Callable[..., Any], no: Callable[..., Any], inputs: Results = ()) -> Any:
    return (yes if chosen else no)(*inputs)


def _run_scan(body: Callable[..., Any], carry: Results, slices: Results, others: Results = ()) -> Any:
    rows = []
    for now in zip(*slices, strict=True):
        out = list(body(*carry, *now, *others))
        carry, row = out[: len(carry)], out[len(carry) :]
        rows.append(row)
    return [*carry, *(torch.stack(column) for column in zip(*rows, strict=True))]


def _run_map(body: Callable[..., Any], slices: Results, others: Results = ()) -> Any:
    rows = [body(*now, *others) for now in zip(*slices, strict=True)]
    return tree_map(lambda *column: torch.stack(column), rows[0], *rows[1:])


def _run_while(
    goes_on: Callable[..., Tensor], body: Callable[..., Any], carry: Results, others: Results = (), **_: Any
) -> Any:
    while goes_on(*carry, *others):
        carry = body(*carry, *others)
    return tuple(carry)


KERNELS[control.cond] = _run_cond
KERNELS[control.scan] = _run_scan
KERNELS[control.map_impl] = _run_map
KERNELS[control.while_loop] = _run_while
