"""Sizes of a model as a function of the widths of its axes, and the best widths for a budget.

Every merge has a cost that is comparable across axes; the one with the least cost for each parameter (or
FLOP) that it saves is done next.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor, fx, nn

from intertwine.errors import InputError
from intertwine.merging.limits import Together
from intertwine.merging.lists import leaving
from intertwine.merging.plan import AxisPlan, MergePlan
from intertwine.rules import facts
from intertwine.symmetry import Symmetry


@dataclass(frozen=True)
class Carried:
    """An axis on a dimension of a weight: positions for each of its channels, and (axis, size) of the heads
    that its channels are spread over, which take their part of them along."""

    dim: int
    axis: str
    copies: int
    within: tuple[tuple[str, int], ...] = ()

    def gone(self, removed: Mapping[str, int]) -> float:
        """How many positions go with so many channels of each axis."""
        gone = float(removed.get(self.axis, 0) * self.copies)
        for axis, size in self.within:
            gone *= 1.0 - removed.get(axis, 0) / size
        return gone


@dataclass(frozen=True)
class Weight:
    """A weight's shape, its cost for each entry, and the axes on its dimensions.

    goes: the axis of whose containers it is in an entry (""), and after how many other channels that goes.
    """

    shape: tuple[int, ...]
    price: float
    carries: tuple[Carried, ...]
    goes: tuple[str, int] = ("", 0)

    def size(self, removed: Mapping[str, int]) -> float:
        """Price times entries once so many channels of each axis are gone."""
        axis, after = self.goes
        if removed.get(axis, 0) > after:
            return 0.0
        shape: list[float] = list(self.shape)
        for carried in self.carries:
            shape[carried.dim] -= carried.gone(removed)
        return self.price * math.prod(shape)


class Sizes:
    """Parameters or FLOPs of a model by the number of channels removed from each axis."""

    def __init__(
        self, model: nn.Module, symmetry: Symmetry, plan: MergePlan, what: str = "parameters"
    ) -> None:
        carries = _carried(plan)
        prices = None if what == "parameters" else entry_flops(symmetry)
        goes = {prefix: (a.name, k) for a in plan.axes for prefix, k in leaving(model, a).items()}
        self.weights = {
            name: Weight(
                tuple(p.shape),
                1.0 if prices is None else prices.get(name, 0.0),
                tuple(carries.get(name, ())),
                next((when for prefix, when in goes.items() if name.startswith(prefix)), ("", 0)),
            )
            for name, p in model.named_parameters()
        }
        self.by_axis: dict[str, list[Weight]] = {}
        for weight in self.weights.values():
            carried = {name for c in weight.carries for name in (c.axis, *(w for w, _ in c.within))}
            for axis_name in carried | {weight.goes[0]}:
                self.by_axis.setdefault(axis_name, []).append(weight)

    def total(self, removed: Mapping[str, int]) -> float:
        """Size of the whole model."""
        return sum(w.size(removed) for w in self.weights.values())

    def saved(self, axes: Sequence[str], step: int, removed: Mapping[str, int]) -> float:
        """What removing `step` more channels of each of these axes saves."""
        after = {**removed, **{axis: removed.get(axis, 0) + step for axis in axes}}
        return sum(w.size(removed) - w.size(after) for w in self.touched(axes).values())

    def touched(self, axes: Sequence[str]) -> dict[int, Weight]:
        """The weights whose sizes depend on these axes, by id."""
        return {id(w): w for axis in axes for w in self.by_axis.get(axis, ())}


def _carried(plan: MergePlan) -> dict[str, list[Carried]]:
    """Weight -> the axes on its dimensions; those whose positions lie inside another's shrink with it."""
    found: dict[tuple[str, int], list[tuple[AxisPlan, np.ndarray]]] = {}
    for axis in plan.axes:
        for part in axis.places:
            where = part.place(axis.size).where
            found.setdefault((part.param, part.dim), []).append((axis, where))
    carries: dict[str, list[Carried]] = {}
    for (param, dim), members in found.items():
        for k, (axis, where) in enumerate(members):
            around = [
                (other.name, other.size)
                for j, (other, wider) in enumerate(members)
                if j != k and bool(np.isin(where, wider).all()) and (wider.size > where.size or j < k)
            ]
            carries.setdefault(param, []).append(Carried(dim, axis.name, where.shape[1], tuple(around)))
    return carries


