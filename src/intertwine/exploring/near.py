"""Which points of a sample are only theta with noise: no rise of the loss lies between it and them."""

from __future__ import annotations

import torch

from intertwine.exploring.objective import Objective
from intertwine.exploring.search import EquivalenceSample

_STEPS = 9  # points on the way that are looked at


def rises(sample: EquivalenceSample, objective: Objective) -> list[float]:
    """max over 0 < t < 1 of J(theta + t (theta_i - theta)), for every point theta_i of the sample.

    A point that is reached without a rise above the tolerance lies in the flat neighbourhood of theta: it is
    theta with noise, and says nothing of other parameters with its function.

    >>> from torch import nn
    >>> from intertwine.exploring import find_equivalents, function_distance
    >>> _ = torch.manual_seed(0)
    >>> objective = function_distance(nn.Linear(2, 1), torch.randn(16, 2))
    >>> near = {"starts": "perturbed", "spread": 1e-3, "tolerance": 1e-2, "max_steps": 5}
    >>> sample = find_equivalents(objective, n=2, **near)
    >>> all(rise <= sample.tolerance for rise in rises(sample, objective))
    True
    """
    theta = sample.theta.to(objective.theta)
    found = []
    for point in sample.points.to(objective.theta):
        way = torch.linspace(0, 1, _STEPS + 2, dtype=theta.dtype, device=theta.device)[1:-1, None]
        found.append(float(objective.values(theta + way * (point - theta)).max()))
    return found


def describe_sample(sample: EquivalenceSample, objective: Objective) -> str:
    """One sentence: which of the points are equivalents apart from theta, and which are theta with noise."""
    count = len(sample)
    flat = sum(rise <= sample.tolerance for rise in rises(sample, objective))
    below = f"J stays below {sample.tolerance:.3g} on the straight way from theta"
    if flat == count:
        return (
            f"No equivalent apart from theta was found: {below} to all {count} points, so they are theta "
            "with noise, inside one flat neighbourhood. Search longer, or with --starts random."
        )
    others = f"; to the other {flat} {below}: they are theta with noise" if flat else ""
    return f"{count - flat} of {count} points are equivalents of theta apart from it{others}."
