"""Run an exported graph on given weights at a given precision.

Models that cast to float32 inside (most RMS norms in transformers) would hide errors below 1e-7; here every
floating-point dtype in the graph is replaced by the one asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_flatten, tree_map

from intertwine.graph.export import Traced
from intertwine.graph.kernels import kernel_of

# An op -> what to call in its place, or None.
Instead = Callable[[Any], Callable[..., Any] | None]


class _Precise(fx.Interpreter):
    def __init__(self, traced: Traced, dtype: torch.dtype, instead: Instead | None = None) -> None:
        super().__init__(traced.module, garbage_collect_values=True)
        self.dtype, self.instead = dtype, instead

    def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return raised(super().get_attr(target, args, kwargs), self.dtype)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not getattr(getattr(target, "_schema", None), "returns", True):
            return None  # what returns nothing asserts, and be it the precision that is replaced here
        # Here, not before: of a large model only the weight that is read is held in this precision.
        given, named = tree_map(self._dtype, (tuple(args), dict(kwargs)))
        target = (self.instead(target) if self.instead is not None else None) or kernel_of(target)
        result = super().call_function(target, given, named)
        # Tensors made inside the graph come in the default precision.
        return tree_map(lambda x: raised(x, self.dtype), result)

    def _dtype(self, x: Any) -> Any:
        if isinstance(x, torch.dtype):
            return self.dtype if x.is_floating_point else x
        return raised(x, self.dtype)


def raised(x: Any, dtype: torch.dtype) -> Any:
    """A floating-point tensor in another precision; anything else as it is."""
    return x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x


@torch.no_grad()
def run(
    traced: Traced,
    weights: Mapping[str, Tensor],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    dtype: torch.dtype = torch.float64,
) -> list[Tensor]:
    """The floating-point outputs of the graph."""
    return [x for x in results(traced, weights, args, kwargs, dtype) if x.is_floating_point()]


def results(
    traced: Traced,
    weights: Mapping[str, Tensor],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    dtype: torch.dtype = torch.float64,
    instead: Instead | None = None,
) -> list[Tensor]:
    """All tensors that the graph returns, whole numbers and truth values too; with gradients where `weights`
    require them.

    instead: ops to replace, for instance those that give some of their arguments no gradient.
    """
    # torch.export flattens the example in this order, after the stored tensors.
    named = {name: (kwargs or {})[name] for name in traced.example.kwargs}
    given = iter(tree_flatten((tuple(args), named))[0])
    inputs = []
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            if node.name in traced.weights:
                value = weights[traced.weights[node.name]] if node.users else None
            elif node.name in traced.constants:
                value = traced.constants[node.name]
            else:
                value = next(given)
            inputs.append(value)
    leaves = (raised(x, dtype) for x in tree_flatten(_Precise(traced, dtype, instead).run(*inputs))[0])
    return [x for x in leaves if isinstance(x, Tensor)]
