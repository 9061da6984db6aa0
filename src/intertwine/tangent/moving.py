"""Directions in which constants move, as translations that are proved at a distance.

A null vector of the Jacobian changes nothing to first order. Whether theta + v has the function of theta is
another question, and it is answered by running: on inputs of their own, in float64, to 1e-8.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from intertwine.graph.example import Example
from intertwine.graph.export import Traced
from intertwine.graph.run import run
from intertwine.symmetry import Translation
from intertwine.tangent.coordinates import Coordinates

CLOSE = 1e-8


def proved(
    traced: Traced,
    model: nn.Module,
    at: Coordinates,
    moves: Sequence[tuple[str, np.ndarray]],
    examples: Sequence[Example],
) -> tuple[Translation, ...]:
    """Of some directions over theta, those that leave the outputs on the examples as they are."""
    if not moves:
        return ()
    found = [Translation(_named(at, vector), kind) for kind, vector in moves]
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    old = {name: at.values.get(name, tensor.detach().cpu()) for name, tensor in state.items()}
    before = [run(traced, old, e.args, e.kwargs) for e in examples]

    def holds(some: Sequence[Translation]) -> bool:
        new = dict(old)
        for k, one in enumerate(some):
            new |= {name: new[name] + (1.0 + 0.1 * k) * move for name, move in one.moves.items()}
        after = [run(traced, new, e.args, e.kwargs) for e in examples]
        pairs = [pair for a, b in zip(before, after, strict=True) for pair in zip(a, b, strict=True)]
        return all(_close(a, b) for a, b in pairs)

    return tuple(found) if holds(found) else tuple(one for one in found if holds([one]))


def _named(at: Coordinates, vector: np.ndarray) -> dict[str, Tensor]:
    """A vector over theta as tensors, so long that it shows: as the largest entry of what it moves."""
    touched = at.weights_of(np.flatnonzero(np.abs(vector) > 1e-9 * np.abs(vector).max()))
    largest = max(float(at.values[name].abs().max()) for name in touched)
    scale = max(largest, 0.1) / float(np.abs(vector).max())
    return {name: torch.from_numpy(scale * vector[at.of(name)]) for name in touched}


def _close(a: Tensor, b: Tensor) -> bool:
    finite = torch.isfinite(a)
    if not bool(finite.any()):
        return bool(torch.equal(finite, torch.isfinite(b)))
    change = (a - b)[finite].abs().max()
    return bool(change <= CLOSE * a[finite].abs().max().clamp_min(1e-6))
