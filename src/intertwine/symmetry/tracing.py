"""`trace(model, example)` -> `Symmetry`: what the rules claim at every size that is tried, and its proof."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from intertwine.checks import checked
from intertwine.errors import ModelError, RefutedClaim
from intertwine.graph.eager import runner
from intertwine.graph.example import Example, other_sizes
from intertwine.graph.export import empty_values, export, sizes_in
from intertwine.symmetry.members import Family
from intertwine.symmetry.prove import Clock, Proof, Stage, assert_finite, find_fault, staged
from intertwine.symmetry.sampling import fibre_keys, sample
from intertwine.symmetry.symmetry import Symmetry
from intertwine.symmetry.transform import Element

SMALL = 1_000_000  # weights below which twice as many elements are tried at every size


@checked
def trace(
    model: nn.Module,
    example: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    prove: bool = True,
    seed: int = 0,
) -> Symmetry:
    """Infer the symmetry group of every hidden axis of `model` from its graph, and prove it by acting.

    example: a tensor, the tuple of positional arguments of `forward`, or a mapping of keyword arguments;
    kwargs: its keyword arguments. The model is copied, put into eval mode and exported; the caller's is never
    touched. The proof runs the model in float64 at the example's size and at others, if it takes any;
    what it refutes is frozen. Without it (`prove=False`) the model is traced at other sizes, and what
    holds at all of them is kept.

    >>> from torch import nn
    >>> mlp = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> symmetry = trace(mlp, torch.zeros(1, 3))
    >>> print(symmetry.axis("0").group)
    positive monomial
    >>> [example.shapes for example in symmetry.proof.examples]
    [((1, 3),), ((2, 3),), ((3, 3),)]
    """
    given = Example.of(example, kwargs)
    clock = Clock()
    if prove and isinstance(model, nn.Module):
        _assert_has_values(model)  # before a long export
    first = export(model, given.args, given.kwargs)
    if not prove:
        stage = Stage(model, (), given, next(_dtypes(model), torch.float32), memory=0)
        graphs = [first]
        symmetry = Symmetry(first, seconds_export=clock.seconds)
        if symmetry.settled:
            return symmetry
        cuts = symmetry.inference.ledger.cuts > 0
        others = other_sizes(runner(stage.expected), given, sizes=sizes_in(first), cuts=cuts)
        for k, other in enumerate(others, 1):
            graph = export(model, other.args, other.kwargs)
            if empty_values(graph) > empty_values(first):
                continue  # where something is empty that was not before, nothing can be seen of it
            graphs.append(graph)
            if cuts:
                continue  # every size may cut otherwise
            symmetry = Symmetry(*graphs, seconds_export=clock.seconds)
            # Where views never cut what carries labels, sizes that changed already can cut nothing otherwise,
            # unless forward asks for a size and runs other ops, or reads other weights.
            seen = [stage.expected(e) for e in (given, *others[:k])]
            ops, read = frozenset[Any]().union(*(run.ops for run in seen)), {run.read for run in seen}
            new = any(run.ops - ops or run.read not in read for run in map(stage.expected, others[k:]))
            changes = given.changed(others[k:]) - given.changed(others[:k])
            if not symmetry.inference.ledger.cuts and not symmetry.loose and not changes and not new:
                return symmetry
        return Symmetry(*graphs, seconds_export=clock.seconds)
    return proved(model, Symmetry(first, seconds_export=clock.seconds), given, seed)


def proved(model: nn.Module, claimed: Symmetry, example: Example, seed: int = 0) -> Symmetry:
    """What `trace` gives, from what the rules claim of the model's graph at the example."""
    _assert_has_values(model)
    return Trial(model, claimed, example, seed).proved()


def _assert_has_values(model: nn.Module) -> None:
    """Acting needs numbers."""
    empty = next((name for name, p in model.named_parameters() if p.device.type == "meta"), None)
    if empty is not None:
        raise ModelError(
            f"{empty} is on the meta device and has no values",
            so="nothing can be proved by acting",
            do="load weights, or infer without the proof: trace(..., prove=False)",
        )


def _dtypes(module: nn.Module) -> Iterator[torch.dtype]:
    return (p.dtype for p in module.parameters() if p.is_floating_point())


