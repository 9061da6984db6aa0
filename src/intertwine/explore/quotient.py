"""Divide the known group out: a representative of the orbit of a parameter, equal for equivalent parameters.

Scales: the point of least norm, argmin over l of sum_w |w|^2 exp(2 <e_w, l>), e_w the exponents with which
the log-scales l act on w. This is convex in l. Where a scaling only ever enlarges (the input side of batch
norm) there is no least norm; there a linear term is subtracted, which fixes the norm and is as invariant.
Permutations: matched to a reference, axis by axis with the Hungarian method on the weights that carry the
axis, and signs by the sign of the agreement, until nothing moves. Matrices of linear axes and permutations of
blocks are not divided out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from intertwine.explore.known import KnownSymmetry
from intertwine.explore.search import EquivalenceSample
from intertwine.symmetry import Axis, Element, Member
from intertwine.symmetry.structure import Structure
from intertwine.symmetry.transform import carry


class Quotient:
    """`canonical(vector)`: scales balanced, permutations matched to the balanced theta."""

    def __init__(self, known: KnownSymmetry) -> None:
        self.known = known
        self._balance = _Balance(known)
        self.reference = self._balance(known.objective.theta)

    def canonical(self, vector: Tensor) -> Tensor:
        """The representative of the orbit of `vector`."""
        return match_permutations(self.known, self._balance(vector), self.reference)

    def sample(self, sample: EquivalenceSample) -> EquivalenceSample:
        """The same points in the quotient: what remains different there, the group does not explain."""
        points = torch.stack([self.canonical(point) for point in sample.points])
        values = self.known.objective.values(points, examples=1024)
        return EquivalenceSample(
            sample.layout, self.reference, points, tuple(float(v) for v in values), sample.tolerance,
            sample.spread, sample.known_symmetry_loss, sample.facts, (*sample.notes, "in the quotient"),
            sample.objective,
        )  # fmt: skip


class _Balance:
    """vector -> the vector of least norm on its orbit under the scalings."""

    def __init__(self, known: KnownSymmetry) -> None:
        self.known = known
        self.structure = known.symmetry.structure
        names = set(known.objective.layout.names)
        self.slots = {
            key: torch.arange(*span) for key, span in self.structure.span.items() if key[0] in names
        }
        self.kinds = [kind for kind in self.structure.scalings.kinds if kind.real.shape[1]]
        self.sizes = [len(kind.scales) * kind.real.shape[1] for kind in self.kinds]
        self.scales = torch.from_numpy(self.structure.scales)
        self.moves = torch.from_numpy(_moves(self.structure))
        self.pull = self._one_sided()

    def _one_sided(self) -> Tensor:
        """+1 or -1 for the free scales that act on parameters with one sign only, else 0."""
        used = np.zeros(len(self.structure.scalings.kind_of), dtype=bool)
        for places in self.slots.values():
            moved = places[self.moves[places]]
            used[self.scales[moved].numpy()] = True
        pulls = []
        for kind in self.kinds:
            acting = used[kind.scales][:, :, None] * kind.real[None]
            up, down = (acting > 0).any(1), (acting < 0).any(1)
            pulls.append(((up & ~down).astype(np.float64) - (down & ~up)).reshape(-1))
        return torch.from_numpy(np.concatenate(pulls)) if pulls else torch.zeros(0, dtype=torch.float64)

    def log_scales(self, free: Tensor) -> Tensor:
        """The log-scale of every position of every slot."""
        logs = torch.zeros(len(self.structure.scalings.kind_of), dtype=torch.float64)
        for kind, part in zip(self.kinds, free.split(self.sizes), strict=True):
            block = part.reshape(len(kind.scales), -1) @ torch.from_numpy(kind.real.astype(np.float64)).T
            logs = logs.index_put((torch.from_numpy(kind.scales),), block)
        return logs[self.scales] * self.moves

    def norm(self, free: Tensor, squares: dict[str, Tensor]) -> Tensor:
        """sum_w |w|^2 exp(2 l_w), less the pull on scales that only enlarge."""
        log_scale = self.log_scales(free)
        total = -2 * (self.pull * free).sum()
        for name, square in squares.items():
            logs = torch.zeros((), dtype=torch.float64)
            for dim in range(square.dim()):
                if (name, dim) in self.slots:
                    logs = logs + self._along(log_scale[self.slots[name, dim]], name, dim, square)
            total = total + (square * (2 * logs).exp()).sum()
        return total

    def _along(self, logs: Tensor, name: str, dim: int, like: Tensor) -> Tensor:
        shape = self.structure.slots[name, dim].ids.shape
        if len(shape) == 1:
            return logs.reshape([-1 if d == dim else 1 for d in range(like.dim())])
        # A grouped weight: its input channels differ from group to group of its output channels.
        block = logs.reshape(shape[0], 1, shape[1]).expand(-1, like.shape[0] // shape[0], -1)
        return block.reshape(like.shape[0], shape[1], *[1] * (like.dim() - 2))

    def _reduce(self, name: str, square: Tensor) -> Tensor:
        """Sum over the dims that no scale acts on (the pixels of a kernel)."""
        still = [dim for dim in range(square.dim()) if (name, dim) not in self.slots]
        return square.sum(still, keepdim=True) if still else square

    def __call__(self, vector: Tensor) -> Tensor:
        count = sum(self.sizes)
        if count == 0:
            return vector
        parts = self.known.objective.layout.unflatten(vector.detach().double().cpu())
        squares = {name: self._reduce(name, part.square()) for name, part in parts.items()}
        free = torch.zeros(count, dtype=torch.float64, requires_grad=True)
        solver = torch.optim.LBFGS(
            [free], max_iter=500, tolerance_grad=1e-12, tolerance_change=1e-14, line_search_fn="strong_wolfe"
        )

        def closure() -> Tensor:
            solver.zero_grad()
            with torch.enable_grad():
                loss = self.norm(free, squares)
                loss.backward()
            return loss

        solver.step(closure)
        identity = self.known.symmetry.identity()
        log_scale = self.log_scales(free.detach()).numpy()
        element = Element(identity.structure, identity.relabel, log_scale, identity.sign, identity.linear)
        return self.known.act(vector, element)


def match_permutations(known: KnownSymmetry, vector: Tensor, reference: Tensor, sweeps: int = 20) -> Tensor:
    """The vector with its channels in the order, and with the signs, that best agree with the reference.

    The first sweep goes from the input on and looks at incoming weights only: on the orbit these agree
    exactly once the layers before are matched. Later sweeps look at all weights.
    """
    axes = [a for a in known.symmetry.axes if a.group.name != "trivial" and len(a.classes) == 1]
    linear = set(known.symmetry.structure.linear)
    orbit = known.symmetry.structure.classes.orbit
    axes = [a for a in axes if int(orbit[a.classes.flat[0]]) not in linear]
    for sweep in range(sweeps):
        before = vector
        for axis in axes:
            members = [m for m in axis.members if m.param in known.objective.layout.names]
            incoming = [m for m in members if m.role != "in"]
            used = incoming if sweep == 0 and incoming else members
            vector = _match_axis(known, vector, reference, axis, used)
            vector = _match_signs(known, vector, reference, axis, used)
        if sweep > 0 and torch.equal(before, vector):
            break
    return vector


def _match_axis(
    known: KnownSymmetry, vector: Tensor, reference: Tensor, axis: Axis, members: Sequence[Member]
) -> Tensor:
    from scipy.optimize import linear_sum_assignment

    ours, theirs = (known.objective.layout.unflatten(v.double()) for v in (vector, reference))
    signs = any(kind.sign.shape[1] for kind in known.symmetry.structure.scalings.kinds)
    gain = np.zeros((axis.size, axis.size))
    for member in members:
        places = torch.from_numpy(known.symmetry.positions(axis, member)).to(vector.device)
        left, right = (p[member.param].movedim(member.dim, 0)[places].flatten(1) for p in (theirs, ours))
        agreement = (left @ right.T).cpu().numpy()
        # Where signs are free they are found afterwards: here only the size of the agreement counts.
        gain += np.abs(agreement) if signs else agreement
    _, order = linear_sum_assignment(gain, maximize=True)
    if np.array_equal(order, np.arange(axis.size)):
        return vector
    identity = known.symmetry.identity()
    relabel = identity.relabel.copy()
    classes = axis.classes.reshape(-1)
    relabel[classes[order]] = classes
    carry(identity.structure, relabel)
    element = Element(identity.structure, relabel, identity.log_scale, identity.sign, identity.linear)
    return known.act(vector, element)


def _match_signs(
    known: KnownSymmetry, vector: Tensor, reference: Tensor, axis: Axis, members: Sequence[Member]
) -> Tensor:
    """Flip every free sign of the axis after which its weights agree better with the reference."""
    structure = known.symmetry.structure
    for kind in structure.scalings.kinds:
        for column in range(kind.sign.shape[1]):
            flipped = kind.sign[:, column] % 2 == 1
            agreement = _agreement(known, vector, reference, axis, members)[kind.scales][:, flipped].sum(1)
            sign = np.ones(len(structure.scalings.kind_of))
            sign[kind.scales[agreement < 0][:, flipped]] = -1
            at_positions = np.where(_moves(structure), sign[structure.scales], 1.0)
            if (at_positions < 0).any():
                identity = known.symmetry.identity()
                element = Element(
                    structure, identity.relabel, identity.log_scale, at_positions, identity.linear
                )
                vector = known.act(vector, element)
    return vector


def _agreement(
    known: KnownSymmetry, vector: Tensor, reference: Tensor, axis: Axis, members: Sequence[Member]
) -> NDArray[np.float64]:
    """For every scale, the inner product of the members' weights that carry it with the reference's."""
    structure = known.symmetry.structure
    products = known.objective.layout.unflatten((vector.double() * reference.double()).cpu())
    total = np.zeros(len(structure.scalings.kind_of))
    for member in members:
        start, stop = structure.span[member.param, member.dim]
        if stop - start == products[member.param].shape[member.dim]:
            places = known.symmetry.positions(axis, member)
            slices = products[member.param].movedim(member.dim, 0).reshape(stop - start, -1)
            np.add.at(total, structure.scales[start + places], slices.sum(1).numpy()[places])
    return total


def _moves(structure: Structure) -> NDArray[np.bool_]:
    """The positions that scales and signs move; where a matrix acts, it takes their place."""
    owner = structure.component_class[structure.component]
    return ~(np.isin(structure.classes.orbit[owner], list(structure.linear)) | (owner < 0))
