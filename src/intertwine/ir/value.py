"""Symbolic tensors: what every position of a value stands for.

A value has the shape of a real tensor. Each dimension is a product of *axes* (major to minor; a size-1
dimension has none, unless it is a single channel that may be rescaled), and *factors* lie on the axes: a
factor is an integer array of labels (which channel is here) and a parallel array of scales (which unknown
multiplies it). Most factors lie on one axis. A factor on several axes is a joint one: after
`view(B, N, 3, heads, dim)` one factor lies on the last three.

    an axis with a factor       channels that may move
    an axis without             positions that are fixed: batch, pixels, tokens, classes
    an axis without, `wild`     all slices are equal (made by broadcasting), so it fits anything
    an axis of no dimension     stands for a choice: every row is a slice of it (rows that experts compute)

Shape ops are just numpy on the labels; nothing here writes facts except `join`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from intertwine.ir.ledger import ANY_NONLINEAR, ZERO, Ids, Ledger


@dataclass(frozen=True, eq=False)
class Extent:
    """One factor of a dimension; compared by identity."""

    size: int
    wild: bool = False


@dataclass(frozen=True, eq=False)
class Factor:
    """Labels and scales on a tuple of axes."""

    axes: tuple[Extent, ...]
    ids: Ids
    scale: Ids

    def on(self, axes: Sequence[Extent]) -> Factor:
        """The same factor with its axes in another order."""
        if tuple(axes) == self.axes:
            return self
        order = [self.axes.index(a) for a in axes]
        return Factor(tuple(axes), self.ids.transpose(order), self.scale.transpose(order))

    def renamed(self, names: dict[Extent, Extent]) -> Factor:
        """The same factor on other axis objects of the same sizes."""
        return Factor(tuple(names.get(a, a) for a in self.axes), self.ids, self.scale)


@dataclass(frozen=True)
class Value:
    """A symbolic tensor; `zero` means that all its entries are known to be 0."""

    dims: tuple[tuple[Extent, ...], ...]
    factors: tuple[Factor, ...] = ()
    zero: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the real tensor."""
        return tuple(math.prod(a.size for a in d) for d in self.dims)

    def covered(self) -> set[Extent]:
        """The axes that carry labels."""
        return {a for f in self.factors for a in f.axes}

    def behind(self) -> set[Extent]:
        """The axes that carry labels and lie along no dimension: every row is one of their slices."""
        return self.covered() - {a for d in self.dims for a in d}

    def thin(self) -> set[Extent]:
        """The axes of single channels."""
        return {a for d in self.dims for a in d if a.size == 1}

    def factors_on(self, axes: Iterable[Extent]) -> list[Factor]:
        """The factors that touch any of these axes."""
        wanted = set(axes)
        return [f for f in self.factors if wanted.intersection(f.axes)]

    def permuted(self, order: Sequence[int]) -> Value:
        """Dimensions in another order."""
        return Value(tuple(self.dims[i] for i in order), self.factors, self.zero)

    def with_dims(self, dims: Iterable[tuple[Extent, ...]]) -> Value:
        """The same axes, grouped into dimensions in another way."""
        return Value(tuple(dims), self.factors, self.zero)

    def renamed(self, names: dict[Extent, Extent]) -> Value:
        """The same value on other axis objects of the same sizes."""
        return Value(
            tuple(tuple(names.get(a, a) for a in d) for d in self.dims),
            tuple(f.renamed(names) for f in self.factors),
            self.zero,
        )

    def split(self, axis: Extent, sizes: Sequence[int]) -> Value:
        """Replace one axis by several, major to minor."""
        parts = tuple(Extent(s, axis.wild) for s in sizes)

        def cut(factor: Factor) -> Factor:
            if axis not in factor.axes:
                return factor
            k = factor.axes.index(axis)
            axes = factor.axes[:k] + parts + factor.axes[k + 1 :]
            shape = tuple(a.size for a in axes)
            return Factor(axes, factor.ids.reshape(shape), factor.scale.reshape(shape))

        def put(dim: tuple[Extent, ...]) -> tuple[Extent, ...]:
            return tuple(b for a in dim for b in (parts if a is axis else (a,)))

        return Value(tuple(put(d) for d in self.dims), tuple(cut(f) for f in self.factors), self.zero)

    def merged(self) -> Value:
        """Neighbouring axes of one dimension that carry the same factors become one axis."""
        if all(len(d) < 2 for d in self.dims):
            return self
        value = self
        owners = {a: frozenset(id(f) for f in self.factors if a in f.axes) for d in self.dims for a in d}
        for dim in self.dims:
            run: list[Extent] = []
            for axis in (*dim, None):
                if axis is not None and (
                    not run or (owners[axis] == owners[run[-1]] and axis.wild == run[-1].wild)
                ):
                    run.append(axis)
                    continue
                if len(run) > 1:
                    value = value._merge(run)
                run = [axis] if axis is not None else []
        return value

    def _merge(self, run: list[Extent]) -> Value:
        # What carries a label is not wild, even if it was broadcast along a part of it.
        wild = all(a.wild for a in run) and not self.factors_on(run)
        whole = Extent(math.prod(a.size for a in run), wild)

        def glue(factor: Factor) -> Factor:
            if run[0] not in factor.axes:
                return factor
            rest = [a for a in factor.axes if a not in run]
            moved = factor.on([*rest, *run])
            shape = (*(a.size for a in rest), whole.size)
            return Factor((*rest, whole), moved.ids.reshape(shape), moved.scale.reshape(shape))

        def put(dim: tuple[Extent, ...]) -> tuple[Extent, ...]:
            return tuple(whole if a is run[0] else a for a in dim if a is run[0] or a not in run)

        return Value(tuple(put(d) for d in self.dims), tuple(glue(f) for f in self.factors), self.zero)


