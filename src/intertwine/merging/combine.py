"""Merged weights from classes of channels.

For a class of N equal channels the mean of what makes them and the sum of what reads them is exact on every
mergeable axis. Where the axis can be rescaled, N times the one and 1/N times the other is exact too: sum,
then mean (eq. 7, 8 and 10 of IFM). A batch norm y = a_k (x - mu_k) + beta_k, a_k = gamma_k / sigma_k, becomes

    a = mean a_k,   offset = mean (beta_k - a_k mu_k),   mu = mean mu_k,   sigma^2 = mean sigma_k^2

so that it is exact for equal channels and the mean of the lines for unequal ones (`norm="exact"`); the
released code sums all four (`norm="sum"`).

Here a merged channel lies at the place of its first member and the other places hold zeros; `shrink`
removes them. So the places of other axes keep their meaning while one axis after the other is merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from intertwine.merging.places import Place
from intertwine.merging.plan import AxisPlan, MergePlan, NewBasis, Reader

NORM_ROLES = ("gain", "shift", "mean", "var")
Classes = Sequence[Sequence[int]]


def fold(tensor: Tensor, place: Place, classes: Classes, average: bool) -> Tensor:
    """Sum (or average) the slices of every class into its first member; the others become zero."""
    size, copies = place.where.shape
    first, share = np.empty(size, np.int64), np.empty(size)
    for members in classes:
        first[list(members)] = members[0]
        share[list(members)] = 1.0 / len(members) if average else 1.0
    index = torch.from_numpy(place.where.reshape(-1)).to(tensor.device)
    target = torch.from_numpy(place.where[first].reshape(-1)).to(tensor.device)
    factor = torch.from_numpy(np.repeat(share, copies)).to(tensor)
    shape = [-1 if d == place.dim else 1 for d in range(tensor.dim())]
    slices = tensor.index_select(place.dim, index) * factor.reshape(shape)
    return tensor.index_fill(place.dim, index, 0.0).index_add(place.dim, target, slices)


def fold_parts(plan: MergePlan, weights: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """All weights that the plan touches, in float64 and of the old shapes; dropped channels hold zeros.

    A part at a time: axes that share a weight together, usually those of one layer.
    Whoever stores each part in the precision that the model has never holds more than a layer in float64.
    """
    for axes in _sharing(plan.axes):
        names = sorted({name for axis in axes for name in _touched(axis)})
        current = {name: weights[name].detach().to(torch.float64) for name in names}
        for axis in axes:
            rescale(axis, current)
        for axis in axes:
            if axis.merges:
                fold_axis(axis, current, plan.norm)
        yield current


def _touched(axis: AxisPlan) -> set[str]:
    return {p.param for p in axis.places} | {r.absorber for r in axis.readers if r.absorber}


def _sharing(axes: Sequence[AxisPlan]) -> list[list[AxisPlan]]:
    """Axes in groups that touch no weight of another group; inside a group in their order."""
    groups: list[tuple[set[str], list[AxisPlan]]] = []
    for axis in axes:
        names = _touched(axis)
        meeting = [g for g in groups if g[0] & names]
        joined = [a for _, members in meeting for a in members]
        groups = [g for g in groups if g not in meeting]
        groups.append((names.union(*(g[0] for g in meeting)), [*joined, axis]))
    place = {id(axis): k for k, axis in enumerate(axes)}
    return [sorted(members, key=lambda a: place[id(a)]) for _, members in groups]


def rescale(axis: AxisPlan, weights: dict[str, Tensor]) -> None:
    """Apply the axis's gauge: multiply every channel at every place by its factor."""
    for plan in axis.places:
        if plan.scale is None:
            continue
        place, tensor = plan.place(axis.size), weights[plan.param]
        factor = torch.ones(tensor.shape[plan.dim], dtype=tensor.dtype)
        given = torch.tensor(plan.scale, dtype=tensor.dtype).reshape(axis.size, -1)
        factor[torch.from_numpy(place.where)] = given.expand(place.where.shape)
        shape = [-1 if d == plan.dim else 1 for d in range(tensor.dim())]
        weights[plan.param] = (tensor + plan.shift) * factor.to(tensor.device).reshape(shape) - plan.shift


def fold_axis(axis: AxisPlan, weights: dict[str, Tensor], norm: str) -> None:
    """Merge one axis in a dictionary of weights."""
    for turn in axis.turns:
        weights[turn.param] = turned(weights[turn.param], turn, axis.width / axis.size)
    if axis.turns:
        return  # the last coordinates are removed with their positions
    classes = axis.classes()
    places = [p.place(axis.size) for p in axis.places]
    readers = {(r.param, r.dim): r for r in axis.readers}
    for place in [p for p in places if (p.param, p.dim) in readers]:
        reader, drop = readers[place.param, place.dim], np.array([m.drop for m in axis.merges])
        if reader.matrix.shape[1] > axis.size:  # blocks of channels go, and every other channel makes up
            copies = place.where.shape[1]
            drop = (drop[:, None] * copies + np.arange(copies)).reshape(-1)
            place = replace(place, where=place.where.reshape(-1, 1))
        absorb(place, reader, drop.tolist(), weights)
    if axis.select:
        return  # dropped channels are removed with their positions
    places = [p for p in places if (p.param, p.dim) not in readers]
    norms = find_norms(places) if norm == "exact" else {}
    for place in places:
        if (_owner(place.param)) in norms and place.role in NORM_ROLES:
            continue
        average = place.consumes == axis.sums_first
        if norm == "exact" and place.role in ("slope", "other"):
            average = True
        weights[place.param] = fold(weights[place.param], place, classes, average)
    for roles in norms.values():
        _fold_norm(roles, axis, weights)


