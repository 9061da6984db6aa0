"""One similarity against another over pairs of networks: the best-fit line and rho, with honest intervals.

Points are pairs, and pairs that share a network are not independent; neither are stages of one training. So
the *families* (seeds) are resampled, not the pairs: a pair of two families counts as often as both were drawn
together, a pair inside a family as often as that family was drawn.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from intertwine.comparing.statistics import Interval
from intertwine.errors import InputError

_FEWEST_FAMILIES = 3  # below, resampling says nothing and the bounds are NaN


@dataclass(frozen=True)
class Trend:
    """The least-squares line y = offset + slope x, and Spearman's rho, over n pairs of networks."""

    n: int
    slope: Interval
    offset: float
    rho: Interval
    draws: tuple[float, ...] = field(repr=False, default=())  # rho of every resample


def fit_trend(
    x: Sequence[float],
    y: Sequence[float],
    families: Sequence[tuple[Hashable, Hashable]],
    *,
    resamples: int = 400,
    level: float = 0.95,
    seed: int = 0,
) -> Trend | None:
    """The trend of points (x, y), each a pair of networks of two `families`; None where x or y is constant.

    >>> trend = fit_trend([0.1, 0.5, 0.9], [0.6, 0.4, 0.2], [("s", "t"), ("s", "u"), ("t", "u")])
    >>> trend.n, round(trend.slope.value, 6), trend.rho.value
    (3, -0.5, -1.0)
    """
    if not len(x) == len(y) == len(families):
        raise InputError(f"{len(x)} and {len(y)} values of {len(families)} pairs")
    xs, ys = np.asarray(x, float), np.asarray(y, float)
    if len(xs) < 3 or np.ptp(xs) == 0 or np.ptp(ys) == 0:
        return None
    slope = _slope(xs, ys)
    offset = float(ys.mean() - slope * xs.mean())
    rho = _spearman(xs, ys)
    names = sorted({name for pair in families for name in pair}, key=str)
    number = {name: i for i, name in enumerate(names)}
    sides = np.array([(number[a], number[b]) for a, b in families])
    slopes, rhos = [], []
    random = np.random.default_rng(seed)
    for _ in range(resamples if len(names) >= _FEWEST_FAMILIES else 0):
        drawn = np.bincount(random.integers(len(names), size=len(names)), minlength=len(names))
        first, second = drawn[sides[:, 0]], drawn[sides[:, 1]]
        times = np.where(sides[:, 0] == sides[:, 1], first, first * second)
        a, b = np.repeat(xs, times), np.repeat(ys, times)
        if len(a) >= 3 and np.ptp(a) > 0 and np.ptp(b) > 0:
            slopes.append(_slope(a, b))
            rhos.append(_spearman(a, b))
        else:  # keep the draws of several trends in step
            slopes.append(float("nan"))
            rhos.append(float("nan"))
    return Trend(
        len(xs),
        _interval(slope, slopes, level),
        offset,
        _interval(rho, rhos, level),
        tuple(rhos),
    )


def mean_rho(trends: Sequence[Trend], level: float = 0.95) -> Interval:
    """The mean of rho over several trends; resamples of one number belong together.

    >>> one = Trend(3, Interval(0, 0, 0), 0.0, Interval(0.5, 0, 1), (0.25, 0.75))
    >>> mean_rho([one, one]).value
    0.5
    """
    if not trends:
        raise InputError("no trends to average")
    draws = zip(*(trend.draws for trend in trends), strict=False)
    means = [float(np.mean(draw)) for draw in draws]
    return _interval(float(np.mean([trend.rho.value for trend in trends])), means, level)


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    a = x - x.mean()
    return float(a @ (y - y.mean()) / (a @ a))


def _spearman(x: np.ndarray, y: np.ndarray) -> float:
    from scipy.stats import rankdata

    a, b = (rankdata(side) - (len(side) + 1) / 2 for side in (x, y))
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def _interval(value: float, draws: Sequence[float], level: float) -> Interval:
    known = np.asarray(draws)[~np.isnan(draws)] if len(draws) else np.empty(0)
    if not len(known):
        return Interval(value, float("nan"), float("nan"), level)
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, float(low), float(high), level)
