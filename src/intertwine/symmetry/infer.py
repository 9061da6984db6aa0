"""graph -> ledger: run the network once on symbolic values, one rule a node."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import fx

from intertwine.graph.bodies import body_of
from intertwine.graph.export import Traced, where
from intertwine.ir.ledger import Ledger
from intertwine.ir.placing import of_rank
from intertwine.ir.value import Value, constant, fixed
from intertwine.rules import facts, find_rule
from intertwine.rules.registry import Product, dims_of
from intertwine.rules.rotary import Rotary
from intertwine.symmetry.context import GraphContext, Inference, Slot
from intertwine.symmetry.unknown import depends_on_data

MOVED = "which of these positions are read depends on the input's size"


def infer(
    graphs: Sequence[Traced],
    *,
    without: Sequence[Mapping[fx.Node, Rotary]] = (),
    stacks: Collection[tuple[str, int]] = (),
) -> Inference:
    """Run every node's rule; freeze what no rule explains.

    graphs: one model traced at one or several sizes. All facts are about the same weights, so that what is
    left holds at every one of these sizes. The values are those of the first. without: of each graph, the
    rotary embeddings to leave out, by their results. stacks: see `symmetry.stacks`.
    """
    result = Inference(Ledger())
    ctx = _Following(result, stacks)
    for k, traced in enumerate(graphs):
        ctx.begin(traced)
        env = _run(ctx, traced, without[k] if without else {})
        if traced is graphs[0]:
            listed = (
                n
                for n, v in env.items()
                if isinstance(v, Value) and not (ctx.depends_on_order(n) or v.behind() or depends_on_data(n))
            )
            result.values.update({"%" + n.name: env[n] for n in listed})
            result.unused = [name for name in ctx.unread if name not in result.shapes]
    _freeze_moved(ctx)
    _freeze_unread(result)
    result.left_out = ctx.windows.left_out()
    return result


def _freeze_moved(ctx: GraphContext) -> None:
    """Where a slice (`table[:T]`) keeps other positions at another size, all of them stay."""
    ctx.ledger.at("the same slice at several sizes")
    for value, dim in ctx.windows.moved():
        ctx.fix(value, MOVED, [dim])


def _freeze_unread(result: Inference) -> None:
    """Positions of a weight that no op reads (`pos[:T]`) may be read at another size: they stay."""
    ledger = result.ledger
    touched = np.zeros(ledger.labels, bool)
    for ids in (
        *ledger.read,
        *(ids for tie in ledger.ties for ids in (tie.left, tie.right)),
        *(freeze.labels for freeze in ledger.freezes),
        *(ids for ids, _, _ in ledger.marks),
        *(child for k, (child, _) in enumerate(ledger.projections) if k not in ledger.given),
    ):
        touched[ids] = True
    for k in ledger.given:  # who reads a channel of a slice reads the slice
        child, slices = ledger.projections[k]
        touched[slices[touched[child]]] = True
    ledger.at("the whole graph")
    for slot in result.slots.values():
        unread = slot.ids.reshape(-1)[~touched[slot.ids.reshape(-1)]]
        if len(unread):
            result.unread = True
            ledger.freeze(unread, "no op reads these positions at the traced size")
            ledger.zero(slot.scale.reshape(-1)[np.isin(slot.ids.reshape(-1), unread)])


def _run(ctx: GraphContext, traced: Traced, without: Mapping[fx.Node, Rotary]) -> dict[fx.Node, Any]:
    env: dict[fx.Node, Any] = {}
    inner = {node for rotation in without.values() for node in rotation.inner}
    for node in traced.graph.nodes:
        if node in inner:
            continue
        if node in without:
            env[node] = env[without[node].source]
            if isinstance(env[node], Value):
                ctx.result.rotations.append((env[node], without[node].partner))
        elif node.op == "placeholder":
            env[node] = _placeholder(ctx, node, traced)
            if node.name in traced.literals:
                ctx.literals[node] = traced.constants[node.name].detach().cpu().numpy()
        elif node.op == "call_function":
            env[node] = _call(ctx, node, env)
        elif node.op == "get_attr":
            env[node] = _held(ctx, node)
        elif node.op == "output":
            for source in node.all_input_nodes:
                ctx.unname(source, "their places are an output of the model")
            given, _ = ctx.settled(node, env)
            _finish(ctx, traced, fx.node.map_arg(node.args[0], given.__getitem__))
    return env


class _Following(GraphContext):
    """Follows ops into the bodies that they hold."""

    def through(self, body: fx.Graph, inputs: Sequence[Any]) -> list[Any]:
        """See `Context.through`. What names channels outside names none in there, and the other way round."""
        env: dict[fx.Node, Any] = {}
        given = iter(inputs)
        with self.inside():
            for node in body.nodes:
                if node.op == "placeholder":
                    env[node] = next(given)
                elif node.op == "get_attr":
                    env[node] = _held(self, node)
                elif node.op == "call_function":
                    env[node] = _call(self, node, env)
                else:
                    for source in node.all_input_nodes:
                        self.unname(source, "their places leave a body")
                    out = fx.node.map_arg(node.args[0], lambda n: self.settle(env[n]))
                    made = list(out) if isinstance(out, (list, tuple)) else [out]
        return made


def _held(ctx: GraphContext, node: fx.Node) -> Any:
    """What an attribute of the graph stands for: a body, or a tensor that is what it is."""
    body = body_of(node)
    if body is not None:
        return body.graph
    shapes = _shapes(ctx, node)
    return _made(shapes[0]) if shapes else None


def _finish(ctx: GraphContext, traced: Traced, outputs: Any) -> None:
    """Outputs are what they are; what is written into a buffer moves and scales as the buffer does."""
    for k, value in enumerate(_flat(outputs)):
        name = traced.written.get(k)
        if not isinstance(value, Value):
            continue
        if name in ctx.result.values:
            ctx.ledger.at(f"what the model writes into {name}")
            ctx.add(ctx.result.values[name], value)
        else:
            ctx.ledger.at("the model's output")
            ctx.fix(value, "it is an output of the model")


def _placeholder(ctx: GraphContext, node: fx.Node, traced: Traced) -> Any:
    shape = next(iter(_shapes(ctx, node)), None)
    if shape is None:
        return None
    if node.name not in traced.weights:
        return _written(traced.constants[node.name]) if node.name in traced.literals else fixed(shape)
    name = traced.weights[node.name]
    if not node.users or 0 in shape:  # no register tokens, a layer of width zero: nothing that could move
        ctx.unread.append(name)
        return fixed(shape)
    return ctx.weight(name, shape, node)


def _written(number: torch.Tensor) -> Value:
    """A tensor that stands in the code as numbers: of equal ones it matters only whether they are 0."""
    alike = number.numel() and number.is_floating_point() and bool((number == number.reshape(-1)[0]).all())
    if not alike:
        return fixed(tuple(number.shape))
    return constant(tuple(number.shape), zero=not number.reshape(-1)[0])


class _Unsized:
    """A number that depends on data, or a value of a shape of which nothing is known: what meets it stays."""


_UNSIZED = _Unsized()


def _made(shape: tuple[int, ...] | None) -> Any:
    return _UNSIZED if shape is None else fixed(shape)


def _call(ctx: GraphContext, node: fx.Node, env: Mapping[fx.Node, Any]) -> Any:
    if node.target is operator.getitem:
        ctx.pick(node)
        return env[node.args[0]][node.args[1]]  # type: ignore[index]
    ctx.op, ctx.floating = str(node.target).removeprefix("aten."), _floating(node)
    ctx.ledger.at(f"{ctx.op} at {where(node)}")
    given, rows = ctx.settled(node, env)
    made = _applied(ctx, node, given)
    return made if rows else ctx.settle(made)


def _applied(ctx: GraphContext, node: fx.Node, given: Mapping[fx.Node, Any]) -> Any:
    args = fx.node.map_arg(node.args, lambda n: given[n])
    kwargs = fx.node.map_arg(node.kwargs, lambda n: given[n])
    shapes = _shapes(ctx, node)
    leaves = _flat((args, kwargs))
    ctx.enter(node)
    if isinstance(number := node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return _number(ctx, node, leaves, number)
    if None in shapes or any(isinstance(leaf, _Unsized) for leaf in leaves):
        return _stop(ctx, node, f"its size depends on data at {where(node)}", leaves, shapes)
    ctx.shapes = [shape for shape in shapes if shape is not None]
    found = find_rule(node.target)
    ctx.literal = _literal(ctx, node)
    before = len(ctx.windows)
    if found is not None:
        if not found.thin:
            args, kwargs = _plain(ctx, args), _plain(ctx, kwargs)
        if found.same and node.args[0] in ctx.literals and _whole(node):
            ctx.literals[node] = ctx.literals[node.args[0]]  # type: ignore[index]
        factors = found.factors(*args, **kwargs) if found.factors and node.users else None
        if factors and all(isinstance(f, Value) for f in factors) and _contracted(node, *factors):
            return Product(*factors)
        try:
            made = found.apply(ctx, *args, **kwargs)
        except Exception:  # of two sizes that data decide, which are one and look like two
            if not any(map(depends_on_data, (node, *node.all_input_nodes))):
                raise
            return _stop(ctx, node, f"its size depends on data at {where(node)}", leaves, shapes)
        if found.carries or found.picks:
            ctx.part(made, args[0])
        return _used_parts(ctx, node, made, before)
    if any(isinstance(v, Value) and v.factors for v in leaves):
        ctx.result.unknown.setdefault(str(node.target), where(node))
    ctx.ledger.at("")  # the reason says where
    # What no symmetry touches comes out untouched, whatever the op.
    return _stop(ctx, node, f"no rule for {node.target} at {where(node)}", leaves, shapes)


def _number(ctx: GraphContext, node: fx.Node, leaves: Sequence[Any], number: Any) -> Any:
    """A size that depends on the data is a number like others; any other number says what it was read off."""
    if not facts(node).sizes_only:
        for value in leaves:
            if isinstance(value, Value):
                ctx.fix(value, f"a number is read off it at {where(node)}")
    size = ctx.sizes.of(number) if isinstance(number, torch.SymInt) else None
    return _UNSIZED if size is None else size


def _plain(ctx: GraphContext, tree: Any) -> Any:
    """Arguments for an op that takes a dimension of size 1 for no channel."""
    if isinstance(tree, (list, tuple)):
        return [_plain(ctx, item) for item in tree]
    if isinstance(tree, dict):
        return {key: _plain(ctx, item) for key, item in tree.items()}
    if isinstance(tree, Product):
        return Product(ctx.plain(tree.left), ctx.plain(tree.right))
    return ctx.plain(tree) if isinstance(tree, Value) else tree


def _contracted(node: fx.Node, left: Value, right: Value) -> bool:
    """Whether a product is used by sums of real numbers alone, each over channels of both sides.

    A mean over pixels of what gates have scaled is none: there the product is a value as others are.
    """
    rank = len(node.meta["val"].shape)
    sides = of_rank(left, rank), of_rank(right, rank)
    for user in node.users:
        dims = facts(user).sums
        if dims is None or not _floating(user):
            return False
        gone = dims_of(sides[0], dims(*user.args, **user.kwargs))
        if not any(all(side.factors_on(side.dims[d]) for side in sides) for d in gone):
            return False
    return True


def _used_parts(ctx: GraphContext, node: fx.Node, result: Any, before: int) -> Any:
    """The result of an op; of a split only the parts that are used are slices."""
    if isinstance(result, (list, tuple)) and len(ctx.windows) - before == len(result):
        ctx.windows.keep(before, {u.args[1] for u in node.users if u.target is operator.getitem})  # type: ignore[misc]
    return result


def _literal(ctx: GraphContext, node: fx.Node) -> np.ndarray | None:
    """The whole numbers of the one operand after the first that stands in the code as such."""
    found = [n for n in node.all_input_nodes if n in ctx.literals and n is not node.args[0]]
    return ctx.literals[found[0]] if len(found) == 1 and _whole(found[0]) else None


def _whole(node: fx.Node) -> bool:
    """Whether a node's value holds whole numbers (a mask of truth values is none)."""
    return getattr(node.meta.get("val"), "dtype", None) in (torch.int32, torch.int64)


