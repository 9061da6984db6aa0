"""MergePlan: what to merge, as plain data that prints, serialises to JSON and can be replayed.

>>> axis = AxisPlan("0", 4, (Merge(0, 2, 0.0, 1.0), Merge(1, 3, 0.5, 1.0)), True, ())
>>> axis.classes()
[[0, 2], [1, 3]]
>>> axis.cut(0.1).width
3
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np

from intertwine.checks import checked
from intertwine.errors import InputError
from intertwine.merging.places import Place

FORMAT = "intertwine merge plan 1"
CHANNELS, RANK, HEADS, STREAM = "channels", "rank", "heads", "stream"  # kinds of axes
EXPERTS = "experts"


@dataclass(frozen=True)
class Merge:
    """Channel `drop` is merged into channel `keep` (numbers of the original axis, keep < drop).

    distance: that of the pair at that moment; largest: the largest of the axis then (eq. 9).
    """

    keep: int
    drop: int
    distance: float
    largest: float

    @property
    def ratio(self) -> float:
        """min D / max D, which eq. 9 compares with beta."""
        return self.distance / self.largest if self.largest > 0 else 0.0


def classes_of(size: int, merges: Iterable[Merge]) -> list[list[int]]:
    """The classes of channels that a sequence of merges leaves, each sorted, by their first members."""
    members = {c: [c] for c in range(size)}
    for merge in merges:
        members[merge.keep] += members.pop(merge.drop)
    return [sorted(members[c]) for c in sorted(members)]


@dataclass(frozen=True)
class PlacePlan:
    """A place of the axis; `where` is None where channel c lies at position c.

    scale: the factor of every channel, or of every position, before merging (a gauge of the group), or None.
    """

    param: str
    dim: int
    role: str
    where: tuple[tuple[int, ...], ...] | None = None
    shift: float = 0.0
    scale: tuple[float, ...] | None = None

    @classmethod
    def of(cls, place: Place, scale: np.ndarray | None = None) -> PlacePlan:
        """The plain form of a place."""
        plain = place.where.shape[1] == 1 and bool((place.where[:, 0] == np.arange(len(place.where))).all())
        where = None if plain else tuple(tuple(row) for row in place.where.tolist())
        factors = None if scale is None else tuple(scale.reshape(-1).tolist())
        return cls(place.param, place.dim, place.role, where, place.shift, factors)

    def place(self, size: int) -> Place:
        """The form that algorithms use."""
        where = np.arange(size)[:, None] if self.where is None else np.array(self.where, np.int64)
        return Place(self.param, self.dim, self.role, where, self.shift)


@dataclass(frozen=True, eq=False)
class Reader:
    """How one reading weight makes up for the merges: V' = V T^T, T = `matrix` of shape (width, size).

    lost: (size,) the mean of each old feature that the new ones do not give. What that takes from every
    output is added to `absorber` times `sign`: a bias, or (negated) the running mean of the next batch norm.
    """

    param: str
    dim: int
    matrix: np.ndarray
    lost: np.ndarray
    absorber: str = ""
    sign: float = 1.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data; arrays as base64 of little-endian float64."""
        plain = {"param": self.param, "dim": self.dim, "absorber": self.absorber, "sign": self.sign}
        return {
            **plain,
            "shape": list(self.matrix.shape),
            "matrix": _pack(self.matrix),
            "lost": _pack(self.lost),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Reader:
        """What `to_dict` wrote."""
        matrix = _unpack(data["matrix"]).reshape(data["shape"])
        return cls(data["param"], data["dim"], matrix, _unpack(data["lost"]), data["absorber"], data["sign"])


@dataclass(frozen=True, eq=False)
class NewBasis:
    """A change of basis of an axis in one weight: slices[where[r]] <- (width / size)^power matrix[r] slices.

    where: (rows, size) positions along the dimension; matrix: (rows, size, size). What is cut afterwards are
    the last coordinates, so that the axis is narrowed in the basis in which that costs least.
    """

    param: str
    dim: int
    where: np.ndarray
    matrix: np.ndarray
    power: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data; the matrices as base64 of little-endian float64."""
        plain = {"param": self.param, "dim": self.dim, "power": self.power, "where": self.where.tolist()}
        return {**plain, "matrix": _pack(self.matrix)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> NewBasis:
        """What `to_dict` wrote."""
        where = np.array(data["where"], np.int64)
        matrix = _unpack(data["matrix"]).reshape(*where.shape, where.shape[1])
        return cls(data["param"], data["dim"], where, matrix, data["power"])


def _pack(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array, "<f8").tobytes()).decode("ascii")


def _unpack(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<f8")


@dataclass(frozen=True, repr=False)
class AxisPlan:
    """The merges of one axis in order. sums_first: sum the making, average the reading weights.

    select: what makes the axis is not averaged, the kept channel stays as it is. readers: replace the plain
    sum or mean of the reading weights. costs: after each merge, its total cost, comparable across axes.
    variances: for each class, var(mean) / mean(var) of its features, which batch norms are told. turns: the
    basis in which the axis is cut; its channels are then coordinates in it, `kind` says of what. attributes:
    (module, name) of the numbers that the forward keeps of the axis's width, and that shrink with it.
    containers: paths of the lists of modules that have one entry for each channel. groups: of heads of which
    a channel is one in each, group after group in its places.
    """

    name: str
    size: int
    merges: tuple[Merge, ...]
    sums_first: bool
    places: tuple[PlacePlan, ...]
    select: bool = False
    readers: tuple[Reader, ...] = ()
    costs: tuple[float, ...] = ()
    variances: tuple[float, ...] = ()
    turns: tuple[NewBasis, ...] = ()
    kind: str = CHANNELS
    attributes: tuple[tuple[str, str], ...] = ()
    containers: tuple[str, ...] = ()
    groups: int = 1

    def __repr__(self) -> str:
        return f"AxisPlan({self.name!r}, {self.size} -> {self.width})"

    @property
    def width(self) -> int:
        """Feature complexity: the number of classes left (Definition 2.4)."""
        return self.size - len(self.merges)

    def classes(self) -> list[list[int]]:
        """The channels of each new channel, in the order of their first ones."""
        return classes_of(self.size, self.merges)

    def cut(self, beta: float) -> AxisPlan:
        """The merges up to the first whose distance exceeds beta times the largest one."""
        stop = next((i for i, m in enumerate(self.merges) if m.distance > beta * m.largest), len(self.merges))
        return self.first(stop)

    def first(self, count: int) -> AxisPlan:
        """The first `count` merges."""
        if count == len(self.merges):
            return self
        return replace(self, merges=self.merges[:count], costs=self.costs[:count], readers=(), variances=())


@dataclass(frozen=True, repr=False)
class MergePlan:
    """The plan of a model: one AxisPlan an axis, how they were found, and axes left alone with the reason."""

    axes: tuple[AxisPlan, ...]
    method: str = "ifm"
    order: str = "layerwise"
    distance: str = "paper"
    norm: str = "exact"
    repair: str = "none"
    beta: float | None = None
    left_alone: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)  # refitted, in their new shapes

    def __repr__(self) -> str:
        widths = f"{sum(a.size for a in self.axes)} -> {sum(a.width for a in self.axes)} channels"
        return f"MergePlan({self.method}, {len(self.axes)} axes, {widths})"

    def __str__(self) -> str:
        lines = [f"{self.method}: {self.merges} merges"]
        lines += [f"  {a.name}: {a.size} -> {a.width}" for a in self.axes if a.merges]
        return "\n".join(lines)

    @property
    def merges(self) -> int:
        """How many merges there are."""
        return sum(len(a.merges) for a in self.axes)

    @property
    def complexity(self) -> dict[str, int]:
        """Axis -> feature complexity."""
        return {a.name: a.width for a in self.axes}

    def cut(self, beta: float) -> MergePlan:
        """The same plan, each axis cut at a smaller beta."""
        return replace(self, axes=tuple(a.cut(beta) for a in self.axes), beta=beta)

    @checked
    def to_widths(self, widths: Mapping[str, int]) -> MergePlan:
        """The first merges of each axis that lead to these widths."""
        return replace(self, axes=tuple(a.first(a.size - widths.get(a.name, a.size)) for a in self.axes))

    def to_json(self) -> str:
        """One JSON document."""
        large = ("axes", "left_alone", "weights")
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in large}
        axes = [
            {
                **asdict(replace(a, readers=(), turns=())),
                "readers": [r.to_dict() for r in a.readers],
                "turns": [t.to_dict() for t in a.turns],
            }
            for a in self.axes
        ]
        weights = {n: {"shape": list(w.shape), "data": _pack(w)} for n, w in self.weights.items()}
        document = {"format": FORMAT, **plain, "left_alone": dict(self.left_alone), "axes": axes}
        document["weights"] = weights
        return json.dumps(document, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> MergePlan:
        """What `to_json` wrote."""
        try:
            data: dict[str, Any] = json.loads(text)
            if data.pop("format") != FORMAT:
                raise ValueError("another format")
            axes = tuple(_axis_from(a) for a in data.pop("axes"))
            packed = data.pop("weights", {})
            weights = {n: _unpack(w["data"]).reshape(w["shape"]) for n, w in packed.items()}
            return cls(axes=axes, weights=weights, **data)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"not a merge plan: {error}") from error


def _axis_from(data: dict[str, Any]) -> AxisPlan:
    merges = tuple(Merge(**m) for m in data["merges"])
    places = []
    for place in data["places"]:
        where = None if place["where"] is None else tuple(tuple(row) for row in place["where"])
        scale = None if place["scale"] is None else tuple(place["scale"])
        places.append(PlacePlan(**{**place, "where": where, "scale": scale}))
    readers = tuple(Reader.from_dict(r) for r in data["readers"])
    plain = {k: data[k] for k in ("name", "size", "sums_first", "select")}
    plain |= {k: tuple(data[k]) for k in ("costs", "variances")}
    turns = tuple(NewBasis.from_dict(t) for t in data.get("turns", ()))
    plain["kind"] = data.get("kind", CHANNELS)
    plain["attributes"] = tuple((path, name) for path, name in data.get("attributes", ()))
    plain["containers"] = tuple(data.get("containers", ()))
    plain["groups"] = data.get("groups", 1)
    return AxisPlan(merges=merges, places=tuple(places), readers=readers, turns=turns, **plain)
