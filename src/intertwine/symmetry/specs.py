"""The inferred permutations in the words of other tools: the files that they ask people to write by hand.

Those tools know one thing: a whole dimension of a weight is reordered by a named permutation. An axis can be
said in these words if every dimension that carries it carries all its channels, nothing else, each once and
in the same order. What cannot be said (heads, groups, concatenations, several copies after a flatten) is left
out as a whole, with the reason: half an axis would be a wrong symmetry.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intertwine.checks import checked
from intertwine.errors import InputError, NotFound
from intertwine.files import write_bytes
from intertwine.symmetry.axes import Axis, Member

if TYPE_CHECKING:
    from torch import nn

    from intertwine.symmetry.symmetry import Symmetry


@dataclass(frozen=True)
class Spec:
    """content: plain data in the format of another tool. left_out: axes that it has no words for, and why.

    permutations: the names (or numbers) in it that stand for permutations which hold.
    """

    format: str
    content: Mapping[str, Any]
    permutations: tuple[Any, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Spec({self.format}: {len(self.permutations)} axes, {len(self.left_out)} left out)"

    def to_json(self) -> str:
        """The file as the tool reads it."""
        return json.dumps(self.content, indent=2) + "\n"

    @checked
    def save(self, path: str | Path) -> Path:
        """Write the file."""
        return write_bytes(path, self.to_json().encode())


@dataclass(frozen=True)
class WholeAxis:
    """An axis that moves whole dimensions. copies: (weight, dimension) -> consecutive places of a channel."""

    axis: Axis
    copies: Mapping[tuple[str, int], int]

    @property
    def name(self) -> str:
        """The name of the axis."""
        return self.axis.name

    def makers(self) -> list[Member]:
        """The members that write it, in the order of the graph."""
        return [m for m in self.axis.members if m.role == "out"]


def whole_axes(
    symmetry: Symmetry, *, flat: bool = False, mergeable: bool = False
) -> tuple[list[WholeAxis], dict[str, str]]:
    """The axes that move whole dimensions, and the reasons why the others do not.

    flat: a channel may lie at several consecutive places (after a flatten). mergeable: only channels that
    may be merged, not just moved.
    """
    found, left_out = list[WholeAxis](), dict[str, str]()
    for axis in symmetry.axes:
        if axis.group.is_trivial:
            continue
        reason = "nothing may be exchanged" if not axis.group.permutation else ""
        reason = reason or ("its channels lie in blocks" if axis.group.blocks > 1 else "")
        if mergeable and not axis.mergeable:
            reason = reason or "its channels may be moved but not merged"
        copies = {} if reason else _copies(symmetry, axis, flat)
        if isinstance(copies, str):
            reason = copies
        if reason:
            left_out[axis.name] = reason
        elif isinstance(copies, dict):
            found.append(WholeAxis(axis, copies))
    for family in symmetry.families:
        left_out[", ".join(family.members)] = "whole tensors change places, of which the file knows nothing"
    return found, left_out


def _copies(symmetry: Symmetry, axis: Axis, flat: bool) -> dict[tuple[str, int], int] | str:
    """(weight, dimension) -> how many places a channel has there, or why it cannot be said."""
    s = symmetry.structure
    order = None
    copies: dict[tuple[str, int], int] = {}
    for member in axis.members:
        place, key = f"{member.param} dim {member.dim}", (member.param, member.dim)
        if s.slots[key].ids.ndim > 1:
            return f"{place} has an order of its own in each group"
        try:
            positions = symmetry.positions(axis, member)
        except InputError:
            return f"{place} carries its channels unequally often"
        channels, times = positions.shape
        if channels * times != s.slots[key].ids.size:
            return f"{place} carries other channels too"
        if times > 1 and not flat:
            return f"{place} carries each channel {times} times"
        first = positions[:, 0] // times
        if not np.array_equal(positions, first[:, None] * times + np.arange(times)):
            return f"{place} does not keep the places of a channel together"
        if order is not None and not np.array_equal(first, order):
            return f"{place} has the channels in another order"
        order, copies[key] = first, times
    return copies


def write_spec(symmetry: Symmetry, format: str, model: nn.Module | None = None) -> Spec:
    """See `Symmetry.to_spec`."""
    from intertwine.symmetry.spec_files import folding, mergekit

    writers: dict[str, Callable[[], Spec]] = {
        "git-re-basin": lambda: git_re_basin(symmetry),
        "unf": lambda: unf(symmetry),
        "folding": lambda: folding(symmetry),
        "mergekit": lambda: mergekit(symmetry, model),
        "networkx": lambda: node_link(symmetry),
    }
    if format not in writers:
        raise NotFound(f"no format {format!r}", do=f"use one of {', '.join(writers)}")
    return writers[format]()


FORMATS = ("git-re-basin", "unf", "folding", "mergekit", "networkx")


def git_re_basin(symmetry: Symmetry) -> Spec:
    """`axes_to_perm`: state-dict name -> for every dimension the name of its permutation or None, and the
    inverse `perm_to_axes`, as `PermutationSpec` of Git Re-Basin has them."""
    axes, left_out = whole_axes(symmetry)
    names = {key: axis.name for axis in axes for key in axis.copies}
    alias, shapes = symmetry.alias, symmetry.traced.shapes
    axes_to_perm = {
        name: [names.get((alias.get(name, name), dim)) for dim in range(len(shape))]
        for name, shape in shapes.items()
    }
    perm_to_axes: dict[str, list[list[Any]]] = {axis.name: [] for axis in axes}
    for name, dims in axes_to_perm.items():
        for dim, perm in enumerate(dims):
            if perm is not None:
                perm_to_axes[perm].append([name, dim])
    content = {"perm_to_axes": perm_to_axes, "axes_to_perm": axes_to_perm}
    return Spec("git-re-basin", content, tuple(perm_to_axes), left_out)


def unf(symmetry: Symmetry) -> Spec:
    """`perm_spec` of Universal Neural Functionals: the tree of the weights, with one number a dimension.

    Equal numbers move together. The format has no word for a dimension that does not move, so each of those
    has a number of its own, above those of `permutations`.
    """
    axes, left_out = whole_axes(symmetry)
    numbers = {key: k for k, axis in enumerate(axes) for key in axis.copies}
    content: dict[str, Any] = {}
    fixed = len(axes)
    for name, shape in symmetry.traced.shapes.items():
        own = symmetry.alias.get(name, name)
        leaf = []
        for dim in range(len(shape)):
            known = (own, dim) in numbers
            leaf.append(numbers[own, dim] if known else fixed)
            fixed += not known
        *path, last = name.split(".")
        tree = content
        for part in path:
            tree = tree.setdefault(part, {})
        tree[last] = leaf
    return Spec("unf", content, tuple(range(len(axes))), left_out)


def to_networkx(symmetry: Symmetry) -> Any:
    """See `Symmetry.to_networkx`."""
    import networkx

    graph = networkx.MultiGraph()
    for name, shape in symmetry.shapes.items():
        graph.add_node(name, kind="weight", shape=list(shape))
    for axis in symmetry.axes:
        plain = axis.to_dict()
        plain.pop("members")
        graph.add_node(f"axis {axis.name}", kind="axis", **plain)
        for member in axis.members:
            graph.add_edge(member.param, f"axis {axis.name}", dim=member.dim, role=member.role)
    return graph


def node_link(symmetry: Symmetry) -> Spec:
    """The graph of weights and axes as networkx reads it: `networkx.node_link_graph(content)`."""
    import networkx

    content = networkx.node_link_data(to_networkx(symmetry), edges="edges")
    free = tuple(a.name for a in symmetry.axes if not a.group.is_trivial)
    return Spec("networkx", content, free)
