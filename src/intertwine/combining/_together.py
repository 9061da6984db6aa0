"""Bring several models onto each other at once: cycle-consistent, none of them is the measure of the others.

    maximise over g_1 ... g_n   sum over pairs k < l of  agreement(g_k . x_k, g_l . x_l)

by turns: each model is matched to all others as they lie now, until nothing moves. The first stays where it
is, which only fixes the coordinates. For two models this is `align`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from torch import nn

from intertwine.aligning import align, mix
from intertwine.aligning._activations import Tables, pairwise
from intertwine.orbit import Matcher, Pairing, Unit, search
from intertwine.symmetry import Element, Symmetry, act

By = Literal["weights", "activations", "none"]
_SWEEPS = 10


def align_all(
    models: Sequence[nn.Module],
    symmetry: Symmetry,
    *,
    by: By = "activations",
    data: Any = None,
    limit: int | None = 1000,
    seed: int = 0,
) -> tuple[Element, ...]:
    """One element for each model; those of the first move nothing."""
    if by == "none":
        return tuple(symmetry.identity() for _ in models)
    if by == "weights":
        return _by_weights(models, symmetry, seed)
    pairs = [Pairing(symmetry, models[0], model) for model in models]
    forest = pairs[0].action.forest
    # What lies on the orbit of the first is known by its weights, with the scales that no activation sees.
    elements: list[Element | None] = [symmetry.identity(), *(pair.on_orbit() for pair in pairs[1:])]
    searched = [k for k, element in enumerate(elements) if element is None]
    tables = pairwise(symmetry, forest, models, data, limit=limit) if searched else {}
    for _ in range(_SWEEPS if len(searched) > 1 else 1):
        before = list(elements)
        for k in searched:
            placed = {l: e for l, e in enumerate(elements) if e is not None and l != k}
            gains = {
                unit.index: _gain(unit, k, placed, tables)
                for unit in forest.units
                if all(unit.index in table for table in tables.values())
            }
            matcher = Matcher(pairs[k].action, pairs[k].a, extra=gains, alone=True)
            elements[k] = search(matcher, pairs[k].b, 0, seed)
        if all(
            a is not None and b is not None and _same(a, b) for a, b in zip(before, elements, strict=True)
        ):
            break
    return tuple(element for element in elements if element is not None)


def _gain(
    unit: Unit, k: int, placed: Mapping[int, Element], tables: Mapping[tuple[int, int], Tables]
) -> np.ndarray:
    """What matching a channel of model k to a place gives, summed over the models that have places."""
    total = np.zeros((unit.size, unit.size))
    for other, element in placed.items():
        table = tables[other, k][unit.index] if other < k else tables[k, other][unit.index].T
        total += placement(unit, element) @ table
    return total


def placement(unit: Unit, element: Element) -> np.ndarray:
    """(places, channels): the matrix by which an element acts on the channels of one unit."""
    flat = unit.classes.reshape(-1)
    rank = {int(c): i for i, c in enumerate(flat)}
    matrix = np.zeros((unit.size, unit.size))
    width = unit.classes.shape[1]
    turns = element.linear[unit.linear.orbit] if unit.linear is not None else None
    for block, classes in enumerate(unit.classes):
        goal = [rank[int(c)] for c in element.relabel[classes]]
        here = block * width + np.arange(width)
        matrix[np.ix_(goal, here)] = np.eye(width) if turns is None else turns[block]
    return matrix


def _by_weights(models: Sequence[nn.Module], symmetry: Symmetry, seed: int) -> tuple[Element, ...]:
    """Each to the mean of those that have places (Ainsworth et al. 2022, MergeMany)."""
    elements: list[Element | None] = [symmetry.identity(), *[None] * (len(models) - 1)]
    for _ in range(3 if len(models) > 2 else 1):
        for k in range(1, len(models)):
            others = [act(models[l], e) for l, e in enumerate(elements) if e is not None and l != k]
            mean = mix(others, [1 / len(others)] * len(others))
            elements[k] = align(mean, models[k], symmetry, restarts=1, seed=seed).element
    return tuple(element for element in elements if element is not None)


def _same(a: Element, b: Element) -> bool:
    return bool((a.relabel == b.relabel).all()) and all(
        np.allclose(a.linear[orbit], b.linear[orbit], atol=1e-6) for orbit in a.linear
    )
