"""Least squares of what several layers make together, from weights that are near.

    minimise over w   sum over inputs of |e|^2,    e = f(w) - t,
                                                   or max(f(w), 0) where nothing should come through

Gauss-Newton: f is linearised at the weights that there are, and conjugate gradients solve the least squares
that this leaves, in coordinates in which every tensor counts alike. Of all steps on the way the one is taken
that errs least on the parts that are left out, the start among them: fewer steps are what a ridge would be.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import forward_ad

Weights = tuple[Tensor, ...]
WORSE = 2  # steps in a row that are worse on what is left out, after which no better one is expected


@dataclass(frozen=True)
class Aim:
    """What weights make of some inputs, what they should, and where nothing should come through."""

    made: Callable[[Weights], Tensor]
    goal: Tensor
    off: Tensor | None = None

    def error(self, weights: Weights) -> Tensor:
        """What is wrong with it."""
        made = self.made(weights)
        wrong = made - self.goal
        return wrong if self.off is None else torch.where(self.off, made.clamp_min(0), wrong)


@torch.no_grad()
def total(aims: Iterable[Aim], weights: Weights) -> float:
    """The sum of squares."""
    return sum(float(aim.error(weights).square().sum()) for aim in aims)


def nearer(fit: Sequence[Aim], left_out: Sequence[Aim], weights: Weights, steps: int) -> Weights:
    """One step of Gauss-Newton, of at most `steps` steps of conjugate gradients.

    >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> aim = Aim(lambda w: (x @ w[0]).relu() @ w[1], (x @ torch.eye(3)).relu() @ torch.ones(3, 1))
    >>> start = (torch.eye(3) + 0.1, torch.ones(3, 1))
    >>> total([aim], nearer([aim], [aim], start, 10)) < 0.1 * total([aim], start)
    True
    """
    lines = [_Line(aim, weights) for aim in fit]
    generator = torch.Generator().manual_seed(0)
    signs = [
        2.0 * torch.randint(0, 2, line.error.shape, generator=generator).to(line.error) - 1 for line in lines
    ]
    # E (J' s)^2 over signs s is the diagonal of J' J.
    seen = _add(line.pull(sign) for line, sign in zip(lines, signs, strict=True))
    size = [found.square().mean().sqrt().clamp_min(1e-12) for found in seen]

    def curved(direction: Sequence[Tensor]) -> list[Tensor]:  # J' J direction
        move = [d / s for d, s in zip(direction, size, strict=True)]
        found = _add(line.pull(line.push(move)) for line in lines)
        return [f / s for f, s in zip(found, size, strict=True)]

    slope = _add(line.pull(line.error) for line in lines)
    down = [-g / s for g, s in zip(slope, size, strict=True)]
    direction, step, square = down, [torch.zeros_like(d) for d in down], _dot(down, down)
    best, least, worse = weights, total(left_out, weights), 0
    for _ in range(steps):
        turned = curved(direction)
        bend = _dot(direction, turned)
        if not bend > 0 or worse > WORSE:
            break
        step = [s + square / bend * d for s, d in zip(step, direction, strict=True)]
        down = [r - square / bend * t for r, t in zip(down, turned, strict=True)]
        before, square = square, _dot(down, down)
        direction = [r + square / before * d for r, d in zip(down, direction, strict=True)]
        here = tuple(w + s / n for w, s, n in zip(weights, step, size, strict=True))
        found = total(left_out, here)
        worse = 0 if found < least else worse + 1
        if found < least:
            best, least = here, found
    return best


class _Line:
    """An aim's error at some weights, and its derivative both ways."""

    def __init__(self, aim: Aim, weights: Weights) -> None:
        self.aim, self.weights = aim, [w.detach().clone().requires_grad_() for w in weights]
        with torch.enable_grad():
            self.made = aim.error(tuple(self.weights))
        self.error = self.made.detach()

    def pull(self, errors: Tensor) -> Sequence[Tensor]:
        """J' errors; the graph of the error is made once."""
        return torch.autograd.grad(self.made, self.weights, errors, retain_graph=True, materialize_grads=True)

    @torch.no_grad()
    def push(self, move: Sequence[Tensor]) -> Tensor:
        """J move, by dual numbers."""
        with forward_ad.dual_level(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of torch's own code
            pairs = zip(self.weights, move, strict=True)
            found = self.aim.error(tuple(forward_ad.make_dual(w.detach(), d) for w, d in pairs))
            tangent = forward_ad.unpack_dual(found).tangent
            return torch.zeros_like(self.error) if tangent is None else tangent


def _add(parts: Iterable[Sequence[Tensor]]) -> list[Tensor]:
    out: list[Tensor] = []
    for part in parts:
        out = [a + b for a, b in zip(out, part, strict=True)] if out else list(part)
    return out


def _dot(a: Sequence[Tensor], b: Sequence[Tensor]) -> float:
    return sum(float((x * y).sum()) for x, y in zip(a, b, strict=True))
