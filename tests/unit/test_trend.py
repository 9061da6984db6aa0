"""The trend of pairs: line and rho against scipy, and intervals that resample families."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import linregress, spearmanr

from intertwine.comparing.trend import fit_trend, mean_rho
from intertwine.errors import InputError


def pairs(families, stages, seed=0):
    """Points of all pairs of networks, with a relation, and the families of both."""
    random = np.random.default_rng(seed)
    nets = [(f, s) for f in range(families) for s in range(stages)]
    x, y, names = [], [], []
    for (f, _), (g, _) in itertools.combinations(nets, 2):
        x.append(float(random.normal()))
        y.append(-0.5 * x[-1] + 0.5 * float(random.normal()))
        names.append((f, g))
    return x, y, names


def test_line_and_rho_are_scipys():
    x, y, names = pairs(5, 3)
    found = fit_trend(x, y, names)
    line = linregress(x, y)
    assert found.n == len(x)
    assert (found.slope.value, found.offset) == pytest.approx((line.slope, line.intercept))
    assert found.rho.value == pytest.approx(spearmanr(x, y).statistic)
    assert found.rho.low < found.rho.value < found.rho.high


def test_more_stages_of_the_same_seeds_are_no_more_seeds():
    """Copying every network tells nothing new; the interval must not shrink as if it did."""
    x, y, names = pairs(6, 1)
    once = fit_trend(x, y, names)
    copied = fit_trend(x * 9, y * 9, names * 9)
    assert copied.rho.value == pytest.approx(once.rho.value)
    assert (copied.rho.low, copied.rho.high) == pytest.approx((once.rho.low, once.rho.high), abs=1e-9)


def test_intervals_hold_the_truth_as_often_as_they_say():
    """Families differ in x and in y, unrelated: rho is 0. Taking pairs for independent would not do."""
    held, naive = 0, 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        names = pairs(8, 2)[2]
        own_x, own_y = random.normal(size=(2, 8))
        x, y = ([own[f] + own[g] + 0.3 * random.normal() for f, g in names] for own in (own_x, own_y))
        rho = fit_trend(x, y, names, resamples=60, seed=seed).rho
        held += rho.low <= 0 <= rho.high
        alone = fit_trend(x, y, [(i, i) for i in range(len(x))], resamples=60, seed=seed).rho
        naive += alone.low <= 0 <= alone.high
    assert held >= 32 and naive <= 24


def test_what_has_no_trend():
    assert fit_trend([1, 1, 1], [1, 2, 3], [(0, 1)] * 3) is None
    assert fit_trend([1, 2], [1, 2], [(0, 1)] * 2) is None
    two = fit_trend([1, 2, 3], [1, 2, 3], [(0, 1)] * 3)
    assert two.rho.value == 1 and math.isnan(two.rho.low)
    with pytest.raises(InputError):
        fit_trend([1, 2, 3], [1, 2], [(0, 1)] * 3)


def test_the_mean_of_trends():
    one, other = (fit_trend(*pairs(5, 3, seed)) for seed in (1, 2))
    mean = mean_rho([one, other])
    assert mean.value == pytest.approx((one.rho.value + other.rho.value) / 2)
    assert one.draws != other.draws and mean.low < mean.value < mean.high
    with pytest.raises(InputError):
        mean_rho([])
