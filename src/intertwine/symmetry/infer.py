"""graph -> ledger: run the network once on symbolic values, one rule a node."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from intertwine.ir.ledger import ANY_NONLINEAR, Ids, Ledger
from intertwine.ir.placing import project
from intertwine.ir.value import Factor, Value, fixed, parameter
from intertwine.rules import Context, find_rule
from intertwine.trace.export import Traced, where


@dataclass(frozen=True)
class Slot:
    """The labels of one dimension of one weight.

    ids and scale have shape (size,), or (groups, size) where the order along this dimension may differ in
    each group of dimension 0 (the input channels of a grouped convolution).
    """

    weight: str
    dim: int
    ids: Ids
    scale: Ids


@dataclass
class Inference:
    """What one run of the rules leaves behind."""

    ledger: Ledger
    slots: dict[tuple[str, int], Slot] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    roles: dict[tuple[str, int], str] = field(default_factory=dict)
    shifts: dict[str, float] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)


class GraphContext(Context):
    """The primitives, and what the graph knows about weights."""

    def __init__(self, result: Inference) -> None:
        super().__init__(result.ledger)
        self.result = result
        self._weight_of: dict[int, str] = {}
        self._users: dict[str, list[fx.Node]] = {}
        self._grouped: dict[tuple[str, int], Value] = {}

    def weight(self, name: str, shape: tuple[int, ...], users: list[fx.Node]) -> Value:
        """The symbolic value of a weight; a tied weight is one value."""
        if name not in self.result.values:
            value = parameter(self.ledger, shape)
            self.result.values[name] = value
            self.result.shapes[name] = shape
            self._weight_of[id(value)] = name
            for dim, axes in enumerate(value.dims):
                if axes:
                    factor = next(f for f in value.factors if f.axes == axes)
                    self.result.slots[name, dim] = Slot(name, dim, factor.ids, factor.scale)
        self._users.setdefault(name, []).extend(users)
        return self.result.values[name]

    def role(self, value: Any, dim: int, role: str, shift: float = 0.0) -> bool:
        """See `Context.role`. Only a weight used directly has a role."""
        name = self._weight_of.get(id(value))
        if name is None:
            return False
        self.result.roles.setdefault((name, dim), role)
        if not shift:
            return True
        return self._only_batch_norm(name) and self.result.shifts.setdefault(name, shift) == shift

    def _only_batch_norm(self, name: str) -> bool:
        return all("batch_norm" in str(user.target) for user in self._users[name])

    def grouped_weight(self, weight: Value, groups: int) -> Value:
        """See `Context.grouped_weight`. Valid only if every user of the weight groups it in this way."""
        split = super().grouped_weight(weight, groups)
        name = self._weight_of.get(id(weight))
        if name is None or not split.dims[2]:
            return split
        users = self._users[name]
        if any(u.target is not users[0].target or u.args[3:] != users[0].args[3:] for u in users):
            return split
        if (name, groups) not in self._grouped:
            self._grouped[name, groups] = self._lift(name, split, groups)
        return self._grouped[name, groups]

    def _lift(self, name: str, split: Value, groups: int) -> Value:
        """Give the input channels labels of their own in every group."""
        (axis,) = split.dims[2]
        hosts = split.dims[0]
        if len(hosts) != 1:
            return split
        shape = (groups, axis.size)
        lifted = Factor((hosts[0], axis), self.ledger.fresh_labels(shape), self.ledger.fresh_scales(shape))
        self.ledger.mark(lifted.ids, ANY_NONLINEAR)
        self.result.slots[name, 1] = Slot(name, 1, lifted.ids, lifted.scale)
        for factor in split.factors:
            if hosts[0] in factor.axes:
                self.ledger.tie(project(self.ledger, factor, hosts), project(self.ledger, lifted, hosts))
            if factor.axes == hosts:
                self.ledger.zero(factor.scale)  # the lifted scales do the same to the same entries
        kept = tuple(f for f in split.factors if f.axes != (axis,))
        return Value(split.dims, (*kept, lifted))


def infer(traced: Traced) -> Inference:
    """Run every node's rule; freeze what no rule explains."""
    ledger = Ledger()
    result = Inference(ledger)
    ctx = GraphContext(result)
    env: dict[fx.Node, Any] = {}
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            env[node] = _placeholder(ctx, node, traced)
        elif node.op == "call_function":
            env[node] = _call(ctx, node, env)
        elif node.op == "get_attr":
            env[node] = fixed(_shapes(node)[0]) if _shapes(node) else None
        elif node.op == "output":
            ledger.at("the model's output")
            fx.node.map_arg(node.args, lambda n: _finish(ctx, env[n]))
        if isinstance(env.get(node), Value):
            result.values.setdefault("%" + node.name, env[node])
    return result


def _finish(ctx: GraphContext, value: Any) -> None:
    if isinstance(value, Value):
        ctx.fix(value, "it is an output of the model")


def _placeholder(ctx: GraphContext, node: fx.Node, traced: Traced) -> Any:
    shapes = _shapes(node)
    if not shapes:
        return None
    if node.name not in traced.weights:
        return fixed(shapes[0])
    name = traced.weights[node.name]
    if not node.users:
        ctx.result.unused.append(name)
        return fixed(shapes[0])
    return ctx.weight(name, shapes[0], list(node.users))


def _call(ctx: GraphContext, node: fx.Node, env: Mapping[fx.Node, Any]) -> Any:
    if node.target is operator.getitem:
        return env[node.args[0]][node.args[1]]  # type: ignore[index]
    args = fx.node.map_arg(node.args, lambda n: env[n])
    kwargs = fx.node.map_arg(node.kwargs, lambda n: env[n])
    ctx.op, ctx.shapes = str(node.target).removeprefix("aten."), _shapes(node)
    ctx.ledger.at(f"{ctx.op} at {where(node)}")
    found = find_rule(node.target)
    if found is not None:
        return found.apply(ctx, *args, **kwargs)
    values = [v for v in _flat((args, kwargs)) if isinstance(v, Value)]
    if any(v.factors for v in values):
        ctx.result.unknown.setdefault(str(node.target), where(node))
        for value in values:
            ctx.fix(value, f"no rule for {node.target} at {where(node)}")
    # What no symmetry touches comes out untouched, whatever the op.
    out = [fixed(shape) for shape in ctx.shapes]
    return out[0] if isinstance(node.meta.get("val"), torch.Tensor) else out


def _flat(tree: Any) -> list[Any]:
    if isinstance(tree, (list, tuple)):
        return [leaf for item in tree for leaf in _flat(item)]
    if isinstance(tree, dict):
        return [leaf for item in tree.values() for leaf in _flat(item)]
    return [tree]


def _shapes(node: fx.Node) -> list[tuple[int, ...]]:
    """Shapes of the tensors that a node returns."""
    value = node.meta.get("val")
    return [tuple(int(s) for s in v.shape) for v in _flat(value) if isinstance(v, torch.Tensor)]


__all__ = ["Inference", "Slot", "infer"]
