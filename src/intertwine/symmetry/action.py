"""How a group element acts on a value of the graph, as `transform` says for weights.

    y = move(factor * x)    for x the value in the model m, y the same value in act(m, g), on the same inputs

A value's labels lie in the classes that the element permutes, and its scales in the components whose members
on weights the element stores. Both are looked up here for any symbolic value; nothing is inferred again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from intertwine.errors import Unsupported
from intertwine.ir.ledger import Ids
from intertwine.ir.value import Extent, Factor, Value
from intertwine.symmetry.colours import mix
from intertwine.symmetry.structure import Linear, Structure
from intertwine.symmetry.transform import Element

_SCALES: WeakKeyDictionary[Element, tuple[np.ndarray, np.ndarray]] = WeakKeyDictionary()


def every_scale(element: Element) -> tuple[np.ndarray, np.ndarray]:
    """(log-scale, sign) of every scale of the ledger, from those on the weights.

    log s = R f for the exponents R of a component: the rows of the weights give f, the others follow.
    """
    known = _SCALES.get(element)
    if known is not None:
        return known
    s = element.structure
    total = len(s.scalings.kind_of)
    log_scale, sign = np.zeros(total), np.ones(total)
    at = np.full(total, -1, np.int64)
    at[s.scales] = np.arange(len(s.scales))
    moved = np.zeros(len(s.scalings.kind), bool)
    moved[s.component[(element.log_scale != 0) | (element.sign < 0)]] = True
    for kind in s.scalings.kinds:
        rows = kind.scales[moved[s.scalings.component[kind.scales[:, 0]]]]
        if not len(rows):
            continue
        patterns, which = np.unique(at[rows] >= 0, axis=0, return_inverse=True)
        for k, seen in enumerate(patterns):
            mine = rows[which.reshape(-1) == k]
            places = at[mine[:, seen]]
            free = element.log_scale[places] @ np.linalg.pinv(kind.real[seen]).T
            log_scale[mine] = free @ kind.real.T
            flips = (element.sign[places] < 0) @ inverse_gf2(kind.sign[seen]).T
            sign[mine] = 1 - 2 * ((flips @ kind.sign.T) % 2)
    _SCALES[element] = log_scale, sign
    return log_scale, sign


def inverse_gf2(matrix: np.ndarray) -> np.ndarray:
    """T with S T S = S over GF(2): if S f = b has a solution, f = T b is one.

    >>> inverse_gf2(np.array([[1, 1], [1, 0], [0, 1]])) @ [1, 1, 0] % 2
    array([1, 0])
    """
    rows, columns = matrix.shape
    work = np.concatenate([matrix % 2, np.eye(rows, dtype=np.int64)], axis=1).astype(np.int64)
    out, pivots = np.zeros((columns, rows), np.int64), list[int]()
    for column in range(columns):
        done = len(pivots)
        candidates = done + np.flatnonzero(work[done:, column])
        if len(candidates):
            work[[done, candidates[0]]] = work[[candidates[0], done]]
            others = np.flatnonzero(work[:, column])
            work[others[others != done]] ^= work[done]
            pivots.append(column)
    out[pivots] = work[: len(pivots), columns:]
    return out


@dataclass(frozen=True)
class Turn:
    """One matrix axis on a factor: rows (k, n) of flat positions, which matrix turns each, its exponent."""

    orbit: int
    where: Ids
    fibre: Ids
    exponent: Ids


class FactorAction:
    """The action on one factor of a value, in flat positions of its axes."""

    def __init__(self, structure: Structure, factor: Factor) -> None:
        self.structure, self.factor = structure, factor
        self.labels, self.scales = factor.ids.reshape(-1), factor.scale.reshape(-1)
        rows = structure.classes.coordinates[self.labels]
        self.start, self.cls = rows.indptr[:-1], rows.indices
        self.position = np.repeat(np.arange(len(self.labels)), np.diff(rows.indptr))

    def destination(self, relabel: Ids) -> Ids:
        """Flat position -> where it goes: to the place of the label that its own one becomes."""
        image = self.structure.classes.image(relabel)[self.labels]
        a, b = np.argsort(self.labels, kind="stable"), np.argsort(image, kind="stable")
        if not np.array_equal(self.labels[a], image[b]):
            raise Unsupported("a permutation leaves the positions of this value")
        out = np.empty(len(image), np.int64)
        out[b] = a
        return out

    @cached_property
    def turns(self) -> tuple[Turn, ...]:
        """The matrices that act here."""
        found = [self.turn_of(axis) for axis in self.structure.linear.values()]
        return tuple(turn for turn in found if turn is not None)

    def turn_of(self, axis: Linear) -> Turn | None:
        """The matrices of one linear axis, if they act here."""
        orbit, fibres, orthogonal = axis.orbit, axis.fibres, axis.orthogonal
        count, n = self.structure.classes.count, fibres.shape[1]
        fibre_of, rank_of = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
        fibre_of[fibres] = np.arange(len(fibres))[:, None]
        rank_of[fibres] = np.arange(n)[None, :]
        hit = np.flatnonzero(fibre_of[self.cls] >= 0)
        if not len(hit):
            return None
        position, cls = self.position[hit], self.cls[hit]
        classes = self.structure.classes
        own = classes.of[self.labels[position]]
        home = np.add.reduceat(mix(self.cls), self.start) + classes.colour[self.labels]
        # What identifies a position besides the channel itself, as in `Structure`.
        rest = home[position] - mix(cls) - np.where(own == cls, np.uint64(0), mix(own))
        order = np.lexsort((rank_of[cls], rest, fibre_of[cls]))
        if len(order) % n or (rank_of[cls[order]].reshape(-1, n) != np.arange(n)).any():
            raise Unsupported("a matrix acts on channels of which only some are here")
        where, fibre = position[order].reshape(-1, n), fibre_of[cls[order]].reshape(-1, n)[:, 0]
        exponent = np.ones(len(where), np.int64)
        if not orthogonal:
            exponent = self.structure.exponents(self.scales[where], cls[order].reshape(-1, n))
            if not exponent.all():
                raise Unsupported("how a matrix acts here does not follow from how a scale does")
        return Turn(orbit, where, fibre, exponent)


class ValueAction:
    """The action of a model's group on one value.

    >>> from torch import nn
    >>> from intertwine import act, trace
    >>> x = torch.ones(5, 3).double()
    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    >>> symmetry = trace(net, x)
    >>> g = symmetry.sample(0)
    >>> action = ValueAction(symmetry.structure, symmetry.structure.inference.values["%relu"])
    >>> torch.allclose(act(net, g)[:2](x), action(g, net[:2](x)))
    True
    """

    def __init__(self, structure: Structure, value: Value) -> None:
        self.structure, self.value = structure, value
        self.factors = tuple(FactorAction(structure, f) for f in value.factors)
        self.axes: list[Extent] = [a for d in value.dims for a in d]

    def __call__(self, element: Element, x: Tensor) -> Tensor:
        """g . x; dimensions that no symmetry touches may have any size."""
        if element.turn is not None and element.turn.any() and self._has_pairs():
            raise Unsupported(
                "the element turns pairs of channels of a rotary embedding that lie here",
                do="""leave the part "turn" out of what is sampled""",
            )
        log_scale, sign = every_scale(element)
        y = x.reshape(self.sizes(tuple(x.shape)))
        for f in self.factors:
            number = np.exp(log_scale[f.scales]) * sign[f.scales]
            y = y * self._spread(f.factor.axes, number, y)
            for turn in f.turns:
                y = self._turned(y, f.factor, turn, element.linear[turn.orbit][turn.fibre])
        for cluster in self._clusters():
            y = self._moved(y, cluster, element.relabel)
        return y.reshape(x.shape)

    def _has_pairs(self) -> bool:
        s = self.structure
        starts = [(s.span[slot][0], where) for slot, (where, _, _) in s.turns.places.items()]
        labels = np.concatenate([s.labels[start + where.reshape(-1)] for start, where in starts])
        turned = np.unique(s.classes.coordinates[labels].indices)
        return any(np.isin(f.cls, turned).any() for f in self.factors)

    def sizes(self, shape: tuple[int, ...]) -> list[int]:
        """The size of every axis in a tensor of this shape: those that carry labels are known."""
        covered = self.value.covered()
        out: list[int] = []
        for dim, size in zip(self.value.dims, shape, strict=True):
            free = [a for a in dim if a not in covered]
            known = math.prod(a.size for a in dim if a in covered)
            other = math.prod(a.size for a in free[1:])
            if size == math.prod(a.size for a in dim):
                out += [a.size for a in dim]
            elif free and size % (known * other) == 0:
                out += [size // (known * other) if a is free[0] else a.size for a in dim]
            elif not dim:
                raise Unsupported(
                    f"dimension of size {size} where the example had 1",
                    so="which of its entries belong together is not known",
                    do="trace with an example of two or more inputs",
                )
            else:
                raise Unsupported(f"a value of shape {list(shape)}, traced as {list(self.value.shape)}")
        return out

    def _spread(self, axes: tuple[Extent, ...], numbers: np.ndarray, like: Tensor) -> Tensor:
        """Numbers over some axes, shaped to multiply a tensor over all axes."""
        order = sorted(range(len(axes)), key=lambda k: self.axes.index(axes[k]))
        array = numbers.reshape([a.size for a in axes]).transpose(order)
        shape = [a.size if a in axes else 1 for a in self.axes]
        return torch.from_numpy(np.ascontiguousarray(array.reshape(shape))).to(like)

    def _turned(self, y: Tensor, factor: Factor, turn: Turn, matrix: np.ndarray) -> Tensor:
        dual = np.linalg.inv(matrix).transpose(0, 2, 1)
        chosen = torch.from_numpy(np.where(turn.exponent[:, None, None] > 0, matrix, dual)).to(y)
        places = [self.axes.index(a) for a in factor.axes]
        last = list(range(-len(places), 0))
        front = y.movedim(places, last)
        flat = front.flatten(-len(places)).clone()
        index = torch.from_numpy(turn.where).to(y.device)
        flat[..., index] = torch.einsum("...bn,bmn->...bm", flat[..., index], chosen)
        return flat.reshape(front.shape).movedim(last, places)

    def _clusters(self) -> list[list[FactorAction]]:
        """Factors that share axes (channels in, and channels out of, the same groups) move at once."""
        clusters: list[list[FactorAction]] = []
        for f in self.factors:
            near = [c for c in clusters if any(set(f.factor.axes) & set(g.factor.axes) for g in c)]
            clusters = [c for c in clusters if c not in near] + [[f, *(g for c in near for g in c)]]
        return clusters

    def _moved(self, y: Tensor, cluster: list[FactorAction], relabel: Ids) -> Tensor:
        axes = list(dict.fromkeys(a for f in cluster for a in f.factor.axes))
        shape = [a.size for a in axes]
        target: dict[Extent, np.ndarray] = {}
        for f in cluster:
            mine = f.factor.axes
            sizes = [a.size for a in mine]
            for axis, place in zip(mine, np.unravel_index(f.destination(relabel), sizes), strict=True):
                spread = place.reshape(sizes).transpose([mine.index(a) for a in axes if a in mine])
                spread = spread.reshape([a.size if a in mine else 1 for a in axes])
                if axis in target and (target[axis] != spread).any():
                    raise Unsupported("two factors of this value disagree on where a block goes")
                target.setdefault(axis, spread)
        spread_out = tuple(np.broadcast_to(target[a], shape) for a in axes)
        index = np.ravel_multi_index(spread_out, shape).reshape(-1)
        if np.array_equal(index, np.arange(len(index))):
            return y
        source = np.empty_like(index)
        source[index] = np.arange(len(index))
        places, last = [self.axes.index(a) for a in axes], list(range(-len(axes), 0))
        front = y.movedim(places, last)
        flat = front.flatten(-len(axes)).index_select(-1, torch.from_numpy(source).to(y.device))
        return flat.reshape(front.shape).movedim(last, places)
