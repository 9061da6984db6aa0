"""Bring symbolic values side by side: project factors onto axes, align dimensions, broadcast arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence

from intertwine.ir.ledger import Ids, Ledger
from intertwine.ir.value import Extent, Factor, Value, join


def project(ledger: Ledger, factor: Factor, axes: Sequence[Extent]) -> Ids:
    """The labels of a factor as seen from a subset of its axes: its own, or those of the blocks."""
    axes = [a for a in axes if a in factor.axes]
    rest = [a for a in factor.axes if a not in axes]
    moved = factor.on([*axes, *rest])
    if not rest:
        return moved.ids
    shape = tuple(a.size for a in axes)
    return ledger.blocks(moved.ids.reshape(math.prod(shape), -1)).reshape(shape)


def align(ledger: Ledger, values: list[Value], places: Sequence[tuple[int, int]]) -> list[Value]:
    """Cut the dimensions at `places` (operand, dim) into axes of the same sizes and make them the same axes.

    A wild axis stays itself: it never constrains what it meets.
    """
    values = list(values)
    places = [(v, d) for v, d in places if values[v].dims[d]]
    if not places:
        return values
    while any(len(values[v].dims[d]) > 1 for v, d in places):
        lists = [[a.size for a in values[v].dims[d]] for v, d in places]
        if all(sizes == lists[0] for sizes in lists):
            break
        k = next(i for i in range(max(map(len, lists))) if len({sizes[i] for sizes in lists}) > 1)
        small = min(sizes[k] for sizes in lists)
        for (v, d), sizes in zip(places, lists, strict=True):
            if sizes[k] % small:
                for w, e in places:
                    values[w] = join(ledger, values[w], values[w].dims[e])
                break
            if sizes[k] != small:
                values[v] = values[v].split(values[v].dims[d][k], (small, sizes[k] // small))
    common: dict[int, Extent] = {}
    for v, d in places:
        names = {}
        for k, axis in enumerate(values[v].dims[d]):
            if not axis.wild and common.setdefault(k, axis) is not axis:
                names[axis] = common[k]
        if names:
            values[v] = values[v].renamed(names)
    return values


def separate(values: Sequence[Value]) -> list[Value]:
    """Copies that share no axis objects, so that one axis never stands in two roles."""
    merged = [v.merged() for v in values]
    return [v.renamed({a: Extent(a.size, a.wild) for d in v.dims for a in d}) for v in merged]


def over(factor: Factor, axes: Sequence[Extent], array: Ids) -> Ids:
    """A factor's array, its axes placed among `axes` and 1 elsewhere."""
    present = [a for a in axes if a in factor.axes]
    moved = array.transpose([factor.axes.index(a) for a in present])
    return moved.reshape([a.size if a in factor.axes else 1 for a in axes])


def firmer(current: tuple[Extent, ...], dim: tuple[Extent, ...]) -> tuple[Extent, ...]:
    """Of two readings of one dimension, axis by axis, the one that is not broadcast."""
    if not current or not dim:
        return current or dim
    return tuple(b if a.wild and not b.wild else a for a, b in zip(current, dim, strict=True))


def of_rank(value: Value, rank: int) -> Value:
    """The value with dimensions of size 1 in front."""
    return value.with_dims(((),) * (rank - len(value.dims)) + value.dims)


def without(dims: tuple[tuple[Extent, ...], ...], dim: int) -> tuple[tuple[Extent, ...], ...]:
    """All dimensions but one."""
    return dims[:dim] + dims[dim + 1 :]
