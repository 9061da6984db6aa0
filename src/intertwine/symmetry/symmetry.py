"""`Symmetry`: the one structure that every tool of this package works on."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from intertwine.checks import checked
from intertwine.errors import InputError, NotFound
from intertwine.graph.export import Traced
from intertwine.ir.ledger import Ids
from intertwine.rules.rotary import find_rotations
from intertwine.symmetry.axes import Axis, Member, build_axes
from intertwine.symmetry.blocks import crossed_blocks
from intertwine.symmetry.check import FactChecker
from intertwine.symmetry.conjugate import kept_families
from intertwine.symmetry.exchange import find_families
from intertwine.symmetry.infer import Inference, infer
from intertwine.symmetry.members import Exchanges, Family
from intertwine.symmetry.pairs import Turns
from intertwine.symmetry.prove import Clock, Proof
from intertwine.symmetry.sampling import sample, sample_relabel
from intertwine.symmetry.specs import Spec, to_networkx, write_spec
from intertwine.symmetry.stacks import find_stacks, kept_stacks
from intertwine.symmetry.structure import Structure
from intertwine.symmetry.transform import EVERY_PART, PARTS, Element, identity, load_element
from intertwine.symmetry.turns import find_turns
from intertwine.symmetry.values import Values


class Symmetry:
    """The inferred symmetry of one model.

    axes: every hidden axis with its group, members and reasons. `sample` draws group elements,
    `explain` says why channels are together.
    """

    def __init__(self, *graphs: Traced, seconds_export: float = 0.0) -> None:
        """graphs: the model traced at one or several sizes; the first one is that of the example."""
        clock = Clock()
        self.traced = graphs[0]
        self._relaxed = _without_rotations(graphs)
        self._families = find_families(graphs)
        self.proof: Proof | None = None
        self.inference = infer(graphs)
        self._solve()
        self._stack(graphs)
        self.seconds = {"export": seconds_export, "infer": clock.seconds}

    def _solve(self) -> None:
        self.structure = _consistent(self.inference)
        if self._relaxed is not None:
            self.structure.turns = find_turns(self.structure, self._relaxed)
        self.structure.exchanges = kept_families(self.structure, self._families)
        self.axes: tuple[Axis, ...] = build_axes(self.structure)
        self.__dict__.pop("values", None)  # they are those of the structure before

    def _stack(self, graphs: Sequence[Traced]) -> None:
        """Give every slice of a stacked weight an order of its own, wherever it has one."""
        self._plain, stacks = self.inference, find_stacks(self.structure)
        while stacks:
            self.inference = infer(graphs, stacks=stacks)
            self._solve()
            kept = kept_stacks(self.structure, stacks)
            if kept == stacks:
                return
            stacks, self.inference = kept, self._plain
            if not stacks:
                self._solve()

    @property
    def alike(self) -> Symmetry:
        """The part of the group that keeps one order for all slices of a stack (`symmetry.stacks`): where one
        goes from a slice, it goes from all, so this is what merging works on."""
        if self.inference is self._plain:
            return self
        part = copy.copy(self)
        part.inference = self._plain
        part._solve()
        return part

    def __repr__(self) -> str:
        frozen = sum(not a.group.moves for a in self.axes)
        counts = f"{len(self.axes)} axes, {frozen} frozen, {len(self.unknown_ops)} unknown ops"
        modules = f", {n} families of modules" if (n := len(self.families)) else ""
        return f"Symmetry({counts}{modules}, {self.proof or 'not proved'})"

    @property
    def settled(self) -> bool:
        """Whether nothing moves, and no fact of another size could change that."""
        still = not self.inference.unread and not self.structure.turns.count and not self.families
        return still and all(not axis.group.moves for axis in self.axes)

    @property
    def loose(self) -> bool:
        """Whether a slice leaves out positions that move: at another size it may read them."""
        left_out = self.inference.left_out
        moving = [axis for axis in self.axes if axis.group.moves]
        return bool(len(left_out) and moving and self._classes_of(moving)[self._class[left_out]].any())

    @property
    def _class(self) -> np.ndarray:
        return self.structure.classes.of

    def _classes_of(self, axes: Sequence[Axis]) -> np.ndarray:
        chosen = np.zeros(self.structure.classes.count, bool)
        chosen[np.concatenate([a.classes.reshape(-1) for a in axes])] = True
        return chosen

    def withdraw(self, axes: Sequence[Axis], reason: str) -> None:
        """Freeze axes that were claimed, and solve again."""
        ledger, structure = self.inference.ledger, self.structure
        chosen = self._classes_of(axes)
        ledger.at("acting on the weights")
        ledger.freeze(np.flatnonzero(chosen[self._class]), reason)
        owner = structure.component_class[structure.component]
        ledger.zero(structure.scales[(owner >= 0) & chosen[owner]])
        self._plain = self.inference
        self._solve()

    @property
    def families(self) -> tuple[Family, ...]:
        """Modules that change places: experts, branches and heads in lists (`symmetry.exchange`).

        >>> from torch import nn
        >>> from intertwine import trace
        >>> class Both(nn.Module):
        ...     def __init__(self) -> None:
        ...         super().__init__()
        ...         self.branches = nn.ModuleList([nn.Linear(3, 4), nn.Linear(3, 4)])
        ...
        ...     def forward(self, x):
        ...         return sum(branch(x).relu() for branch in self.branches)
        >>> trace(Both(), torch.zeros(5, 3)).families[0].members
        ('branches.0', 'branches.1')
        """
        return self.structure.exchanges.families

    def keep_modules_still(self, numbers: Sequence[int]) -> None:
        """Claim nothing about some of the families."""
        gone = [self.families[k] for k in numbers]
        self._families = tuple(f for f in self.families if all(f is not g for g in gone))
        self.structure.exchanges = Exchanges(self._families)

    def keep_pairs_still(self) -> None:
        """Claim nothing about the pairs of rotary embeddings."""
        self._relaxed, self.structure.turns = None, Turns()

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

    @cached_property
    def values(self) -> Values:
        """Every value that the model computes, by name, with the group that acts on it.

        >>> from torch import nn
        >>> from intertwine import trace
        >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
        >>> trace(net, torch.zeros(5, 3)).values["1"]
        Value(1: relu [5, 4], positive monomial on [1])
        """
        return Values(self.traced, self.structure, self.axes)

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
        place, channel = self.structure.occurrences(axis.classes.reshape(-1))
        inside = (place >= start) & (place < stop)
        place, copies = place[inside] - start, np.bincount(channel[inside], minlength=axis.size)
        if not len(place) or copies.min() != copies.max():
            raise InputError(f"{member.param} carries the channels of {axis.name} unequally often")
        return place.reshape(axis.size, -1)

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
                lines.append(f"  frozen: {ledger.said(freeze)}")
        return "\n".join(lines)

    def to_spec(self, format: str, model: nn.Module | None = None) -> Spec:
        """The permutations as the file that another tool asks for: git-re-basin, unf, folding, mergekit; or
        networkx, the graph of weights and axes.

        model: for mergekit, whose file takes names from its config.

        >>> from torch import nn
        >>> from intertwine import trace
        >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        >>> trace(net, torch.zeros(5, 3)).to_spec("git-re-basin").content["axes_to_perm"]["2.weight"]
        [None, '0']
        """
        return write_spec(self, format, model)

    def to_networkx(self) -> Any:
        """Weights and axes as a `networkx.MultiGraph`; an edge is a dimension that carries an axis.

        >>> from torch import nn
        >>> from intertwine import trace
        >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        >>> sorted(trace(net, torch.zeros(5, 3)).to_networkx()["axis 0"])
        ['0.bias', '0.weight', '2.weight']
        """
        return to_networkx(self)

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

        parts: any of "permutation", "scale", "sign", "linear", and, which are left alone unless asked for,
        "turn": complex numbers on the pairs of channels of rotary embeddings, and "exchange": modules that
        change places.
        """
        wrong = [p for p in parts if p not in EVERY_PART]
        if wrong:
            raise InputError(f"unknown part {wrong[0]!r}", do=f"use some of {', '.join(EVERY_PART)}")
        return sample(self.structure, _rng(generator), tuple(parts), spread)

    @checked
    def load(self, path: str | Path) -> Element:
        """An element written by `Element.save`."""
        return load_element(self.structure, path)

    @checked
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