def turned(tensor: Tensor, turn: NewBasis, share: float) -> Tensor:
    """The weight with the axis in another basis; share: how much of the axis is kept."""
    last = tensor.movedim(turn.dim, -1)
    where = torch.from_numpy(turn.where).to(tensor.device)
    matrix = torch.from_numpy(turn.matrix.copy()).to(tensor) * share**turn.power
    whole = np.array_equal(turn.where.reshape(-1), np.arange(last.shape[-1]))
    out: Tensor
    if whole and len(where) == 1:
        out = last @ matrix[0].T
    elif whole:
        out = torch.einsum("rmn,...rn->...rm", matrix, last.unflatten(-1, where.shape)).flatten(-2)
    else:
        out = last.clone()
        out[..., where] = torch.einsum("rmn,...rn->...rm", matrix, last[..., where])
    return out.movedim(-1, turn.dim)


def absorb(place: Place, reader: Reader, drop: Sequence[int], weights: dict[str, Tensor]) -> None:
    """V' = V T^T, and what the outputs lose of their mean goes to the reader's absorber."""
    tensor = weights[place.param]
    size, copies = place.where.shape
    index = torch.from_numpy(place.where.reshape(-1)).to(tensor.device)
    slices = tensor.index_select(place.dim, index).movedim(place.dim, 0)
    slices = slices.reshape(size, copies, *slices.shape[1:])
    if reader.absorber:
        lost = torch.from_numpy(reader.lost.copy()).to(tensor)
        # slices: channels, copies, outputs, kernel...
        taken = torch.tensordot(
            lost, slices.sum(1).flatten(2).sum(2) if slices.dim() > 3 else slices.sum(1), 1
        )
        weights[reader.absorber] = weights[reader.absorber] + reader.sign * taken
    kept = np.setdiff1d(np.arange(size), drop)
    mixed = torch.tensordot(torch.from_numpy(reader.matrix.copy()).to(tensor), slices, 1)
    mixed = mixed.reshape(len(kept) * copies, *slices.shape[2:]).movedim(0, place.dim)
    target = torch.from_numpy(place.where[kept].reshape(-1)).to(tensor.device)
    weights[place.param] = tensor.index_fill(place.dim, index, 0.0).index_copy(place.dim, target, mixed)


def find_norms(places: Sequence[Place]) -> dict[str, dict[str, Place]]:
    """Batch norms among the places: owner -> role -> place; they have statistics, maybe gain and shift."""
    found: dict[str, dict[str, Place]] = {}
    for place in places:
        if place.role in NORM_ROLES:
            found.setdefault(_owner(place.param), {})[place.role] = place
    return {owner: roles for owner, roles in found.items() if {"mean", "var"} <= set(roles)}


def _owner(param: str) -> str:
    return param.rpartition(".")[0]


def norm_line(roles: Mapping[str, Place], weights: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """(slope, offset) of a batch norm, y = slope x + offset, over the whole dimension."""
    mean, var = weights[roles["mean"].param], weights[roles["var"].param]
    slope = (var + roles["var"].shift).rsqrt()
    if "gain" in roles:
        slope = slope * weights[roles["gain"].param]
    offset = -slope * mean
    if "shift" in roles:
        offset = offset + weights[roles["shift"].param]
    return slope, offset


def _fold_norm(roles: Mapping[str, Place], axis: AxisPlan, weights: dict[str, Tensor]) -> None:
    place, eps, classes = roles["var"], roles["var"].shift, axis.classes()
    slope, offset = (fold(x, place, classes, average=True) for x in norm_line(roles, weights))
    mean = fold(weights[roles["mean"].param], place, classes, average=True)
    var = fold(weights[place.param] + eps, place, classes, average=True)
    held, shrunk = torch.ones_like(mean), torch.ones_like(mean)  # 1 for other axes on the dimension
    for members, variance in zip(classes, axis.variances or [1.0] * len(classes), strict=True):
        held[place.where[members[0]]] = float(len(members)) if axis.sums_first else 1.0
        shrunk[place.where[members[0]]] = variance
    dead = var == 0
    if "gain" in roles and "shift" in roles:
        weights[roles["gain"].param] = held * slope * var.sqrt()
        weights[roles["shift"].param] = held * (offset + slope * mean)
    else:
        # Without an affine part the statistics are all there is: choose them to give the line.
        var = torch.where(dead, var, slope.square().reciprocal())
        mean = torch.where(dead, mean, -offset / slope)
    weights[roles["mean"].param] = held * mean
    weights[place.param] = torch.where(dead, torch.ones_like(var), held.square() * shrunk * var - eps)
