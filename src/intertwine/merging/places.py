"""Where an axis lies in the weights: its slices as matrices, and the axes that a merge may act on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from intertwine.errors import InputError, NotFound
from intertwine.ir.ledger import Ids
from intertwine.orbit import Raised, is_large
from intertwine.symmetry import Axis, Symmetry

Weights = Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class Place:
    """A weight's dimension that carries an axis. where: (channels, copies) positions along the dimension.

    shift: what is added before scaling (a batch norm's eps on its variance).
    """

    param: str
    dim: int
    role: str
    where: Ids
    shift: float = 0.0

    @property
    def consumes(self) -> bool:
        """Whether the weight contracts the axis: its slices of merged channels add up."""
        return self.role == "in"

    def rows(self, tensor: Tensor) -> Tensor:
        """(channels, everything else): the slices of all channels."""
        index = self.where.reshape(-1)
        if not np.array_equal(index, np.arange(tensor.shape[self.dim])):  # the whole dimension needs no copy
            tensor = tensor.index_select(self.dim, torch.from_numpy(index).to(tensor.device))
        return tensor.movedim(self.dim, 0).reshape(len(self.where), -1)


def find_places(symmetry: Symmetry, axis: Axis) -> tuple[Place, ...]:
    """Every place of an axis, in the order of the graph."""
    shifts = symmetry.structure.inference.shifts
    return tuple(
        Place(m.param, m.dim, m.role, symmetry.positions(axis, m), shifts.get(m.param, 0.0))
        for m in axis.members
    )


def find_axes(symmetry: Symmetry, patterns: Sequence[str] | None) -> list[Axis]:
    """The mergeable axes whose names match any of the shell patterns (all of them without patterns)."""
    mergeable = [a for a in symmetry.axes if a.mergeable]
    if patterns is None:
        return mergeable
    if isinstance(patterns, str):
        patterns = [patterns]
    chosen: set[str] = set()
    for pattern in patterns:
        found = symmetry.matching(pattern)
        if not any(a.mergeable for a in found):
            raise NotFound(
                f"no axis that matches {pattern!r} can be merged",
                so=f"{found[0].name} is {found[0].frozen_because or 'not mergeable'}",
                do="`intertwine inspect` says which axes are mergeable",
            )
        chosen.update(a.name for a in found)
    return [a for a in mergeable if a.name in chosen]


def float64_weights(symmetry: Symmetry, model: torch.nn.Module) -> Mapping[str, Tensor]:
    """The weights that carry axes in float64: copies, or, of a large model, made when they are asked for."""
    weights = symmetry.weights(model)
    if is_large(weights.values()):
        return Raised(weights, device=None)
    return {name: tensor.detach().to(torch.float64, copy=True) for name, tensor in weights.items()}


def has_scaling(symmetry: Symmetry, places: Sequence[Place], wanted: Mapping[str, float]) -> bool:
    """Whether the axis has a rescaling with these exponents, by role (roles that are not named are free)."""
    rows: list[dict[tuple[int, int, int], float]] = []
    bound = [p for p in places if p.role in wanted]
    for place in bound:
        scales = symmetry.structure.slots[place.param, place.dim].scale.reshape(-1)[place.where[0]]
        found = [symmetry.structure.scalings.exponents(int(s)) for s in scales]
        kind, component, real, _ = found[0]
        if any(f[:2] != (kind, component) or not np.array_equal(f[2], real) for f in found):
            return False
        rows.append({(kind, component, i): float(x) for i, x in enumerate(real)})
    columns = sorted({key for row in rows for key in row})
    if not columns:
        return False
    system = np.array([[row.get(c, 0.0) for c in columns] for row in rows])
    target = np.array([wanted[p.role] for p in bound])
    solution = np.linalg.lstsq(system, target, rcond=None)[0]
    return bool(np.abs(system @ solution - target).max(initial=0.0) < 1e-9)


def sums_first(symmetry: Symmetry, places: Sequence[Place], norms: bool = True) -> bool:
    """Whether merging may sum what makes the axis and average what reads it (eq. 7 and 8).

    That is the mean-then-sum form, exact for every mergeable axis, followed by a rescaling: it is exact
    if the axis has a rescaling that multiplies every making weight by N and every reading one by 1/N, and
    (`norms`) batch-norm parameters by N and variances by N^2.
    """
    wanted = {"in": -1.0, "out": 1.0, "bias": 1.0}
    if norms:
        wanted |= {"gain": 1.0, "shift": 1.0, "mean": 1.0, "var": 2.0}
        if any(p.role not in wanted for p in places):
            return False
    return has_scaling(symmetry, places, wanted)


def check_beta(beta: float) -> float:
    """beta as a number in [0, 1], or `InputError`."""
    if not 0.0 <= beta <= 1.0:
        raise InputError(f"beta is {beta}, not a number from 0 to 1", do="the paper uses 0.01 to 0.2")
    return float(beta)
