"""automorphisms(model): the elements that leave every weight as it is (Theorem 2.3 of source 000).

A generic model has none but the identity. Equal channels can be exchanged, alone or together with others (two
branches with equal weights); directions of a linear axis that nothing reads can be turned. The permutations
among them are found here: channels of equal norms at the point of least norm are candidates, and an element
that sends one to the other is asked for in closed form (`bring_onto`) and checked on all weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from intertwine.orbit.action import Action, double
from intertwine.orbit.balance import Balance
from intertwine.orbit.closed_form import Sent, bring_onto
from intertwine.orbit.units import Unit, Weights
from intertwine.symmetry import Element, Symmetry
from intertwine.symmetry.subgroup import find_subgroup
from intertwine.symmetry.transform import apply_element

TOLERANCE = 1e-5  # relative to the largest entry of a weight, as that of `find_isomorphism`


@dataclass(frozen=True, eq=False)
class Stabiliser:
    """generators: elements with g theta = theta that, composed, exchange all channels that can be exchanged.

    classes: axis -> the sets of two or more channels that they exchange.
    """

    generators: tuple[Element, ...]
    classes: dict[str, list[list[int]]]


def automorphisms(
    model: nn.Module, symmetry: Symmetry, tolerance: float = TOLERANCE
) -> dict[str, list[list[int]]]:
    """Axis -> classes of two or more equal features, up to the rescalings of the axis.

    >>> import torch
    >>> from intertwine import trace
    >>> mlp = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> with torch.no_grad():
    ...     for t in (mlp[0].weight, mlp[0].bias, mlp[2].weight.T):
    ...         _ = t[3].copy_(t[1])
    >>> automorphisms(mlp, trace(mlp, torch.zeros(1, 3)))
    {'0': [[1, 3]]}
    """
    return find_stabiliser(model, symmetry, tolerance).classes


def find_stabiliser(model: nn.Module, symmetry: Symmetry, tolerance: float = TOLERANCE) -> Stabiliser:
    """The stabiliser of the weights of a model in its group, but for what rescales or turns alone."""
    weights = double(symmetry.weights(model))
    action = Action(find_subgroup(symmetry), {n for n, _ in model.named_parameters()} & set(weights))
    balanced = action.state(weights)
    Balance(action, limit=True)(balanced)
    generators: list[Element] = []
    classes: dict[str, list[list[int]]] = {}
    for unit in action.forest.units:
        if not unit.permutes or unit.linear is not None:
            continue
        label = np.arange(unit.size)
        for here, there in _candidates(unit, balanced.weights, tolerance):
            if label[here] != label[there]:
                element = _exchanging(action, weights, Sent(unit, here, there), tolerance)
                if element is not None:
                    generators.append(element)
                    _join(label, unit, element)
        found = [np.flatnonzero(label == k).tolist() for k in np.unique(label)]
        if len(found) < unit.size:
            classes[unit.name] = [members for members in found if len(members) > 1]
    return Stabiliser(tuple(generators), classes)


def _candidates(unit: Unit, weights: Weights, tolerance: float) -> Iterator[tuple[int, int]]:
    """Pairs of channels of one block whose slices have equal norms in every weight."""
    norms = [spot.slices(weights[spot.param]).norm(dim=1) for spot in unit.spots if spot.param in weights]
    if not norms:
        return
    rows = np.stack([n.numpy() / max(float(n.max()), 1e-300) for n in norms], axis=1)
    width = unit.classes.shape[1]
    for start in range(0, unit.size, width):
        apart = np.abs(rows[start : start + width, None] - rows[None, start : start + width]).max(axis=2)
        for here, there in np.argwhere(np.triu(apart <= 10 * tolerance, 1)).tolist():
            yield start + here, start + there


def _exchanging(action: Action, weights: Weights, sent: Sent, tolerance: float) -> Element | None:
    """An element that leaves the weights as they are and sends one channel to another."""
    state = action.state(weights)
    if not bring_onto(action, weights, state, sent):
        return None
    moved = apply_element(state.element, weights)
    flat = sent.unit.classes.reshape(-1)
    if state.relabel[flat[sent.here]] != flat[sent.there]:
        return None
    return state.element if all(_close(moved[n], w, tolerance) for n, w in weights.items()) else None


def _close(left: Tensor, right: Tensor, tolerance: float) -> bool:
    return bool((left - right).abs().max() <= tolerance * right.abs().max()) if right.numel() else True


def _join(label: np.ndarray, unit: Unit, element: Element) -> None:
    """Channels that the element sends to each other are of one class (label: the least of the class)."""
    flat = unit.classes.reshape(-1)
    rank = {int(c): k for k, c in enumerate(flat)}
    for k, c in enumerate(flat):
        a, b = label[k], label[rank[int(element.relabel[c])]]
        label[(label == a) | (label == b)] = min(a, b)
