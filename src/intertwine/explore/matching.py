"""Permutations, signs and rotations that bring balanced weights as close to a reference as they can be.

A family is an axis that is matched as a whole: alone, or blocks (heads, groups) with the axes inside them.
Channels and blocks by the Hungarian method, signs by the sign of the agreement, rotations of linear axes by
Procrustes; the gain of putting one block onto another is that of the best match of what is inside.

The first sweep takes the families in such an order, and of each only such weights, that all other dimensions
of these weights are matched already. So the result depends neither on the order nor on the signs nor on the
rotations that the weights came with, wherever the first layer tells its channels apart. Later sweeps
look at all weights, until nothing moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from intertwine.explore.subgroup import Subgroup, moved_by_scales
from intertwine.symmetry import Axis, Member
from intertwine.symmetry.structure import Linear
from intertwine.symmetry.transform import apply_element, carry

Weights = Mapping[str, Tensor]
Slot = tuple[str, int]


@dataclass(frozen=True, eq=False)
class Part:
    """An axis of a family, with its channels as (blocks, channels of a block)."""

    axis: Axis
    linear: Linear | None
    members: tuple[Member, ...]


@dataclass(frozen=True, eq=False)
class Family:
    """`outer` has one channel for each block of the `inner` axes; without inner axes it is matched itself."""

    outer: Part | None
    inner: tuple[Part, ...]

    @property
    def parts(self) -> tuple[Part, ...]:
        return ((self.outer,) if self.outer else ()) + self.inner

    @property
    def slots(self) -> set[Slot]:
        return {(m.param, m.dim) for part in self.parts for m in part.members}


class Matcher:
    """Matches weights to a reference, by the elements of one group."""

    def __init__(self, group: Subgroup, names: tuple[str, ...], reference: Weights) -> None:
        self.group, self.symmetry, self.structure = group, group.symmetry, group.symmetry.structure
        self.names, self.reference = frozenset(names), reference
        self.signed = self._signed()
        self.families = self._families()
        self.carried: dict[Slot, set[int]] = {}
        for number, family in enumerate(self.families):
            for slot in family.slots:
                self.carried.setdefault(slot, set()).add(number)

    def __call__(self, weights: Weights, sweeps: int = 20) -> dict[str, Tensor]:
        now = dict(weights)
        done: set[int] = set()
        while len(done) < len(self.families):
            number = self._next(done)
            family = self.families[number]
            usable = self._settled(family, done) or family.slots
            self._match(now, family, usable)
            done.add(number)
        for _ in range(sweeps):
            moved = [self._match(now, family, family.slots) for family in self.families]
            if not any(moved):
                break
        return now

    def _signed(self) -> set[Slot]:
        """The slots with a free sign."""
        structure = self.structure
        free = np.zeros(len(structure.scalings.kind_of), dtype=bool)
        for kind in self.group.kinds:
            free[kind.scales[:, (kind.sign % 2 == 1).any(1)]] = True
        at_positions = free[structure.scales] & moved_by_scales(structure)
        return {slot for slot, (start, stop) in structure.span.items() if at_positions[start:stop].any()}

    # -- what belongs together ---------------------------------------------------------------------------

    def _families(self) -> list[Family]:
        parts = [self._part(axis) for axis in self.group.axes]
        inside: dict[int, list[Part]] = {}
        held: set[int] = set()
        for part in parts:
            for number, outer in enumerate(parts):
                if outer is not part and self._holds(outer.axis, part.axis):
                    inside.setdefault(number, []).append(part)
                    held.add(id(part))
                    break
        families = []
        for number, part in enumerate(parts):
            if number in inside:
                families.append(Family(part, tuple(inside[number])))
            elif id(part) not in held:
                families.append(Family(None, (part,)))
        return families

    def _part(self, axis: Axis) -> Part:
        orbit = int(self.structure.classes.orbit[axis.classes.flat[0]])
        members = tuple(m for m in axis.members if m.param in self.names)
        return Part(axis, self.structure.linear.get(orbit), members)

    def _holds(self, outer: Axis, inner: Axis) -> bool:
        """Whether the i-th block of `inner` lies in the i-th channel of `outer`, for all i."""
        if outer.classes.shape != (1, len(inner.classes)) or len(inner.classes) < 2:
            return False
        up = self.structure.classes.ancestors
        pairs = zip(outer.classes[0], inner.classes[:, 0], strict=True)
        return all(block in up.indices[up.indptr[c] : up.indptr[c + 1]] for block, c in pairs)

    def _settled(self, family: Family, done: Set[int]) -> set[Slot]:
        """The slots of a family whose weights have nothing unmatched on their other dimensions."""
        shapes = self.structure.inference.shapes
        return {
            (param, dim)
            for param, dim in family.slots
            if all(self.carried.get((param, d), set()) <= done for d in range(len(shapes[param])) if d != dim)
        }

    def _next(self, done: Set[int]) -> int:
        """The family with the most settled entries; the first of them."""
        open_ = [number for number in range(len(self.families)) if number not in done]
        sizes = [
            sum(self.reference[param].numel() for param, _ in self._settled(self.families[number], done))
            for number in open_
        ]
        return open_[int(np.argmax(sizes))]

    # -- matching ----------------------------------------------------------------------------------------

    def _match(self, now: dict[str, Tensor], family: Family, usable: Set[Slot]) -> bool:
        """Match one family in place; whether anything moved."""
        moved = False
        if family.outer is not None:
            moved |= self._permute(now, family, family.outer, self._block_gains(now, family, usable)[None])
        for part in family.inner:
            gains = self._gains(now, part, usable)
            if part.linear is not None:
                moved |= self._turn(now, family, part.linear, gains)
            elif part.axis.group.permutation:
                own = np.stack([gains[b, b] for b in range(len(gains))])
                moved |= self._permute(now, family, part, own)
        return self._flip(now, family, usable) or moved

    def _slices(self, weights: Weights, part: Part, member: Member) -> Tensor:
        """(blocks, channels, everything else) of one weight."""
        places = torch.from_numpy(self.symmetry.positions(part.axis, member))
        tensor, groups = weights[member.param], self.structure.slots[member.param, member.dim].ids.shape
        if len(groups) > 1:
            tensor = tensor.reshape(groups[0], -1, *tensor.shape[1:]).movedim(2, 1).flatten(0, 1)
        else:
            tensor = tensor.movedim(member.dim, 0)
        return tensor[places].reshape(*part.axis.classes.shape, -1)

    def _gains(self, now: Weights, part: Part, usable: Set[Slot]) -> NDArray[np.float64]:
        """(block of the reference, block, channel of the reference, channel): inner products of slices.

        Signs are found afterwards: where they are free only the size of a product counts.
        """
        blocks, channels = part.axis.classes.shape
        gains = np.zeros((blocks, blocks, channels, channels))
        for member in part.members:
            if (member.param, member.dim) in usable:
                left, right = (self._slices(w, part, member) for w in (self.reference, now))
                product = torch.einsum("aik,bjk->abij", left, right).numpy()
                free = part.linear is None and (member.param, member.dim) in self.signed
                gains += np.abs(product) if free else product
        return gains

    def _block_gains(self, now: Weights, family: Family, usable: Set[Slot]) -> NDArray[np.float64]:
        """(block of the reference, block): the gain of the best match of what is inside."""
        assert family.outer is not None
        count = family.outer.axis.size
        total = np.zeros((count, count))
        for part in family.inner:
            gains = self._gains(now, part, usable)
            if part.linear is not None:
                total += np.linalg.svd(gains, compute_uv=False).sum(-1)
            elif part.axis.group.permutation:
                total += _assignment_values(gains)
            else:
                total += np.trace(gains, axis1=2, axis2=3)
        return total

    def _permute(
        self, now: dict[str, Tensor], family: Family, part: Part, gains: NDArray[np.float64]
    ) -> bool:
        """Put the channels of each block in the order of the largest gain."""
        from scipy.optimize import linear_sum_assignment

        relabel = self.symmetry.identity().relabel.copy()
        for classes, gain in zip(part.axis.classes, gains, strict=True):
            _, order = linear_sum_assignment(gain, maximize=True)
            # An exchange that gains nothing but rounding would be made again in every sweep.
            if gain[np.arange(len(gain)), order].sum() > np.trace(gain) + 1e-12 * np.abs(gain).sum():
                relabel[classes[order]] = classes
        if np.array_equal(relabel, np.arange(len(relabel))):
            return False
        carry(self.structure, relabel, part.axis.classes.reshape(-1))
        return self._apply(now, family, relabel=relabel)

    def _turn(
        self, now: dict[str, Tensor], family: Family, linear: Linear, gains: NDArray[np.float64]
    ) -> bool:
        """Rotate each block of a linear axis onto that of the reference (Procrustes)."""
        left, _, right = np.linalg.svd(np.stack([gains[b, b] for b in range(len(gains))]))
        matrix = left @ right
        if np.abs(matrix - np.eye(matrix.shape[1])).max() < 1e-14 * matrix.shape[1]:
            return False
        self._apply(now, family, linear={**self.symmetry.identity().linear, linear.orbit: matrix})
        return bool(np.abs(matrix - np.eye(matrix.shape[1])).max() > 1e-10)

    def _flip(self, now: dict[str, Tensor], family: Family, usable: Set[Slot]) -> bool:
        """Flip every free sign of the family after which its weights agree better with the reference."""
        moved, structure = False, self.structure
        if not self.signed:
            return False
        for kind in self.group.kinds:
            for column in range(kind.sign.shape[1]):
                flipped = kind.sign[:, column] % 2 == 1
                agreement = self._agreement(now, family, usable)[kind.scales][:, flipped].sum(1)
                sign = np.ones(len(structure.scalings.kind_of))
                sign[kind.scales[agreement < 0][:, flipped]] = -1
                at_positions = np.where(moved_by_scales(structure), sign[structure.scales], 1.0)
                if (at_positions < 0).any():
                    now.update(apply_element(replace(self.symmetry.identity(), sign=at_positions), now))
                    moved = True
        return moved

    def _agreement(self, now: Weights, family: Family, usable: Set[Slot]) -> NDArray[np.float64]:
        """For every scale, the inner product of the family's weights that carry it with the reference's."""
        structure = self.structure
        total = np.zeros(len(structure.scalings.kind_of))
        for param, dim in family.slots & usable:
            start, stop = structure.span[param, dim]
            if len(structure.slots[param, dim].ids.shape) == 1:
                product = (now[param] * self.reference[param]).movedim(dim, 0).reshape(stop - start, -1)
                np.add.at(total, structure.scales[start:stop], product.sum(1).numpy())
        return total

    def _apply(self, now: dict[str, Tensor], family: Family, **parts: object) -> bool:
        """Act with one element on the weights of a family, which is all that it moves."""
        element = replace(self.symmetry.identity(), **parts)  # type: ignore[arg-type]
        touched = {param: now[param] for param, _ in family.slots}
        now.update(apply_element(element, touched))
        return True


def _assignment_values(gains: NDArray[np.float64]) -> NDArray[np.float64]:
    """(blocks, blocks): the value of the best assignment of each (channels, channels) table."""
    from scipy.optimize import linear_sum_assignment

    values = []
    for table in gains.reshape(-1, *gains.shape[2:]):
        rows, columns = linear_sum_assignment(table, maximize=True)
        values.append(float(table[rows, columns].sum()))
    return np.array(values).reshape(gains.shape[:2])
