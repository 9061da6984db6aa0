"""`symmetry.values`: every value that a model computes, by name, with the group that acts on it.

    y = values[name].act(g, x)        x the value in m, y the same value in act(m, g), on the same inputs

The dimensions, the axes on them and the group come from the labels and scales that the rules put on the value
(`symmetry.action`); nothing is guessed from the op. The dimensions that the group acts on are the channels,
all others are inputs and pixels.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from intertwine.errors import NotFound
from intertwine.graph.export import Traced
from intertwine.ir import value as symbolic
from intertwine.ir.groups import GENERAL, ORTHOGONAL, Group
from intertwine.rules import facts
from intertwine.symmetry.action import FactorAction, ValueAction
from intertwine.symmetry.axes import Axis
from intertwine.symmetry.colours import mix
from intertwine.symmetry.naming import (
    ends_layer,
    find_makers,
    find_readers,
    name_nodes,
    op_name,
    origin,
    shape_of,
)
from intertwine.symmetry.structure import Structure
from intertwine.symmetry.transform import Element

MAKES = ("out", "bias", "gain", "shift")


_PERMUTATION = Group(permutation=True)


@dataclass(frozen=True)
class Layout:
    """The dimensions of a value: channels and their sizes; what is left besides the inputs are pixels.

    >>> import torch
    >>> layout = Layout(channels=(1, 3), sizes=(2, 4), pixels=(5,))
    >>> x = torch.randn(3, 2, 5, 4)
    >>> layout.features(x).shape, torch.equal(layout.restore(layout.features(x)), x)
    (torch.Size([3, 8, 5]), True)
    """

    channels: tuple[int, ...]
    sizes: tuple[int, ...]
    pixels: tuple[int, ...]

    @property
    def width(self) -> int:
        """How many channels there are."""
        return math.prod(self.sizes)

    def features(self, x: Tensor) -> Tensor:
        """Inputs x channels x pixels; several dimensions of channels become one."""
        first = x.movedim(self.channels, self._front)
        return first.flatten(1, len(self.channels)) if len(self.channels) > 1 else first

    def restore(self, y: Tensor) -> Tensor:
        """What `features` made channels of, in its place again."""
        result: Tensor = y.unflatten(1, self.sizes).movedim(self._front, self.channels)
        return result

    @property
    def _front(self) -> tuple[int, ...]:
        return tuple(range(1, 1 + len(self.channels)))


class Freedom:
    """Per class and per scale of a structure: what moves, what is rescaled, and the axis it belongs to."""

    def __init__(self, structure: Structure, axes: tuple[Axis, ...]) -> None:
        self.structure, self.axes = structure, axes
        c = structure.classes
        _, fibre, size = np.unique(c.blocks_key() + mix(c.orbit), return_inverse=True, return_counts=True)
        self.moves = ~c.frozen & (size[fibre] > 1)
        self.turns = np.isin(c.orbit, list(structure.linear))
        self.axis_of = np.full(c.count, -1, np.int64)
        for k, axis in enumerate(axes):
            self.axis_of[axis.classes] = k
        scalings = structure.scalings
        owner = structure.component_class
        turned = np.append(self.turns, False)[owner]  # the last one: an owner of -1 is nobody
        used = ((owner >= 0) & ~turned)[scalings.component]
        self.positive, self.sign = np.zeros(len(used), bool), np.zeros(len(used), bool)
        for kind in scalings.kinds:
            self.positive[kind.scales] = (kind.real != 0).any(axis=1)
            self.sign[kind.scales] = (kind.sign % 2 != 0).any(axis=1)
        self.positive &= used
        self.sign &= used
        makes = [key for key in structure.span if structure.inference.roles.get(key) in MAKES]
        self.made = np.zeros(c.count, bool)
        for key in makes:
            self.made[c.of[structure.slots[key].ids]] = True


@dataclass(frozen=True, eq=False)
class GraphValue:
    """One value of the graph.

    op, family: the op that makes it and the file of rules it is in ("conv", "norm", "pointwise"). makers: the
    weights that the op reads, or else those of what it is computed from. readers: the values computed from
    it. is_layer: no norm, activation or residual sum is still to come. summarizes: it only averages or takes
    maxima of the value before it. rows: whether dimension 0 is one row for each input.
    """

    name: str
    op: str
    node: str
    shape: tuple[int, ...]
    makers: tuple[str, ...]
    readers: tuple[str, ...]
    family: str
    is_layer: bool
    summarizes: bool
    rows: bool
    symbols: symbolic.Value
    freedom: Freedom

    def __repr__(self) -> str:
        return f"GraphValue({self.name}: {self.op} {list(self.shape)}, {self.group} on {list(self.channels)})"

    @cached_property
    def action(self) -> ValueAction:
        """How elements act on tensors of this value."""
        return ValueAction(self.freedom.structure, self.symbols)

    def act(self, element: Element, x: Tensor) -> Tensor:
        """g . x: what this value becomes in `act(model, g)` where it is x in `model`."""
        return self.action(element, x)

    @cached_property
    def axes(self) -> tuple[tuple[Axis, ...], ...]:
        """For each dimension the axes whose channels differ along it."""
        found: list[dict[int, Axis]] = [{} for _ in self.shape]
        for f in self.action.factors:
            which = self.freedom.axis_of[f.cls]
            for k in np.unique(which[which >= 0]):
                cls = np.full(len(f.labels), -1, np.int64)
                cls[f.position[which == k]] = f.cls[which == k]
                for d in self._along(f, cls):
                    found[d][int(k)] = self.freedom.axes[k]
        return tuple(tuple(each.values()) for each in found)

    @cached_property
    def acted(self) -> tuple[int, ...]:
        """The dimensions that the group acts on."""
        free, dims = self.freedom, set[int]()
        for f in self.action.factors:
            moved = np.where(free.moves[f.cls], mix(f.cls), np.uint64(0))
            key = np.add.reduceat(moved, f.start)
            scaled = free.positive[f.scales] | free.sign[f.scales]
            component = free.structure.scalings.component[f.scales]
            key = key + np.where(scaled, mix(component), np.uint64(0))
            along = self._along(f, key.view(np.int64))
            # One common scale is a scale of any dimension.
            dims |= along or (self._along(f, np.arange(len(key))) if scaled.any() else set())
        return tuple(sorted(dims))

    def _along(self, f: FactorAction, array: np.ndarray) -> set[int]:
        """The dimensions along which an array over a factor's positions is not constant."""
        whole = array.reshape(f.factor.ids.shape)
        vary = {a for k, a in enumerate(f.factor.axes) if (whole != whole.take([0], axis=k)).any()}
        return {d for d, dim in enumerate(self.symbols.dims) if vary.intersection(dim)}

    @cached_property
    def channels(self) -> tuple[int, ...]:
        """The dimensions that the group acts on; where it does not, the one that a weight's rows lie on."""
        if self.acted:
            return self.acted
        labelled, made = set[int](), set[int]()
        for f in self.action.factors:
            dims = self._along(f, np.arange(len(f.labels)))
            labelled |= dims
            if self.freedom.made[f.cls].any():
                made |= dims
        chosen = made or labelled or {1 if len(self.shape) >= 4 else len(self.shape) - 1}
        return (max(chosen),)

    @cached_property
    def group(self) -> Group:
        """The least group that holds every map of the channels by which elements act here."""
        free, found = self.freedom, Group()
        axes = set[int]()
        for f in self.action.factors:
            cls = f.cls[free.moves[f.cls]]
            axes |= set(free.axis_of[cls].tolist())
            linear = {t.orbit for t in f.turns}
            orthogonal = all(free.structure.linear[o].orthogonal for o in linear)
            found |= Group(
                permutation=bool((~free.turns[cls]).any()),
                positive=int(free.positive[f.scales].any()),
                sign=int(free.sign[f.scales].any()),
                linear="" if not linear else ORTHOGONAL if orthogonal else GENERAL,
            )
        blocks = free.axes[axes.pop()].group.blocks if len(axes) == 1 else 1
        return Group(found.permutation, found.positive, found.sign, found.linear, blocks)

    @property
    def reason(self) -> str:
        """Why nothing acts here; empty where something does."""
        if not self.group.is_trivial:
            return ""
        why = [axis.frozen_because for d in self.channels for axis in self.axes[d] if axis.frozen_because]
        return why[0] if why else "no channels of a hidden axis lie here"

    @cached_property
    def layout(self) -> Layout:
        """Which dimensions are channels and which are pixels."""
        pixels = tuple(s for d, s in enumerate(self.shape) if d and d not in self.channels)
        return Layout(self.channels, tuple(self.shape[d] for d in self.channels), pixels)

    def features(self, x: Tensor, widest: int | None = None) -> Tensor:
        """Inputs x channels x pixels; several dimensions of channels become one.

        Where that is more than `widest` and dimensions are only permuted, each by itself, the last one is
        kept and the others are averaged over: the mean is what their permutations leave.
        """
        apart = all(len(self._along(f, np.arange(len(f.labels)))) <= 1 for f in self.action.factors)
        if widest is None or self.layout.width <= widest or not apart or not self.group <= _PERMUTATION:
            return self.layout.features(x)
        *others, last = self.channels
        return x.mean(others, keepdim=True).movedim(last, 1)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "name": self.name,
            "op": self.op,
            "shape": list(self.shape),
            "channels": list(self.channels),
            "axes": [[axis.name for axis in dim] for dim in self.axes],
            "group": str(self.group),
            "makers": list(self.makers),
            "readers": list(self.readers),
            "reason": self.reason or None,
        }