def fixed(shape: Sequence[int]) -> Value:
    """A value that no symmetry touches."""
    return Value(tuple((Extent(int(s)),) if s != 1 else () for s in shape))


def constant(shape: Sequence[int], zero: bool = False) -> Value:
    """A value whose entries are all equal."""
    return Value(tuple((Extent(int(s), wild=True),) if s != 1 else () for s in shape), zero=zero)


def parameter(
    ledger: Ledger, shape: Sequence[int], stacked: Collection[int] = (), thin: Collection[int] = ()
) -> Value:
    """A weight about which nothing is known yet: one fresh factor a dimension; along those that are stacked
    it has labels of its own in every slice of dimension 0, whose scales do what those of the slices would.
    thin: the dimensions of size 1 that are a channel."""
    dims = tuple((Extent(1),) if d in thin else axes for d, axes in enumerate(fixed(shape).dims))
    factors: list[Factor] = []
    for dim, axes in enumerate(dims):
        if axes:
            axes = (*dims[0], *axes) if dim in stacked else axes
            sizes = tuple(axis.size for axis in axes)
            scale = zero_scale(sizes) if stacked and not dim else ledger.fresh_scales(sizes)
            factors.append(Factor(axes, ledger.fresh_labels(sizes), scale))
            if dim in stacked:
                ledger.lies_in(factors[-1].ids, factors[0].ids)
    return Value(dims, tuple(factors))


def join(ledger: Ledger, value: Value, axes: Sequence[Extent]) -> Value:
    """Make one axis of several neighbouring ones that carry different factors.

    A position of the joint axis lies in one block for each factor (and in a frozen block for fixed axes),
    so it moves as they do; its scale is the sum of theirs.
    """
    axes = list(axes)
    touching = value.factors_on(axes)
    outside = [a for f in touching for a in f.axes if a not in axes]
    if len(axes) == 1:
        return value
    if not touching:
        return value._merge(axes) if all(a.wild for a in axes) else _refix(value, axes)
    spread = list(dict.fromkeys([*outside, *axes]))
    shape = tuple(a.size for a in spread)
    ledger.cuts += 1
    ids, scale = ledger.fresh_labels(shape), ledger.fresh_scales(shape)
    ledger.mark(ids, ANY_NONLINEAR, blocks=False)  # a product of axes, or copies: no matrix mixes these
    terms = [scale]
    for factor in touching:
        rows = _spread(factor, spread, factor.ids)
        ledger.projections.append((ids.reshape(-1), rows.reshape(-1)))
        terms.append(_spread(factor, spread, factor.scale))
    bare = [a for a in axes if not any(a in f.axes for f in touching)]
    for axis in bare:
        marks = ledger.fresh_labels((axis.size,))
        ledger.mark(marks, ANY_NONLINEAR)  # copies change places, but what is copied does not mix with itself
        if not axis.wild:
            ledger.freeze(marks, "joined with a dimension that is fixed")
        place = marks.reshape([axis.size if a is axis else 1 for a in spread])
        ledger.projections.append((ids.reshape(-1), np.broadcast_to(place, shape).reshape(-1)))
    ledger.equation(tuple(terms), (1.0, *[-1.0] * len(touching)), (1,) * len(terms))
    kept = [f for f in value.factors if f not in touching]
    return replace(value, factors=(*kept, Factor(tuple(spread), ids, scale)))._merge(axes)


