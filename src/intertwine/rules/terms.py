"""Values that are linear in one other: entries as sums of its entries times numbers.

y_p = sum_q c_pq x_q        an entry y_p is the list of its (q, c_pq); a complex one has two such lists
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import fx

from intertwine.rules.pointwise import UNARY, overloads
from intertwine.rules.registry import facts
from intertwine.rules.tails import (
    LISTS,
    STRUCTURE,
    Call,
    NotLinear,
    Numbers,
    Tail,
    alone,
    like,
    of_rank,
    op_of,
    shape_of,
)

Terms = tuple[tuple[int, int], ...]  # (place in x, signed number), by place


def read(node: fx.Node, known: Mapping[fx.Node, Any], numbers: Numbers) -> Any:
    """The tail of a node from those of its operands."""
    if node.target is operator.getitem:
        whole = known[node.args[0]]  # type: ignore[index]
        if not isinstance(whole, list):
            raise NotLinear
        return whole[node.args[1]]  # type: ignore[index]
    if shape_of(node) is None and op_of(node) not in LISTS:
        raise NotLinear
    args = fx.node.map_arg(node.args, lambda n: known[n])
    tails = [a for a in _flat(args) if isinstance(a, Tail)]
    if not tails or any(known[n] is None for n in node.all_input_nodes):
        raise NotLinear
    name = op_of(node)
    forms = [t for t in tails if t.form]
    if any(t.lead != forms[0].lead for t in forms):
        raise NotLinear
    if name in STRUCTURE:
        return STRUCTURE[name](Call(node, tails, numbers), *args)
    if facts(node).same:
        value = node.meta["val"]
        if not forms:
            return Call(node, tails, numbers).renamed(tails[0], tails[0].lead)
        if not value.is_floating_point() and not value.is_complex():
            raise NotLinear
        return tails[0]
    if forms:
        if name not in _FORMS or node.kwargs:
            raise NotLinear
        return _FORMS[name](numbers, *args)
    return _pointwise(node, args, tails, numbers)


def _flat(tree: Any) -> list[Any]:
    return [leaf for item in tree for leaf in _flat(item)] if isinstance(tree, (list, tuple)) else [tree]


def _pointwise(node: fx.Node, args: Any, tails: Sequence[Tail], numbers: Numbers) -> Tail:
    """A function of every entry: equal numbers stay equal."""
    known = op_of(node) in _POINTWISE and not any(isinstance(a, fx.Node) for a in node.kwargs.values())
    if not known or any(t.complex for t in tails) or node.meta["val"].is_complex():
        raise NotLinear
    shape = shape_of(node)
    assert shape is not None
    # Of an operand that has other dimensions only its last few can be told apart in the result.
    rank = min([t.entries.ndim for t in tails if t.lead] or [max(t.entries.ndim for t in tails)])
    wholes = [np.broadcast_to(of_rank(t, rank, numbers), shape[len(shape) - rank :]) for t in tails]
    name = op_of(node)
    if name == "neg.default":
        return Tail(-wholes[0], len(shape) - rank)
    # The shapes say how operands were laid against each other; equal numbers met in the same way.
    plain = repr([None if isinstance(a, Tail) else a for a in _flat(args)]) + repr(
        sorted(node.kwargs.items())
    )
    how = (name, plain, tuple(shape_of(n) for n in node.all_input_nodes))
    out = np.empty(wholes[0].shape, object)
    for place in np.ndindex(out.shape):
        out[place] = numbers.of(*how, *(int(w[place]) for w in wholes))
    return Tail(out, len(shape) - rank)


def _scaled(numbers: Numbers, terms: Terms, number: int) -> Terms:
    return tuple((p, numbers.times(c, number)) for p, c in terms)


def _sum(a: Terms, b: Terms) -> Terms:
    if {p for p, _ in a} & {p for p, _ in b}:
        raise NotLinear
    return tuple(sorted((*a, *b)))


def _negated(terms: Terms) -> Terms:
    return tuple((p, -c) for p, c in terms)


def _each(function: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    wholes = np.broadcast_arrays(*arrays)
    out = np.empty(wholes[0].shape, object)
    for place in np.ndindex(out.shape):
        out[place] = function(*(w[place] for w in wholes))
    return out


def _neg(numbers: Numbers, x: Tail) -> Tail:
    if x.complex:
        raise NotLinear
    return like(x, _each(_negated, x.entries))


def _add(numbers: Numbers, a: Any, b: Any) -> Tail:
    if not all(isinstance(t, Tail) and t.form and not t.complex for t in (a, b)):
        raise NotLinear
    return like(a, _each(_sum, a.entries, b.entries))


def _sub(numbers: Numbers, a: Any, b: Any) -> Tail:
    if not isinstance(b, Tail) or not b.form:
        raise NotLinear
    return _add(numbers, a, _neg(numbers, b))


def _mul(numbers: Numbers, a: Any, b: Any) -> Tail:
    x, by = (a, b) if isinstance(a, Tail) and a.form else (b, a)
    if isinstance(by, Tail) and by.form:
        raise NotLinear
    if not isinstance(by, Tail):
        if isinstance(by, complex):
            raise NotLinear
        by = Tail(alone(int(by) if by in (1, -1) else numbers.of("literal", repr(by))), 0)
    if by.complex and not x.complex:
        raise NotLinear
    factor = of_rank(by, x.entries.ndim, numbers)
    if not x.complex:
        return like(x, _each(lambda t, c: _scaled(numbers, t, int(c)), x.entries, factor))

    def turned(pair: tuple[Terms, Terms], c: int) -> tuple[Terms, Terms]:
        if not by.complex:
            return _scaled(numbers, pair[0], c), _scaled(numbers, pair[1], c)
        re, im = numbers.of("re", abs(c)), numbers.of("im", abs(c))
        re, im = (re, im) if c > 0 else (-re, -im)
        return (
            _sum(_scaled(numbers, pair[0], re), _scaled(numbers, pair[1], -im)),
            _sum(_scaled(numbers, pair[1], re), _scaled(numbers, pair[0], im)),
        )

    return like(x, _each(lambda pair, c: turned(pair, int(c)), x.entries, factor))


_POINTWISE = {
    *overloads(UNARY), "add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "mul.Scalar", "div.Scalar",
    "add.Scalar", "sub.Scalar", "rsub.Scalar", "pow.Tensor_Scalar",
}  # fmt: skip
_FORMS: dict[str, Callable[..., Any]] = {
    "neg.default": _neg, "add.Tensor": _add, "sub.Tensor": _sub, "mul.Tensor": _mul, "mul.Scalar": _mul,
}  # fmt: skip