class Values(Mapping[str, GraphValue]):
    """All values of a model by name, in the order of its graph."""

    def __init__(self, traced: Traced, structure: Structure, axes: tuple[Axis, ...]) -> None:
        freedom = Freedom(structure, axes)
        batch = _rows(traced)
        known = structure.inference.values  # without products that are half of a contraction
        self.nodes = {k: n for k, n in name_nodes(traced, batch).items() if "%" + n.name in known}
        names = {node: name for name, node in self.nodes.items()}
        makers = find_makers(traced)
        self._values = {
            name: GraphValue(
                name=name,
                op=op_name(node),
                node=node.name,
                shape=shape_of(node),
                makers=makers[node],
                readers=tuple(names[n] for n in find_readers(node, names)),
                family=facts(origin(node)).family,
                is_layer=ends_layer(node),
                summarizes=facts(origin(node)).summarizes,
                rows=len(shape_of(node)) > 1 and shape_of(node)[0] == batch,
                symbols=known["%" + node.name],
                freedom=freedom,
            )
            for name, node in self.nodes.items()
        }

    def __getitem__(self, name: str) -> GraphValue:
        if not isinstance(name, str) or name not in self._values:
            near = (
                difflib.get_close_matches(str(name), self._values, n=4, cutoff=0.4) or list(self._values)[:8]
            )
            raise NotFound(f"no layer named {name!r}", do=f"did you mean {', '.join(near)}?")
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Values({len(self)}: {', '.join(list(self)[:6])}{', ...' if len(self) > 6 else ''})"

    @property
    def by_input(self) -> tuple[GraphValue, ...]:
        """Those with a row for each input: what can be compared and cut."""
        return tuple(v for v in self._values.values() if v.rows)


def _rows(traced: Traced) -> int:
    for node in traced.graph.nodes:
        if node.op == "placeholder" and node.name not in traced.weights and node.name not in traced.constants:
            value = node.meta.get("val")
            if isinstance(value, Tensor) and value.ndim:
                return int(value.shape[0])
    return 0
