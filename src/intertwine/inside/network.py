"""What this package sees of a model: values by name, which of them carry an axis, the graph up to one.

The only file here that knows how the exported graph and the inferred symmetry are joined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_flatten, tree_map

from intertwine.errors import DataError, ModelError, NotFound, Unsupported
from intertwine.graph.export import check_values
from intertwine.rules.registry import find_rule
from intertwine.symmetry import Axis, Symmetry
from intertwine.symmetry.surgery import Part, Surgeon
from intertwine.symmetry.values import GraphValue


@dataclass(frozen=True, eq=False)
class Carrier:
    """A value whose dimension `dim` carries channels of an axis: channel c lies at position place[c]."""

    name: str
    dim: int
    place: np.ndarray
    rectified: bool


@dataclass(frozen=True, eq=False)
class Basis:
    """The group on the channels of a value: who may change places with whom, and what may be multiplied.

    groups: positions that are exchanged freely, one array a block; scale, sign: per position; linear: whether
    each of the groups is moved by any invertible matrix.
    """

    groups: tuple[np.ndarray, ...]
    scale: np.ndarray
    sign: np.ndarray
    linear: bool

    @property
    def name(self) -> str:
        """In words."""
        if not self.groups:
            return "trivial"
        if self.linear:
            return "general linear"
        parts = ["permutation"] if max(map(len, self.groups)) > 1 else []
        parts += ["positive scales"] if self.scale.any() else []
        parts += ["signs"] if self.sign.any() else []
        return ", ".join(parts) or "trivial"


class Network:
    """A model, exported once for batches of the example's size, and its symmetry.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> network = Network(net, torch.zeros(5, 3))
    >>> [value.name for value in network.values], network.carriers(network.symmetry.axis("0"))[-1].name
    (['0', '1', '2'], '1')
    """

    def __init__(self, model: nn.Module, example: Any, kwargs: Mapping[str, Any] | None = None) -> None:
        args = tuple(example) if isinstance(example, tuple | list) else (example,)
        self.model = model
        self._surgeon = Surgeon(model, args, kwargs)
        self._inputs = [x for x in tree_flatten((args, dict(kwargs or {})))[0] if isinstance(x, Tensor)]

    @property
    def symmetry(self) -> Symmetry:
        """What was inferred from the graph."""
        return self._surgeon.symmetry

    @property
    def values(self) -> tuple[GraphValue, ...]:
        """Every value, in the order of the graph."""
        return self._surgeon.values

    @property
    def batch(self) -> int:
        """How many rows the graph was exported for."""
        return self._surgeon.batch

    @property
    def others(self) -> tuple[Tensor, ...]:
        """The inputs after the first one, as in the example: they are held."""
        return tuple(self._inputs[1:])

    def value(self, name: str) -> GraphValue:
        """The value of that name, or NotFound with the nearest ones."""
        return self._surgeon.value(name)

    def channel_dim(self, name: str) -> int:
        """The dimension of a value that holds its units."""
        return self.value(name).channels[-1]

    def upto(self, name: str) -> Part:
        """inputs -> the value of that name."""
        return self._surgeon.upto([name])

    def upto_all(self, names: Sequence[str]) -> Part:
        """inputs -> the values of these names, in one pass."""
        return self._surgeon.upto(names)

    def axis(self, name: str) -> Axis:
        """The axis of that name, or NotFound with the names there are."""
        names = [a.name for a in self.symmetry.axes]
        if name not in names:
            shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
            raise NotFound(f"no axis named {name!r}", do=f"the axes are {shown}")
        return self.symmetry.axis(name)

    def carriers(self, axis: Axis) -> list[Carrier]:
        """Every value that carries the whole axis along one of its dimensions, in the order of the graph."""
        found = []
        for value in self.values:
            for dim in range(1, len(value.shape)):
                classes = self._classes(value.name, dim)
                if classes is None:
                    continue
                place = np.full(self.symmetry.structure.classes.count, -1, np.int64)
                place[classes[::-1]] = np.arange(len(classes))[::-1]
                chosen = place[axis.classes.reshape(-1)]
                if (chosen >= 0).all():
                    found.append(Carrier(value.name, dim, chosen, self._rectified(value.name)))
        return found

    def carrier(self, axis: Axis, at: str | None = None) -> Carrier:
        """The value `at`, or the last one after a rectifier, or the last one, that carries the axis."""
        found = self.carriers(axis)
        if not found:
            raise Unsupported(f"no value carries the whole axis {axis.name!r}", do="choose another axis")
        if at is None:
            return ([c for c in found if c.rectified] or found)[-1]
        for carrier in found:
            if carrier.name == at:
                return carrier
        self.value(at)
        names = ", ".join(dict.fromkeys(c.name for c in found))
        raise NotFound(f"{at!r} does not carry the axis {axis.name!r}", do=f"it is carried by {names}")

    def basis(self, name: str) -> Basis:
        """The inferred group on the channels of a value, as it acts there."""
        value, structure = self.value(name), self.symmetry.structure
        dim = self.channel_dim(name)
        size = value.shape[dim]
        classes = self._classes(name, dim)
        none = np.zeros(size, bool)
        if classes is None:
            return Basis((), none, none, False)
        scale, sign = self._scalings(name, dim)
        groups: list[np.ndarray] = []
        linear = False
        place = np.full(structure.classes.count, -1, np.int64)
        place[classes] = np.arange(size)
        for axis in self.symmetry.axes:
            free = not axis.frozen_because
            for block in axis.classes:
                inside = place[block]
                if free and (inside >= 0).all():
                    linear |= bool(axis.group.linear)
                    moves = bool(axis.group.permutation or axis.group.linear)
                    groups += [inside] if moves else [np.array([p]) for p in inside]
        covered = np.concatenate(groups) if groups else np.zeros(0, np.int64)
        mask = none.copy()
        mask[covered] = True
        return Basis(tuple(groups), scale & mask, sign & mask, linear)

    def branch(self, name: str) -> str:
        """The last value inside the residual block that ends at a value: what its sum adds to the skip."""
        named = {self._surgeon.node(v.name): v.name for v in self.values}
        node = self._surgeon.node(name)
        while len(node.all_input_nodes) == 1 and _shape(node.all_input_nodes[0]) == _shape(node):
            node = node.all_input_nodes[0]  # an activation or a copy of the sum
        arms = [n for n in node.all_input_nodes if n in named or n.all_input_nodes]
        if len(arms) == 2:
            left, right = (_ancestors(arm) for arm in arms)
            shared = left & right
            deep = max(arms, key=lambda arm: len(_ancestors(arm) - shared))
            while deep not in named and len(deep.all_input_nodes) == 1:
                deep = deep.all_input_nodes[0]
            if shared and deep in named:
                return named[deep]
        raise NotFound(
            f"{name!r} is not the output of a residual block",
            do="name the sum of a block, or the activation right after it",
        )

    def _classes(self, name: str, dim: int) -> np.ndarray | None:
        """Position along a dimension -> the class of its label; None where it carries no single factor."""
        value = self.symmetry.structure.inference.values.get("%" + self._surgeon.node(name).name)
        if value is None or dim >= len(value.dims):
            return None
        axes = value.dims[dim]
        factors = value.factors_on(axes)
        if len(factors) != 1 or set(factors[0].axes) != set(axes):
            return None
        result: np.ndarray | None = self.symmetry.structure.classes.of[factors[0].on(axes).ids.reshape(-1)]
        return result

    def _scalings(self, name: str, dim: int) -> tuple[np.ndarray, np.ndarray]:
        """Whether each position may be multiplied by a positive number there, and by -1."""
        value = self.symmetry.structure.inference.values["%" + self._surgeon.node(name).name]
        axes = value.dims[dim]
        scales = value.factors_on(axes)[0].on(axes).scale.reshape(-1)
        found = [self.symmetry.structure.scalings.exponents(int(s)) for s in scales]
        real = np.array([bool(np.any(f[2])) for f in found])
        return real, np.array([bool(np.any(f[3] % 2)) for f in found])

    def _rectified(self, name: str) -> bool:
        rule = find_rule(self._surgeon.node(name).target)
        return rule is not None and rule.backward == "rectifier"


def _shape(node: fx.Node) -> tuple[int, ...]:
    return tuple(getattr(node.meta.get("val"), "shape", ()))


def _ancestors(node: fx.Node) -> set[fx.Node]:
    found: set[fx.Node] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        if current not in found and current.op != "placeholder":
            found.add(current)
            stack += current.all_input_nodes
    return found


def open_network(
    model: nn.Module, rows: Tensor, example: Any = None, kwargs: Mapping[str, Any] | None = None
) -> Network:
    """The network for batches of `len(rows)`; other inputs of the example are repeated to as many rows."""
    check_values(model)
    if not len(rows):
        raise DataError("there are no inputs", do="give at least one")
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    rows = rows.to(like.device, like.dtype if rows.is_floating_point() else rows.dtype)
    if example is None:
        return Network(model, (rows,), kwargs)
    args = tuple(example) if isinstance(example, tuple | list) else (example,)
    first = [True]

    def enlarge(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        if first[0]:
            first[0] = False
            return rows
        if leaf.ndim == 0:
            return leaf
        if not len(leaf):
            raise ModelError("an input of the example has no rows", do="give at least one")
        return leaf[torch.arange(len(rows)) % len(leaf)]

    args, named = tree_map(enlarge, (args, dict(kwargs or {})))
    if first[0]:
        raise ModelError("the example holds no tensor", do="give an example input such as 1x3x32x32")
    return Network(model, args, named)
