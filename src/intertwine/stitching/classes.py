"""The classes of stitches that come with the package; `stitch_class` adds others."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from intertwine.ir.groups import GENERAL, ORTHOGONAL, Group
from intertwine.stitching.kinds import stitch_class
from intertwine.stitching.maps import (
    BirkhoffMap,
    FixedMap,
    FullMap,
    Map,
    OrthogonalMap,
    RankMap,
    ScaleMap,
    SoftSortMap,
)
from intertwine.stitching.start import StitchMoments, lasso, least_squares, monomial, procrustes, reduced_rank

if TYPE_CHECKING:
    from intertwine.stitching.fit import Training

_ALL = Group(linear=GENERAL)
_RELU = Group(permutation=True, positive=1)


@stitch_class("identity", "no map at all", ranges=lambda group: Group(), square=True)
def identity(moments: StitchMoments, group: Group, number: float) -> Tensor:
    """M = 1."""
    return torch.eye(moments.width_a, dtype=torch.float64)


def group_map(start: Tensor, group: Group, number: float, training: Training) -> Map:
    """What a member of the group is trained as."""
    if group.linear:
        return OrthogonalMap(start) if group.linear == ORTHOGONAL else FullMap(start)
    if not group.permutation:
        return ScaleMap(start) if group.positive else FixedMap(start)
    if training.method == "softsort":
        return SoftSortMap(start, group)
    alpha = 0.1 if training.alpha == "cv" else training.alpha
    return BirkhoffMap(start, group, alpha=alpha, rounds=training.rounds, blur=training.blur)


@stitch_class(
    "group", "the group that acts at the layer (for ReLU permutations and positive scales)",
    ranges=lambda group: group, trained=group_map, square=True,
)  # fmt: skip
def member(moments: StitchMoments, group: Group, number: float) -> Tensor:
    """The member of the group nearest to Y X^-1: least squares, a rotation, or P D."""
    if group.linear == GENERAL:
        return least_squares(moments)
    return procrustes(moments) if group.linear else monomial(moments, group)


@stitch_class(
    "grelu", "permutations and positive scales, whatever acts at the layer (G_ReLU of source 002)",
    ranges=lambda group: _RELU, square=True,
    trained=lambda start, group, number, training: group_map(start, _RELU, number, training),
)  # fmt: skip
def of_relu(moments: StitchMoments, group: Group, number: float) -> Tensor:
    """The P D nearest to Y X^-1."""
    return monomial(moments, _RELU)


@stitch_class(
    "full", "any 1x1 map", ranges=lambda group: _ALL,
    trained=lambda start, group, number, training: FullMap(start),
)  # fmt: skip
def full(moments: StitchMoments, group: Group, number: float) -> Tensor:
    """M = Y X' (X X' + ridge)^-1."""
    return least_squares(moments)


@stitch_class(
    "rank", "two 1x1 maps with R channels between them", ranges=lambda group: None,
    trained=lambda start, group, number, training: RankMap(start, min(int(number), *start.shape)),
    number="rank of at least 1", example="4", fits=lambda number: number >= 1 and number == int(number),
)  # fmt: skip
def low_rank(moments: StitchMoments, group: Group, number: float) -> Tensor:
    """The best M of rank R."""
    return reduced_rank(moments, int(number))


@stitch_class(
    "lasso", "a 1x1 map with penalty L |W|_1", ranges=lambda group: _ALL,
    trained=lambda start, group, number, training: FullMap(start, number),
    number="positive penalty", example="0.01", fits=lambda number: 0 < number < math.inf,
)  # fmt: skip
def sparse(moments: StitchMoments, group: Group, number: float) -> Tensor:
    """min |Y - M X|^2 / 2 + L max|Y X'| |M|_1."""
    return lasso(moments, number)
