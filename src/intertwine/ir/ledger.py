"""The ledger: everything the rules claim about labels and scales, written down once and solved at the end.

A *label* is an integer that stands for one channel. Every position along every dimension of every value
carries a label (see `ir.value`). Rules never move labels about; they only write facts:

    tie        these two positions must move together
    freeze     this label may not move, and why
    project    this label lies inside that block (a channel of a head, a channel of a group)
    equation   the log-scales of these positions satisfy a linear equation
    mark       this label met an op that is not linear, not orthogonal, or not mergeable

A *scale* is an integer that stands for one unknown log-scale (and, in the same place, one unknown sign).
Scale `ZERO` is the constant 0: whatever carries it cannot be rescaled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Ids = np.ndarray

ZERO = 0
NONLINEAR = 1  # met an op that does not commute with GL(n) on this axis
NONORTHOGONAL = 2  # ... nor with O(n)
UNMERGEABLE = 4  # met an op that sees how many equal channels there are (a norm or a mean over the axis)
ANY_NONLINEAR = NONLINEAR | NONORTHOGONAL
WINDOW = "a window slides over it"  # of all reasons to freeze the one that says least


@dataclass(frozen=True)
class Tie:
    """Positions `left[i]` and `right[i]` move together because of `site`."""

    left: Ids
    right: Ids
    site: int


@dataclass(frozen=True)
class Freeze:
    """Labels that may not move, with the reason in words."""

    labels: Ids
    reason: str
    site: int


@dataclass(frozen=True)
class Equation:
    """sum_k real[k] * scales[k] = 0, and the same with `sign` over GF(2); None leaves that half out."""

    real: tuple[float, ...] | None
    sign: tuple[int, ...] | None
    scales: tuple[Ids, ...]


@dataclass
class Ledger:
    """An append-only book of facts."""

    labels: int = 0
    scales: int = 1
    site: int = 0
    sites: list[str] = field(default_factory=lambda: ["(start)"])
    ties: list[Tie] = field(default_factory=list)
    freezes: list[Freeze] = field(default_factory=list)
    projections: list[tuple[Ids, Ids]] = field(default_factory=list)
    given: set[int] = field(default_factory=set)  # the projections that no op has made
    arrays: list[Ids] = field(default_factory=list)
    equations: list[Equation] = field(default_factory=list)
    marks: list[tuple[Ids, int, bool]] = field(default_factory=list)
    read: list[Ids] = field(default_factory=list)  # labels that met only themselves
    cuts: int = 0  # how often positions that carry labels were cut up or joined with others in a view
    # A value and dimension -> the value (held, so that ids stay its own) and its reading with one axis there.
    joined: dict[tuple[int, int], tuple[Any, Any]] = field(default_factory=dict)
    _blocks: dict[bytes, Ids] = field(default_factory=dict)

    def at(self, site: str) -> None:
        """Facts written from here on are due to `site`."""
        self.sites.append(site)
        self.site = len(self.sites) - 1

    def fresh_labels(self, shape: tuple[int, ...]) -> Ids:
        """New labels, one for each position, that nothing is known about."""
        n = math.prod(shape)
        ids = np.arange(self.labels, self.labels + n, dtype=np.int64).reshape(shape)
        self.labels += n
        self.seen(ids)
        return ids

    def fresh_scales(self, shape: tuple[int, ...]) -> Ids:
        """New unknown log-scales."""
        n = math.prod(shape)
        ids = np.arange(self.scales, self.scales + n, dtype=np.int64).reshape(shape)
        self.scales += n
        return ids

    def seen(self, ids: Ids) -> None:
        """These labels, and no others, occur together here: only labels that occur alike can be exchanged."""
        self.arrays.append(ids.reshape(-1))

    def tie(self, left: Ids, right: Ids) -> None:
        """left[i] moves with right[i]."""
        if left is not right and not np.array_equal(left, right):
            self.ties.append(Tie(left.reshape(-1), right.reshape(-1), self.site))
        else:
            self.read.append(left.reshape(-1))

    def freeze(self, labels: Ids, reason: str) -> None:
        """These labels stay where they are."""
        self.freezes.append(Freeze(labels.reshape(-1), reason, self.site))

    def said(self, freeze: Freeze) -> str:
        """A reason and what it is due to; a site without a name has a reason that says all."""
        site = self.sites[freeze.site]
        return f"{freeze.reason} ({site})" if site else freeze.reason

    def mark(self, labels: Ids, flags: int, blocks: bool = True) -> None:
        """Remember what kind of op these labels met; so did the blocks they lie in, unless told otherwise."""
        if flags:
            self.marks.append((labels.reshape(-1), flags, blocks))

    def equation(
        self, scales: tuple[Ids, ...], real: tuple[float, ...] | None, sign: tuple[int, ...] | None
    ) -> None:
        """Write `Equation`; arrays are broadcast against each other."""
        if all(not s.any() for s in scales):
            return
        flat = tuple(s.reshape(-1) for s in np.broadcast_arrays(*scales))
        self.equations.append(Equation(real, sign, flat))

    def zero(self, scales: Ids, real: bool = True, sign: bool = True) -> None:
        """These positions cannot be rescaled (real) or negated (sign)."""
        self.equation((scales,), (1.0,) if real else None, (1,) if sign else None)

    def equal(self, left: Ids, right: Ids) -> None:
        """Two positions are scaled alike."""
        if left is not right and not np.array_equal(left, right):
            self.equation((left, right), (1.0, -1.0), (1, 1))

    def blocks(self, ids: Ids) -> Ids:
        """Labels for the rows of a 2-D array: moving a channel moves the block it lies in.

        The same block of labels always gets the same block label.
        """
        key = _key(ids)
        parents = self._blocks.get(key)
        if parents is None:
            parents = self.fresh_labels((ids.shape[0],))
            self._blocks[key] = parents
            self.projections.append((ids.reshape(-1), np.repeat(parents, ids.shape[1])))
        return parents

    def lies_in(self, ids: Ids, parents: Ids) -> None:
        """The rows of a new 2-D array lie in these blocks, of which each holds rows of other arrays too."""
        self._blocks[_key(ids)] = parents
        self.given.add(len(self.projections))
        self.projections.append((ids.reshape(-1), np.repeat(parents, ids.shape[1])))


def _key(ids: Ids) -> bytes:
    return np.sort(ids, axis=1).tobytes() + str(ids.shape).encode()
