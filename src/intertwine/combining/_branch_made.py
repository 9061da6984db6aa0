"""What a residual branch makes of a batch, as a function of its weights, and how it moves with them.

    y = x W + b     y' = x W' + x' W + b'

for each layer, by dual numbers for all between them: no product is computed but those that move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.autograd import forward_ad

from intertwine.combining._lockstep import Lockstep
from intertwine.combining._rows import SolvableLayer


class BranchMade:
    """What a branch makes of a batch, as rows: a function of the weights that move.

    Of dual weights (W, W') a layer moves by x W' + x' W + b', which is all that is computed: x W + b is known
    from the last call with plain weights, which have to be the same.
    """

    def __init__(
        self,
        run: Lockstep,
        own: int,
        layers: Sequence[SolvableLayer],
        nodes: Sequence[fx.Node],
        moving: Sequence[fx.Node],
        batch: int,
    ) -> None:
        self.run, self.own, self.batch = run, own, batch
        self.nodes, self.moving = nodes, moving
        self.layers = {layer.node: layer for layer in layers}
        self.columns = layers[-1].columns
        self.plain = dict[fx.Node, Tensor]()

    def __call__(self, weights: Sequence[Tensor]) -> Tensor:
        """The rows of the last node."""
        values = dict(zip(self.moving, weights, strict=True))
        dual = forward_ad.unpack_dual(weights[0]).tangent is not None
        for node in self.nodes:
            if dual and node in self.layers:
                values[node] = forward_ad.make_dual(self.plain[node], self._moved(self.layers[node], values))
                continue
            values[node] = self._run(node, values)
            if node in self.layers:
                self.plain[node] = values[node].detach()
        return self.columns(values[self.nodes[-1]])

    def _moved(self, layer: SolvableLayer, values: Mapping[fx.Node, Tensor]) -> Tensor:
        """x W' + x' W + b'."""
        x, weight = (forward_ad.unpack_dual(self._value(n, values)) for n in (layer.source, layer.weight))
        shift = None
        if layer.bias is not None:
            bias = forward_ad.unpack_dual(self._value(layer.bias, values))
            shift = torch.zeros_like(bias.primal) if bias.tangent is None else bias.tangent
        found = self._product(layer, x.primal, weight.tangent, shift)
        if x.tangent is None:
            return found
        rest = None if shift is None else torch.zeros_like(shift)
        return found + self._product(layer, x.tangent, weight.primal, rest)

    def _product(self, layer: SolvableLayer, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        given = {layer.source: x, layer.weight: weight}
        found: Tensor = self._run(
            layer.node, given if bias is None or layer.bias is None else {**given, layer.bias: bias}
        )
        return found

    def _run(self, node: fx.Node, values: Mapping[fx.Node, Tensor]) -> Any:
        program = self.run.programs[self.own]
        mine = program.mine[node]

        def at(n: fx.Node) -> Any:
            return self._value(program.theirs[n], values)

        assert callable(mine.target)
        return mine.target(*fx.node.map_arg(mine.args, at), **fx.node.map_arg(mine.kwargs, at))

    def _value(self, node: fx.Node, values: Mapping[fx.Node, Tensor]) -> Any:
        found = values.get(node)
        found = self.run.weight(node, self.own) if found is None else found
        return self.run.env[node][self.own][self.batch] if found is None else found
