"""How sure is a similarity: what it is when nothing is shared, and how much it moves with the inputs or the
seeds.

Biased CKA of unrelated features is far from 0 when there are fewer inputs than channels; the permutation
null shows it. Intervals over inputs use random halves of the inputs: the deviation of a half from the whole
has the spread of the whole from the truth (delete-half jackknife), and no input is ever drawn twice, which
would count as perfect similarity in a kernel.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from intertwine.comparing.features import FEWEST_INPUTS, Array, Pixels, as_features, check_paired
from intertwine.comparing.measures import similarity
from intertwine.errors import InputError


@dataclass(frozen=True)
class Null:
    """A similarity against its distribution when the pairing of inputs is shuffled."""

    value: float
    mean: float
    high: float  # the 95 % point
    p_value: float
    draws: tuple[float, ...]

    @property
    def excess(self) -> float:
        """(value - mean) / (1 - mean): 0 at chance, 1 for identical features."""
        return (self.value - self.mean) / (1 - self.mean)


@dataclass(frozen=True)
class Interval:
    """An estimate with a confidence interval."""

    value: float
    low: float
    high: float
    level: float = 0.95


def permutation_null(
    x: Array, y: Array, measure: str = "cka", *, permutations: int = 100, seed: int = 0, **options: Any
) -> Null:
    """Shuffle which input of `y` belongs to which input of `x`; p = (1 + #{null >= value}) / (1 +
    permutations).

    >>> x = torch.randn(20, 30, generator=torch.Generator().manual_seed(0))
    >>> y = torch.randn(20, 30, generator=torch.Generator().manual_seed(1))
    >>> null = permutation_null(x, y, "cka", permutations=20)
    >>> null.mean > 0.5  # unrelated features, and yet biased CKA is high
    True
    """
    if permutations < 1:
        raise InputError(f"{permutations} permutations", do="ask for at least 1")
    a, b = as_features(x, "the first features"), as_features(y, "the second features")
    check_paired(a, b)
    random = torch.Generator().manual_seed(seed)
    value = similarity(a, b, measure, **options)
    draws = []
    for _ in range(permutations):
        order = torch.randperm(len(b), generator=random).to(b.device)
        draws.append(similarity(a, b[order], measure, **options))
    p_value = (1 + sum(draw >= value for draw in draws)) / (1 + permutations)
    return Null(value, float(np.mean(draws)), float(np.quantile(draws, 0.95)), p_value, tuple(draws))


def input_interval(
    x: Array,
    y: Array,
    measure: str = "cka",
    *,
    resamples: int = 100,
    level: float = 0.95,
    seed: int = 0,
    pixels: Pixels | None = None,
    **options: Any,
) -> Interval:
    """The similarity with an interval over inputs, from random halves of them."""
    a, b = as_features(x, "the first features"), as_features(y, "the second features")
    check_paired(a, b)
    if len(a) < 2 * FEWEST_INPUTS:
        raise InputError(
            f"{len(a)} inputs are too few for an interval", do=f"pass at least {2 * FEWEST_INPUTS}"
        )
    value = similarity(a, b, measure, pixels=pixels, **options)
    random = torch.Generator().manual_seed(seed)

    def half() -> float:
        chosen = torch.randperm(len(a), generator=random)[: len(a) // 2].to(a.device)
        return similarity(a[chosen], b[chosen], measure, pixels=pixels, **options)

    return half_sample_interval(value, [half() for _ in range(resamples)], level)


def half_sample_interval(value: float, halves: list[float], level: float = 0.95) -> Interval:
    """value minus the quantiles of (half - mean of the halves): only the spread of the halves is used, not
    their bias.

    >>> half_sample_interval(0.5, [0.5, 0.6, 0.7], level=1.0)
    Interval(value=0.5, low=0.4, high=0.6, level=1.0)
    """
    deviations = np.asarray(halves) - np.mean(halves)
    low, high = np.quantile(deviations, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, round(float(value - high), 12), round(float(value - low), 12), level)


def seed_interval(
    values: np.ndarray, *, resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> Interval:
    """The mean similarity over pairs of independently trained networks, values[i, j] for networks i != j.

    Networks are resampled, not pairs: pairs that share a network are not independent. A network drawn twice
    is not paired with itself.
    """
    matrix = np.asarray(values, dtype=float)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 3:
        raise InputError(
            f"values of shape {matrix.shape}", do="pass a square matrix over at least three networks"
        )
    pairs = list(itertools.permutations(range(len(matrix)), 2))

    def mean(chosen: list[tuple[int, int]]) -> float:
        return float(np.mean([matrix[pair] for pair in chosen]))

    random = np.random.default_rng(seed)
    draws: list[float] = []
    while len(draws) < resamples:
        nets = random.integers(len(matrix), size=len(matrix))
        chosen = [(i, j) for i, j in itertools.permutations(nets.tolist(), 2) if i != j]
        if chosen:
            draws.append(mean(chosen))
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Interval(mean(pairs), float(low), float(high), level)
