"""Two models of one architecture: is one on the orbit of the other, and which element brings it there?

    g = c_A^-1 . k . c_B

For models of one orbit the element is found in closed form (`closed_form`). Otherwise c_A and c_B bring both
to their points of least norm (`balance`), between which only permutations, signs and rotations are left for
models of one orbit, and k is searched for (`descent`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from intertwine.errors import InputError
from intertwine.graph.export import check_values
from intertwine.orbit.action import GroupAction, in_float64
from intertwine.orbit.balance import Balance
from intertwine.orbit.closed_form import bring_onto
from intertwine.orbit.descent import search
from intertwine.orbit.matching import Matcher
from intertwine.orbit.polish import polish
from intertwine.orbit.raised import Raised
from intertwine.orbit.same_graph import assert_same_ops, exported, inputs_of
from intertwine.orbit.side_by_side import match_members
from intertwine.orbit.units import Weights
from intertwine.symmetry import Element, Symmetry
from intertwine.symmetry.subgroup import find_subgroup
from intertwine.symmetry.transform import apply_element

SAME = 0.05  # relative distance below which B is taken for a model on the orbit of A


class Pairing:
    """a: the weights that stay; b: those that are brought onto them. Raises `InputError` if graphs differ."""

    def __init__(self, symmetry: Symmetry, model_a: nn.Module, model_b: nn.Module) -> None:
        for model in (model_a, model_b):
            check_values(model)
        graphs = exported((model_a, model_b), *inputs_of(symmetry.traced, model_a))
        if graphs is not None:
            assert_same_ops(graphs)
        raw = [_weights(symmetry, model, side) for model, side in ((model_a, "A"), (model_b, "B"))]
        if graphs is not None:
            assert_same_ops(graphs, settings=True)  # after the widths, which are settings of views
        self.symmetry = symmetry
        self.a, self.b = (in_float64(weights) for weights in raw)
        self.rounding = 2 * max((torch.finfo(t.dtype).eps for w in raw for t in w.values()), default=0.0)
        named = {name for name, _ in model_a.named_parameters()}
        self.action = GroupAction(find_subgroup(symmetry), named & set(self.a))
        self._moved: tuple[Element, Weights] | None = None
        self._distances: dict[Element | None, float] = {}

    @property
    def is_large(self) -> bool:
        """Whether weights are raised and moved one at a time: then the point of least norm is out of reach,
        whose equations have a row for every entry of every weight."""
        return isinstance(self.b, Raised)

    def on_orbit(self) -> Element | None:
        """The element that brings B onto A, in closed form; None if there is none, or nothing tells it."""
        element = self._in_closed_form(self.symmetry.identity())
        if element is None and self.exchange is not None:
            element = self._in_closed_form(self.exchange)
        return element

    def _in_closed_form(self, first: Element) -> Element | None:
        """The element for which A is that of `first` . B, after `first`."""
        for angles in (False, True) if self.symmetry.structure.turns.count else (False,):
            state = self.action.state(self.b if first.exchange is None else self.moved(first))
            if bring_onto(self.action, self.a, state, angles=angles):
                element = state.element @ first
                distance = self.distance(element)
                if distance <= SAME:
                    return element if distance <= self.rounding else self.polished(element)
        return None

    @cached_property
    def exchange(self) -> Element | None:
        """Modules of B in the places of those of A that they are most like; None where all are there."""
        exchanges = self.symmetry.structure.exchanges
        if not exchanges.count or self.is_large:
            return None
        gauges = [self.action.state(w) for w in (self.a, self.b)]
        for state in gauges:
            Balance(self.action)(state, exact=1e-5)
        found = match_members(exchanges, *(state.weights for state in gauges))
        element = replace(self.symmetry.identity(), exchange=found)
        return None if element.is_identity() else element

    def searched(
        self,
        matcher: Callable[[Weights], Matcher] | None = None,
        restarts: int = 3,
        seed: int = 0,
        *,
        first: Element | None = None,
    ) -> Element:
        """c_A^-1 k c_B for the best k that is found. matcher: how weights are compared with a target.

        first: an element that moves B before.
        """
        gauge_a = self.action.state(self.a)
        gauge_b = self.action.state(self.b if first is None else self.moved(first))
        balance = Balance(self.action)
        for state in (gauge_a, gauge_b):
            balance(state, exact=1e-5)
        compare = matcher or (lambda target: Matcher(self.action, target))
        best = search(compare(gauge_a.weights), gauge_b.weights, restarts, seed)
        element = gauge_a.element.inverse() @ best @ gauge_b.element
        element = element if first is None else element @ first
        return self.polished(element) if self.distance(element) < SAME else element

    def polished(self, element: Element) -> Element:
        """For models of one orbit: rescalings and matrices by least squares, exact to rounding."""
        state = self.action.state(self.moved(element))
        polish(Matcher(self.action, self.a), state)
        return state.element @ element

    def moved(self, element: Element) -> Weights:
        """g . B, kept until another element is asked for."""
        if self._moved is None or self._moved[0] is not element:
            b = self.b
            self._moved = (element, b.moved(element) if isinstance(b, Raised) else apply_element(element, b))
        return self._moved[1]

    def distance(self, element: Element | None = None) -> float:
        """|A - g B| / |A| over the parameters; told once for each element."""
        if element not in self._distances:
            moved = self.b if element is None else self.moved(element)
            square = self.action.squared_distance(self.a, moved)
            self._distances[element] = float(np.sqrt(square / max(self._square, 1e-300)))
        return self._distances[element]

    @cached_property
    def _square(self) -> float:
        return self.action.squared_norm(self.a)


def _weights(symmetry: Symmetry, model: nn.Module, side: str) -> dict[str, Tensor]:
    try:
        return symmetry.weights(model)
    except InputError as error:
        raise InputError(
            f"{side} does not fit: {error.what}",
            so="only models of one architecture and of equal widths can be matched",
            do="trace the architecture of both models, or compare them with `intertwine compare`",
        ) from error
