"""Where the directions lie that change nothing and that the group does not have, and what they are.

A null vector of the Jacobian is looked for in few coordinates first: single entries without effect, the
constants that layers add, the statistics of a norm, the channels of an axis, one weight, all weights of an
axis. What is found is counted modulo the orbit and all that was found before, so that counts add up to the
deficit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import linalg

from intertwine.ir.ledger import Ids
from intertwine.rules import facts
from intertwine.symmetry import Axis, Symmetry
from intertwine.tangent.coordinates import Coordinates
from intertwine.tangent.forms import keeps_a_form, made_maps
from intertwine.tangent.maps import Places, channel_maps, lone_scales, places_of
from intertwine.tangent.spaces import INSIDE, factors, inside, span, svd, within

# kind -> what it says about the model; those in MISSED are not explained by it.
KINDS = {
    "unused": "the model never reads them",
    "rows": "rows of a table that no input looks up",
    "dead": "units that are never active on these inputs",
    "saturated": "units that are constant on these inputs",
    "linear": "units that are linear on these inputs: they may be mixed with others like them",
    "equal": "features that are equal up to a factor on these inputs",
    "unseen": "entries without effect on these inputs",
    "constant": "constants that nothing sees: softmax over keys, or a norm, takes them out again",
    "translation": "constants that may move from one layer to another",
    "statistics": "running statistics of a norm, which its gain and shift can take over",
    "ones": "multiples of 1, which the norm that follows takes out again",
    "inputs": "what the weight reads does not span all its dimensions on these inputs",
    "outputs": "what the weight writes is not seen in all its dimensions on these inputs",
    "scale": "scales of channels that a split, an index or a group leaves alone: they have no own axis",
    "length": "a common scale, which the norm that follows takes out again (its eps is the machine's)",
    "mixing": "matrices between channels that linear layers alone see, such as parts of a split",
    "product": "layers in a row that are affine in what they read: only what they do together is seen",
    "polynomial": "layers with gates or squares between them: only the polynomial that they are is seen",
    "rotary": "rotations of pairs of channels of queries and keys that a rotary embedding turns alike",
    "rotation": "matrices that keep the length that a norm sees, and that its readers undo",
    "channel": "maps of single channels beyond the group: a symmetry that was missed",
    "axis": "maps of the axis beyond its group: a symmetry that was missed",
    "open": "not explained: a symmetry that was missed, or inputs that are not enough",
}
MISSED = ("channel", "axis", "open")
MOVES = ("constant", "translation", "ones")  # what is added somewhere and taken away elsewhere
TURNED = 24  # channels of a block up to which all matrices on them are looked at
PAIRS = 64  # channels of an axis up to which pairs of them are looked at
_ADDED = ("bias", "shift", "mean")
_NORM = (*_ADDED, "gain", "var")


@dataclass(frozen=True)
class Direction:
    """`count` independent directions of one kind at one place: weights, and the axis if it is one."""

    kind: str
    count: int
    weights: tuple[str, ...]
    axis: str = ""

    @property
    def explained(self) -> bool:
        """Whether it is known what they are."""
        return self.kind not in MISSED

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kind": self.kind,
            "count": self.count,
            "axis": self.axis or None,
            "weights": list(self.weights),
            "because": KINDS[self.kind],
        }

    def __str__(self) -> str:
        place = self.axis or ", ".join(self.weights[:4]) + (" ..." if len(self.weights) > 4 else "")
        return f"{self.count} in {place}: {KINDS[self.kind]}"


class Search:
    """The null space of a Jacobian (an orthonormal basis, coordinates scaled by `lengths`) beside the orbit's
    tangents in it. chosen: which coordinates of theta the columns are. redundant: (kind, columns over theta)
    in which parts of the model stay what they are."""

    def __init__(
        self,
        symmetry: Symmetry,
        at: Coordinates,
        chosen: Ids,
        null: np.ndarray,
        lengths: np.ndarray,
        tangents: np.ndarray,
        redundant: Callable[[], Iterable[tuple[str, np.ndarray]]] = tuple,
    ) -> None:
        self.symmetry, self.at, self.null, self.redundant = symmetry, at, null, redundant
        self.place = np.full(at.size, -1, np.int64)
        self.place[chosen] = np.arange(len(chosen))
        self.chosen = chosen
        self.zero = lengths == 0
        self.lengths = np.where(self.zero, 1.0, lengths)
        self.known = span(null.T @ tangents)
        self.found: list[Direction] = []
        self.moves: list[tuple[str, np.ndarray]] = []  # what constants may be moved by: (kind, over theta)

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
        if kind in MOVES:
            # Those of the given vectors themselves that are new: the rest of `new` belongs to the orbit.
            _, _, order = linalg.qr(rest, mode="economic", pivoting=True)
            for column in order[: new.shape[1]]:
                vector = np.zeros(self.at.size)
                vector[self.chosen] = self.null @ coefficients[:, column] / self.lengths
                self.moves.append((kind, vector))
        size = np.abs(self.null @ (new if mask is None else coefficients)).max(axis=1)
        weights = self.at.weights_of(self.chosen[size > 1e-6])
        self.found.append(Direction(kind, new.shape[1], tuple(weights), axis))
        result: int = new.shape[1]
        return result

    # -- what is known about the model -------------------------------------------------------------------

    def _role(self, *roles: str) -> list[str]:
        named = self.symmetry.inference.roles
        return [n for n in self.at.values if any(w == n and r in roles for (w, _), r in named.items())]

    @cached_property
    def constants(self) -> list[str]:
        """Weights that are only ever added: biases, shifts, means, tables of positions and of words."""
        traced = self.symmetry.traced
        found = set(self._role(*_ADDED))
        for node in traced.graph.nodes:
            if node.op == "placeholder" and (name := traced.weights.get(node.name)) is not None:
                users = list(node.users)
                while len(users) == 1 and facts(users[0]).carries:
                    users = list(users[0].users)
                if users and all(facts(u).adds or facts(u).looks_up for u in users):
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

    # -- the search --------------------------------------------------------------------------------------

    def run(self) -> list[Direction]:
        """Everything, from the smallest places to the largest."""
        steps = (
            self._rows, self._units, self._zero, self._translations, self._statistics,
            self._ones, self._equal, self._weights, self._maps, self._products, self._rotations, self._linear,
            self._axes, self._rest,
        )  # fmt: skip
        for step in steps:
            if self.left:
                step()
        return _summed(self.found)

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
        for axis in self.symmetry.axes:
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
        for axis in self.symmetry.axes:
            if any(m.role == "var" for m in axis.members):
                near = [m.param for m in axis.members if m.role in _NORM and m.param in self.at.values]
                added = [self.at.of(n) for n in (*near, *self.constants)]
                self.take("statistics", added, axis.name)

    def _equal(self) -> None:
        """Channels whose readers do the same up to a factor."""
        for axis in self.symmetry.axes:
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

    def _ones(self) -> None:
        """1 x v added to a weight along the axis that a norm is taken over."""
        for axis in self.symmetry.axes:
            for member in axis.members:
                if member.role in ("out", "bias", "other") and member.param in self.at.values:
                    self._ones_of(member.param, member.dim, axis)

    def _ones_of(self, name: str, dim: int, axis: Axis) -> None:
        entries = np.moveaxis(self.at.of(name), dim, 0)
        entries = entries.reshape(len(entries), -1)
        if (self.place[entries] < 0).any():
            return
        vectors = np.zeros((len(self.chosen), entries.shape[1]))
        for column, ids in enumerate(entries.T):
            places = self.place[ids]
            vectors[places, column] = self.lengths[places]
        self._try("ones", vectors, axis.name)

    def _try(self, kind: str, vectors: np.ndarray, axis: str) -> None:
        """Put aside those of some directions (columns, in the scaled coordinates) that change nothing."""
        length = np.linalg.norm(vectors, axis=0)
        vectors = vectors[:, length > 0] / length[length > 0]
        coefficients = self.null.T @ vectors
        changed = np.linalg.norm(vectors - self.null @ coefficients, axis=0)
        self._add(kind, coefficients[:, changed < 1e-5], axis)

    def _maps(self) -> None:
        """Maps of channels that the group does not have, tried one by one."""
        held = np.ones(self.at.size, bool)
        held[self.chosen] = False
        for name, maps in channel_maps(self.symmetry, self.at):
            for kind, vectors in maps.candidates(PAIRS):
                if not self.left:
                    return
                self._try_in(held, kind, vectors, name)
        for vectors in lone_scales(self.symmetry, self.at, PAIRS):
            self._scales(vectors)

    def _scales(self, vectors: np.ndarray) -> None:
        """Combinations of some scalings that change nothing."""
        touched = np.abs(vectors).max(axis=1) > 0
        tied = touched[self.chosen]
        if self.left and tied.sum() == touched.sum():
            allowed = (vectors[self.chosen] * self.lengths[:, None])[tied]
            self._add("scale", within(self.null, allowed, tied, np.zeros_like(tied)), mask=tied)

    def _products(self) -> None:
        """Layers of which only what they do together is seen, whatever they read."""
        held = np.ones(self.at.size, bool)
        held[self.chosen] = False
        for kind, vectors in self.redundant():
            self._try_in(held, kind, vectors, "")
            if not self.left:
                return

    def _try_in(self, held: np.ndarray, kind: str, vectors: np.ndarray, axis: str) -> None:
        """Directions over all coordinates, of which some are held."""
        vectors = vectors[:, ~vectors[held].any(axis=0)]
        self._try(kind, vectors[self.chosen] * self.lengths[:, None], axis)

    def _rotations(self) -> None:
        """Matrices on what makes the channels of a block: a quadratic form stays, the rest undoes them."""
        for axis in self.symmetry.axes:
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

    def _linear(self) -> None:
        """Single channels; then units that are linear on these inputs, taken together.

        Such a unit hands a constant that is added to it on to constants elsewhere.
        """
        added = [self.at.of(n) for n in self.constants]
        for axis in self.symmetry.axes:
            if axis.group.linear or not any(m.role == "out" for m in axis.members):
                continue
            whole = self.channels(axis)
            for ids in whole:
                self.take("channel", [ids], axis.name)
            if self.left:
                here = {m.param for m in axis.members}
                elsewhere = self._mask([self.at.of(n) for n in self.constants if n not in here])
                biased = any(m.role == "bias" for m in axis.members)
                own = self.channels(axis, ("bias",) if biased else _ADDED)
                straight = [k for k, ids in enumerate(own) if self._hands_on(ids, elsewhere)]
                self.take("linear", [*(whole[k] for k in straight), *added], axis.name)

    def _hands_on(self, constants: Ids, elsewhere: np.ndarray) -> bool:
        """Whether some constants can be made up for elsewhere, beyond what either can alone."""
        own = self._mask([constants])
        counts = [inside(self.null, mask).shape[1] for mask in (own | elsewhere, own, elsewhere & ~own)]
        return bool(counts[0] > counts[1] + counts[2])

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

    def _axes(self) -> None:
        """All members of an axis: unknown maps."""
        added = [self.at.of(n) for n in self.constants]
        for axis in self.symmetry.axes:
            names = dict.fromkeys(m.param for m in axis.members if m.param in self.at.values)
            self.take("axis", [*(self.at.of(name) for name in names), *added], axis.name)

    def _rest(self) -> None:
        self._add("open", np.eye(self.null.shape[1]))


def _every(read: np.ndarray, written: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All matrices whose rows (or columns) are among the given vectors."""
    rows, columns = len(written), len(read)
    return (
        np.einsum("ij,ck->icjk", np.eye(rows), read).reshape(rows, columns, -1),
        np.einsum("rk,cj->rckj", written, np.eye(columns)).reshape(rows, columns, -1),
    )


def _summed(found: Sequence[Direction]) -> list[Direction]:
    """One entry for each kind and place."""
    together: dict[tuple[str, str], Direction] = {}
    for d in found:
        key = (d.kind, d.axis or ", ".join(d.weights))
        old = together.get(key)
        weights = d.weights if old is None else tuple(dict.fromkeys((*old.weights, *d.weights)))
        together[key] = replace(d, count=d.count + (old.count if old else 0), weights=weights)
    return list(together.values())
