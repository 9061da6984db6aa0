"""The dimension that {J = 0} has at theta by the derivative, beside that of {J < epsilon} on the grid.

J is the square of a distance between functions, so to second order around theta it is |D v|^2, D the
derivative of the outputs on C by theta. Its null space has parameters - rank(D) dimensions (rank: the
functional dimension on C), and dim - rank(D B) of them lie in a plane with basis B. Box counting of
{J < epsilon} counts a direction in which J grows slowly as well, and follows the set where it bends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from intertwine.exploring.objective import Objective, scores
from intertwine.exploring.plane import Plane

INPUTS = 512  # of C that are looked at, the first
MOST = 1_000  # parameters up to which all directions are taken
ENTRIES = 20_000_000  # of the derivative at most
SMALL = 1e-8  # of the largest singular value: what is below counts as zero


def zero_set(objective: Objective, plane: Plane) -> dict[str, Any]:
    """Facts about the set J = 0 at theta; none where an op has no second derivative."""
    module = objective.module(objective.theta).double()
    inputs, named = objective.arguments(slice(0, INPUTS) if objective.splittable else slice(None))
    given = tuple(_double(x) for x in inputs), {name: _double(x) for name, x in named.items()}
    origin, basis = objective.theta.double(), plane.basis.double().to(objective.theta.device)

    def outputs(vector: Tensor) -> Tensor:
        return scores(functional_call(module, objective.layout.unflatten(vector), *given)).reshape(-1)

    try:
        flat = _rank(lambda c: outputs(origin + c @ basis), origin.new_zeros(plane.dim))
        facts: dict[str, Any] = {"directions of the plane in which J = 0 at theta": plane.dim - flat}
        p = objective.layout.length
        if p <= MOST and p * objective.outputs[:INPUTS].numel() <= ENTRIES:
            rank = _rank(outputs, origin)
            facts = {"functional dimension at theta": rank, "dimension of J = 0 at theta": p - rank, **facts}
    except (NotImplementedError, RuntimeError):
        return {}
    return facts


def _rank(function: Callable[[Tensor], Tensor], at: Tensor) -> int:
    at = at.clone().requires_grad_()
    with torch.enable_grad():
        found = function(at)
        dual = torch.zeros_like(found, requires_grad=True)
        (back,) = torch.autograd.grad(found, at, dual, create_graph=True)  # D' u, whose derivative by u is D'
        columns = [
            torch.autograd.grad(back, dual, step, retain_graph=True)[0]
            for step in torch.eye(len(at), dtype=at.dtype, device=at.device)
        ]
    derivative = torch.stack(columns, dim=1)
    lengths = derivative.norm(dim=0)
    values = torch.linalg.svdvals(derivative / torch.where(lengths > 0, lengths, 1.0))
    return int((values > SMALL * values.max().clamp_min(1e-300)).sum())


def _double(x: Tensor) -> Tensor:
    return x.double() if x.is_floating_point() else x
