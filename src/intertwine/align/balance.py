"""A canonical gauge: the rescalings and matrices that bring a model to a point that its whole orbit shares.

    minimise over the group   |theta|^2 - 2 sum_positions log-scale

which is convex in the log-scales and bounded (the second term holds up scalings that only ever shrink, such
as that of a convolution before a batch norm, whose rows get norm 1). Linear axes are balanced, M M' = R R'.
What is left between two models of one orbit are permutations, signs and rotations.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from torch import Tensor

from intertwine.align.linear import balancing, stacked
from intertwine.align.move import Mover
from intertwine.align.scales import Scales
from intertwine.align.units import Forest, Unit, Weights
from intertwine.symmetry import Element
from intertwine.symmetry.transform import identity

_NOTHING = 1e-24  # squared norms below this share of the largest hold no information (dead channels)


def balance(forest: Forest, scales: Scales, weights: Weights, sweeps: int = 40) -> Element:
    """The element that brings `weights` to their canonical gauge; without permutations and signs.

    The gauge is found by sweeps over the axes, each axis in closed form, until the largest change of a
    log-scale or matrix entry is below 1e-5.
    """
    now = {name: weights[name] for name in scales.params}
    mover = Mover(forest.structure)
    base = identity(forest.structure)
    log_scale = np.zeros(len(base.log_scale))
    linear = {orbit: matrix.copy() for orbit, matrix in base.linear.items()}
    for _ in range(sweeps):
        change = 0.0
        for unit in forest.units:
            if unit.linear is not None:
                change = max(change, _balance_linear(mover, scales, unit, now, linear))
            else:
                change = max(change, _balance_scales(mover, scales, unit, now, log_scale))
        if change < 1e-5:
            break
    return replace(base, log_scale=log_scale, linear=linear)


def _balance_scales(
    mover: Mover, scales: Scales, unit: Unit, now: dict[str, Tensor], log_scale: np.ndarray
) -> float:
    which = scales.components(unit.classes)
    if not which.any():
        return 0.0
    squares = scales.inner(now, now, unit.slots)
    squares[squares < _NOTHING * squares.max(initial=0.0)] = 0.0
    pull = scales.count(unit.slots, squares)
    found = scales.positions(scales.solve(squares, np.zeros_like(squares), pull, which))
    log_scale += found
    mover.multiply(now, unit.slots, np.exp(found))
    return float(np.abs(found).max(initial=0.0))


def _balance_linear(
    mover: Mover, scales: Scales, unit: Unit, now: dict[str, Tensor], linear: dict[int, np.ndarray]
) -> float:
    assert unit.linear is not None
    if unit.linear.orthogonal:
        return 0.0
    matrix = balancing(*stacked(unit, now, scales.params)).numpy()
    linear[unit.linear.orbit] = matrix @ linear[unit.linear.orbit]
    mover.turn(now, unit.linear.orbit, matrix)
    return float(np.abs(matrix - np.eye(matrix.shape[1])).max())