def _without_rotations(graphs: Sequence[Traced]) -> Structure | None:
    """The model with its rotary embeddings left out, if it has any (`symmetry.turns`)."""
    rotations = [find_rotations(traced.graph, traced.weights) for traced in graphs]
    if not all(rotations):
        return None
    try:
        return _consistent(infer(graphs, without=rotations))
    except AssertionError:  # of a model that nobody asked about: it costs its pairs, no more
        return None


def _consistent(inference: Inference) -> Structure:
    """Solve, and freeze what a permutation could not be carried out on without guessing."""
    ledger = inference.ledger
    for _ in range(8):
        structure = Structure(inference)
        if len(structure.classes.doubtful):
            held = np.unique(structure.classes.coordinates[structure.classes.doubtful].indices)
            ledger.at("the whole graph")
            ledger.freeze(
                np.flatnonzero(np.isin(structure.classes.of, held)),
                "the same channel occurs twice and the copies cannot be told apart",
            )
            continue
        c = structure.classes
        crossed = crossed_blocks(c.ancestors, c.orbit, c.frozen)
        if len(crossed):
            ledger.at("the whole graph")
            ledger.freeze(
                np.flatnonzero(np.isin(structure.classes.of, crossed)),
                "its blocks cross in a way that no permutation keeps",
            )
            continue
        if not structure.classes.ancestors.nnz:
            structure.separate_gains()
            return structure  # without blocks a colour is all there is to match
        # Colours and grids make a failure all but impossible; it must cost symmetries, not correctness.
        at_fault = _inconsistent(structure)
        if not len(at_fault):
            structure.separate_gains()
            return structure
        ledger.at("the whole graph")
        ledger.freeze(np.flatnonzero(np.isin(c.of, at_fault)), "its blocks cannot be matched consistently")
    raise AssertionError("the permutations of this model cannot be made consistent")


def _inconsistent(structure: Structure) -> Ids:
    """Classes that random relabellings of the solved structure cannot move without breaking a fact."""
    classes = structure.classes
    checker = FactChecker(structure.inference.ledger, classes)
    for seed in range(2):
        try:
            at_fault = checker.broken(sample_relabel(structure, np.random.default_rng(seed)))
        except AssertionError:
            return np.flatnonzero(classes.depth > 0)
        if len(at_fault):
            return at_fault
    return np.zeros(0, np.int64)


def _rng(generator: torch.Generator | np.random.Generator | int | None) -> np.random.Generator:
    if isinstance(generator, np.random.Generator):
        return generator
    if isinstance(generator, torch.Generator):
        seed = torch.randint(0, 2**62, (1,), generator=generator, device=generator.device)
        return np.random.default_rng(int(seed))
    return np.random.default_rng(generator)