class Trial:
    """What the rules claim, put to the test: the model in float64 at several sizes, acted on by random
    elements.

    Where only another size refutes the claim, the model is traced at that size too: something depends on the
    size, and a second graph says what, without guessing.
    """

    def __init__(self, model: nn.Module, symmetry: Symmetry, example: Example, seed: int = 0) -> None:
        self.clock, self.model, self.seed = Clock(), model, seed
        self.stage = staged(model, list(symmetry.weights(model)), example, seed)
        assert_finite(self.stage, model)
        cuts = symmetry.inference.ledger.cuts > 0
        self.examples = self.stage.examples(sizes_in(symmetry.traced), cuts)
        self.small = sum(p.numel() for p in model.parameters()) < SMALL
        self.symmetry, self.graphs = symmetry, [symmetry.traced]
        for other in self.examples[1:]:
            if self.symmetry.loose:
                self._trace_at(other)
        self.error, self.worst = self._largest_error()
        if self.refuted and self.worst is not self.stage.first:
            self._trace_at(self.worst)
            self.error, self.worst = self._largest_error()

    def _trace_at(self, other: Example) -> None:
        """Another graph, of which every fact holds too."""
        seconds = Clock()
        graph = export(self.model, other.args, other.kwargs)
        if empty_values(graph) <= empty_values(self.graphs[0]):
            self.graphs.append(graph)
            spent = self.symmetry.seconds["export"] + seconds.seconds
            self.symmetry = Symmetry(*self.graphs, seconds_export=spent)

    @property
    def refuted(self) -> bool:
        """Whether the last element that was tried changed what the model does."""
        return self.stage.refutes(self.error, self.worst)

    def proved(self) -> Symmetry:
        """The symmetry with its proof; the axes that acting refutes are frozen."""
        withdrawn = dict[str, str]()
        while self.refuted:
            free = [axis for axis in self.symmetry.axes if axis.group.moves]
            structure = self.symmetry.structure
            fault = find_fault(self.stage, structure, free, self.worst, 2 * self.samples, self.seed) or free
            withdrawn |= {axis.name: repr(self.worst) for axis in fault}
            self.symmetry.withdraw(fault, "claimed by the rules, refuted by acting")
            self.error, self.worst = self._largest_error()
        if self._refuted_by(self._only("turn")):
            withdrawn["the pairs of rotary embeddings"] = repr(self.worst)
            self.symmetry.keep_pairs_still()
        for family in self._wrong_families():
            withdrawn[f"modules {', '.join(family.members)}"] = repr(self.worst)
        seconds = self.clock.seconds
        self.symmetry.proof = Proof(
            self.examples, self.stage.dtype, self.samples, self.error, withdrawn, seconds
        )
        self.symmetry.seconds["prove"] = seconds
        if withdrawn:
            warnings.warn(
                f"{type(self.model).__name__}: acting refuted what the rules claim of "
                f"{', '.join(withdrawn)}; these axes are frozen, nothing is wrong, but please report it",
                RefutedClaim,
                stacklevel=3,
            )
        return self.symmetry

    def _only(self, part: str) -> Element:
        """A random element of one part of the group; whatever may move does."""
        return sample(self.symmetry.structure, np.random.default_rng(self.seed), (part,), restless=True)

    def _wrong_families(self) -> list[Family]:
        """Modules that do not change places after all, and which are not claimed any more."""
        symmetry = self.symmetry
        if not symmetry.families or not self._refuted_by(self._only("exchange")):
            return []
        families, held = symmetry.families, symmetry.structure.exchanges
        wrong = list[int]()
        for k in range(len(families)):
            symmetry.structure.exchanges = held.alone(k)
            if self._refuted_by(self._only("exchange")):
                wrong.append(k)
        symmetry.structure.exchanges = held
        wrong = wrong or list(range(len(families)))  # only all of them together change anything
        symmetry.keep_modules_still(wrong)
        return [families[k] for k in wrong]

    def _refuted_by(self, element: Element) -> bool:
        """Whether an element changes what the model does at some size."""
        if element.is_identity():
            return False
        for example, found in zip(self.examples, self.stage.errors(element, self.examples), strict=False):
            if self.stage.refutes(found, example):
                self.worst = example
                return True
            self.error = max(self.error, found)
        return False

    @property
    def samples(self) -> int:
        """How many elements are tried: more where channels have one or two others to change places with, of
        which two axes may move alike by chance."""
        _, sizes = np.unique(fibre_keys(self.symmetry.structure), return_counts=True)
        few = bool(((sizes == 2) | (sizes == 3)).any())
        return (2 if self.small else 1) * (3 if few and self.small else 2 if few else 1)

    def _largest_error(self) -> tuple[float, Example]:
        """The largest error over the sizes, and where; the first size that refutes the claim ends the
        search."""
        error, worst = 0.0, self.examples[0]
        for k in range(self.samples):
            rng = np.random.default_rng(self.seed + k)
            element = sample(self.symmetry.structure, rng, restless=k == 0)
            for example, found in zip(self.examples, self.stage.errors(element, self.examples), strict=False):
                if found > error:
                    error, worst = found, example
                if self.stage.refutes(found, example):
                    return found, example
        return error, worst
