"""automorphisms(model): the elements that leave every weight as it is (Theorem 2.3 of source 000).

A generic model has none but the identity. Equal channels can be exchanged, alone or together with others (two
branches with equal weights); directions of a linear axis that nothing reads can be turned. The permutations
among them are found here: channels of one colour (`colours`) are candidates, and an element that sends one to
the other is asked for in closed form (`bring_onto`) and checked on all weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from intertwine.checks import checked
from intertwine.graph.export import check_values
from intertwine.ir.ledger import Ids
from intertwine.orbit.action import GroupAction, double
from intertwine.orbit.balance import Balance
from intertwine.orbit.closed_form import bring_onto
from intertwine.orbit.colours import refine_colours
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


@checked
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
    check_values(model)
    weights = double(symmetry.weights(model))
    action = GroupAction(find_subgroup(symmetry), {n for n, _ in model.named_parameters()} & set(weights))
    search = _Search(action, weights, tolerance)
    (colours,) = refine_colours(action, search.balanced, [None])
    generators: list[Element] = []
    classes: dict[str, list[list[int]]] = {}
    for unit in action.forest.units:
        if not unit.permutes or unit.linear is not None:
            continue
        label = np.arange(unit.size)
        for here, there in _alike(unit, colours):
            if label[here] != label[there]:
                element = search.sending(*unit.classes.reshape(-1)[[here, there]].tolist())
                if element is not None:
                    generators.append(element)
                    _join(label, unit, element)
        found = [np.flatnonzero(label == k).tolist() for k in np.unique(label)]
        if len(found) < unit.size:
            classes[unit.name] = [members for members in found if len(members) > 1]
    return Stabiliser(tuple(generators), classes)


def _alike(unit: Unit, colours: Ids) -> Iterator[tuple[int, int]]:
    """Pairs of channels of one block and one colour."""
    width = unit.classes.shape[1]
    same = colours[unit.classes][:, :, None] == colours[unit.classes][:, None, :]
    for block, here, there in np.argwhere(np.triu(same, 1)).tolist():
        yield block * width + here, block * width + there


class _Search:
    """Elements that leave the weights as they are and send one class to another."""

    def __init__(self, action: GroupAction, weights: Weights, tolerance: float) -> None:
        self.action, self.weights, self.tolerance = action, weights, tolerance
        state = action.state(weights)
        Balance(action, limit=True)(state)
        self.balanced = state.weights

    def sending(self, here: int, there: int) -> Element | None:
        """One that sends `here` to `there`."""
        after, before = refine_colours(self.action, self.balanced, [there, here])
        state = self.action.state(self.weights)
        if not bring_onto(self.action, self.weights, state, (after, before)) or state.relabel[here] != there:
            return None
        moved = apply_element(state.element, self.weights)
        close = all(_close(moved[n], w, self.tolerance) for n, w in self.weights.items())
        return state.element if close else None


def _close(left: Tensor, right: Tensor, tolerance: float) -> bool:
    return bool((left - right).abs().max() <= tolerance * right.abs().max()) if right.numel() else True


def _join(label: np.ndarray, unit: Unit, element: Element) -> None:
    """Channels that the element sends to each other are of one class (label: the least of the class)."""
    flat = unit.classes.reshape(-1)
    rank = {int(c): k for k, c in enumerate(flat)}
    for k, c in enumerate(flat):
        a, b = label[k], label[rank[int(element.relabel[c])]]
        label[(label == a) | (label == b)] = min(a, b)
