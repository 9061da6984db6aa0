"""theta as one long vector: which coordinate is which entry of which weight."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from intertwine.errors import InputError
from intertwine.ir.ledger import Ids
from intertwine.rules import facts
from intertwine.symmetry import Axis, Symmetry
from intertwine.symmetry.structure import Structure


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The entries of some weights, in order. statistics: those that are buffers and not parameters.

    unread: weights that no op reads, and how many numbers they have; these are no coordinates.
    """

    values: Mapping[str, Tensor]
    statistics: frozenset[str] = frozenset()
    unread: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def start(self) -> dict[str, int]:
        """Weight -> its first coordinate."""
        sizes = [math.prod(v.shape) for v in self.values.values()]
        return dict(zip(self.values, np.r_[0, np.cumsum(sizes)[:-1]].astype(int).tolist(), strict=True))

    @cached_property
    def size(self) -> int:
        """How many coordinates there are."""
        return sum(v.numel() for v in self.values.values())

    @cached_property
    def theta(self) -> np.ndarray:
        """The vector itself, in float64."""
        return np.concatenate([v.numpy().reshape(-1) for v in self.values.values()] or [np.zeros(0)])

    @cached_property
    def sizes(self) -> np.ndarray:
        """For every coordinate the typical size of its weight (1 where that is zero): what it is measured in.

        Layers of which one is large and the next small would else differ by the square of that.
        """
        typical = [float(v.square().mean().sqrt()) if v.numel() else 1.0 for v in self.values.values()]
        counts = [v.numel() for v in self.values.values()]
        return np.repeat([size or 1.0 for size in typical], counts)

    def of(self, name: str) -> Ids:
        """The coordinates of a weight, in its shape."""
        shape = tuple(self.values[name].shape)
        return self.start[name] + np.arange(math.prod(shape), dtype=np.int64).reshape(shape)

    def mask(self, chosen: Sequence[Ids]) -> np.ndarray:
        """Which coordinates are among the chosen ones."""
        out = np.zeros(self.size, bool)
        for ids in chosen:
            out[ids] = True
        return out

    def weights_of(self, coordinates: Ids) -> list[str]:
        """The weights that some coordinates belong to."""
        bounds = np.fromiter(self.start.values(), np.int64, len(self.start))
        used = np.unique(np.searchsorted(bounds, coordinates, side="right") - 1)
        names = list(self.start)
        return [names[k] for k in used]

    def positions(self, symmetry: Symmetry, key: tuple[str, int], places: Ids) -> Ids:
        """The coordinates at some places along one dimension of a weight.

        Where the order along a dimension may differ in each group of dimension 0, a place is one of a group.
        """
        name, dim = key
        shape = symmetry.structure.slots[key].ids.shape
        entries = self.of(name)
        if len(shape) == 1:
            return entries.take(places, axis=dim).reshape(-1)
        grouped = np.moveaxis(entries.reshape(shape[0], -1, *entries.shape[1:]), dim + 1, 1)
        group, place = np.divmod(places, shape[1])
        return np.concatenate([grouped[g, p].reshape(-1) for g, p in zip(group, place, strict=True)])

    def channels(self, symmetry: Symmetry, axis: Axis) -> list[Ids]:
        """For every channel of an axis, the coordinates that belong to it in all members."""
        s = symmetry.structure
        found = []
        keys, starts = list(s.span), s.slot_starts
        for cls in axis.classes.reshape(-1):
            position, _ = s.occurrences(np.array([cls]))
            slot = np.searchsorted(starts, position, side="right") - 1
            parts = [
                self.positions(symmetry, keys[k], position[slot == k] - starts[k])
                for k in np.unique(slot)
                if keys[k][0] in self.values
            ]
            found.append(np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64))
        return found


def coordinates_of(model: torch.nn.Module, symmetry: Symmetry) -> Coordinates:
    """All parameters that a model reads, and the buffers that its group moves or that a norm has stored."""
    stored = {
        symmetry.traced.weights.get(argument.name)
        for node in symmetry.traced.graph.nodes
        if (places := facts(node).statistics) is not None
        for argument in (node.args[places[0]], node.args[places[1]])
        if hasattr(argument, "name")
    }
    parameters = dict(model.named_parameters())
    if pairs := [name for name, p in parameters.items() if p.is_complex()]:
        raise InputError(
            f"{pairs[0]} has complex entries",
            so="directions are counted in real numbers",
            do="store the real and the imaginary part (torch.view_as_real)",
        )
    buffers = dict(model.named_buffers())
    moved = {name for name, _ in symmetry.structure.span}
    chosen = dict(parameters)
    for name, buffer in buffers.items():
        healthy = buffer.is_floating_point() and bool(torch.isfinite(buffer).all())
        if healthy and (name in stored or (name in moved and _rescaled(symmetry, name))):
            chosen[name] = buffer  # type: ignore[assignment]
    real, read = {n: v for n, v in chosen.items() if v.is_floating_point()}, symmetry.inference.shapes
    values = {n: v.detach().to("cpu", torch.float64) for n, v in real.items() if n in read}
    unread = {n: v.numel() for n, v in real.items() if n not in read}
    return Coordinates(values, frozenset(n for n in values if n not in parameters), unread)


def _rescaled(symmetry: Symmetry, name: str) -> bool:
    """Whether scalings or matrices act on a weight."""
    s = symmetry.structure
    spans = [span for (weight, _), span in s.span.items() if weight == name]
    turned = any(key[0] == name for axis in s.linear.values() for key in axis.places)
    return turned or any(s.rescaled[a:b].any() and _free(s, a, b) for a, b in spans)


def _free(s: Structure, start: int, stop: int) -> bool:
    kinds = s.scalings.kind_of[s.scales[start:stop]]
    return any(s.scalings.kinds[k].real.shape[1] for k in np.unique(kinds))
