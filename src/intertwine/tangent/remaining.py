"""What of a null space is not found yet, and what the graph says about the weights.

What is found is counted modulo the orbit and all that was found before, so that counts add up to the deficit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from functools import cached_property
from typing import Any

import numpy as np
from scipy import linalg
from torch import fx

from intertwine.ir.ledger import Ids
from intertwine.rules import facts
from intertwine.symmetry import Axis, Symmetry
from intertwine.tangent.coordinates import Coordinates
from intertwine.tangent.kinds import MOVES, Direction
from intertwine.tangent.spaces import inside, span

ADDED = ("bias", "shift", "mean")  # roles of what is only ever added


class Remaining:
    """The null space of a Jacobian (an orthonormal basis, coordinates scaled by `lengths`) beside the orbit's
    tangents in it. chosen: which coordinates of theta the columns are. redundant: of some kinds
    (kind, columns over theta) in which parts of the model stay what they are. jumps: whether anything jumps
    on the way along a vector over theta."""

    def __init__(
        self,
        symmetry: Symmetry,
        at: Coordinates,
        chosen: Ids,
        null: np.ndarray,
        lengths: np.ndarray,
        tangents: np.ndarray,
        redundant: Callable[..., Iterable[tuple[str, np.ndarray]]] = lambda *_: (),
        jumps: Callable[[np.ndarray], bool] = lambda _: False,
    ) -> None:
        self.symmetry, self.at, self.null, self.redundant = symmetry, at, null, redundant
        self.jumps = jumps
        self.place = np.full(at.size, -1, np.int64)
        self.place[chosen] = np.arange(len(chosen))
        self.chosen = chosen
        self.zero = lengths == 0
        self.lengths = np.where(self.zero, 1.0, lengths)
        self.known = span(null.T @ tangents)
        self.found: list[Direction] = []
        self.moves: list[tuple[str, np.ndarray]] = []  # what constants may be moved by: (kind, over theta)
        self.missed: list[np.ndarray] = []  # what has no explanation, over theta

    @property
    def left(self) -> int:
        """Directions that are not found yet."""
        result: int = self.null.shape[1] - self.known.shape[1]
        return result

    def take(self, kind: str, coordinates: Iterable[Ids], axis: str = "") -> int:
        """Count and put aside the directions that lie in some coordinates of theta alone."""
        mask = self._mask(coordinates)
        if not self.left or not mask.any():
            return 0
        return self._add(kind, inside(self.null, mask), axis, mask)

    def _mask(self, coordinates: Iterable[Ids]) -> np.ndarray:
        mask = np.zeros(len(self.chosen), bool)
        for ids in coordinates:
            places = self.place[ids.reshape(-1)]
            mask[places[places >= 0]] = True
        return mask

    def _add(
        self, kind: str, coefficients: np.ndarray, axis: str = "", mask: np.ndarray | None = None
    ) -> int:
        if not coefficients.size:
            return 0
        rest = coefficients - self.known @ (self.known.T @ coefficients)
        new = span(rest, 1e-5)
        if not new.shape[1]:
            return 0
        # Short rests are orthogonal to what is known up to rounding of long ones: once more at full length.
        new = span(new - self.known @ (self.known.T @ new), 0.5)
        self.known = np.concatenate([self.known, new], axis=1)
        # Those of the given vectors themselves that are new: the rest of `new` belongs to the orbit.
        _, _, order = linalg.qr(rest, mode="economic", pivoting=True)
        given = np.zeros((self.at.size, new.shape[1]))
        given[self.chosen] = self.null @ coefficients[:, order[: new.shape[1]]] / self.lengths[:, None]
        if self.jumps(given.sum(axis=1)):
            kind = "jumps"
        if kind in MOVES:
            self.moves += [(kind, vector) for vector in given.T]
        size = np.abs(self.null @ (new if mask is None else coefficients)).max(axis=1)
        weights = self.at.weights_of(self.chosen[size > 1e-6])
        self.found.append(Direction(kind, new.shape[1], tuple(weights), axis))
        if not self.found[-1].explained:
            self.missed += list(given.T)
        result: int = new.shape[1]
        return result

    def _try(self, kind: str, vectors: np.ndarray, axis: str) -> None:
        """Put aside those of some directions (columns, in the scaled coordinates) that change nothing."""
        length = np.linalg.norm(vectors, axis=0)
        vectors = vectors[:, length > 0] / length[length > 0]
        coefficients = self.null.T @ vectors
        changed = np.linalg.norm(vectors - self.null @ coefficients, axis=0)
        self._add(kind, coefficients[:, changed < 1e-5], axis)

    def _try_in(self, held: np.ndarray, kind: str, vectors: np.ndarray, axis: str) -> None:
        """Directions over all coordinates, of which some are held."""
        vectors = vectors[:, ~vectors[held].any(axis=0)]
        self._try(kind, vectors[self.chosen] * self.lengths[:, None], axis)

    def _role(self, *roles: str) -> list[str]:
        named = self.symmetry.inference.roles
        return [n for n in self.at.values if any(w == n and r in roles for (w, _), r in named.items())]

    @cached_property
    def axes(self) -> list[Axis]:
        """Those that some of the chosen coordinates lie along."""
        chosen = set(self.at.weights_of(self.chosen))
        return [axis for axis in self.symmetry.axes if any(m.param in chosen for m in axis.members)]

    @cached_property
    def constants(self) -> list[str]:
        """Weights that are only ever added: biases, shifts, means, tables of positions and of words."""
        traced = self.symmetry.traced
        found, moving = set(self._role(*ADDED)), set[fx.Node]()
        for node in traced.graph.nodes:
            given = node.op == "placeholder" and node.name not in {*traced.weights, *traced.constants}
            if given or not moving.isdisjoint(node.all_input_nodes):
                moving.add(node)
        for node in traced.graph.nodes:
            name = traced.weights.get(node.name) if node.op == "placeholder" else None
            if name is not None and _only_added(node, moving):
                found.add(name)
        return [name for name in self.at.values if name in found]

    @cached_property
    def tables(self) -> list[str]:
        """Weights whose rows inputs look up."""
        traced = self.symmetry.traced
        names = [
            traced.weights.get(node.args[0].name)
            for node in traced.graph.nodes
            if facts(node).looks_up and hasattr(node.args[0], "name")
        ]
        return [name for name in self.at.values if name in names]

    def later(self, makers: Iterable[str]) -> list[str]:
        """The weights that something reads which depends on some weights."""
        traced, names = self.symmetry.traced, set(makers)
        depends, found = set[Any](), set[str]()
        for node in traced.graph.nodes:
            given = node.all_input_nodes
            if any(n in depends for n in given):
                found.update(traced.weights[n.name] for n in given if n.name in traced.weights)
            if any(n in depends or traced.weights.get(n.name) in names for n in given):
                depends.add(node)
        return [name for name in self.at.values if name in found - names]

    def channels(self, axis: Axis, roles: Sequence[str] | None = None) -> list[Ids]:
        """The coordinates of each channel, in all members or in those of some roles."""
        if roles is None:
            return self.at.channels(self.symmetry, axis)
        chosen = {m.param for m in axis.members if m.role in roles}
        allowed = self.at.mask([self.at.of(n) for n in chosen if n in self.at.values])
        return [c[allowed[c]] for c in self.at.channels(self.symmetry, axis)]


def _only_added(value: fx.Node, moving: Set[fx.Node]) -> bool:
    """Whether a value is added to what the inputs decide (moving), also in a sum with others like it: no
    matrix is made of it."""
    if not value.users:
        return False
    for user in value.users:
        added = facts(user).looks_up or (facts(user).adds and user in moving)
        if not added and not ((facts(user).carries or facts(user).adds) and _only_added(user, moving)):
            return False
    return True
