"""An affine plane in parameter space: origin + sum over i of c_i b_i, with b_i orthonormal.

`span` puts it through found equivalents by Gram-Schmidt on theta_i - theta_0 (section 3 of GENNI),
`random_plane` draws filter-normalised directions (Li et al. 2018), `plane_through` takes checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from intertwine.checks import checked
from intertwine.errors import InputError
from intertwine.exploring.objective import FlatLayout, Objective
from intertwine.exploring.search import EquivalenceSample, is_independent
from intertwine.exploring.storage import read_result, write_result
from intertwine.reading import parsing

MAX_DIM = 4


@dataclass(frozen=True)
class Plane:
    """Origin (p), orthonormal rows `basis` (m x p), and named points to mark with their coordinates."""

    layout: FlatLayout
    origin: Tensor
    basis: Tensor
    marks: Tensor
    names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    objective: Objective | None = field(default=None, repr=False, compare=False)

    @property
    def dim(self) -> int:
        return len(self.basis)

    def points(self, coordinates: Tensor) -> Tensor:
        """The parameter vectors at rows of coordinates: origin + c B."""
        return self.origin + coordinates.to(self.basis) @ self.basis

    def coordinates(self, vectors: Tensor) -> Tensor:
        """The coordinates of the feet of the perpendiculars from `vectors` (rows), in float64."""
        return (vectors - self.origin).double() @ self.basis.double().T

    def residuals(self, vectors: Tensor) -> Tensor:
        """The distance of each row of `vectors` from the plane, in float64."""
        offsets = (vectors - self.origin).double()
        result: Tensor = (offsets - (offsets @ self.basis.double().T) @ self.basis.double()).norm(dim=1)
        return result

    def reach(self) -> float:
        """The largest absolute coordinate of a mark: what a picture must show at least."""
        return float(self.marks.abs().max()) if self.marks.numel() else 1.0

    @checked
    def save(self, path: str | Path) -> Path:
        tensors = {"origin": self.origin, "basis": self.basis, "marks": self.marks}
        facts = {
            "names": self.layout.names,
            "shapes": self.layout.shapes,
            "marks": self.names,
            "notes": self.notes,
        }
        return write_result(path, "plane", tensors, facts)

    @classmethod
    def load(cls, path: str | Path) -> Plane:
        tensors, facts = read_result(path, "plane")
        with parsing(path):  # a file of others may lack anything
            layout = FlatLayout(tuple(facts["names"]), tuple(tuple(shape) for shape in facts["shapes"]))
            names, notes = tuple(facts["marks"]), tuple(facts["notes"])
            return cls(layout, tensors["origin"], tensors["basis"], tensors["marks"], names, notes)


def check_dim(dim: int) -> None:
    """Pictures have one to four dimensions."""
    if not 1 <= dim <= MAX_DIM:
        raise InputError(
            f"dimension {dim} is not possible",
            so=f"a grid grows with the power of the dimension; the most is {MAX_DIM}",
            do="use --dim 2, 3 or 4",
        )


def span(sample: EquivalenceSample, dim: int | None = None) -> Plane:
    """The plane through theta_0 ... theta_m of the sample, by Gram-Schmidt on theta_i - theta_0.

    >>> layout = FlatLayout(("w",), ((3,),))
    >>> rows = torch.tensor([[1.0, 0, 0], [1, 2, 0], [1, 3, 4]])
    >>> sample = EquivalenceSample(layout, rows[0], rows, (0.0, 0.0, 0.0), 1e-6, 1.0)
    >>> span(sample).marks.tolist()
    [[0.0, 0.0], [2.0, 0.0], [3.0, 4.0]]
    """
    dim = len(sample) - 1 if dim is None else dim
    check_dim(dim)
    if len(sample) < dim + 1:
        raise InputError(f"a {dim}-dimensional plane needs {dim + 1} points, the sample has {len(sample)}")
    names = tuple(f"theta_{i}" for i in range(dim + 1))
    return _through(sample.layout, sample.points[: dim + 1], names, sample.notes, sample.objective)


def plane_through(
    objective: Objective,
    checkpoints: Sequence[Mapping[str, Tensor] | Tensor],
    names: Sequence[str] | None = None,
) -> Plane:
    """The plane through two to five checkpoints (state dicts or flat vectors); the first is the origin."""
    vectors = [c if isinstance(c, Tensor) else objective.layout.flatten(c) for c in checkpoints]
    check_dim(len(vectors) - 1)
    labels = tuple(names) if names is not None else tuple(f"checkpoint {i}" for i in range(len(vectors)))
    return _through(
        objective.layout, torch.stack(vectors).to(objective.theta), labels, objective.notes, objective
    )


def random_plane(objective: Objective, dim: int = 2, *, seed: int = 0, normalise: str = "filter") -> Plane:
    """Random directions through theta, each filter scaled to the norm of theta's filter (Li et al. 2018).

    d_(i,j) <- d_(i,j) |theta_(i,j)| / |d_(i,j)| for filter j of layer i; vectors (biases, norms) get zero,
    as in their code. The basis is the orthonormalised directions, one unit of a coordinate is then
    one unit of parameter distance; `notes` gives the length of the normalised directions.
    """
    check_dim(dim)
    if normalise not in ("filter", "none"):
        raise InputError(f"normalise is 'filter' or 'none', not {normalise!r}")
    generator = torch.Generator().manual_seed(seed)
    theta = objective.layout.unflatten(objective.theta)
    directions = []
    for _ in range(dim):
        parts = {name: _direction(part, generator, normalise) for name, part in theta.items()}
        directions.append(objective.layout.flatten(parts))
    lengths = ", ".join(f"{float(d.norm()):.4g}" for d in directions)
    points = torch.stack([objective.theta, *(objective.theta + d for d in directions)])
    plane = _through(objective.layout, points, ("theta",) * (dim + 1), objective.notes, objective)
    note = f"random directions, normalised by {normalise}; lengths {lengths}"
    return Plane(
        plane.layout, plane.origin, plane.basis, plane.marks[:1], ("theta",), (*plane.notes, note), objective
    )


def _direction(part: Tensor, generator: torch.Generator, normalise: str) -> Tensor:
    noise = torch.randn(part.shape, generator=generator).to(part)
    if normalise == "none":
        return noise
    if part.dim() < 2:
        return torch.zeros_like(part)
    rows, noise_rows = part.flatten(1), noise.flatten(1)
    scale = rows.norm(dim=1) / noise_rows.norm(dim=1).clamp_min(torch.finfo(part.dtype).tiny)
    result: Tensor = (noise_rows * scale[:, None]).reshape(part.shape)
    return result


def _through(
    layout: FlatLayout,
    points: Tensor,
    names: tuple[str, ...],
    notes: tuple[str, ...],
    objective: Objective | None,
) -> Plane:
    """Gram-Schmidt, as the QR decomposition in which the diagonal of R is positive."""
    for index in range(1, len(points)):
        if not is_independent(points[index], list(points[:index])):
            raise InputError(
                f"{names[index]} is not independent of the points before it", so="there is no plane"
            )
    origin = points[0]
    columns, r = torch.linalg.qr((points[1:] - origin).double().T)
    basis = (columns * r.diagonal().sign()).T
    plane = Plane(layout, origin, basis.to(points), torch.zeros(0), names, notes, objective)
    marks = plane.coordinates(points)
    return Plane(layout, origin, basis.to(points), marks, names, notes, objective)
