"""Whole numbers that name channels (the places of the largest scores), and rows in the order of such numbers.

Experts are computed in one of two ways. Their matrices are looked up by the chosen places; or rows are sorted
by their expert, multiplied group by group, and put back. Both are followed from op to op:

    places   numbers that name channels: they look up, gather, fill and mark them (`Rule.points`)
    rows     dimension 0 is in the order R by which the places were sorted: what is done to each row alone
             keeps that, and rows that are put back, or added up, are as they were before
    back     where each row is in R
    sizes    how often each channel is named, and bounds, the sums of these: of rows in R, the groups

An op that is none of these sees which numbers they are, or in which order rows come: then the channels stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from intertwine.ir.ledger import Ids
from intertwine.rules.registry import Rule, facts
from intertwine.rules.tails import op_of

SORTS = frozenset("sort.default sort.stable argsort.default argsort.stable".split())
SLICES = frozenset("slice.Tensor select.int unsqueeze.default squeeze.dim".split())  # with dim as argument 1
SPLITS = frozenset("split.Tensor split_with_sizes.default".split())  # as argument 2
VIEWS = frozenset("view.default _unsafe_view.default reshape.default".split())
SIZES_ONLY = frozenset("empty_like.default new_empty.default _assert_tensor_metadata.default".split())
EXCHANGES = frozenset("transpose.int".split())
PRODUCTS = frozenset("matmul.default bmm.default".split())
GROUPED = frozenset("_grouped_mm.default transformers.grouped_mm_fallback.default".split())
EXACT = (torch.int32, torch.int64, torch.float32, torch.float64)  # every number of a channel is one of these


@dataclass(frozen=True, eq=False)
class Named:
    """labels: of the channels that are named. source: the value that names them, before it was sorted; order:
    the node that sorted it, if dimension 0 is in its order; alone: these are the numbers of the rows."""

    kind: str
    labels: Ids
    source: fx.Node
    order: fx.Node | None = None
    alone: bool = False


# The labels that an index names, and what the results name (None: the only one).
Step = tuple[Ids | None, dict[int | None, Named]]


class Names:
    """What the values of one graph name, node by node."""

    def __init__(self) -> None:
        self._of: dict[tuple[fx.Node, int | None], Named] = {}

    def name(self, node: fx.Node, labels: Ids) -> None:
        """The result of a node, or the second of two, names channels."""
        alone = isinstance(node.meta["val"], torch.Tensor)
        self._of[node, None if alone else 1] = Named("places", labels, node)

    def of(self, node: Any) -> Named | None:
        """What a value names."""
        return self._of.get((node, None)) if isinstance(node, fx.Node) else None

    def pick(self, node: fx.Node) -> None:
        """`getitem`: one of several results."""
        source, place = node.args
        found = self._of.get((source, place)) or self._of.get((source, None))  # type: ignore[arg-type]
        if found is not None:
            self._of[node, None] = replace(found, source=node) if found.source is source else found

    def enter(self, node: fx.Node) -> tuple[Ids | None, list[Ids]]:
        """(the labels that the index of this op names, labels that stay because of what it does)."""
        named = [found for n in node.all_input_nodes if (found := self.of(n)) is not None]
        if not named or op_of(node) in SIZES_ONLY or facts(node).sizes_only:
            return None, []
        about = facts(node)
        picked = self._grouped(node) if op_of(node) in GROUPED else self._indexed(node, about)
        step = picked or self._ordered(node) or self._handed_on(node, about)
        if step is None:
            return None, [found.labels for found in named]
        for result, made in step[1].items():
            self._of[node, result] = made
        return step[0], []

    def chosen_by(self, node: fx.Node) -> tuple[Any, int]:
        """(what says which slice of dimension 0 every row takes, how many dimensions of rows there are)."""
        if op_of(node) in GROUPED:
            given = node.args[2] if len(node.args) > 2 else node.kwargs.get("offs")
            rows, bounds = self.of(node.args[0]), self.of(given)
            if rows is None or bounds is None or (rows.kind, bounds.kind) != ("rows", "bounds"):
                return given, 1
            return (rows.order if rows.source is bounds.source else given), 1
        where = facts(node).points
        pointer = node.args[where] if where is not None and where < len(node.args) else None
        chosen = [n for n in (pointer if isinstance(pointer, (list, tuple)) else [pointer]) if n is not None]
        if len(chosen) != 1 or not isinstance(chosen[0], fx.Node):
            return None, 0
        found = self.of(chosen[0])
        if found is not None and found.kind == "places" and found.order is not None:
            return found.order, _rank(chosen[0])
        return chosen[0], _rank(chosen[0])

    def _grouped(self, node: fx.Node) -> Step | None:
        """Products by groups of rows: each group meets the matrix of the channel whose bounds it has."""
        bounds = self.of(node.args[2] if len(node.args) > 2 else node.kwargs.get("offs"))
        rows = self.of(node.args[0])
        if rows is None or bounds is None or (rows.kind, bounds.kind) != ("rows", "bounds"):
            return None
        if rows.source is not bounds.source or len(node.all_input_nodes) != 3 or self.of(node.args[1]):
            return None
        return bounds.labels, {None: rows}

    def _indexed(self, node: fx.Node, about: Rule) -> Step | None:
        """Lookups by an index."""
        if about.points is None or about.points >= len(node.args):
            return None
        pointer = node.args[about.points]
        chosen = [n for n in (pointer if isinstance(pointer, (list, tuple)) else [pointer]) if n is not None]
        index = self.of(chosen[0]) if len(chosen) == 1 else None
        if index is None:
            return None
        others = [a for k, a in enumerate(node.args) if k != about.points]
        tagged = [found for n in _nodes((others, node.kwargs)) if (found := self.of(n)) is not None]
        if index.kind == "places" and index.order is None and not tagged:
            return index.labels, {}
        if not self._first(node, about):
            return None
        if index.kind == "places" and not tagged:
            return index.labels, {None: replace(index, kind="rows")}
        if index.kind == "rows" and not tagged:
            return None, {None: replace(index, alone=False)}
        given = self.of(node.args[0])
        if given is None or len(tagged) > 1:
            return None
        if index.kind == "rows" and index.alone and given.kind == "places" and given.order is None:
            alike = given.source is index.source
            return (None, {None: replace(given, order=index.order)}) if alike else None
        back = index.kind == "back" and given.kind == "rows" and given.order is index.order
        return (None, {}) if back else None

    def _first(self, node: fx.Node, about: Rule) -> bool:
        """Whether slices of dimension 0 are taken, one for each row."""
        if not about.picks:
            return about.looks_up
        given = node.args[1]
        return given == 0 if isinstance(given, int) else isinstance(given, (list, tuple)) and len(given) == 1

    def _sorted(self, node: fx.Node, first: Named) -> Step | None:
        """Sorting places makes rows, and sorting the numbers of rows says where each is."""
        rest = [*node.args[1:], *(v for k, v in node.kwargs.items() if k != "stable")]
        if _rank(node.args[0]) != 1 or any(a is True for a in rest):  # downwards
            return None
        several = op_of(node).startswith("sort")
        if first.kind == "places" and first.order is None:
            rows = Named("rows", first.labels, first.source, node, alone=True)
            return None, {0: replace(first, order=node), 1: rows} if several else {None: rows}
        if first.kind == "rows" and first.alone:
            back = replace(first, kind="back", alone=False)
            return None, {1: back, 0: replace(back, kind="unused")} if several else {None: back}
        return None

    def _put_back(self, node: fx.Node) -> Step | None:
        """Rows written to where they came from are as they were before; of 0, 1, ... that says where."""
        places, value = node.args[1], node.args[2]
        order = self.of(places[0]) if isinstance(places, (list, tuple)) and len(places) == 1 else None
        if order is None or order.kind != "rows" or not order.alone:
            return None
        if isinstance(value, fx.Node) and op_of(value) == "arange.default" and len(value.args) == 1:
            return None, {None: replace(order, kind="back", alone=False)}
        put = self.of(value)
        return (None, {}) if put and put.kind == "rows" and put.order is order.order else None

    def _added_up(self, node: fx.Node) -> Step | None:
        """Rows that are added to where they came from."""
        order, put = self.of(node.args[2]), self.of(node.args[3])
        alike = order and put and order.kind == put.kind == "rows" and order.order is put.order
        return (None, {}) if alike else None

    def _ordered(self, node: fx.Node) -> Step | None:
        """What sorts, puts back, adds up and counts."""
        op, first = op_of(node), self.of(node.args[0]) if node.args else None
        if first is None:
            if op == "index_put.default" and len(node.args) == 3:
                return self._put_back(node)
            return self._added_up(node) if op == "index_add.default" and node.args[1] == 0 else None
        if op in SORTS:
            return self._sorted(node, first)
        n = len(first.labels)
        if op == "histc.default" and first.kind == "places":
            every = [*node.args[1:], *node.kwargs.values()] == [n, 0, n - 1]
            return (None, {None: replace(first, kind="sizes", order=None)}) if every else None
        if op == "cumsum.default" and first.kind == "sizes":
            return None, {None: replace(first, kind="bounds")}
        return None

    def _handed_on(self, node: fx.Node, about: Rule) -> Step | None:
        """Copies, and what is done to every row alone."""
        inputs = [n for n in node.all_input_nodes if self.of(n) is not None]
        first = self.of(inputs[0])
        if first is None or (first.kind != "rows" and not _exact(node)):
            return None
        if first.kind != "rows" and first.order is None and about.carries and not about.fills:
            if len(inputs) > 1 or (first.kind != "places" and not about.same):
                return None
            return None, {None: first if about.same else replace(first, source=node)}
        if about.same:
            return None, {None: first if _exact(node) else replace(first, alone=False)}
        orders = {(found.kind, found.order) for n in inputs if (found := self.of(n)) is not None}
        if orders != {("rows", first.order)} or not self._row_by_row(node, inputs, about):
            return None
        return None, {None: replace(first, alone=False)}

    def _row_by_row(self, node: fx.Node, rows: list[fx.Node], about: Rule) -> bool:
        op, args = op_of(node), node.args
        rank, shape = _rank(args[0]), _shape(node)
        if about.family == "pointwise":
            # What has no rows of its own meets every row alike.
            others = [n for n in node.all_input_nodes if n not in rows]
            alike = all(_rank(n) < len(shape) or _shape(n)[0] == 1 for n in others)
            return alike and all(_rank(n) == len(shape) and _shape(n)[0] == shape[0] for n in rows)
        if op in SLICES and len(args) > 1:
            return bool(args[1] % (rank + (op == "unsqueeze.default")))  # type: ignore[operator]
        if op in SPLITS:
            return len(args) > 2 and bool(args[2] % rank)  # type: ignore[operator]
        if op in VIEWS:
            return shape[:1] == _shape(args[0])[:1]
        return op == "linear.default" and rank > 1 and rows == [args[0]]


def row_by_row(node: fx.Node, rows: Sequence[fx.Node], lead: int) -> bool:
    """Whether an op meets rows with the same rows alone: the first `lead` dimensions of these operands."""
    about, op, args = facts(node), op_of(node), node.args
    if op == "einsum.default":
        terms = _terms(str(args[0]))[0]
        own = [t[:lead] for t, n in zip(terms, args[1], strict=True) if n in rows]  # type: ignore[arg-type]
        return len(set(own)) == 1 and "." not in own[0] and len(own[0]) == lead
    rank = _rank(args[0])
    if not rows_first(node, rows, lead):
        return False
    if about.family == "pointwise" or (about.same and not about.fills):
        return True
    if op in VIEWS:
        return True
    where = args[1:2] if op in SLICES else args[2:3] if op in SPLITS else args[1:] if op in EXCHANGES else ()
    if where:
        wide = rank + (op == "unsqueeze.default")
        return all(isinstance(d, int) and d % wide >= lead for d in where)
    if op == "linear.default":
        return rank > lead and list(rows) == [args[0]]
    if op in PRODUCTS:
        return all(_rank(n) >= lead + 2 for n in rows)
    return op in GROUPED and lead == 1 and list(rows) == [args[0]]


def rows_first(node: fx.Node, rows: Sequence[fx.Node], lead: int) -> bool:
    """Whether the results of an op that meets rows with the same rows have these rows first.

    >>> first, other = fx.Graph().placeholder("a"), fx.Graph().placeholder("b")
    >>> product = fx.Graph().call_function(torch.ops.aten.einsum.default, ("bi,bkih->bkh", [other, first]))
    >>> rows_first(product, [first], 2), rows_first(product, [first], 3)
    (True, False)
    """
    op, args = op_of(node), node.args
    if op == "einsum.default":
        terms, out = _terms(str(args[0]))
        own = {t[:lead] for t, n in zip(terms, args[1], strict=True) if n in rows}  # type: ignore[arg-type]
        return own == {out[:lead]} and "." not in out[:lead]
    tensors = [v for v in tree_leaves(node.meta.get("val")) if isinstance(v, torch.Tensor)]
    alike = all(_shape(n)[:lead] == _sizes(v)[:lead] for v in tensors for n in rows)
    ranks = {_rank(n) for n in rows}
    if facts(node).family == "pointwise" or op in PRODUCTS:  # with others that have more dimensions in front
        return alike and ranks == {v.dim() for v in tensors}
    return alike and bool(tensors)


def _terms(spec: str) -> tuple[list[str], str]:
    """The letters of the operands of an einsum, and of its result ("" where it says none)."""
    left, _, out = spec.replace(" ", "").partition("->")
    return left.split(","), out


def _nodes(tree: Any) -> list[fx.Node]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, fx.Node)]


def _sizes(value: Any) -> tuple[Any, ...]:
    """The shape of a tensor; a size that depends on the data is its expression, which equals no number."""
    return tuple(size if isinstance(size, int) else size.node.expr for size in getattr(value, "shape", ()))


def _shape(node: Any) -> tuple[Any, ...]:
    return _sizes(node.meta.get("val")) if isinstance(node, fx.Node) else ()


def _rank(node: Any) -> int:
    return len(_shape(node))


def _exact(node: fx.Node) -> bool:
    """Whether the results can hold whole numbers as they are."""
    tensors = [v for v in tree_leaves(node.meta.get("val")) if isinstance(v, torch.Tensor)]
    return all(v.dtype in EXACT for v in tensors)
