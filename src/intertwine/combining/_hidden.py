"""What networks of one program have inside, on one graph: the values that layers should make.

    E over inputs and values v of  |f_v(x, theta) - sum_k s_k f_v(x, theta_k)|^2 / variance of that mean

The networks are aligned, so that their mean is worth something, and the values are those that layers are
solved for (`_layerwise`), after the rectifier where there is one. Ten class scores say little about an
image; these say what every layer should do with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from intertwine.combining._layerwise import Chain
from intertwine.combining._rows import find_layer
from intertwine.data.batches import arguments
from intertwine.errors import InputError
from intertwine.graph.export import export
from intertwine.graph.record import Recorder


class HiddenValues:
    """at: the nodes of the values, and whether a rectifier reads them."""

    def __init__(self, models: Sequence[nn.Module], shares: Sequence[float], example: Any) -> None:
        self.shares, self.traced = shares, export(models[0], *arguments(example))
        self.ends = [Recorder(self.traced, model) for model in models]
        self.at, known = dict[str, bool](), dict[fx.Node, None]()
        outputs = set(self.traced.graph.output_node().all_input_nodes)
        for node in self.traced.graph.nodes:
            if find_layer(node, self.traced.weights) is not None:
                chain = Chain(node, known)
                if chain.end not in outputs:
                    self.at[chain.end.name] = chain.rectified
            if node.op != "placeholder":
                known[node] = None

        if not self.at:
            raise InputError("the networks have no hidden layers", do="leave hidden out")

    def follow(self, student: nn.Module) -> None:
        """Whose values are compared from here on, with gradients."""
        self.student = Recorder(self.traced, student, live=True)

    def apart(self, batch: Any) -> tuple[Tensor, Tensor, Tensor]:
        """How far the student's values are off, its scores, and the mean scores of the networks."""
        call = arguments(batch)
        given = [end(*call, self.at) for end in self.ends]
        found, scores = self.student(*call, self.at)
        off = [
            _off(self._seen(found[name], name), self._mean([self._seen(v[name], name) for v, _ in given]))
            for name in self.at
        ]
        return torch.stack(off).mean(), scores, self._mean([output for _, output in given])

    def _seen(self, value: Tensor, name: str) -> Tensor:
        return value.relu() if self.at[name] else value

    def _mean(self, values: Sequence[Tensor]) -> Tensor:
        return torch.stack([share * v for share, v in zip(self.shares, values, strict=True)]).sum(0)


def _off(found: Tensor, goal: Tensor) -> Tensor:
    spread = (goal - goal.mean(0)).square().mean()
    return (found - goal).square().mean() / spread.clamp_min(torch.finfo(goal.dtype).tiny)
