"""The oracle of `symmetry.values`: y = values[name].act(g, x) for x in the model and y in act(model, g)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_flatten

from intertwine import Element, Symmetry, act
from intertwine.graph.export import export
from intertwine.graph.record import Recorder
from intertwine.graph.run import _Precise, raised
from intertwine.symmetry.action import ValueAction

TOLERANCE = 1e-9


def recorded(
    symmetry: Symmetry, model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> dict[str, Tensor]:
    """Node -> tensor in float64, for every floating value of the graph, named or not."""
    recorder = Recorder(symmetry.traced, model)
    given = iter(tree_flatten((tuple(args), dict(kwargs or {})))[0])
    nodes = [n for n in symmetry.traced.graph.nodes if n.op == "placeholder"]
    values = [recorder.fixed[n.name] if n.name in recorder.fixed else next(given) for n in nodes]
    keeper = Keeper(symmetry.traced, torch.float64)
    with torch.no_grad():
        keeper.run(*(raised(v, torch.float64) for v in values))
    known = symmetry.structure.inference.values
    return {n: x for n, x in keeper.found.items() if "%" + n in known}


class Keeper(_Precise):
    """Models that cast to float32 inside would hide errors below 1e-7: every float dtype is raised."""

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.op == "call_function" and isinstance(result, Tensor) and result.is_floating_point():
            self.__dict__.setdefault("found", {})[n.name] = result
        return result


def distance(left: Tensor, right: Tensor) -> float:
    """Relative, infinite entries (masks) taken as they are."""
    if left.shape != right.shape or not torch.equal(left.isfinite(), right.isfinite()):
        return float("inf")
    finite = right.isfinite()
    size = float(right[finite].abs().max()) if finite.any() else 0.0
    return float((left - right)[finite].abs().max()) / max(size, 1e-12) if finite.any() else 0.0


def wrong_values(
    symmetry: Symmetry,
    model: nn.Module,
    args: Sequence[Any],
    element: Element,
    kwargs: Mapping[str, Any] | None = None,
) -> dict[str, float]:
    """Values whose stated action is not what acting on the weights does."""
    before = recorded(symmetry, model, args, kwargs)
    after = recorded(symmetry, act(model, element), args, kwargs)
    errors = {}
    for name, x in before.items():
        action = ValueAction(symmetry.structure, symmetry.structure.inference.values["%" + name])
        errors[name] = distance(action(element, x), after[name])
    return {name: error for name, error in errors.items() if not error <= TOLERANCE}


def check_every_value(
    model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> Symmetry:
    """Assert the oracle at every value of a model in float64, of all that the rules claim at this size: no
    proof has withdrawn anything."""
    symmetry = Symmetry(export(model, tuple(args), kwargs))
    element = symmetry.sample(0)
    assert wrong_values(symmetry, model, args, element, kwargs) == {}
    return symmetry
