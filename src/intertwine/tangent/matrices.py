"""Directions that act on weights as matrices do: on what one weight reads or writes, or on channels.

Each kind is a map that is written down first, over theta; those that lie in the null space are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from intertwine.ir.ledger import Ids
from intertwine.symmetry import Axis
from intertwine.tangent.forms import in_one_basis, keeps_a_form, made_maps
from intertwine.tangent.maps import (
    Places,
    channel_maps,
    lone_scales,
    places_of,
    shifts_and_scales,
    statistic_scales,
)
from intertwine.tangent.remaining import Remaining
from intertwine.tangent.spaces import factors, inside, span, svd, within

TURNED = 24  # channels of a block up to which all matrices on them are looked at
PAIRS = 64  # channels of an axis up to which pairs of them are looked at


class Matrices(Remaining):
    """The steps that try maps."""

    def _ones(self) -> None:
        """1 x v added to a weight along the axis that a norm is taken over."""
        for axis in self.axes:
            for member in axis.members:
                if member.role in ("out", "bias", "other") and member.param in self.at.values:
                    self._ones_of(member.param, member.dim, axis)

    def _ones_of(self, name: str, dim: int, axis: Axis) -> None:
        entries = np.moveaxis(self.at.of(name), dim, 0)
        entries = entries.reshape(len(entries), -1)
        entries = entries[:, (self.place[entries] >= 0).all(axis=0)]
        if not entries.size:
            return
        vectors = np.zeros((len(self.chosen), entries.shape[1]))
        for column, ids in enumerate(entries.T):
            places = self.place[ids]
            vectors[places, column] = self.lengths[places]
        self._try("ones", vectors, axis.name)

    def _weights(self) -> None:
        """What one weight reads or writes does not vary in all its dimensions (constants taken with it).

        What it reads has v x = 0: every row may be any such v. What it writes is not seen: every column may.
        """
        added = [self.at.of(n) for n in self.constants]
        for name, value in self.at.values.items():
            if self.left and value.dim() > 1 and not (self.place[self.at.of(name)] < 0).any():
                for constants in ([], added):
                    self._sides(name, constants)

    def _sides(self, name: str, constants: Sequence[Ids]) -> None:
        here = self._mask([self.at.of(name)])
        free = self._mask(constants) & ~here
        coefficients = inside(self.null, here | free)
        places = self.place[self.at.of(name)].reshape(self.at.values[name].shape[0], -1)
        vectors = (self.null @ coefficients)[places] / self.lengths[places][..., None]
        if np.abs(vectors).max(initial=0.0) < 1e-6:
            return
        for kind, columns in zip(("inputs", "outputs"), _every(*factors(vectors)), strict=True):
            flat = np.zeros((len(self.chosen), columns.shape[-1]))
            flat[places] = columns * self.lengths[places][..., None]
            self._add(kind, within(self.null, flat[here], here, free), mask=here)

    def _maps(self) -> None:
        """Maps of channels that the group does not have, tried one by one."""
        held = np.ones(self.at.size, bool)
        held[self.chosen] = False
        for name, maps in channel_maps(self.symmetry, self.at):
            for kind, vectors in maps.candidates(PAIRS):
                if not self.left:
                    return
                self._try_in(held, kind, vectors, name)
        for name, vectors in statistic_scales(self.symmetry, self.at):
            self._scales("statistics", vectors, name)
        for vectors in lone_scales(self.symmetry, self.at, PAIRS):
            self._scales("scale", vectors)

    def _scales(self, kind: str, vectors: np.ndarray, axis: str = "") -> None:
        """Combinations of some scalings that change nothing."""
        touched = np.abs(vectors).max(axis=1) > 0
        tied = touched[self.chosen]
        if self.left and tied.sum() == touched.sum():
            allowed = (vectors[self.chosen] * self.lengths[:, None])[tied]
            self._add(kind, within(self.null, allowed, tied, np.zeros_like(tied)), axis, mask=tied)

    def _exponentials(self) -> None:
        """What is added to x against the scale of what reads f(x), other constants making up for the rest.

        Then f' = a f + b on these inputs. (Where a = 0 it is a translation, which is known.)
        """
        added = self._mask([self.at.of(n) for n in self.constants])
        for name, steps, growths in shifts_and_scales(self.symmetry, self.at, self.constants):
            vectors = np.concatenate([steps, growths], axis=1)
            touched = np.abs(vectors).max(axis=1) > 0
            tied = touched[self.chosen]
            if not self.left or tied.sum() < touched.sum():
                continue
            allowed = (vectors[self.chosen] * self.lengths[:, None])[tied]
            found = within(self.null, allowed, tied, added & ~tied)
            moved = (self.null @ found)[np.abs(steps).max(axis=1)[self.chosen] > 0]
            if found.size and moved.size:
                _, s, right = svd(moved)
                self._add("exponential", found @ right[: len(s)][s > 1e-5].T, name, mask=tied)

    def _products(self) -> None:
        """Layers of which only what they do together is seen, whatever they read."""
        self._regions("product", "polynomial")

    def _functions(self) -> None:
        """The same of functions in a row, and of layers around functions that stay on one piece."""
        self._regions("function", "piece")

    def _regions(self, *kinds: str) -> None:
        held = np.ones(self.at.size, bool)
        held[self.chosen] = False
        for kind, vectors in self.redundant(*kinds):
            self._try_in(held, kind, vectors, "")
            if not self.left:
                return

    def _rotations(self) -> None:
        """Matrices on what makes the channels of a block: a quadratic form stays, the rest undoes them."""
        for axis in self.axes:
            read = any(m.role == "in" for m in axis.members)
            if axis.group.linear or not read or not 1 < axis.classes.shape[1] <= TURNED:
                continue
            places = places_of(self.symmetry, self.at, axis)
            for block in np.arange(len(places)).reshape(axis.classes.shape):
                if self.left:
                    self._rotated(axis, [places[k] for k in block])

    def _rotated(self, axis: Axis, places: Sequence[Places]) -> None:
        found = made_maps(self.symmetry, self.at, places)
        if found is None:
            return
        vectors, made = found
        tied = made[self.chosen]
        if tied.sum() < made.sum():
            return
        # What stands between them and the norm is held: it would make up for scales, which are known.
        between = {m.param for m in axis.members if m.role in ("gain", "var")}
        later = [n for n in self.later(self.at.weights_of(np.flatnonzero(made))) if n not in between]
        free = self._mask([self.at.of(name) for name in later]) & ~tied
        allowed = (vectors[self.chosen] * self.lengths[:, None])[tied]

        def maps(coefficients: np.ndarray) -> np.ndarray:
            n = len(places)
            found = np.linalg.lstsq(allowed, (self.null @ coefficients)[tied], rcond=1e-9)[0]
            result: np.ndarray = found.reshape(n, n, -1)
            return result

        coefficients = within(self.null, allowed, tied, free)
        if coefficients.size:
            alone = within(self.null, allowed, tied, np.zeros_like(free))
            unseen = factors(maps(alone))[0] if alone.size else None
            kept = coefficients @ keeps_a_form(maps(coefficients), unseen)
            self._add("rotation", self._beyond(kept, allowed, tied, free), axis.name)

    def _sums(self) -> None:
        """Scales of sums of channels, which what makes the channels takes as matrices in one basis."""
        for name, channels in channel_maps(self.symmetry, self.at):
            places = [single for places in channels.places for single in _alone(places)]
            found = made_maps(self.symmetry, self.at, places) if 1 < len(places) <= TURNED else None
            if not self.left or found is None:
                continue
            vectors, made = found
            tied = made[self.chosen]
            later = self.later(self.at.weights_of(np.flatnonzero(made)))
            free = self._mask([self.at.of(name) for name in later]) & ~tied
            allowed = (vectors[self.chosen] * self.lengths[:, None])[tied]
            coefficients = within(self.null, allowed, tied, free) if tied.sum() == made.sum() else np.zeros(0)
            if not coefficients.size:
                continue
            maps = np.linalg.lstsq(allowed, (self.null @ coefficients)[tied], rcond=1e-9)[0]
            n = len(places)
            new = self._beyond(coefficients, allowed, tied, free)
            mixed = np.linalg.lstsq(allowed, (self.null @ new)[tied], rcond=1e-9)[0].reshape(n, n, -1)
            mixed[np.diag_indices(n)] = 0.0
            # A scale of a channel itself that is not known is one that was missed.
            apart = span(mixed.reshape(n * n, -1), 1e-5).shape[1]
            if apart and apart == new.shape[1] and in_one_basis(maps.reshape(n, n, -1)):
                self._add("sums", new, name)

    def _norms(self) -> None:
        """Of a norm's gain and shift one scale, and a multiple of 1 / gain in the shift: y = gain z + shift
        with 1'z = 0 has (1 / gain)' y constant, so that its length changes by a constant, as eps does."""
        for axis in self.axes:
            gains, shifts = ([m.param for m in axis.members if m.role == r] for r in ("gain", "shift"))
            for gain, shift in product(gains, shifts):
                if self.left and {gain, shift} <= self.at.values.keys():
                    self._normed(axis, gain, shift)

    def _normed(self, axis: Axis, gain: str, shift: str) -> None:
        scale, step = (self.at.of(name).reshape(-1) for name in (gain, shift))
        tied = self._mask([scale, step])
        if len(scale) != len(step) or tied.sum() < 2 * len(scale) or not self.at.theta[scale].all():
            return
        vectors = np.zeros((self.at.size, 2))
        vectors[scale, 0], vectors[step, 0] = self.at.theta[scale], self.at.theta[step]
        vectors[step, 1] = 1 / self.at.theta[scale]
        free = self._mask([self.at.of(name) for name in self.later([gain, shift])]) & ~tied
        allowed = (vectors[self.chosen] * self.lengths[:, None])[tied]
        found = within(self.null, allowed, tied, free)
        self._add("norms", self._beyond(found, allowed, tied, free), axis.name)

    def _beyond(
        self, coefficients: np.ndarray, allowed: np.ndarray, tied: np.ndarray, free: np.ndarray
    ) -> np.ndarray:
        """Of some directions those that do on the coordinates `tied` what nothing known does.

        What makes up for them in `free` is one choice of many; the difference of two must not be counted.
        """
        old = self.known @ within(self.null @ self.known, allowed, tied, free)
        before, after = span((self.null @ old)[tied]), (self.null @ coefficients)[tied]
        _, s, right = svd(after - before @ (before.T @ after))
        result: np.ndarray = coefficients @ right[s > 1e-5].T
        return result


def _alone(places: Places) -> list[Places]:
    """A channel that lies in several places of every weight (x + P x ties them), place by place."""
    count = min(map(len, places.values()))
    return [{key: ids[k : k + 1] for key, ids in places.items()} for k in range(count)]


def _every(read: np.ndarray, written: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All matrices whose rows (or columns) are among the given vectors."""
    rows, columns = len(written), len(read)
    return (
        np.einsum("ij,ck->icjk", np.eye(rows), read).reshape(rows, columns, -1),
        np.einsum("rk,cj->rckj", written, np.eye(columns)).reshape(rows, columns, -1),
    )
