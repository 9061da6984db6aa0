"""The orbit of theta under known symmetries, beside what the search found.

A known symmetry is a function that maps a generator of random numbers to an equivalent parameter vector
(`Symmetry`), or a path t -> g_t theta of such vectors. The orbit is drawn in the plane of a landscape by
the feet of its perpendiculars, with the distance from the plane. `scaling_plane` is the plane that holds a
scaling orbit exactly: with g_a = (a w_in, w_out / a), all g_a theta lie in the span of w_in and w_out, on
the hyperbola c = 1 / a.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from intertwine.explore.objective import Objective
from intertwine.explore.plane import Plane, plane_through

# A generator of random numbers -> an equivalent parameter vector.
Symmetry = Callable[[torch.Generator], Tensor]
# t -> g_t theta, with g_0 the identity.
Path = Callable[[float], Tensor]
# A parameter vector -> the representative of its orbit: equal for equivalent vectors.
Canonical = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Orbit:
    """Points of an orbit in the coordinates of a plane, with their distances from it and their J."""

    coordinates: NDArray[np.float64]
    residuals: NDArray[np.float64]
    values: NDArray[np.float64]
    labels: tuple[str, ...]
    scale: float = field(default=1.0)

    def kinds(self) -> tuple[str, ...]:
        """The kinds of symmetry, in order of first appearance."""
        return tuple(dict.fromkeys(self.labels))

    def of_kind(self, kind: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Coordinates and distances of the points of one kind."""
        mask = np.array([label == kind for label in self.labels], dtype=bool)
        return self.coordinates[mask], self.residuals[mask]


def find_orbit(
    plane: Plane, objective: Objective, vectors: Sequence[tuple[str, Tensor]], *, examples: int = 1024
) -> Orbit:
    """Where the (kind, vector) pairs of an orbit lie with respect to a plane, and their J."""
    rows = torch.stack([vector for _, vector in vectors]).to(objective.theta)
    values = objective.values(rows, examples=examples)
    return Orbit(
        plane.coordinates(rows).cpu().numpy(),
        plane.residuals(rows).cpu().numpy(),
        values.cpu().numpy(),
        tuple(kind for kind, _ in vectors),
        float(plane.reach()),
    )


def sample_orbit(symmetry: Symmetry, count: int, *, kind: str, seed: int = 0) -> list[tuple[str, Tensor]]:
    """`count` random elements of the orbit."""
    generator = torch.Generator().manual_seed(seed)
    return [(kind, symmetry(generator)) for _ in range(count)]


def trace_path(path: Path, times: Sequence[float], *, kind: str) -> list[tuple[str, Tensor]]:
    """The path at the given times."""
    return [(kind, path(float(t))) for t in times]


def scaling_plane(objective: Objective, path: Path) -> Plane:
    """The plane through theta, g_1 theta and g_(-1) theta: it holds the whole orbit of one rescaled unit."""
    names = ("theta", "g theta", "g^-1 theta")
    return plane_through(objective, [path(0.0), path(1.0), path(-1.0)], names)


@dataclass(frozen=True)
class Explained:
    """How far a found parameter is from the orbit of theta, relative to the length of theta."""

    index: int
    distance: float
    by_known_symmetries: bool


def check_explained(
    points: Tensor, theta: Tensor, canonical: Canonical, *, tolerance: float = 0.05
) -> tuple[Explained, ...]:
    """|canonical(t) - canonical(theta)| / |canonical(theta)| for each found t: near zero on the orbit.

    The canonical form divides the group out (scales balanced, permutation sorted or matched to theta), so a
    small distance means "explained by known symmetries" and a large one that the class has more in it.
    """
    base = canonical(theta).double()
    length = float(base.norm())
    distances = [float((canonical(point).double() - base).norm()) / length for point in points]
    return tuple(Explained(i, d, d <= tolerance) for i, d in enumerate(distances))
