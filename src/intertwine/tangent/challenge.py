"""Directions that would be called missed are held against inputs that nothing was measured on.

A unit that switches once in thousands of inputs leaves directions that no input so far has seen. A few
mixtures of them all are followed a little way, forwards and backwards, which costs four runs an input, not a
row of the Jacobian for each output.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from intertwine.graph.example import Example
from intertwine.graph.export import Traced
from intertwine.graph.run import results
from intertwine.tangent.coordinates import Coordinates

STEP = 1e-5  # of the size of the weights
SEEN = 1e-7  # of the largest output, for a whole step: what is left of third order and of rounding is below
MIXTURES = 2


def is_seen(
    vectors: Sequence[np.ndarray],
    traced: Traced,
    at: Coordinates,
    weights: Mapping[str, Tensor],
    examples: Iterable[Example],
    seed: int = 0,
) -> bool:
    """Whether some input sees a mixture of directions over theta: then more inputs would raise the rank."""
    generator = np.random.default_rng(seed)
    sides = []
    for _ in range(MIXTURES):
        mixed = np.stack(vectors, axis=1) @ generator.standard_normal(len(vectors))
        step = mixed * (STEP / float(np.abs(mixed / at.sizes).max()))
        sides.append([_moved(at, weights, sign * step) for sign in (1, -1)])
    return any(
        _differ(*(_run(traced, side, example) for side in pair)) for example in examples for pair in sides
    )


def _moved(at: Coordinates, weights: Mapping[str, Tensor], step: np.ndarray) -> dict[str, Tensor]:
    moved = {name: value + torch.from_numpy(step[at.of(name)]) for name, value in at.values.items()}
    return {**weights, **moved}


@torch.no_grad()
def _run(traced: Traced, weights: Mapping[str, Tensor], example: Example) -> list[Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return results(traced, weights, example.args, example.kwargs)


def _differ(forwards: Sequence[Tensor], backwards: Sequence[Tensor]) -> bool:
    for a, b in zip(forwards, backwards, strict=True):
        if a.shape == b.shape and a.is_floating_point() and a.numel():
            change = (a - b).abs().nan_to_num(0.0).max() / (2 * STEP)
            if bool(change > SEEN * a.abs().nan_to_num(0.0).max()):
                return True
    return False
