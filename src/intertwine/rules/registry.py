"""The rule table: op overload -> how it is written in the primitives of `ir.algebra`.

A rule is a function of the symbolic arguments, in the order of the op's schema. It is keyed by overload name
(`linear.default`), a second rule for the same overload raises, and it carries an example: a function of
tensors that uses the op, from which the oracle test checks the rule against the real op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from torch import fx

from intertwine.ir.algebra import Algebra
from intertwine.ir.ledger import ANY_NONLINEAR, UNMERGEABLE, Ids
from intertwine.ir.placing import project
from intertwine.ir.value import Extent, Factor, Value, zero_scale

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Rule:
    """One op overload explained. `law` is the first line of the rule's docstring.

    What the rest of the package asks about an op is said here and nowhere else:

    same        its result is its operand, entry by entry
    carries     it hands its operand on; the value is listed where it was computed
    finishes    it ends the layer that made its operand (an activation, a norm, a residual sum)
    summarizes  it only averages or takes maxima of its operand
    contracts   it multiplies by a matrix: its weight reads the operand's channels
    product     where its weight and its bias are among its arguments (None: it adds none), and which
                dimension of the weight it sums over
    centres     of a norm over features with its gain as argument 2: whether it subtracts their mean
    statistics  where its stored mean, variance and eps are among its arguments, if it is a norm that has them
    checks      it asserts something and returns nothing
    adds        it sums its two operands, or takes their difference
    factors     of its arguments, the two that it multiplies entry by entry (None: it does not)
    sums        of its arguments, the dimensions that it sums or averages over; it takes a `Product` too
    looks_up    it takes rows of its first operand, a table, by an index
    picks       it takes slices of its first operand by an index
    fills       it puts other entries beside those of its operand
    writes      it replaces a part of its first operand
    points      of its arguments, the index that says which channels it takes or fills: if it names them, they
                may move
    sizes_only  it reads the size of its operand, not its entries
    ranks       it says which entries along a dimension are the largest, as a router of experts does
    moments     how means and covariances of features pass (`rules.moments`)
    rows        the dimension of its result along which the outputs of its weight (argument 1) lie
    channels_last  it runs faster on images with their channels last
    differentiable  the same written in ops that have gradients for every argument, where this one has not
    thin        it does to a single channel (`Value.thin`) what it does to several
    channels    of its arguments, the dimensions of its weights that are channels, even if a single one:
                argument -> dimensions
    backward    how guided backpropagation passes it: "rectifier", only where the incoming gradient and its
                result are positive, or "gradient", as it is
    """

    op: str
    apply: Callable[..., Any]
    family: str
    law: str
    same: bool = False
    carries: bool = False
    finishes: bool = False
    summarizes: bool = False
    contracts: bool = False
    product: tuple[int, int | None, int] | None = None
    centres: bool | None = None
    statistics: tuple[int, int, int] | None = None
    checks: bool = False
    adds: bool = False
    factors: Callable[..., tuple[Any, Any] | None] | None = None
    sums: Callable[..., Any] | None = None
    looks_up: bool = False
    picks: bool = False
    fills: bool = False
    writes: bool = False
    points: int | None = None
    sizes_only: bool = False
    ranks: bool = False
    moments: Callable[..., Any] | None = None
    rows: int | None = None
    channels_last: bool = False
    differentiable: Callable[..., Any] | None = None
    thin: bool = False
    channels: Callable[..., Mapping[int, Sequence[int]]] | None = None
    backward: str = "gradient"


RULES: dict[str, Rule] = {}


@dataclass(frozen=True)
class Product:
    """left * right, of which only sums over channels are used: a contraction that is written in two steps."""

    left: Value
    right: Value


class Context(Algebra):
    """What a rule sees besides its arguments: the primitives, and the shapes the real op returned."""

    op: str
    shapes: list[tuple[int, ...]]
    floating: bool  # whether the (first) result holds real or complex numbers
    literal: np.ndarray | None = None  # the entries of the one operand that stands in the code as numbers
    named: Ids | None = None  # the labels of the channels that the numbers of its index stand for

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the (first) result."""
        return self.shapes[0]

    def role(self, value: Any, dim: int, role: str, shift: float = 0.0) -> bool:
        """Remember what a weight's dimension is used for (`in`, `out`, `bias`, `gain`, ...).

        shift: the weight is only ever used as weight + shift, and may be rescaled about -shift. Returns
        whether that could be granted.
        """
        return False

    def ranked(self, dim: int, labels: Ids) -> bool:
        """Whether the places of the largest along a dimension stand for the channels with these labels, and
        which ones they are depends on no accident (`rules.ties`). If so, they are remembered."""
        return False

    def masks(self, argument: int) -> list[bool]:
        """Of an argument that is a list of indices, which are masks of truth values."""
        return []

    def behind(self, size: int) -> Extent | None:
        """Where every row of the result takes one of `size` slices: an axis that stands for the choice. Two
        lookups have the same one if their rows take the same slices; None where nothing is known of it."""
        return None

    def pointed(self, value: Value, dims: Sequence[int], reason: str, rows: bool = False) -> Value:
        """The value as an index into some of its dimensions finds it: nothing moves along them, unless it is
        one, whose channels the index names and moves with.

        rows: every row of the result is one slice. What has an order of its own in each slice has that of the
        slice: its labels lie on an axis that no dimension has (`Value.behind`).
        """
        axes = value.dims[dims[0]] if len(dims) == 1 and value.dims else ()
        found = value.factors_on(axes)
        names = self.named is not None and len(axes) == 1 and axes[0].size == len(self.named)
        joint = len(axes) == 1 and any(len(f.axes) > 1 for f in found)
        chosen = self.behind(axes[0].size) if rows and joint else None
        if names and not found and axes[0].wild:
            return value
        if not (chosen is not None or (names and len(found) == 1)):
            return self._unnamed(value, dims, reason)
        if not names and self.named is not None:
            self.ledger.freeze(self.named, reason)
        kept = [f for f in value.factors if f not in found]
        for factor in found:
            slices, rest = project(self.ledger, factor, axes), [a for a in factor.axes if a is not axes[0]]
            if names:
                self.ledger.tie(self.named, slices)  # type: ignore[arg-type]
            else:
                self.ledger.freeze(slices, reason)
            self.ledger.mark(slices, ANY_NONLINEAR | UNMERGEABLE)
            if rest and chosen is not None:
                kept.append(factor.renamed({axes[0]: chosen}))
                continue
            self.ledger.mark(factor.ids, ANY_NONLINEAR | UNMERGEABLE)
            self.ledger.zero(factor.scale)
            if rest:
                ids = project(self.ledger, factor, rest)
                kept.append(Factor(tuple(rest), ids, zero_scale(ids.shape)))
        plain = value.renamed({axes[0]: Extent(axes[0].size)})
        return replace(plain, factors=tuple(kept))

    def labelled(self, value: Value, dim: int) -> Value:
        """The value with the channels that its index names along a dimension that the index fills."""
        if self.named is None:
            return value
        if value.shape[dim] != len(self.named) or len(self.named) < 2:
            self.ledger.freeze(self.named, "they name places among others")
            return value
        axis = Extent(len(self.named))
        factor = Factor((axis,), self.named, zero_scale(self.named.shape))
        dims = (*value.dims[:dim], (axis,), *value.dims[dim + 1 :])
        return Value(dims, (*value.factors, factor))

    def _unnamed(self, value: Value, dims: Sequence[int], reason: str) -> Value:
        if self.named is not None:
            self.ledger.freeze(self.named, reason)
        return self.fix(value, reason, dims if value.dims else None)

    def transposed(self, matrix: Value) -> Value:
        """A matrix with its two dimensions exchanged; that of a weight is known as such."""
        return matrix.permuted([1, 0])

    def part(self, made: Any, of: Any) -> None:
        """Remember that a value (or each of several) holds entries of a weight as they are."""

    def linear_weight(self, matrix: Value) -> None:
        """Remember that x @ W.T uses W as a linear layer does, if `matrix` is the transpose of a weight."""

    def through(self, body: fx.Graph, inputs: Sequence[Any]) -> list[Any]:
        """What a body that an op holds makes of these values: its ops are run as those of the graph are."""
        raise NotImplementedError

    def grouped_weight(self, weight: Value, groups: int) -> Value:
        """A weight (groups * o, i, ...) as (groups, o, i, ...), whose i may depend on the group."""
        return self.reshape(weight, (groups, weight.shape[0] // groups, *weight.shape[1:]))


def rule(*ops: str, **facts: Any) -> Callable[[F], F]:
    """Register one function for several overloads; facts: the other fields of `Rule`."""

    def register(function: F) -> F:
        family = function.__module__.rsplit(".", 1)[-1]
        law = (function.__doc__ or "").strip().splitlines()[0]
        for op in ops:
            if op in RULES:
                raise ValueError(f"two rules for {op}: {RULES[op].apply.__name__} and {function.__name__}")
            RULES[op] = Rule(op, function, family, law, **facts)
        return function

    return register


def find_rule(target: Any) -> Rule | None:
    """The rule of a graph node's target, or None."""
    return RULES.get(str(target).removeprefix("aten."))


_NOTHING = Rule("", lambda *_: None, "", "")


def facts(node: Any) -> Rule:
    """What is known about the op of a graph node; of an op without a rule nothing is."""
    return find_rule(node.target) or _NOTHING


def is_value(x: Any) -> bool:
    """Whether an argument is a symbolic tensor (and not a number, a list or None)."""
    return isinstance(x, Value)


def dims_of(value: Value, dims: int | Sequence[int] | None) -> list[int]:
    """Non-negative dimensions; None or an empty list means all."""
    rank = len(value.dims)
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return list(range(rank))
    return sorted({d % rank for d in ([dims] if isinstance(dims, int) else dims)}) if rank else []
