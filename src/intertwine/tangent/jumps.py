"""Directions that no derivative sees because an op jumps: rounding, argmax, a comparison.

Its derivative is zero wherever it has one, and yet inputs near its edges come to lie on the other side when
the weights move. So a direction that changes nothing to first order is followed a little way: what is smooth
changes by the square of that, what jumps changes as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from intertwine.graph.example import Example
from intertwine.graph.export import Traced
from intertwine.graph.run import results
from intertwine.tangent.coordinates import Coordinates
from intertwine.tangent.regions import has_jumps

STEP = 0.03  # of the size of the weights: how far they are moved
JUMP = 0.05  # of the largest output: more than the square of a step can do


class Jumps:
    """weights: all that the model stores, in float64. examples: inputs to look at."""

    def __init__(
        self, traced: Traced, at: Coordinates, weights: Mapping[str, Tensor], examples: Iterable[Example]
    ) -> None:
        self.traced, self.at, self.weights, self.examples = traced, at, weights, list(examples)

    @cached_property
    def possible(self) -> bool:
        """Whether any op jumps at all."""
        return has_jumps(self.traced, self.weights, self.examples[0])

    @cached_property
    def before(self) -> list[list[Tensor]]:
        """What comes out at theta."""
        return [outputs(self.traced, self.weights, example) for example in self.examples]

    def seen(self, vector: np.ndarray) -> bool:
        """Whether some output jumps on the way along a direction over theta."""
        largest = float(np.abs(vector / self.at.sizes).max(initial=0.0))
        if not largest or not self.possible:
            return False
        there = stepped(self.at, self.weights, vector * (STEP / largest))
        return any(
            _jumped(a, b)
            for example, found in zip(self.examples, self.before, strict=True)
            for a, b in zip(found, outputs(self.traced, there, example), strict=True)
        )


def stepped(at: Coordinates, weights: Mapping[str, Tensor], step: np.ndarray) -> dict[str, Tensor]:
    """The weights a step over theta away from it."""
    moved = {name: value + torch.from_numpy(step[at.of(name)]) for name, value in at.values.items()}
    return {**weights, **moved}


@torch.no_grad()
def outputs(traced: Traced, weights: Mapping[str, Tensor], example: Example) -> list[Tensor]:
    """What comes out for these weights, with the same random numbers each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return results(traced, weights, example.args, example.kwargs)


def _jumped(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or not a.is_floating_point():
        return not torch.equal(a, b)
    both = torch.isfinite(a) & torch.isfinite(b)
    a, b = a[both], b[both]
    return bool(a.numel()) and bool((a - b).abs().max() > JUMP * a.abs().max())