def _stop(ctx: GraphContext, node: fx.Node, reason: str, leaves: Sequence[Any], shapes: Sequence[Any]) -> Any:
    """Freeze all operands; the results are fixed."""
    for value in leaves:
        if isinstance(value, Value):
            ctx.fix(value, reason)
    out = [_made(shape) for shape in shapes]
    return out[0] if isinstance(node.meta.get("val"), torch.Tensor) else out


def _flat(tree: Any) -> list[Any]:
    if isinstance(tree, (list, tuple)):
        return [leaf for item in tree for leaf in _flat(item)]
    if isinstance(tree, dict):
        return [leaf for item in tree.values() for leaf in _flat(item)]
    return [tree]


def _floating(node: fx.Node) -> bool:
    """Whether the first tensor that a node returns holds real or complex numbers."""
    tensors = [v for v in _flat(node.meta.get("val")) if isinstance(v, torch.Tensor)]
    return not tensors or tensors[0].is_floating_point() or tensors[0].is_complex()


def _shapes(ctx: GraphContext, node: fx.Node) -> list[tuple[int, ...] | None]:
    """Shapes of the tensors that a node returns; None where nothing is known of them."""
    tensors = [v for v in _flat(node.meta.get("val")) if isinstance(v, torch.Tensor)]
    found = [tuple(ctx.sizes.of(size) for size in v.shape) for v in tensors]
    return [None if None in shape else tuple(s for s in shape if s is not None) for shape in found]


__all__ = ["Inference", "Slot", "infer"]
