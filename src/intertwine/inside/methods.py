"""What in an input excites a class of features: five ways to share the score F out over the input.

F(x) = sum over positions of sum_c w_c a_c(x), with the weights w of a class and 0 for all other channels.

    guided       gradient of F with gates at the rectifiers (`inside.backward`), the source's
    gradient     dF/dx
    input        x dF/dx ("gradient times input")
    integrated   (x - b) times the mean gradient on the line from b to x; sums up to F(x) - F(b)
    occlusion    F(x) - F(x with a patch replaced by b), the mean over the patches that cover a place

b is 0: the mean colour of a normalised image, no embedding at all for a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from intertwine.errors import InputError
from intertwine.inside.backward import Backward
from intertwine.inside.inputs import Rows

T = TypeVar("T")
COMPLETE = 0.01  # integrated gradients are refined until they miss F(x) - F(b) by less than this
_MOST_STEPS = 1024


@dataclass(frozen=True, eq=False)
class Heat:
    """attribution: like the leaf, a row an input; score: F; error: |sum - (F(x) - F(b))| as a share of the
    sum of sizes where the method promises completeness, else None."""

    attribution: Tensor
    score: Tensor
    error: Tensor | None = None


def guided(back: Backward, rows: Rows, weights: Tensor) -> Heat:
    """Guided backpropagation."""
    return Heat(*back.gradient(rows, weights, guided=True))


def gradient(back: Backward, rows: Rows, weights: Tensor) -> Heat:
    """dF/dx."""
    return Heat(*back.gradient(rows, weights))


def times_input(back: Backward, rows: Rows, weights: Tensor) -> Heat:
    """x dF/dx."""
    leaf = back.leaves(rows)
    slope, score = back.gradient(rows, weights, leaf=leaf)
    return Heat(leaf * slope, score)


def integrated(back: Backward, rows: Rows, weights: Tensor, steps: int = 32) -> Heat:
    """The midpoint rule on the line from 0 to x; steps are doubled until the sum is right to 1 %."""
    leaf = back.leaves(rows)
    score = back.score(rows, weights, leaf)
    gain = score - back.score(rows, weights, torch.zeros_like(leaf))
    while True:
        total = torch.zeros_like(leaf)
        for part in _together(range(steps), back, rows):
            share = torch.tensor([(k + 0.5) / steps for k in part]).to(leaf)
            line = torch.einsum("k,...->k...", share, leaf).flatten(0, 1)
            slopes, _ = back.gradient(rows.repeat(len(part)), _tiled(weights, part), leaf=line)
            total += slopes.unflatten(0, (len(part), len(rows))).sum(0)
        found = leaf * total / steps
        moved = found.flatten(1).abs().sum(1)
        error = (found.flatten(1).sum(1) - gain).abs() / moved.clamp_min(torch.finfo(gain.dtype).tiny)
        if steps >= _MOST_STEPS or bool((error[moved > 0] <= COMPLETE).all()):
            return Heat(found, score, torch.where(moved > 0, error, 0))
        steps *= 2


def occlusion(back: Backward, rows: Rows, weights: Tensor, patch: int | None = None) -> Heat:
    """F(x) - F(x without a patch): an eighth of the side, moved by half of itself; one token at a time."""
    leaf = back.leaves(rows)
    score = back.score(rows, weights, leaf)
    places = leaf.shape[2:] if leaf.ndim > 2 and not back.tokens else leaf.shape[1:2]
    sides = [patch or max(1, size // 8) if len(places) > 1 else 1 for size in places]
    total, covered = torch.zeros(len(rows), *places).to(leaf), torch.zeros(*places).to(leaf)
    before = (slice(None),) if back.tokens or leaf.ndim == 2 else (slice(None), slice(None))
    for part in _together(_windows(tuple(places), sides), back, rows):
        without = leaf.repeat(len(part), *[1] * (leaf.ndim - 1)).unflatten(0, (len(part), len(rows)))
        for one, window in zip(without, part, strict=True):
            one[(*before, *window)] = 0
        left = back.score(rows.repeat(len(part)), _tiled(weights, part), without.flatten(0, 1))
        for one, window in zip(left.unflatten(0, (len(part), len(rows))), part, strict=True):
            total[(slice(None), *window)] += (score - one).reshape(-1, *[1] * len(places))
            covered[window] += 1
    shared = total / covered
    if leaf.ndim == 2:
        return Heat(shared, score)
    # the loss of a place is that of all its colours (of all its embedding) together
    if back.tokens:
        return Heat((shared / leaf.shape[-1])[..., None].expand_as(leaf), score)
    return Heat((shared / leaf.shape[1])[:, None].expand_as(leaf), score)


def _together(items: Sequence[T], back: Backward, rows: Rows) -> Iterator[Sequence[T]]:
    """As many at a time as fill a batch of the network with all rows."""
    step = max(1, back.network.batch // len(rows))
    for start in range(0, len(items), step):
        yield items[start : start + step]


def _tiled(weights: Tensor, part: Sequence[object]) -> Tensor:
    return weights.repeat(len(part), *[1] * (weights.ndim - 1))


def _windows(places: tuple[int, ...], sides: list[int]) -> list[tuple[slice, ...]]:
    found: list[tuple[slice, ...]] = [()]
    for size, side in zip(places, sides, strict=True):
        starts = sorted({*range(0, max(size - side, 0) + 1, max(1, side // 2)), max(size - side, 0)})
        found = [(*window, slice(start, start + side)) for window in found for start in starts]
    return found


METHODS: dict[str, Callable[..., Heat]] = {
    "guided": guided,
    "gradient": gradient,
    "input": times_input,
    "integrated": integrated,
    "occlusion": occlusion,
}
# Those whose sign says whether a place speaks for the class or against it; of the others the length counts.
SIGNED = ("input", "integrated", "occlusion")


def attribute_rows(back: Backward, rows: Rows | Tensor, weights: Tensor, method: str = "guided") -> Heat:
    """The attribution of F to every input, by a method of the table above."""
    if method not in METHODS:
        raise InputError(f"no method named {method!r}", do=f"use {', '.join(METHODS)}")
    return METHODS[method](back, Rows.of(rows), weights)


def heat_map(back: Backward, heat: Heat, method: str) -> Tensor:
    """One number a place: the sum over colours (or a token's embedding), or a gradient's length."""
    found = heat.attribution
    if found.ndim == 2:
        return found if method in SIGNED else found.abs()
    dim = -1 if back.tokens else 1
    return found.sum(dim) if method in SIGNED else found.norm(dim=dim)