def entry_flops(symmetry: Symmetry) -> dict[str, float]:
    """Weight -> FLOPs for each of its entries: 2 for each output position that it is used at."""
    traced = symmetry.traced
    out: dict[str, float] = {}
    for node in traced.graph.nodes:
        if node.op != "call_function":
            continue
        value, rows = node.meta.get("val"), facts(node).rows
        if rows is None or not isinstance(value, Tensor):
            continue
        weight = node.args[1]
        if isinstance(weight, fx.Node) and weight.name in traced.weights:
            uses = int(value.numel()) / int(value.shape[rows])
            param = traced.weights[weight.name]
            out[param] = out.get(param, 0.0) + 2.0 * uses
    return out


def fit_budget(
    plan: MergePlan, sizes: Sizes, share: float, what: str, units: Sequence[Together] | None = None
) -> MergePlan:
    """The plan cut so that at most `share` of the size is left, at the least total cost.

    units: which axes are narrowed together, and to which widths; each on its own unless given.
    """
    if not 0 < share <= 1:
        raise InputError(f"the target is {share}, not a share above 0 and up to 1")
    units = units if units is not None else [Together((a,)) for a in plan.axes]
    widths = [unit.size if unit.fixed is None else unit.fixed for unit in units]
    removed = {a.name: a.size - w for unit, w in zip(units, widths, strict=True) for a in unit.axes}
    full = sizes.total({})
    size = sizes.total(removed)
    steps: list[list[int]] = [[] for _ in units]  # the widths that each unit had before
    hulls = [unit.hull() for unit in units]
    touched = [sizes.touched([a.name for a in unit.axes]).keys() for unit in units]
    # The next step of each unit: price, number, width, what it saves; kept until a weight of it has changed.
    offers: dict[int, tuple[float, int, int, float] | None] = {}
    while size > share * full:
        for number, unit in enumerate(units):
            if number in offers:
                continue
            width = unit.below(widths[number]) if unit.fixed is None else None
            offers[number] = None
            if width is not None:
                saved = sizes.saved([a.name for a in unit.axes], widths[number] - width, removed)
                price = max(hulls[number][width] - hulls[number][widths[number]], 0.0) / max(saved, 1e-9)
                offers[number] = (price, number, width, saved) if saved > 0 else None
        best = min((offer for offer in offers.values() if offer is not None), default=None)
        if best is None:
            raise InputError(
                f"{share:.0%} of the {what} cannot be reached",
                so=f"merging everything that can be merged leaves {size / full:.1%}"
                if size < full
                else "no channel of this model can be merged with another",
                do="give a larger target" if size < full else "`intertwine inspect` says why, axis by axis",
            )
        _, number, width, saved = best
        steps[number].append(widths[number])
        widths[number] = width
        removed |= {a.name: a.size - widths[number] for a in units[number].axes}
        size -= saved
        for other, weights in enumerate(touched):
            if other == number or not weights.isdisjoint(touched[number]):
                del offers[other]
    _give_back(units, widths, steps, sizes, share * full)
    removed = {a.name: a.size - w for unit, w in zip(units, widths, strict=True) for a in unit.axes}
    return plan.to_widths({a.name: a.size - removed[a.name] for a in plan.axes})


def _give_back(
    units: Sequence[Together], widths: list[int], steps: list[list[int]], sizes: Sizes, most: float
) -> None:
    """Take back the dearest last steps that the budget does not need: a step may be large (a whole head)."""

    def size(number: int) -> float:
        tried = [steps[k][-1] if k == number else w for k, w in enumerate(widths)]
        pairs = zip(units, tried, strict=True)
        return sizes.total({a.name: a.size - w for unit, w in pairs for a in unit.axes})

    while True:
        free = [k for k, before in enumerate(steps) if before and size(k) <= most]
        if not free:
            return
        number = max(free, key=lambda k: units[k].cost(widths[k]) - units[k].cost(steps[k][-1]))
        widths[number] = steps[number].pop()


def uniform_widths(axes: Sequence[AxisPlan], share: float) -> dict[str, int]:
    """The same share of channels on every axis (at least one)."""
    return {a.name: max(1, int(np.ceil(share * a.size))) for a in axes}
