"""The part of the inferred group that acts on the parameters alone.

Some symmetries move buffers too: to permute or rescale what enters a batch norm, its running statistics must
move along. Where an objective holds the buffers at their values in theta, such an element maps theta to a
parameter with another function. What is left is the subgroup that leaves every buffer where it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from intertwine.symmetry import Axis, Element, Symmetry
from intertwine.symmetry.scales import Kind
from intertwine.symmetry.structure import Structure
from intertwine.symmetry.transform import carry


@dataclass(frozen=True)
class Subgroup:
    """The scalings (`kinds`) and the axes that are left; `whole` if that is all of the group."""

    symmetry: Symmetry
    kinds: tuple[Kind, ...]
    axes: tuple[Axis, ...]
    whole: bool

    def sample(self, rng: np.random.Generator, parts: tuple[str, ...], spread: float = 0.4) -> Element:
        """A random element of the subgroup."""
        if self.whole:
            return self.symmetry.sample(rng, parts, spread)
        element = self.symmetry.sample(rng, ("linear",) if "linear" in parts else ())
        if "permutation" in parts:
            for axis in self.axes:
                if axis.group.permutation:
                    element = self._shuffle(axis, rng) @ element
        return self._scale(rng, spread if "scale" in parts else 0.0, "sign" in parts) @ element

    def _shuffle(self, axis: Axis, rng: np.random.Generator) -> Element:
        identity = self.symmetry.identity()
        relabel = identity.relabel.copy()
        for classes in axis.classes:
            relabel[classes[rng.permutation(len(classes))]] = classes
        carry(self.symmetry.structure, relabel, axis.classes.reshape(-1))
        return replace(identity, relabel=relabel)

    def _scale(self, rng: np.random.Generator, spread: float, signs: bool) -> Element:
        structure = self.symmetry.structure
        logs, sign = (np.full(len(structure.scalings.kind_of), fill) for fill in (0.0, 1.0))
        for kind in self.kinds:
            logs[kind.scales] = (
                spread * rng.standard_normal((len(kind.scales), kind.real.shape[1])) @ kind.real.T
            )
            if signs:
                flips = rng.integers(0, 2, (len(kind.scales), kind.sign.shape[1]))
                sign[kind.scales] = 1 - 2 * ((flips @ kind.sign.T) % 2)
        moves, at = moved_by_scales(structure), structure.scales
        return replace(
            self.symmetry.identity(),
            log_scale=np.where(moves, logs[at], 0.0),
            sign=np.where(moves, sign[at], 1.0),
        )


def find_subgroup(symmetry: Symmetry, names: tuple[str, ...], *, hold_buffers: bool) -> Subgroup:
    """What moves the parameters `names` and, with `hold_buffers`, nothing else."""
    structure = symmetry.structure
    held = [slot for slot in structure.span if hold_buffers and slot[0] not in names]
    axes = tuple(axis for axis in symmetry.axes if axis.group.name != "trivial")
    if not held:
        return Subgroup(symmetry, structure.scalings.kinds, axes, True)
    free = tuple(axis for axis in axes if not any((m.param, m.dim) in held for m in axis.members))
    scales = np.concatenate([structure.scales[slice(*structure.span[slot])] for slot in held])
    kinds = tuple(
        _hold(
            kind, np.unique(structure.scalings.local_of[scales[structure.scalings.kind_of[scales] == number]])
        )
        for number, kind in enumerate(structure.scalings.kinds)
    )
    return Subgroup(symmetry, kinds, free, False)


def _hold(kind: Kind, local: NDArray[np.int64]) -> Kind:
    """The rescalings of a kind that leave some of its scales at one."""
    if not len(local):
        return kind
    from scipy.linalg import null_space

    real = kind.real.astype(np.float64)
    if real.shape[1]:
        real = real @ null_space(real[local])
    return Kind(kind.scales, real, kind.sign[:, (kind.sign[local] % 2 == 0).all(0)])


def moved_by_scales(structure: Structure) -> NDArray[np.bool_]:
    """The positions that scales and signs move; where a matrix acts, it takes their place."""
    owner = structure.component_class[structure.component]
    return ~(np.isin(structure.classes.orbit[owner], list(structure.linear)) | (owner < 0))
