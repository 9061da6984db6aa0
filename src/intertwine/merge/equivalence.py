"""The definitions as code: equivalent features between models and within one (source 000, section 2).

find_isomorphism(a, b)   the group element g with g . theta_a = theta_b, or where none exists (Definition 2.1)
automorphisms(model)     classes of equal features, which may be exchanged (Theorem 2.3)
feature_complexity       the number of classes that are left at a given beta (Definition 2.4)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from intertwine.merge.decide import PAPER_BETAS, Options, Planner
from intertwine.merge.gauge import find_gauge
from intertwine.merge.places import Place, find_places, float64_weights
from intertwine.symmetry import Axis, Element, Symmetry
from intertwine.symmetry.transform import apply_element

TOLERANCE = 1e-5  # relative to the largest entry of a weight; float32 checkpoints differ by about 1e-6


@dataclass(frozen=True)
class Isomorphism:
    """element: carries the first model into the second, or None. axis, error: where it fails worst."""

    element: Element | None
    axis: str
    error: float

    def __bool__(self) -> bool:
        return self.element is not None


def automorphisms(model: nn.Module, symmetry: Symmetry, beta: float = 1e-9) -> dict[str, list[list[int]]]:
    """Axis -> classes of two or more equal features, up to the rescalings of the axis.

    >>> from intertwine import trace
    >>> mlp = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> with torch.no_grad():
    ...     for t in (mlp[0].weight, mlp[0].bias, mlp[2].weight.T):
    ...         _ = t[3].copy_(t[1])
    >>> automorphisms(mlp, trace(mlp, torch.zeros(1, 3)))
    {'0': [[1, 3]]}
    """
    options = Options("ifm", order="independent", distance="invariant", repair="none")
    plan = Planner(model, symmetry, options, check=False).at_beta(beta)
    found = {a.name: [c for c in a.classes() if len(c) > 1] for a in plan.axes}
    return {name: classes for name, classes in found.items() if classes}


def feature_complexity(
    model: nn.Module,
    symmetry: Symmetry,
    betas: Sequence[float] = PAPER_BETAS,
    *,
    distance: str = "paper",
    axes: Sequence[str] | None = None,
) -> dict[float, dict[str, int]]:
    """beta -> axis -> feature complexity, every axis measured against the original weights of its neighbours.

    One merge sequence an axis is computed, and cut at every beta.
    """
    options = Options("ifm", order="independent", distance=distance, repair="none").checked()
    whole = Planner(model, symmetry, options, axes, check=False).at_beta(max(betas))
    return {beta: whole.cut(beta).complexity for beta in betas}


def find_isomorphism(
    model_a: nn.Module, model_b: nn.Module, symmetry: Symmetry, tolerance: float = TOLERANCE
) -> Isomorphism:
    """The permutation, rescaling and signs that carry `model_a` into `model_b`, if there are any.

    Axes are matched in the order of the graph, each by what makes its channels out of axes matched before, in
    a canonical scale. The result is checked on all weights: it is never a guess.

    >>> from intertwine import act, trace
    >>> mlp = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> symmetry = trace(mlp, torch.zeros(1, 3))
    >>> bool(find_isomorphism(mlp, act(mlp, symmetry.sample(0)), symmetry))
    True
    >>> other = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> find_isomorphism(mlp, other, symmetry).axis
    '0'
    """
    left, right = float64_weights(symmetry, model_a), float64_weights(symmetry, model_b)
    total = symmetry.identity()
    done: set[str] = set()
    movable = [a for a in symmetry.axes if a.group.permutation and a.group.blocks == 1 and not a.group.linear]
    scaled = [
        a for a in symmetry.axes if a not in movable and a.group.name != "trivial" and not a.group.linear
    ]
    for axis in [*movable, *scaled]:
        moved = apply_element(total, left)
        element = _match(symmetry, axis, moved, right, movable, done)
        if element is not None:
            total = element @ total
        done.add(axis.name)
    return _judge(symmetry, total, apply_element(total, left), right, tolerance)


def _match(
    symmetry: Symmetry,
    axis: Axis,
    left: Mapping[str, Tensor],
    right: Mapping[str, Tensor],
    movable: Sequence[Axis],
    done: set[str],
) -> Element | None:
    places = find_places(symmetry, axis)
    open_names = {a.name for a in movable} - done - {axis.name}
    open_slots = {(m.param, m.dim) for a in movable if a.name in open_names for m in a.members}
    settled = [
        p
        for p in places
        if not p.consumes
        and not any((p.param, d) in open_slots for d in range(left[p.param].dim()) if d != p.dim)
    ]
    if not settled:
        return None
    scales = [_gauge(symmetry, settled, places, weights) for weights in (left, right)]
    rows = [_described(settled, weights, scale) for weights, scale in ((left, scales[0]), (right, scales[1]))]
    # The assignment of source channel c to target channel target[c].
    target = np.arange(axis.size)
    if axis.group.permutation:
        cost = torch.cdist(rows[0], rows[1], compute_mode="donot_use_mm_for_euclid_dist").square()
        target = linear_sum_assignment(cost.cpu().numpy())[1]
    return _element(symmetry, axis, places, scales, target)


def _gauge(
    symmetry: Symmetry, settled: Sequence[Place], places: Sequence[Place], weights: Mapping[str, Tensor]
) -> dict[tuple[str, int], np.ndarray]:
    """Canonical factors of all places, decided by the settled ones."""
    factors = find_gauge(symmetry, places, weights, decided_by=[p in settled for p in places])
    return {(p.param, p.dim): f for p, f in zip(places, factors, strict=True)}


def _described(
    settled: Sequence[Place], weights: Mapping[str, Tensor], scale: Mapping[tuple[str, int], np.ndarray]
) -> Tensor:
    parts = []
    for place in settled:
        factor = torch.from_numpy(scale[place.param, place.dim])[:, None]
        part = place.rows(weights[place.param] + place.shift).cpu() * factor
        parts.append(part / part.norm().clamp_min(1e-300))
    return torch.cat(parts, 1)


def _element(
    symmetry: Symmetry,
    axis: Axis,
    places: Sequence[Place],
    scales: Sequence[Mapping[tuple[str, int], np.ndarray]],
    target: np.ndarray,
) -> Element:
    base = symmetry.identity()
    relabel, log_scale, sign = base.relabel.copy(), base.log_scale.copy(), base.sign.copy()
    classes = axis.classes.reshape(-1)
    relabel[classes] = classes[target]
    for place in places:
        start, _ = symmetry.structure.span[place.param, place.dim]
        key = (place.param, place.dim)
        ratio = scales[0][key] / scales[1][key][target]
        for k in range(place.where.shape[1]):
            log_scale[start + place.where[:, k]] = np.log(np.abs(ratio))
            sign[start + place.where[:, k]] = np.sign(ratio)
    return Element(symmetry.structure, relabel, log_scale, sign, base.linear)


def _judge(
    symmetry: Symmetry,
    element: Element,
    moved: Mapping[str, Tensor],
    wanted: Mapping[str, Tensor],
    tolerance: float,
) -> Isomorphism:
    errors: dict[str, float] = {}
    for name, tensor in wanted.items():
        scale = tensor.abs().max().clamp_min(1e-12)
        errors[name] = float((moved[name] - tensor).abs().max() / scale)
    worst = max(errors, key=lambda n: errors[n])
    if errors[worst] <= tolerance:
        return Isomorphism(element, "", errors[worst])
    for axis in symmetry.axes:
        makers: list[Any] = [m for m in axis.members if m.role == "out" and errors[m.param] > tolerance]
        if makers:
            return Isomorphism(None, axis.name, max(errors[m.param] for m in makers))
    return Isomorphism(None, worst, errors[worst])
