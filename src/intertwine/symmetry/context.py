"""What one run of the rules works on: the labels of every weight's dimensions, and what each is used for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import fx

from intertwine.graph.export import Traced, sizes_in
from intertwine.ir.ledger import UNMERGEABLE, Ids, Ledger
from intertwine.ir.placing import project
from intertwine.ir.value import Extent, Factor, Value, parameter
from intertwine.rules import Context, facts
from intertwine.rules.registry import Product
from intertwine.rules.routing import Names, row_by_row, rows_first
from intertwine.rules.ties import Ties
from intertwine.symmetry.unknown import UnknownSizes
from intertwine.symmetry.windows import NONE, Windows

_OF_ONE_OP = ("op", "shapes", "floating", "literal", "named", "_node", "_names", "_ties")


@dataclass(frozen=True)
class Slot:
    """The labels of one dimension of one weight.

    ids and scale have shape (size,), or (groups, size) where the order along this dimension may differ in
    each group of dimension 0 (the input channels of a grouped convolution, the channels of each expert).
    """

    weight: str
    dim: int
    ids: Ids
    scale: Ids


@dataclass
class Inference:
    """What one run of the rules leaves behind.

    unread: whether some positions of a weight were read by no op, and are frozen for that.
    left_out: labels along dimensions that are sliced, of which no slice keeps any.
    """

    ledger: Ledger
    slots: dict[tuple[str, int], Slot] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    roles: dict[tuple[str, int], str] = field(default_factory=dict)
    shifts: dict[str, float] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)
    # What every rotary embedding that was left out reads, and who is turned with whom there.
    rotations: list[tuple[Value, np.ndarray]] = field(default_factory=list)
    unread: bool = False
    left_out: Ids = field(default_factory=NONE.copy)


class GraphContext(Context):
    """The primitives, and what the graph knows about weights."""

    def __init__(self, result: Inference, stacks: Collection[tuple[str, int]] = ()) -> None:
        """stacks: dimensions of weights that have labels of their own in every slice of dimension 0."""
        super().__init__(result.ledger)
        self.result, self._stacks = result, stacks
        self._weight_of: dict[int, str] = {}
        self._transposes: dict[int, tuple[str, Value]] = {}  # held, so that ids stay theirs
        self._parts: dict[int, tuple[str, Value]] = {}  # views and slices of a weight; held likewise
        self._users: dict[str, list[fx.Node]] = {}
        self._grouped: dict[tuple[str, int], Value] = {}
        self.literals: dict[fx.Node, np.ndarray] = {}
        self._slot_starts: list[tuple[int, tuple[str, int]]] = []  # first labels of slots, as they were made
        self.unread: list[str] = []
        self.windows = Windows()
        self.sizes: UnknownSizes
        self._names: Names
        self._node: fx.Node
        self._choices: dict[
            Any, Extent
        ] = {}  # what says which slices rows take -> the axis that stands for it
        self._lead: dict[Extent, int] = {}  # how many dimensions these rows have
        self._ties: Ties | None

    def begin(self, traced: Traced) -> None:
        """What follows is about this graph."""
        self.windows.begin()
        self.sizes = UnknownSizes(sizes_in(traced))
        self._names = Names()
        self._ties = Ties(traced)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """What follows is about a body that an op holds; afterwards, about that op again."""
        outside = {name: vars(self).get(name) for name in _OF_ONE_OP}
        site = self.ledger.site
        self._names, self._ties = Names(), None
        yield
        self.ledger.site = site
        vars(self).update(outside)

    # -- whole numbers that name channels ------------------------------------------------------------------

    def enter(self, node: fx.Node) -> None:
        """An op of the graph is about to run. Numbers that name channels are handed on, or used as an index;
        everything else sees which numbers they are, and the channels stay."""
        self._node = node
        self.named, seen = self._names.enter(node)
        for labels in seen:
            self.ledger.freeze(labels, "their places are computed with")

    def behind(self, size: int) -> Extent | None:
        """See `Context.behind`."""
        chosen, lead = self._names.chosen_by(self._node)
        if chosen is None or not lead:
            return None
        axis = self._choices.setdefault((chosen, size), Extent(size))
        return axis if self._lead.setdefault(axis, lead) == lead else None

    def settled(self, node: fx.Node, env: Mapping[fx.Node, Any]) -> tuple[Mapping[fx.Node, Any], bool]:
        """(the operands of an op, whether its results are rows if these are): rows that are slices of a
        choice stay such where they meet the same rows alone."""
        rows = {n: axes for n in node.all_input_nodes if (axes := _behind(env[n]))} if self._lead else {}
        if not rows:
            return env, True
        choices = set[Extent]().union(*rows.values())
        lead = self._lead[next(iter(choices))]
        if len(choices) == 1 and row_by_row(node, list(rows), lead):
            return env, rows_first(node, list(rows), lead)
        return {n: self.settle(env[n]) if n in rows else env[n] for n in node.all_input_nodes}, True

    def settle(self, value: Any) -> Any:
        """What is read or made by an op that may see several rows at once."""
        if isinstance(value, Product):
            return Product(super().settle(value.left), super().settle(value.right))
        if isinstance(value, (list, tuple)):
            return [self.settle(v) for v in value]
        return super().settle(value) if isinstance(value, Value) else value

    def depends_on_order(self, node: fx.Node) -> bool:
        """Whether a value names channels, or its rows lie in the order of such names: no element acts on it
        by what it does to channels."""
        return self._names.of(node) is not None

    def pick(self, node: fx.Node) -> None:
        """One of several results is taken."""
        self._names.pick(node)

    def unname(self, node: fx.Node, reason: str) -> None:
        """The channels that a value names stay where they are."""
        found = self._names.of(node)
        if found is not None:
            self.ledger.freeze(found.labels, reason)

    def ranked(self, dim: int, labels: Ids) -> bool:
        """See `Context.ranked`."""
        if self._ties is None:  # the weights of a body have other names there
            return False
        scorers = [self.result.values[name] for name in self._ties.scorers(self._node, dim)]
        if not any(np.array_equal(f.ids, labels) for value in scorers for f in value.factors):
            return False
        self._names.name(self._node, labels)
        return True

    def masks(self, argument: int) -> list[bool]:
        """See `Context.masks`."""
        given: Any = self._node.args[argument]
        return [n is not None and n.meta["val"].dtype in (torch.bool, torch.uint8) for n in given]

    def take(self, value: Value, dim: int, index: Ids) -> Value:
        """Known slices of one dimension, which are remembered: see `_freeze_moved`."""
        out = super().take(value, dim, index)
        self.windows.note(self.op, value, dim, index, out)
        return out

    def weight(self, name: str, shape: tuple[int, ...], node: fx.Node) -> Value:
        """The symbolic value of a weight; a tied weight is one value."""
        if name not in self.result.values:
            stacked = [dim for dim in range(len(shape)) if (name, dim) in self._stacks]
            value = parameter(self.ledger, shape, stacked, _channels(node, shape))
            self.result.values[name] = value
            self.result.shapes[name] = shape
            self._weight_of[id(value)] = name
            for dim, axes in enumerate(value.dims):
                if axes:
                    factor = next(f for f in value.factors if f.axes[-1] is axes[0])
                    self._own(Slot(name, dim, factor.ids, factor.scale))
        self._users.setdefault(name, []).extend(node.users)
        return self.result.values[name]

    def _own(self, slot: Slot) -> None:
        self.result.slots[slot.weight, slot.dim] = slot
        self._slot_starts.append((int(slot.ids.flat[0]), (slot.weight, slot.dim)))

    def role(self, value: Any, dim: int, role: str, shift: float = 0.0) -> bool:
        """See `Context.role`. Only a weight used directly has a role."""
        name = self._weight_of.get(id(value))
        if name is None:
            return False
        self.result.roles.setdefault((name, dim), role)
        if not shift:
            return True
        return self._only_normalizes(name) and self.result.shifts.setdefault(name, shift) == shift

    def transposed(self, matrix: Value) -> Value:
        """See `Context.transposed`."""
        out, name = super().transposed(matrix), self._weight_of.get(id(matrix))
        if name is not None:
            self._transposes[id(out)] = (name, out)
        return out

    def linear_weight(self, matrix: Value) -> None:
        """See `Context.linear_weight`."""
        name, _ = self._transposes.get(id(matrix), (None, None))
        if name is not None:
            self.result.roles.setdefault((name, 0), "out")
            self.result.roles.setdefault((name, 1), "in")

    def part(self, made: Any, of: Any) -> None:
        """See `Context.part`."""
        name = self._weight_of.get(id(of)) or self._parts.get(id(of), ("",))[0]
        for value in made if isinstance(made, (list, tuple)) else (made,):
            if name and isinstance(value, Value) and id(value) not in self._weight_of:
                self._parts[id(value)] = (name, value)

    def einsum(self, spec: str, *operands: Value) -> Value:
        """The product; what it sums over is read by the one operand that is (a part of) a weight.

        Where none is, or several are, nothing says which slices of equal channels add up: q k' of two
        channels is not that of one.
        """
        parts = [self._weight_of.get(id(v)) or self._parts.get(id(v), ("",))[0] for v in operands]
        terms, out = spec.replace(" ", "").split("->")[0].split(","), spec.split("->")[1]
        named = [k for k, name in enumerate(parts) if name]
        for letter in dict.fromkeys("".join(terms)):
            holders = [k for k, term in enumerate(terms) if letter in term]
            if letter in out or len(holders) < 2:
                continue
            found = {k: self._along(operands[k], terms[k].index(letter)) for k in holders}
            if named in ([k] for k in holders):
                self._reads(parts[named[0]], found[named[0]])
                continue
            factors = [f for factors in found.values() for f in factors]
            if not any(self._is_read(f) for f in factors):
                for factor in factors:
                    self.ledger.mark(factor.ids, UNMERGEABLE, blocks=False)
        return super().einsum(spec, *operands)

    @staticmethod
    def _along(value: Value, dim: int) -> Sequence[Factor]:
        return value.factors_on(value.dims[dim])

    def _is_read(self, factor: Factor) -> bool:
        """Whether these labels are those of a weight that is known to read them."""
        first = int(factor.ids.flat[0])
        place = bisect_right(self._slot_starts, first, key=lambda found: found[0])
        if not place:
            return False
        start, slot = self._slot_starts[place - 1]
        held = self.result.slots.get(slot)
        inside = held is not None and start <= first < start + held.ids.size
        return inside and self.result.roles.get(slot) == "in"

    def _reads(self, name: str, factors: Sequence[Factor]) -> None:
        for dim in range(len(self.result.shapes[name])):
            slot = self.result.slots.get((name, dim))
            if slot is not None and any(np.isin(f.ids, slot.ids).all() for f in factors):
                self.result.roles.setdefault((name, dim), "in")

    def _only_normalizes(self, name: str) -> bool:
        return all(facts(user).statistics is not None for user in self._users[name])

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
        self._own(Slot(name, 1, lifted.ids, lifted.scale))
        for factor in split.factors:
            if hosts[0] in factor.axes:
                self.ledger.tie(project(self.ledger, factor, hosts), project(self.ledger, lifted, hosts))
            if factor.axes == hosts and self.result.roles.get((name, 1)) != "in":
                self.ledger.zero(factor.scale)  # the lifted scales do the same to the same outputs
        kept = tuple(f for f in split.factors if f.axes != (axis,))
        return Value(split.dims, (*kept, lifted))


def _channels(weight: fx.Node, shape: tuple[int, ...]) -> list[int]:
    """The dimensions of size 1 of a weight that are one channel to all that read it."""
    thin = {d for d, size in enumerate(shape) if size == 1}
    for user in weight.users:
        found = facts(user).channels if thin else None
        dims = found(*user.args, **user.kwargs) if found is not None else {}
        for place, argument in enumerate(user.args):
            thin &= set(dims.get(place, ())) if argument is weight else thin
        thin = thin if weight not in user.kwargs.values() else set()
    return sorted(thin)


def _behind(value: Any) -> set[Extent]:
    if isinstance(value, Product):
        return value.left.behind() | value.right.behind()
    values = value if isinstance(value, (list, tuple)) else [value]
    return set[Extent]().union(*(v.behind() for v in values if isinstance(v, Value)))
