"""Directions that would be called missed are held against inputs that nothing was measured on.

A unit that switches once in thousands of inputs leaves directions that no input so far has seen. A few
mixtures of them all are followed a little way, forwards and backwards, which costs four runs an input, not a
row of the Jacobian for each output.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from torch import Tensor

from intertwine.graph.example import Example
from intertwine.graph.export import Traced
from intertwine.tangent.coordinates import Coordinates
from intertwine.tangent.jumps import outputs, stepped

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
        sides.append([stepped(at, weights, sign * step) for sign in (1, -1)])
    return any(
        _differ(*(outputs(traced, side, example) for side in pair)) for example in examples for pair in sides
    )


def _differ(forwards: Sequence[Tensor], backwards: Sequence[Tensor]) -> bool:
    for a, b in zip(forwards, backwards, strict=True):
        if a.shape == b.shape and a.numel() and (a.is_floating_point() or a.is_complex()):
            change = (a - b).abs().nan_to_num(0.0).max() / (2 * STEP)
            if bool(change > SEEN * a.abs().nan_to_num(0.0).max()):
                return True
    return False