def _refix(value: Value, axes: Sequence[Extent]) -> Value:
    """Fixed and wild axes side by side become one fixed axis (wild is the weaker claim)."""
    plain = {a: Extent(a.size) for a in axes}
    return value.renamed(plain)._merge(list(plain.values()))


def _spread(factor: Factor, axes: Sequence[Extent], array: Ids) -> Ids:
    """A factor's array broadcast over `axes`."""
    present = [a for a in axes if a in factor.axes]
    moved = array.transpose([factor.axes.index(a) for a in present])
    shape = [a.size if a in factor.axes else 1 for a in axes]
    return np.broadcast_to(moved.reshape(shape), [a.size for a in axes])


def reshape(ledger: Ledger, value: Value, shape: Sequence[int]) -> Value:
    """`view`: the axes in order are cut and grouped anew; axes that do not divide are joined first."""
    value = value.merged()
    queue = [a for d in value.dims for a in d]
    dims: list[tuple[Extent, ...]] = []
    value = value.with_dims(tuple((a,) for a in queue))
    for size in shape:
        group: list[Extent] = []
        need = int(size)
        while need > 1:
            head = queue[0]
            if need % head.size == 0:
                group.append(queue.pop(0))
                need //= head.size
            elif head.size % need == 0:
                before = {a for d in value.dims for a in d}
                ledger.cuts += head in value.covered()
                value = value.split(head, (need, head.size // need))
                new = [a for d in value.dims for a in d if a not in before]
                group.append(new[0])
                queue[0] = new[1]
                need = 1
            else:
                before = {a for d in value.dims for a in d}
                pair = queue[:2]
                value = join(ledger, value, pair)
                new = [a for d in value.dims for a in d if a not in before]
                queue[:2] = new
        dims.append(tuple(group))
    # Where copies lie among positions depends on the sizes as much as where channels are cut.
    ledger.cuts += any(_copies_among_positions(group, value.covered()) for group in dims)
    return value.with_dims(dims).merged()


def _copies_among_positions(group: Sequence[Extent], covered: set[Extent]) -> bool:
    return any(a.wild for a in group) and any(not a.wild and a not in covered for a in group)


def single(ledger: Ledger, value: Value, dim: int) -> Value:
    """The same value with at most one axis in `dim`; the labels of a joint axis are made once a value."""
    if len(value.dims[dim]) < 2:
        return value
    known = ledger.joined.get((id(value), dim))
    if known is None:
        merged = value.merged()
        several = len(merged.dims[dim]) > 1
        known = (value, join(ledger, merged, merged.dims[dim]) if several else merged)
        ledger.joined[id(value), dim] = known
    out: Value = known[1]
    return out


def take(ledger: Ledger, value: Value, dim: int, index: Ids) -> Value:
    """The slices `index` of dimension `dim` (slice, select, split, flip, roll with known indices)."""
    size = value.shape[dim]
    if len(index) == size and (size == 1 or np.array_equal(index, np.arange(size))):
        return value
    value = single(ledger, value, dim)
    keep = len(index) != 1
    old = value.dims[dim][0] if value.dims[dim] else None
    new = Extent(len(index), old.wild if old is not None else True)
    factors: list[Factor] = []
    for factor in value.factors:
        if old is None or old not in factor.axes:
            factors.append(factor)
            continue
        k = factor.axes.index(old)
        ids, scale = factor.ids.take(index, axis=k), factor.scale.take(index, axis=k)
        ledger.seen(ids)
        axes = (*factor.axes[:k], new, *factor.axes[k + 1 :])
        if not keep:
            axes, ids, scale = (*axes[:k], *axes[k + 1 :]), ids.take(0, axis=k), scale.take(0, axis=k)
        if axes:
            factors.append(Factor(axes, ids, scale))
        else:
            ledger.zero(scale)
            ledger.freeze(ids, "one channel is picked out by its index")
    dims = (*value.dims[:dim], (new,) if keep else (), *value.dims[dim + 1 :])
    return Value(dims, tuple(factors), value.zero)


def zero_scale(shape: tuple[int, ...]) -> Ids:
    """Scales of positions that cannot be rescaled."""
    return np.full(shape, ZERO, dtype=np.int64)
