"""The orbit of theta under known symmetries, beside what the search found.

A known symmetry gives an equivalent parameter vector, or a path t -> g_t theta of such vectors. The orbit
is drawn in the plane of a landscape by the feet of its perpendiculars, with the distance from the plane.
`scaling_plane` is the plane that holds a scaling orbit exactly: with g_a = (a w_in, w_out / a), all g_a theta
lie in the span of w_in and w_out, on the hyperbola c = 1 / a.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from intertwine.errors import IntertwineError
from intertwine.exploring.objective import Objective
from intertwine.exploring.plane import Plane, plane_through
from intertwine.text import first_line

# t -> g_t theta, with g_0 the identity.
Path = Callable[[float], Tensor]
# A parameter vector -> the representative of its orbit: equal for equivalent vectors.
Canonical = Callable[[Tensor], Tensor]
NEAR = 0.05  # of the length of theta: points as near to its orbit as this are explained by it
# A parameter vector -> its distance from theta after `intertwine.align`, relative to the length of theta.
Aligned = Callable[[Tensor], float]


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


def trace_path(path: Path, times: Sequence[float], *, kind: str) -> list[tuple[str, Tensor]]:
    """The path at the given times."""
    return [(kind, path(float(t))) for t in times]


def scaling_plane(objective: Objective, path: Path) -> Plane:
    """The plane through theta, g_1 theta and g_(-1) theta: it holds the whole orbit of one rescaled unit."""
    names = ("theta", "g theta", "g^-1 theta")
    return plane_through(objective, [path(0.0), path(1.0), path(-1.0)], names)


@dataclass(frozen=True)
class Explained:
    """How far a found parameter is from the orbit of theta, relative to the length of theta.

    distance: between the canonical forms. aligned: from theta, after `intertwine.align` has brought the
    parameter as close as it can; None where it could not, and `problem` says why. Known symmetries explain
    the parameter if either is at most `tolerance`.
    """

    index: int
    distance: float
    aligned: float | None = None
    problem: str = ""
    tolerance: float = NEAR

    @property
    def least(self) -> float:
        """The better of the two answers."""
        return self.distance if self.aligned is None else min(self.distance, self.aligned)

    @property
    def by_known_symmetries(self) -> bool:
        return self.least <= self.tolerance

    def describe(self) -> str:
        """One line for a report.

        >>> Explained(0, 0.31, aligned=0.28).describe()
        'distance from the orbit 0.28 after align, 0.31 in the quotient: not explained'
        """
        verdict = "explained by known symmetries" if self.by_known_symmetries else "not explained"
        after = "align failed" if self.aligned is None else f"{self.aligned:.3g} after align"
        if self.aligned is None and not self.problem:
            return f"distance from the orbit {self.distance:.3g} in the quotient: {verdict}"
        return f"distance from the orbit {after}, {self.distance:.3g} in the quotient: {verdict}"


def check_explained(
    points: Tensor,
    theta: Tensor,
    canonical: Canonical,
    *,
    align: Aligned | None = None,
    tolerance: float = NEAR,
) -> tuple[Explained, ...]:
    """|canonical(t) - canonical(theta)| / |canonical(theta)| for each found t: near zero on the orbit.

    The canonical form divides the group out (scales balanced, permutation matched to theta), so a small
    distance means "explained by known symmetries" and a large one that the class has more in it. `align`
    gives a second distance; a point that either finds near the orbit is explained.
    """
    base = canonical(theta).double()
    length = float(base.norm())
    found = []
    for index, point in enumerate(points):
        distance = float((canonical(point).double() - base).norm()) / length
        found.append(Explained(index, distance, *_try(align, point), tolerance=tolerance))
    return tuple(found)


def _try(align: Aligned | None, point: Tensor) -> tuple[float | None, str]:
    """The distance after align, or why there is none: a second opinion must not cost the first."""
    if align is None:
        return None, ""
    try:
        return align(point), ""
    except (IntertwineError, torch.linalg.LinAlgError) as error:  # type: ignore[attr-defined]
        return None, first_line(error)
