"""The part of the inferred group that leaves some weights where they are.

Some symmetries move buffers too: to permute or rescale what enters a batch norm, its running statistics must
move along. Where buffers are held at their values, such an element changes the function; what is left is the
subgroup of the elements that leave every buffer where it is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from scipy.sparse import coo_array, csr_array

from intertwine.ir.ledger import Ids
from intertwine.symmetry.axes import Axis
from intertwine.symmetry.sampling import sample
from intertwine.symmetry.scales import ScaleKind, null_space, null_space_gf2
from intertwine.symmetry.symmetry import Symmetry
from intertwine.symmetry.transform import PARTS, Element


@dataclass(frozen=True, eq=False)
class Subgroup:
    """kinds: the rescalings that are left, in the order of `Scalings.kinds`. axes: all that are not trivial;
    the channels of those in `held` keep their places. whole: nothing is held."""

    symmetry: Symmetry
    kinds: tuple[ScaleKind, ...]
    axes: tuple[Axis, ...]
    held: frozenset[str]
    whole: bool

    @cached_property
    def log_scales(self) -> csr_array:
        """Positions x free rescalings: times a number for each rescaling, the log-scale of every position."""
        structure = self.symmetry.structure
        entries = [(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64))]
        free = 0
        for kind in self.kinds:
            local, column = np.nonzero(kind.real)
            count, r = len(kind.scales), kind.real.shape[1]
            scales, own = kind.scales[:, local], free + r * np.arange(count)[:, None] + column
            entries.append((np.tile(kind.real[local, column], count), scales.ravel(), own.ravel()))
            free += r * count
        data, rows, columns = (np.concatenate(part) for part in zip(*entries, strict=True))
        table = coo_array((data, (rows, columns)), (len(structure.scalings.kind_of), free)).tocsr()
        at = table[structure.scales].tocoo()
        moves = structure.rescaled[at.row]
        # What only acts where a matrix takes its place is left out.
        used, column = np.unique(at.col[moves], return_inverse=True)
        return coo_array((at.data[moves], (at.row[moves], column)), (at.shape[0], len(used))).tocsr()

    def sample(self, rng: np.random.Generator, parts: Sequence[str] = PARTS, spread: float = 0.4) -> Element:
        """A random element of the subgroup, or of chosen parts of it."""
        held = [axis.classes.reshape(-1) for axis in self.axes if axis.name in self.held]
        classes = np.concatenate([np.zeros(0, np.int64), *held])
        return sample(self.symmetry.structure, rng, tuple(parts), spread, held=classes, kinds=self.kinds)


def find_subgroup(symmetry: Symmetry, hold: Collection[str] = ()) -> Subgroup:
    """What leaves the weights named in `hold` where they are; the whole group if there are none.

    >>> import torch
    >>> from torch import nn
    >>> from intertwine.symmetry import trace
    >>> net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
    >>> symmetry = trace(net, torch.zeros(2, 3))
    >>> find_subgroup(symmetry).log_scales.shape[1], find_subgroup(symmetry, ["1.running_var"]).held
    (8, frozenset({'0'}))
    """
    structure = symmetry.structure
    slots = {slot for slot in structure.span if slot[0] in hold}
    axes = tuple(axis for axis in symmetry.axes if axis.group.moves)
    if not slots:
        return Subgroup(symmetry, structure.scalings.kinds, axes, frozenset(), True)
    held = frozenset(axis.name for axis in axes if any((m.param, m.dim) in slots for m in axis.members))
    scales = np.concatenate([structure.scales[slice(*structure.span[slot])] for slot in slots])
    kind_of, local_of = structure.scalings.kind_of[scales], structure.scalings.local_of[scales]
    kinds = tuple(
        _hold(kind, np.unique(local_of[kind_of == number]))
        for number, kind in enumerate(structure.scalings.kinds)
    )
    return Subgroup(symmetry, kinds, axes, held, False)


def _hold(kind: ScaleKind, local: Ids) -> ScaleKind:
    """The rescalings of a kind that leave some of its scales at one."""
    if not len(local):
        return kind
    rows = [
        {i: Fraction(c).limit_denominator(10**6) for i, c in enumerate(row) if c} for row in kind.real[local]
    ]
    odd = [set(np.flatnonzero(row).tolist()) for row in kind.sign[local] % 2]
    return ScaleKind(
        kind.scales,
        kind.real @ null_space(rows, kind.real.shape[1]),
        kind.sign @ null_space_gf2(odd, kind.sign.shape[1]) % 2,
    )
