"""Classes of equivalent features of one axis, and how alike their members are on data.

The classes are those of merging up to beta (source 000, section 2): `ifm` with distances that no rescaling of
the axis changes, or `ward`, which does not lump small features into one class. Their agreement is the mean
correlation over pairs of members, beside that of random classes of the same size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from intertwine.errors import InputError, NotFound, Unsupported
from intertwine.merging import Options, Planner
from intertwine.symmetry import Axis, Symmetry

BY = ("ifm", "ward")


@dataclass(frozen=True)
class Agreement:
    """Mean correlation of pairs of members; the mean and deviation of that over random classes as large."""

    members: float
    random: float
    spread: float

    @property
    def by_chance(self) -> str:
        """What random classes have, in words."""
        return "-" if math.isnan(self.random) else f"{self.random:.2f} ± {self.spread:.2f}"


def find_classes(
    model: nn.Module, symmetry: Symmetry, axis: Axis, beta: float, by: str = "ifm"
) -> list[list[int]]:
    """The classes of two or more channels that merging up to beta finds on an axis, the largest first."""
    if by not in BY:
        raise InputError(f"no way to find classes named {by!r}", do=f"use {' or '.join(BY)}")
    if not axis.mergeable:
        raise Unsupported(
            f"the channels of {axis.name!r} cannot be merged",
            so=axis.frozen_because,
            do="choose another axis, or give channels",
        )
    options = Options(by, order="independent", distance="invariant", repair="none")
    plan = Planner(model, symmetry, options, [axis.name], check=False)
    (found,) = plan.at_beta(beta).axes
    classes = [c for c in found.classes() if len(c) > 1]
    if not classes:
        merges = plan.whole().axes[0].merges  # beta stops at the first pair that is too far apart
        hint = (
            f"the first pair merges at beta {_rounded_up(merges[0].ratio):g}" if merges else "none ever merge"
        )
        raise NotFound(f"no two features of {axis.name!r} are equal at beta {beta:g}", do=f"raise it: {hint}")
    return sorted(classes, key=lambda c: (-len(c), c))


def _rounded_up(value: float) -> float:
    """To three digits, never below.

    >>> _rounded_up(0.46501), _rounded_up(0.25)
    (0.466, 0.25)
    """
    step = 10.0 ** (math.floor(math.log10(value)) - 2) if value > 0 else 1.0
    return round(math.ceil(value / step - 1e-9) * step, 12)


class ChannelMoments:
    """Running sums of channels over inputs and positions: root mean squares and correlations."""

    def __init__(self, channels: int) -> None:
        self.count = 0
        self.first = torch.zeros(channels, dtype=torch.float64)
        self.second = torch.zeros(channels, channels, dtype=torch.float64)

    def add(self, rows: Tensor) -> None:
        """rows: (inputs and positions, channels)."""
        rows = rows.double().cpu()
        self.count += len(rows)
        self.first += rows.sum(0)
        self.second += rows.T @ rows

    def scale(self) -> Tensor:
        """The root mean square of every channel."""
        return (self.second.diagonal() / self.count).clamp_min(0).sqrt()

    def correlation(self) -> np.ndarray:
        """Channels x channels; NaN where a channel never changes."""
        mean = self.first / self.count
        covariance = self.second / self.count - torch.outer(mean, mean)
        variance = covariance.diagonal()
        # rounding leaves a constant channel with a variance of about 1e-16 of its square
        alive = variance > 1e-12 * self.second.diagonal() / self.count
        spread = torch.where(alive, variance.clamp_min(0).sqrt(), torch.nan)
        return (covariance / torch.outer(spread, spread)).numpy()


def agreement(table: np.ndarray, members: Sequence[int], rng: np.random.Generator, draws: int) -> Agreement:
    """How alike members are by a table of correlations, and `draws` random classes of living channels.

    >>> table = np.eye(6) * 0.5 + 0.5
    >>> agreement(table, [0, 1, 2], np.random.default_rng(0), 10)
    Agreement(members=0.5, random=0.5, spread=0.0)
    """
    alive = np.flatnonzero(~np.isnan(np.diag(table)))
    inside = np.array([c for c in members if c in set(alive.tolist())], np.int64)
    others = np.setdiff1d(alive, inside)
    found = [
        mean_of_pairs(table[np.ix_(chosen, chosen)])
        for chosen in (rng.permutation(others)[: len(inside)] for _ in range(draws))
        if len(chosen) > 1
    ]
    random = (float(np.mean(found)), float(np.std(found))) if found else (float("nan"), float("nan"))
    return Agreement(mean_of_pairs(table[np.ix_(inside, inside)]), *random)


def mean_of_pairs(table: np.ndarray) -> float:
    """The mean of what is above the diagonal; NaN for fewer than two."""
    pairs = table[np.triu_indices(len(table), 1)]
    pairs = pairs[~np.isnan(pairs)]
    return float(pairs.mean()) if len(pairs) else float("nan")


def correlate(heats: Tensor) -> np.ndarray:
    """(members, inputs, places) -> the correlation of members, input by input, averaged over inputs."""
    flat = heats.double().flatten(2)
    flat = flat - flat.mean(2, keepdim=True)
    length = flat.norm(dim=2, keepdim=True)
    unit = torch.where(length > 0, flat / length.clamp_min(1e-300), torch.nan)
    tables = torch.einsum("mip,nip->imn", unit, unit).numpy()
    known = ~np.isnan(tables)
    total = np.where(known, tables, 0).sum(0)
    return np.where(known.any(0), total / np.maximum(known.sum(0), 1), np.nan)
