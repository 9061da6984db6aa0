"""Where the directions lie that change nothing and that the group does not have, and what they are.

A null vector of the Jacobian is looked for in few coordinates first: single entries without effect, the
constants that layers add, the statistics of a norm, the channels of an axis, one weight, all weights of an
axis.
"""

from __future__ import annotations

import numpy as np

from intertwine.ir.ledger import Ids
from intertwine.symmetry import Axis
from intertwine.tangent.kinds import Direction, summed
from intertwine.tangent.matrices import Matrices
from intertwine.tangent.remaining import ADDED
from intertwine.tangent.spaces import INSIDE, inside

NORM = (*ADDED, "gain", "var")


class Search(Matrices):
    """All steps, in order."""

    def run(self) -> list[Direction]:
        """Everything, from the smallest places to the largest."""
        steps = (
            self._rows, self._units, self._zero, self._translations, self._statistics,
            self._ones, self._equal, self._weights, self._maps, self._products, self._exponentials,
            self._rotations, self._sums, self._norms, self._linear, self._functions,
            self._channels, self._axes, self._rest,
        )  # fmt: skip
        for step in steps:
            if self.left:
                step()
        return summed(self.found)

    def _zeros(self, coordinates: Ids) -> Ids:
        places = self.place[coordinates]
        result: Ids = coordinates[(places >= 0) & self.zero[places]]
        return result

    def _all_zero(self, coordinates: Ids) -> bool:
        coordinates = coordinates[self.place[coordinates] >= 0]
        return len(coordinates) > 0 and len(self._zeros(coordinates)) == len(coordinates)

    def _rows(self) -> None:
        for name in self.tables:
            rows = self.at.of(name)
            unread = [row for row in rows.reshape(len(rows), -1) if self._all_zero(row)]
            self.take("rows", unread)

    def _units(self) -> None:
        """Units whose makers have no effect: dead if their readers have none either, else saturated."""
        added = [self.at.of(n) for n in self.constants]
        for axis in self.axes:
            if not any(m.role == "out" for m in axis.members):
                continue
            made = self.channels(axis, ("out",))
            still = [k for k, ids in enumerate(made) if self._all_zero(ids)]
            if still:
                whole = self.channels(axis)
                self.take("dead", [self._zeros(whole[k]) for k in still], axis.name)
                self.take("saturated", [*(whole[k] for k in still), *added], axis.name)

    def _zero(self) -> None:
        for name in self.at.values:
            kind = "constant" if name in self.constants else "unseen"
            self.take(kind, [self._zeros(self.at.of(name).reshape(-1))])

    def _translations(self) -> None:
        """One constant against all that come after it."""
        for k, name in enumerate(self.constants):
            later = [self.at.of(n) for n in self.constants[k:]]
            if not self.take("translation", [self.at.of(name)]):
                self.take("translation", later)

    def _statistics(self) -> None:
        for axis in self.axes:
            if any(m.role == "var" for m in axis.members):
                near = [m.param for m in axis.members if m.role in NORM and m.param in self.at.values]
                added = [self.at.of(n) for n in (*near, *self.constants)]
                self.take("statistics", added, axis.name)

    def _equal(self) -> None:
        """Channels whose readers do the same up to a factor."""
        for axis in self.axes:
            for group in self._alike(axis):
                whole = self.channels(axis)
                self.take("equal", [whole[k] for k in group], axis.name)

    def _alike(self, axis: Axis) -> list[list[int]]:
        """Channels k, l for which moving a reader's weight from k to l changes nothing."""
        readers = [m.param for m in axis.members if m.role == "in" and m.param in self.at.values]
        if not readers or axis.size < 2:
            return []
        columns = [self._mask([c]) for c in self.channels(axis, ("in",))]
        if len({int(c.sum()) for c in columns}) != 1:
            return []
        # The first weight that each channel is read by: unit vectors seen modulo the null space.
        first = [int(np.flatnonzero(c)[0]) for c in columns if c.any()]
        if len(first) < len(columns):
            return []
        seen = np.eye(len(first)) - self.null[first] @ self.null[first].T
        alive = np.diag(seen) > INSIDE
        norm = np.sqrt(np.where(alive, np.diag(seen), 1.0))
        close = (1 - np.abs(seen / norm / norm[:, None]) < INSIDE) & alive & alive[:, None]
        groups: list[list[int]] = []
        used: set[int] = set()
        for k in range(len(first)):
            group = [int(i) for i in np.flatnonzero(close[k]) if int(i) not in used]
            if k not in used and len(group) > 1:
                groups.append(group)
            used.update(group)
        return groups

    def _linear(self) -> None:
        """Units that are linear on these inputs, taken together.

        Such a unit hands a constant that is added to it on to constants elsewhere.
        """
        added = [self.at.of(n) for n in self.constants]
        for axis in self.axes:
            if axis.group.linear or not any(m.role == "out" for m in axis.members):
                continue
            whole = self.channels(axis)
            here = {m.param for m in axis.members}
            elsewhere = self._mask([self.at.of(n) for n in self.constants if n not in here])
            biased = any(m.role == "bias" for m in axis.members)
            own = self.channels(axis, ("bias",) if biased else ADDED)
            straight = [k for k, ids in enumerate(own) if self._hands_on(ids, elsewhere)]
            self.take("linear", [*(whole[k] for k in straight), *added], axis.name)

    def _hands_on(self, constants: Ids, elsewhere: np.ndarray) -> bool:
        """Whether some constants can be made up for elsewhere, beyond what either can alone."""
        own = self._mask([constants])
        counts = [inside(self.null, mask).shape[1] for mask in (own | elsewhere, own, elsewhere & ~own)]
        return bool(counts[0] > counts[1] + counts[2])

    def _channels(self) -> None:
        """Single channels: unknown maps."""
        for axis in self.symmetry.axes:
            if not axis.group.linear and any(m.role == "out" for m in axis.members):
                for ids in self.channels(axis):
                    self.take("channel", [ids], axis.name)

    def _axes(self) -> None:
        """All members of an axis: unknown maps."""
        added = [self.at.of(n) for n in self.constants]
        for axis in self.axes:
            names = dict.fromkeys(m.param for m in axis.members if m.param in self.at.values)
            self.take("axis", [*(self.at.of(name) for name in names), *added], axis.name)

    def _rest(self) -> None:
        self._add("open", np.eye(self.null.shape[1]))
