"""What every value of a graph is, as an expression of weights and inputs: equal numbers are equal tensors.

A graph is read twice, once with some weights exchanged. Where both readings give an output the same number,
exchanging them does not change it, for any input: every number is made by an exact law from those below it.

    op(a, b)        the op, its settings and the numbers of a and b, in their order; nothing more is known
    a + b           the set of what is added, in no order; so are sums over slices, products with a matrix
                    that reads slices, and rows added up at places; products and maxima are sets too
    slices          along a dimension a value may be told slice by slice: what was stacked or concatenated,
                    the rows of a product with the rows of its matrix, and what is done to each slice alone
    softmax         slice by slice: that slice, and the set of all
    places          what topk returns names slices: `place == 3` is slice 3 among the set of all, if the
                    scores tie by accident only (`rules.ties`)

Laws may be missing (an order that matters to no one is kept then), never wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from intertwine.graph.export import Traced
from intertwine.rules.laws import SLICED, WHOLE, Slices, source_of
from intertwine.rules.nodes import encoded, is_drawn, shape
from intertwine.rules.registry import facts
from intertwine.rules.tails import op_of
from intertwine.rules.ties import Ties

Spot = tuple[str, int, int]  # weight, dimension, position

# Ops of two operands in no order, of which several are one.
UNORDERED = {
    "mul.Tensor": "product", "maximum.default": "maximum", "max.other": "maximum",
    "minimum.default": "minimum", "min.other": "minimum",
}  # fmt: skip

_NOT_ENTRYWISE = frozenset(
    "glu.default prelu.default _prelu_kernel.default native_dropout.default rrelu.default".split()
)


class Terms:
    """Numbers of expressions. parts: what each is made of, as far as slices go; spots: weight positions."""

    def __init__(self) -> None:
        self._known: dict[Any, int] = {}
        self.parts: list[tuple[int, ...]] = []
        self.weight: dict[int, str] = {}
        self.spots: dict[int, tuple[Spot, ...]] = {}
        self._flat: dict[tuple[str, int], tuple[int, ...]] = {}

    def of(self, key: Any, parts: Sequence[int] = ()) -> int:
        """The number of an expression; parts: the numbers in it that stand for themselves, not for a set."""
        number = self._known.setdefault(key, len(self._known))
        if number == len(self.parts):
            self.parts.append(tuple(parts))
        return number

    def total(self, addends: Sequence[int]) -> int:
        """A sum, in no order; sums of sums are one."""
        return self.together("sum", addends)

    def together(self, how: str, operands: Sequence[int]) -> int:
        """What does not depend on the order of its operands, nor on which two are taken together first."""
        flat = sorted(term for a in operands for term in self._flat.get((how, a), (a,)))
        if len(flat) == 1:
            return flat[0]
        number = self.of((how, *flat), flat)
        self._flat[how, number] = tuple(flat)
        return number

    def slice(self, whole: int, dim: int, place: int) -> int:
        """A slice of a value of which nothing more is known."""
        return self.of(("slice", whole, dim, place), (whole,))

    def set(self, *slices: int) -> tuple[int, ...]:
        """Some numbers in no order."""
        return tuple(sorted(slices))


class Exchanged:
    """Which weight lies where: `tensors`, name -> that of the one that lies there now; `slots`, (weight,
    dimension) -> the position that each entry came from."""

    def __init__(
        self,
        tensors: Mapping[str, str] | None = None,
        slots: Mapping[tuple[str, int], Sequence[int]] | None = None,
    ) -> None:
        self.tensors = {k: v for k, v in (tensors or {}).items() if k != v}
        self.slots: dict[str, dict[int, tuple[int, ...]]] = {}
        for (name, dim), source in (slots or {}).items():
            if list(source) != list(range(len(source))):
                self.slots.setdefault(name, {})[dim] = tuple(int(p) for p in source)


class Expressions:
    """The numbers of all values of one graph. sizes: along dimensions of these sizes, slices that are taken
    out are told from each other; base: the same graph with every weight in its place."""

    def __init__(
        self,
        traced: Traced,
        terms: Terms,
        sizes: frozenset[int],
        exchanged: Exchanged | None = None,
        base: Expressions | None = None,
    ) -> None:
        self.traced, self.terms, self.sizes = traced, terms, sizes
        self.exchanged, self.base = exchanged or Exchanged(), base
        self._ties: Ties | None = base._ties if base else None
        self._slices: dict[tuple[fx.Node, int, bool], Slices | None] = {}
        self._names: dict[fx.Node, tuple[int, Slices]] = {}
        self.number: dict[fx.Node, int] = {}
        self.outputs: list[int | None] = []
        for node in traced.graph.nodes:
            if node.op == "output":
                leaves = tree_leaves(node.args[0])
                self.outputs = [
                    self.number.get(leaf) if isinstance(leaf, fx.Node) else None for leaf in leaves
                ]
            else:
                self.number[node] = self._number(node)

    # -- whole values ------------------------------------------------------------------------------------

    def _clean(self, node: fx.Node) -> bool:
        """Whether a value is what it was before the exchange."""
        return self.base is not None and self.number[node] == self.base.number[node]

    def _number(self, node: fx.Node) -> int:
        if node.op == "placeholder":
            return self._placeholder(node)
        if node.op != "call_function":
            return self.terms.of((node.op, str(node.target)))
        if self.base is not None and all(self._clean(n) for n in node.all_input_nodes):
            if (named := self.base._names.get(node)) is not None:
                self._names[node] = named
            return self.base.number[node]
        law = WHOLE.get(op_of(node))
        found = law(self, node) if law is not None else self.moved_names(node)
        if found is None and facts(node).same and self._same(node):
            found = self.number[node.args[0]]  # type: ignore[index]
        return self._entry(node, self.number) if found is None else found

    def _placeholder(self, node: fx.Node) -> int:
        name = self.traced.weights.get(node.name)
        if name is not None:
            return self.leaf(name)
        constant = self.traced.constants.get(node.name)
        if isinstance(constant, torch.Tensor) and constant.numel() <= 4096 and not constant.is_meta:
            value = (str(constant.dtype), tuple(constant.shape), repr(constant.tolist()))
            return self.terms.of(("constant", value))
        return self.terms.of(("input", node.name))

    def leaf(self, name: str, at: Mapping[int, int] | None = None) -> int:
        """A weight, or what lies at some positions of it."""
        at, moves = at or {}, self.exchanged.slots.get(name, {})
        rest = tuple(sorted((d, source) for d, source in moves.items() if d not in at))
        taken = tuple(sorted((d, p if p >= len(moves.get(d, ())) else moves[d][p]) for d, p in at.items()))
        source = self.exchanged.tensors.get(name, name)
        number = self.terms.of(("weight", source, rest, taken))
        self.terms.weight[number] = source
        if taken:
            self.terms.spots[number] = tuple((source, d, p) for d, p in taken)
        return number

    def _same(self, node: fx.Node) -> bool:
        """Whether a copy has the very numbers of its operand: its shape and its precision."""
        first = node.args[0]
        return isinstance(first, fx.Node) and shape(first) == shape(node) and _dtype(first) == _dtype(node)

    def _entry(self, node: fx.Node, numbers: Mapping[fx.Node, int]) -> int:
        """An op of its operands, whose numbers are given."""
        op, terms = op_of(node), self.terms
        parts = [numbers[n] for n in node.all_input_nodes]
        given = encoded((node.args, node.kwargs), numbers)
        if is_drawn(node):  # at random, anew at every call
            return terms.of(("drawn", node.name, given), parts)
        a, b = (*node.args[:2], None, None)[:2] if len(node.args) else (None, None)
        if op in ("add.Tensor", "sub.Tensor", "add.Scalar") and _floating(node) and not node.kwargs:
            sides = [self._addend(x, numbers) for x in (a, b)]
            if op == "sub.Tensor":
                sides[1] = terms.of(("minus", sides[1]), (sides[1],))
            kept = [s for s, x in zip(sides, (a, b), strict=True) if isinstance(x, fx.Node) or x]
            return terms.total(kept)
        if op in UNORDERED and isinstance(a, fx.Node) and isinstance(b, fx.Node):
            return terms.together(UNORDERED[op], [numbers[a], numbers[b]])
        return terms.of((op or str(node.target), given, str(_dtype(node))), parts)

    def _addend(self, x: Any, numbers: Mapping[fx.Node, int]) -> int:
        return numbers[x] if isinstance(x, fx.Node) else self.terms.of(("number", repr(x)))

    # -- slices ------------------------------------------------------------------------------------------

    def slices(self, node: Any, dim: int, rows: bool = False) -> Slices | None:
        """The slices of a value along a dimension, told from each other; None where nothing tells them.

        rows: also where only the rows of a weight do; else something must have been put together here.
        """
        if not isinstance(node, fx.Node) or not shape(node):
            return None
        dim %= len(shape(node))
        if not isinstance(shape(node)[dim], int):
            return None
        if self._clean(node):
            return self.base.slices(node, dim, rows)  # type: ignore[union-attr]
        key = node, dim, rows
        if key not in self._slices:
            self._slices[key] = self._find_slices(node, dim, rows)
        return self._slices[key]

    def certain(self, node: fx.Node, dim: int) -> Slices:
        """The slices of a value, each of which may be no more than a place in it."""
        return self.slices(node, dim, rows=True) or self.places(node, dim)

    def places(self, node: fx.Node, dim: int) -> Slices:
        """The slices of a value of which no more is known than where they are."""
        dim %= len(shape(node))
        return tuple(self.terms.slice(self.number[node], dim, p) for p in range(shape(node)[dim]))

    def _find_slices(self, node: fx.Node, dim: int, rows: bool) -> Slices | None:
        if node.op == "placeholder":
            name = self.traced.weights.get(node.name)
            if name is None or not rows:
                return None
            return tuple(self.leaf(name, {dim: p}) for p in range(shape(node)[dim]))
        if node.op != "call_function" or is_drawn(node):
            return None
        op, about = op_of(node), facts(node)
        law = SLICED.get(op)
        found = law(self, node, dim, rows) if law is not None else None
        if found is None and about.same and self._same(node):
            return self.slices(node.args[0], dim, rows)
        if found is None and about.family == "pointwise" and op not in _NOT_ENTRYWISE:
            return self._entrywise(node, dim, rows)
        if found is None and (source := source_of(node, dim)) is not None:
            inner = self.slices(source[0], source[1], rows)
            if inner is not None:
                others = {n: self.number[n] for n in node.all_input_nodes} | {source[0]: -1}
                how = (op, encoded((node.args, node.kwargs), others), dim, shape(source[0]), shape(node))
                beside = tuple(self.number[n] for n in node.all_input_nodes if n is not source[0])
                return tuple(self.terms.of(("along", how, s), (s, *beside)) for s in inner)
        return found

    def _entrywise(self, node: fx.Node, dim: int, rows: bool) -> Slices | None:
        rank, size = len(shape(node)), shape(node)[dim]
        known, wanted = dict[fx.Node, list[int]](), list[tuple[fx.Node, int]]()
        told = False
        for n in node.all_input_nodes:
            at = dim - (rank - len(shape(n)))
            if at < 0:
                known[n] = [self.number[n]] * size
            elif shape(n)[at] != size:
                known[n] = [self.terms.slice(self.number[n], at, 0)] * size
            elif (found := self.slices(n, at, rows)) is not None:
                known[n], told = list(found), True
            else:
                wanted.append((n, at))
        if not told:
            return None
        known |= {n: list(self.certain(n, at)) for n, at in wanted}
        return tuple(self._entry(node, {n: of[p] for n, of in known.items()}) for p in range(size))

    # -- what topk returns -------------------------------------------------------------------------------

    def name(self, node: fx.Node, among: int, slices: Slices) -> int:
        """Remember that the entries of a value are places: the number of that value."""
        self._names[node] = among, slices
        return self.terms.of(("numbers", among, slices), slices)

    def named(self, node: Any) -> tuple[int, Slices] | None:
        """(which of the slices are named where, as far as their order does not matter; the slices)."""
        return self._names.get(node) if isinstance(node, fx.Node) else None

    @cached_property
    def ties(self) -> Ties:
        """Which scores tie by accident only."""
        if self._ties is None:
            self._ties = Ties(self.traced)
            if self.base is not None:
                self.base._ties = self._ties
        return self._ties

    def moved_names(self, node: fx.Node) -> int | None:
        """Places that are copied, cut or put in another order are places still; None for all else."""
        named = [n for n in node.all_input_nodes if n in self._names]
        if len(named) != 1 or node.args[0] is not named[0] or not _whole_numbers(node):
            return None
        about = facts(node)
        if not (about.same or (about.carries and not about.fills)):
            return None
        among, slices = self._names[named[0]]
        others = {n: self.number[n] for n in node.all_input_nodes} | {named[0]: -1}
        how = (op_of(node), encoded((node.args, node.kwargs), others), shape(named[0]))
        return self.name(node, self.terms.of(("places", how, among)), slices)


def _dtype(node: Any) -> Any:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value.dtype if isinstance(value, torch.Tensor) else None


def _floating(node: fx.Node) -> bool:
    dtype = _dtype(node)
    return dtype is not None and (dtype.is_floating_point or dtype.is_complex)


def _whole_numbers(node: fx.Node) -> bool:
    return _dtype(node) in (torch.int32, torch.int64)
