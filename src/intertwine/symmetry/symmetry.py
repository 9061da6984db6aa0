"""`trace(model, example)` -> `Symmetry`: the one structure that every tool of this package works on."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from intertwine.errors import InputError, NotFound
from intertwine.ir.groups import Group
from intertwine.ir.ledger import Ids
from intertwine.symmetry.axes import Axis, Member, build_axes
from intertwine.symmetry.classes import crossed_blocks
from intertwine.symmetry.infer import infer
from intertwine.symmetry.structure import Structure
from intertwine.symmetry.transform import (
    PARTS,
    Element,
    apply_element,
    destinations,
    identity,
    load_element,
    sample,
    sample_relabel,
)
from intertwine.trace.export import Traced, export


class Symmetry:
    """The inferred symmetry of one model.

    axes: every hidden axis with its group, members and reasons. `sample` draws group elements,
    `explain` says why channels are together.
    """

    def __init__(self, traced: Traced, seconds_export: float = 0.0) -> None:
        start = time.perf_counter()
        self.traced = traced
        self.structure = _consistent(traced)
        self.axes: tuple[Axis, ...] = build_axes(self.structure)
        self.seconds = {"export": seconds_export, "infer": time.perf_counter() - start}

    def __repr__(self) -> str:
        frozen = sum(a.group.name == "trivial" for a in self.axes)
        return f"Symmetry({len(self.axes)} axes, {frozen} frozen, {len(self.unknown_ops)} unknown ops)"

    @property
    def unknown_ops(self) -> dict[str, str]:
        """Ops without a rule that touched a weight's axis -> where the first one is."""
        return dict(self.structure.inference.unknown)

    @property
    def alias(self) -> Mapping[str, str]:
        """State-dict name -> the first name of the same tensor."""
        return self.traced.alias

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The weights that carry the axes, under their first names -> their shapes."""
        return self.structure.inference.shapes

    def axis(self, name: str) -> Axis:
        """The axis of that name."""
        for axis in self.axes:
            if axis.name == name:
                return axis
        raise NotFound(f"no axis named {name!r}", do="`intertwine inspect` lists the names")

    def matching(self, pattern: str) -> list[Axis]:
        """Axes whose names match a shell pattern such as `layer[34].*`."""
        found = [a for a in self.axes if fnmatchcase(a.name, pattern)]
        if not found:
            raise NotFound(
                f"no axis matches {pattern!r}", do="`intertwine inspect` lists the names of all axes"
            )
        return found

    def positions(self, axis: Axis, member: Member) -> Ids:
        """(size, copies): where along the member's dimension each channel of the axis lies.

        After a flatten a channel lies at several places, one for each pixel.
        """
        start, stop = self.structure.span[member.param, member.dim]
        s = self.structure
        inside = (s.coordinate_slot >= start) & (s.coordinate_slot < stop)
        place, cls = s.coordinate_slot[inside] - start, s.coordinate_class[inside]
        order = np.lexsort((place, cls))
        place, cls = place[order], cls[order]
        flat = axis.classes.reshape(-1)
        left, right = np.searchsorted(cls, flat), np.searchsorted(cls, flat, side="right")
        copies = right - left
        if not len(flat) or copies.min() != copies.max():
            raise InputError(f"{member.param} carries the channels of {axis.name} unequally often")
        return place[left[:, None] + np.arange(copies[0])[None, :]]

    def group_at(self, axis: Axis, param: str, dim: int = 0) -> Group:
        """The group of an axis as it acts on one dimension: scalings that do not reach it are left out.

        A channel before a batch norm may change its sign, the ReLU after it sees positive scales only.
        """
        start, _ = self.structure.span[param, dim]
        _, _, real, sign = self.structure.scalings.exponents(int(self.structure.scales[start]))
        return replace(axis.group, positive=int(bool(np.any(real))), sign=int(bool(np.any(sign))))

    def explain(self, axis: Axis | str) -> str:
        """Why the channels of an axis are together: every op that tied or froze them, in order."""
        if isinstance(axis, str):
            axis = self.axis(axis)
        ledger, of = self.structure.inference.ledger, self.structure.classes.of
        chosen = np.zeros(self.structure.classes.count, bool)
        chosen[axis.classes] = True
        lines = [f"{axis.name}: {axis.size} channels, {axis.group}"]
        lines += [f"  {m.param} dim {m.dim} ({m.role})" for m in axis.members]
        sites = dict.fromkeys(t.site for t in ledger.ties if chosen[of[t.left]].any())
        lines += [f"  tied by {ledger.sites[site]}" for site in sites]
        for freeze in ledger.freezes:
            if chosen[of[freeze.labels]].any():
                lines.append(f"  frozen: {freeze.reason} ({ledger.sites[freeze.site]})")
        return "\n".join(lines)

    def identity(self) -> Element:
        """The element that moves nothing."""
        return identity(self.structure)

    def sample(
        self,
        generator: torch.Generator | np.random.Generator | int | None = None,
        parts: Sequence[str] = PARTS,
        spread: float = 0.4,
    ) -> Element:
        """A random element of the whole group, or of chosen parts of it.

        parts: any of "permutation", "scale", "sign", "linear".
        """
        wrong = [p for p in parts if p not in PARTS]
        if wrong:
            raise InputError(f"unknown part {wrong[0]!r}", do=f"use some of {', '.join(PARTS)}")
        return sample(self.structure, _rng(generator), tuple(parts), spread)

    def load(self, path: str | Path) -> Element:
        """An element written by `Element.save`."""
        return load_element(self.structure, path)

    def weights(self, model: nn.Module) -> dict[str, Tensor]:
        """The tensors of `model` that carry the axes, under their first names."""
        state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        missing = [name for name in self.structure.inference.shapes if name not in state]
        if missing:
            raise InputError(
                f"the model has no weight {missing[0]!r}",
                so="this Symmetry was traced from another architecture",
            )
        for name, shape in self.structure.inference.shapes.items():
            if tuple(state[name].shape) != shape:
                raise InputError(
                    f"{name} has shape {tuple(state[name].shape)}, the traced model has {shape}",
                    so="this Symmetry was traced from another architecture",
                )
        return {name: state[name] for name in self.structure.inference.shapes}


def _consistent(traced: Traced) -> Structure:
    """Infer, and freeze what a permutation could not be carried out on without guessing."""
    inference = infer(traced)
    ledger = inference.ledger
    for _ in range(8):
        structure = Structure(inference)
        if len(structure.doubtful):
            held = np.unique(structure.classes.coordinates[structure.doubtful].indices)
            ledger.at("the whole graph")
            ledger.freeze(
                np.flatnonzero(np.isin(structure.classes.of, held)),
                "the same channel occurs twice and the copies cannot be told apart",
            )
            continue
        crossed = crossed_blocks(structure.classes)
        if len(crossed):
            ledger.at("the whole graph")
            ledger.freeze(
                np.flatnonzero(np.isin(structure.classes.of, crossed)),
                "its blocks cross in a way that no permutation keeps",
            )
            continue
        if not structure.classes.ancestors.nnz:
            return structure  # without blocks a colour is all there is to match
        try:
            destinations(structure, sample_relabel(structure, np.random.default_rng(0)))
            return structure
        except AssertionError as error:
            # Colours make this all but impossible; if it happens it must cost symmetries, not correctness.
            ledger.at("the whole graph")
            inside = np.flatnonzero(structure.classes.depth[structure.classes.of] > 0)
            ledger.freeze(inside, f"its blocks cannot be matched: {error}")
    raise AssertionError("the permutations of this model cannot be made consistent")


def _rng(generator: torch.Generator | np.random.Generator | int | None) -> np.random.Generator:
    if isinstance(generator, np.random.Generator):
        return generator
    if isinstance(generator, torch.Generator):
        seed = torch.randint(0, 2**62, (1,), generator=generator, device=generator.device)
        return np.random.default_rng(int(seed))
    return np.random.default_rng(generator)


def trace(model: nn.Module, example: Any, kwargs: Mapping[str, Any] | None = None) -> Symmetry:
    """Infer the symmetry group of every hidden axis of `model` from its graph on an example input.

    example: a tensor, or the tuple of positional arguments of `forward`; kwargs: its keyword arguments.
    The model is copied, put into eval mode and exported; the caller's is never touched.

    >>> from torch import nn
    >>> mlp = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> symmetry = trace(mlp, torch.zeros(1, 3))
    >>> print(symmetry.axis("0").group)
    positive monomial
    """
    args = tuple(example) if isinstance(example, (tuple, list)) else (example,)
    start = time.perf_counter()
    traced = export(model, args, kwargs)
    return Symmetry(traced, time.perf_counter() - start)


def act(model: nn.Module, element: Element) -> nn.Module:
    """A new model with weights g . theta, which computes the same function (Proposition 3.4 of source 002).

    >>> from torch import nn
    >>> mlp = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> x = torch.randn(4, 3)
    >>> g = trace(mlp, x).sample(0)
    >>> torch.allclose(act(mlp, g)(x), mlp(x), atol=1e-5)
    True
    """
    moved = copy.deepcopy(model)
    state = {**dict(moved.named_parameters()), **dict(moved.named_buffers())}
    missing = [n for n in element.structure.inference.shapes if n not in state]
    if missing:
        raise InputError(f"the model has no weight {missing[0]!r}", so="the element belongs to another model")
    with torch.no_grad():
        for name, tensor in apply_element(element, state).items():
            if tensor is not state[name]:
                # Fresh memory: weights that share a storage move on their own; tied ones are one object.
                state[name].data = tensor
    return moved
