"""Find the set {J < epsilon} on a grid with a fraction of its evaluations.

d = sqrt(J) is a distance between functions, so |d(s) - d(t)| is at most the distance of the functions of s
and t: along a grid d changes at the rate at which the function does, also where it has a narrow valley. A
coarse lattice is evaluated; then lattices of half the spacing, until the grid itself. On each lattice

1. a point is evaluated when d there can cross sqrt(epsilon): it differs from it by less than `slack` times
   half the largest change of d between lattice neighbours around it, or half its second differences (summed
   over axes), whichever is more: at the bottom of a valley neighbours on both sides may be equally high, and
   the middle of a cell is half a step away along every axis;
2. every pair of face neighbours on opposite sides of a level is evaluated, repeatedly, until all such pairs
   are: so the boundary of each component that was found is exact, wherever it leads;
3. the rest is interpolated (multilinearly in d).

Last, a random audit evaluates points that were interpolated; a wrong side there re-opens step 2 and is
counted, and bounds how many others there can be. What can be missed is a component smaller than a coarse cell
whose valley the slack does not see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from intertwine.errors import InputError

Evaluate = Callable[[NDArray[np.int64]], NDArray[np.float64]]


@dataclass(frozen=True)
class Refinement:
    """How cautious the refinement is; larger numbers evaluate more points."""

    coarse: int = 8
    slack: float = 1.0
    audit: float = 0.01
    seed: int = 0
    # Whether the grid itself is interpolated where the second differences of d leave no doubt about a side.
    interpolate: bool = False

    def __post_init__(self) -> None:
        if self.coarse < 1 or self.slack < 0 or not 0 <= self.audit <= 1:
            raise InputError(f"not a possible refinement: {self}")


@dataclass(frozen=True)
class Refined:
    """Values on the whole grid, which of them were evaluated, and what the audit said."""

    values: NDArray[np.float64]
    evaluated: NDArray[np.bool_]
    facts: dict[str, Any]


def refine(evaluate: Evaluate, shape: tuple[int, ...], levels: tuple[float, ...], how: Refinement) -> Refined:
    """Evaluate what the levels need, interpolate the rest.

    >>> axis = np.linspace(-2, 2, 65)
    >>> bowl = (axis[:, None] ** 2 + axis[None, :] ** 2).reshape(-1)
    >>> result = refine(lambda flat: bowl[flat], (65, 65), (1.0,), Refinement())
    >>> bool(((result.values < 1) == (bowl.reshape(65, 65) < 1)).all()), bool(result.evaluated.mean() < 0.2)
    (True, True)
    """
    state = _State(evaluate, shape, np.sqrt(np.asarray(levels)))
    stride = _first_stride(shape, how.coarse)
    lattice = _lattice(shape, stride)
    state.measure(np.ones([len(axis) for axis in lattice], dtype=bool), lattice)
    while True:
        if stride > 1 or not how.interpolate:
            state.close(lattice)
        if stride == 1:
            break
        stride = max(1, stride // 2)
        finer = _lattice(shape, stride)
        doubtful = state.upsample(lattice, finer, how.slack, curved=how.interpolate and stride == 1)
        state.measure(doubtful, finer)
        lattice = finer
    audited, wrong = state.audit(how, lattice)
    facts = {
        "grid_points": int(np.prod(shape)), "evaluations": int(state.known.sum()),
        "coarse": how.coarse, "slack": how.slack, "interpolate": how.interpolate,
        "audited": audited, "audit_wrong": wrong, "wrong_share_at_most": _upper_bound(wrong, audited),
    }  # fmt: skip
    values = np.where(state.known, state.values, np.square(state.d))
    return Refined(values, state.known, facts)


def _first_stride(shape: tuple[int, ...], coarse: int) -> int:
    """The largest power of two up to `coarse` that leaves at least four cells along the shortest axis."""
    stride = 1
    while stride * 2 <= coarse and (min(shape) - 1) // (stride * 2) >= 4:
        stride *= 2
    return stride


def _lattice(shape: tuple[int, ...], stride: int) -> list[NDArray[np.int64]]:
    """Indices of the lattice along each axis; the last point of the grid always belongs to it."""
    return [np.unique(np.append(np.arange(0, n, stride), n - 1)) for n in shape]


class _State:
    """d on the whole grid (known or guessed) and the mask of the known points."""

    def __init__(self, evaluate: Evaluate, shape: tuple[int, ...], roots: NDArray[np.float64]) -> None:
        self.evaluate, self.shape, self.roots = evaluate, shape, roots
        self.d = np.zeros(shape)
        self.values = np.zeros(shape)
        self.known = np.zeros(shape, dtype=bool)

    def side(self, d: NDArray[np.float64]) -> NDArray[np.int64]:
        """How many levels lie at or below d: equal numbers mean the same side of every level."""
        return np.asarray(np.searchsorted(self.roots, d, side="right"))

    def measure(self, mask: NDArray[np.bool_], lattice: list[NDArray[np.int64]]) -> int:
        """Evaluate the lattice points in `mask` that are not known yet; how many there were."""
        places = [axis[index] for axis, index in zip(lattice, np.nonzero(mask), strict=True)]
        flat = np.ravel_multi_index(places, self.shape)
        flat = flat[~self.known.flat[flat]]
        if len(flat):
            values = self.evaluate(flat)
            self.values.flat[flat] = values
            # A J rounded below zero would have no root.
            self.d.flat[flat] = np.sqrt(np.maximum(values, 0))
            self.known.flat[flat] = True
        return len(flat)

    def close(self, lattice: list[NDArray[np.int64]]) -> None:
        """Evaluate neighbours on opposite sides of a level until each such pair is known."""
        mesh = np.ix_(*lattice)
        while self.measure(_opposite(self.side(self.d[mesh])), lattice):
            pass

    def upsample(
        self, lattice: list[NDArray[np.int64]], finer: list[NDArray[np.int64]], slack: float, curved: bool
    ) -> NDArray[np.bool_]:
        """Guess the finer lattice from the coarser one; the points where a level can pass.

        `curved`: where the error of the interpolation, from second differences, can hide it.
        """
        from scipy.interpolate import RegularGridInterpolator
        from scipy.ndimage import maximum_filter

        coarse = self.d[np.ix_(*lattice)]
        bend = _bend(coarse)
        change = maximum_filter(bend / 4 if curved else np.maximum(_largest_change(coarse), bend), size=3)
        places = np.stack(np.meshgrid(*finer, indexing="ij"), axis=-1).astype(np.float64)
        guess, reach = (RegularGridInterpolator(lattice, data)(places) for data in (coarse, change))
        mesh = np.ix_(*finer)
        self.d[mesh] = np.where(self.known[mesh], self.d[mesh], guess)
        gap = np.abs(guess[..., None] - self.roots).min(-1)
        return np.asarray(gap <= slack * reach / 2)

    def audit(self, how: Refinement, lattice: list[NDArray[np.int64]]) -> tuple[int, int]:
        """Evaluate a random share of the interpolated points; wrong sides are repaired and counted."""
        unknown = np.flatnonzero(~self.known)
        count = min(len(unknown), max(int(how.audit * self.d.size), 16) if how.audit else 0)
        if count == 0:
            return 0, 0
        chosen = np.random.default_rng(how.seed).choice(unknown, count, replace=False)
        before = self.side(self.d.flat[chosen])
        mask = np.zeros(self.shape, dtype=bool)
        mask.flat[chosen] = True
        self.measure(mask, lattice)
        wrong = int((self.side(self.d.flat[chosen]) != before).sum())
        if wrong and not how.interpolate:
            self.close(lattice)
        return count, wrong


def _upper_bound(wrong: int, audited: int, confidence: float = 0.95) -> float:
    """The largest share of wrong sides, among the points not evaluated, that the audit does not refute.

    >>> round(_upper_bound(0, 300), 4)
    0.0099
    """
    from scipy.stats import beta

    return float(beta.ppf(confidence, wrong + 1, audited - wrong)) if audited > wrong else 1.0


def _opposite(side: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Points with a face neighbour on another side."""
    mask = np.zeros(side.shape, dtype=bool)
    for axis in range(side.ndim):
        low = np.moveaxis(side, axis, 0)
        out = np.moveaxis(mask, axis, 0)
        differs = low[1:] != low[:-1]
        out[1:] |= differs
        out[:-1] |= differs
    return mask


def _largest_change(d: NDArray[np.float64]) -> NDArray[np.float64]:
    """At each point, the largest |difference| of d to a face neighbour."""
    change = np.zeros_like(d)
    for axis in range(d.ndim):
        data, out = np.moveaxis(d, axis, 0), np.moveaxis(change, axis, 0)
        step = np.abs(np.diff(data, axis=0))
        out[1:] = np.maximum(out[1:], step)
        out[:-1] = np.maximum(out[:-1], step)
    return change


def _bend(d: NDArray[np.float64]) -> NDArray[np.float64]:
    """At each point, the sum over axes of the |second differences| of d: 8 times the error half-way."""
    bend = np.zeros_like(d)
    for axis in range(d.ndim):
        data, out = np.moveaxis(d, axis, 0), np.moveaxis(bend, axis, 0)
        out[1:-1] += np.abs(data[2:] - 2 * data[1:-1] + data[:-2])
    return bend
