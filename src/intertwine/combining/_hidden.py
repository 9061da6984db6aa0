"""What networks of one program have inside, on one graph: the values that layers should make.

    E over inputs and values v of  |f_v(x, theta) - sum_k s_k f_v(x, theta_k)|^2 / variance of that mean

The networks are aligned, so that their mean is worth something, and the values are those that layers are
solved for (`_layerwise`), after the rectifier where there is one. Ten class scores say little about an
image; these say what every layer should do with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn

from intertwine.combining._layerwise import Chain, Narrow
from intertwine.combining._rows import find_layer
from intertwine.data.batches import arguments
from intertwine.errors import InputError
from intertwine.graph.export import Traced
from intertwine.graph.record import Recorder

Compared = Callable[[Any], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class HiddenValue:
    """A value that a layer should make. own: its name in the student's graph. dim: where its channels lie.
    kept: those that the student has (None: all). rectified: whether a rectifier reads it."""

    own: str
    dim: int
    kept: Tensor | None
    rectified: bool

    def wanted(self, value: Tensor) -> Tensor:
        """What a network has there, as far as the student has it too."""
        return self.seen(value if self.kept is None else value.index_select(self.dim, self.kept))

    def seen(self, value: Tensor) -> Tensor:
        """What its reader sees."""
        return value.relu() if self.rectified else value


class HiddenValues:
    """at: the values by their names. narrow: the student has some of the networks' channels."""

    def __init__(
        self,
        traced: Traced,
        models: Sequence[nn.Module],
        shares: Sequence[float],
        narrow: Narrow | None = None,
    ) -> None:
        self.shares, self.own = shares, narrow.traced if narrow is not None else traced
        self.loose = Recorder(traced, models[0]).runs_on(2)
        self.ends = [Recorder(traced, model, loose=self.loose) for model in models]
        self.at, known = dict[str, HiddenValue](), dict[fx.Node, None]()
        outputs = set(traced.graph.output_node().all_input_nodes)
        names = {a: b.name for a, b in zip(traced.graph.nodes, self.own.graph.nodes, strict=True)}
        for node in traced.graph.nodes:
            layer = find_layer(node, traced.weights)
            if layer is not None:
                chain = Chain(node, known)
                if chain.end not in outputs:
                    kept = narrow.made_by(layer, traced) if narrow is not None else None
                    dim = 1 if layer.spatial else -1
                    self.at[chain.end.name] = HiddenValue(names[chain.end], dim, kept, chain.rectified)
            if node.op != "placeholder":
                known[node] = None
        if not self.at:
            raise InputError("the networks have no hidden layers", do="leave hidden out")

    def beside(self, student: nn.Module) -> Compared:
        """Of a batch: how far the student's values are off, its scores, and the networks' mean scores.
        Gradients reach the student's weights."""
        return partial(self._apart, Recorder(self.own, student, live=True, loose=self.loose))

    def _apart(self, student: Recorder, batch: Any) -> tuple[Tensor, Tensor, Tensor]:
        call = arguments(batch)
        given = [end(*call, self.at) for end in self.ends]
        found, scores = student(*call, [value.own for value in self.at.values()])
        off = [
            _off(value.seen(found[value.own]), self._mean([value.wanted(v[name]) for v, _ in given]))
            for name, value in self.at.items()
        ]
        return torch.stack(off).mean(), scores, self._mean([output for _, output in given])

    def _mean(self, values: Sequence[Tensor]) -> Tensor:
        return torch.stack([share * v for share, v in zip(self.shares, values, strict=True)]).sum(0)


def _off(found: Tensor, goal: Tensor) -> Tensor:
    spread = (goal - goal.mean(0)).square().mean()
    return (found - goal).square().mean() / spread.clamp_min(torch.finfo(goal.dtype).tiny)
