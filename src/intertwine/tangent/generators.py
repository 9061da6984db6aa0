"""The tangent space of the orbit of theta: d/dt g_t theta at t = 0, one column a generator of the group.

    a scaling s with exponents l along the dimensions of w    dw = (sum_d l_d) (w + shift)
    E_ij of GL(n) on a dimension                              dw_i = w_j, and on dual members dw_j = -w_i
    E_ij - E_ji of O(n)                                       both
    i of a pair (p, q) of a rotary embedding                  dw_p = -w_q, dw_q = w_p, and its scale

Permutations and signs are discrete and have none. The rank of all columns is the dimension of the orbit:
what leaves theta where it is (its stabiliser) does not count.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array, csc_array, csr_array

from intertwine.ir.ledger import Ids
from intertwine.symmetry import Symmetry
from intertwine.symmetry.structure import Linear
from intertwine.tangent.coordinates import Coordinates
from intertwine.tangent.spaces import INSIDE, factor, inside, span

CHUNK = 4_096  # rows of the others that are dense at a time


class _Columns:
    """Entries of a sparse matrix that grows by columns; entries at one place add up."""

    def __init__(self) -> None:
        self.rows: list[Ids] = []
        self.columns: list[Ids] = []
        self.data: list[np.ndarray] = []
        self.count = 0

    def put(self, column: int, rows: Ids, data: np.ndarray) -> None:
        self.rows.append(rows)
        self.columns.append(np.full(len(rows), column))
        self.data.append(data)

    def matrix(self, size: int) -> csc_array:
        if not self.rows:
            return csc_array((size, self.count))
        place = (np.concatenate(self.rows), np.concatenate(self.columns))
        return coo_array((np.concatenate(self.data), place), shape=(size, self.count)).tocsc()


def tangents(symmetry: Symmetry, at: Coordinates) -> csc_array:
    """Coordinates x generators of the inferred group: the infinitesimal action at theta.

    >>> import torch, intertwine
    >>> from torch import nn
    >>> mlp = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> symmetry = intertwine.trace(mlp, torch.zeros(1, 3))
    >>> values = {name: p.detach().double() for name, p in mlp.named_parameters()}
    >>> tangents(symmetry, Coordinates(values)).shape
    (50, 8)
    """
    columns = _Columns()
    _scalings(symmetry, at, columns)
    for axis in symmetry.structure.linear.values():
        _matrices(symmetry, at, axis, columns)
    _pairs(symmetry, at, columns)
    return columns.matrix(at.size)


def moving_only(chosen: Ids, columns: csc_array, sizes: np.ndarray) -> np.ndarray:
    """The combinations of some columns that move nothing but the chosen coordinates, each coordinate measured
    in its size: an orthonormal basis, of the chosen coordinates only.

    The others are as many as the model is large, and all that counts of them is R of their Q R.

    >>> swap = csc_array(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    >>> moving_only(np.array([0, 1]), swap, np.ones(4)).shape
    (2, 1)
    """
    columns = columns[:, np.unique(columns[chosen].tocoo().col)].tocsc()
    columns.data = columns.data / sizes[columns.indices]
    length = np.sqrt(np.asarray(columns.multiply(columns).sum(axis=0)))
    columns = (columns[:, length > 0] / length[length > 0]).tocsr()
    held = np.ones(columns.shape[0], bool)
    held[chosen] = False
    kept = _reaching(columns[held])
    ours, others = columns[chosen][:, kept].toarray(), columns[held][:, kept]
    others = others[np.diff(others.indptr) > 0]
    rest = np.zeros((0, ours.shape[1]))
    for start in range(0, others.shape[0], CHUNK):
        rest = factor(np.concatenate([rest, others[start : start + CHUNK].toarray()]))
    basis = span(np.concatenate([ours, rest]), 1e-10)
    return span(basis @ inside(basis, np.arange(len(basis)) < len(ours)))[: len(ours)]


def _reaching(others: csr_array) -> Ids:
    """Columns (of length 1) that a combination that is 0 in these rows may have: none with a row alone."""
    kept = np.arange(others.shape[1])
    while True:
        left = others[:, kept]
        left.eliminate_zeros()
        alone = np.flatnonzero(np.diff(left.indptr) == 1)
        first = left.indptr[alone]
        gone = np.unique(left.indices[first[np.abs(left.data[first]) > 10 * INSIDE]])
        if not len(gone):
            return kept
        kept = np.delete(kept, gone)


def _scalings(symmetry: Symmetry, at: Coordinates, columns: _Columns) -> None:
    s = symmetry.structure
    shifts, keys = s.inference.shifts, list(s.span)
    shifted = at.theta.copy()
    for name, shift in shifts.items():
        if name in at.values:
            shifted[at.of(name)] += shift
    chosen = np.flatnonzero(s.rescaled)
    chosen = chosen[np.argsort(s.component[chosen], kind="stable")]
    slot = np.searchsorted(s.slot_starts, chosen, side="right") - 1
    bounds = np.flatnonzero(np.diff(s.component[chosen])) + 1
    for positions, slots in zip(np.split(chosen, bounds), np.split(slot, bounds), strict=True):
        if not len(positions):
            continue
        scales = s.scales[positions]
        real = s.scalings.kinds[s.scalings.kind_of[scales[0]]].real[s.scalings.local_of[scales]]
        for free in range(real.shape[1]):
            for position, k, exponent in zip(positions, slots, real[:, free], strict=True):
                if exponent and keys[k][0] in at.values:
                    rows = at.positions(symmetry, keys[k], np.array([position - s.slot_starts[k]]))
                    columns.put(columns.count, rows, exponent * shifted[rows])
            columns.count += 1


def _matrices(symmetry: Symmetry, at: Coordinates, axis: Linear, columns: _Columns) -> None:
    blocks, n = axis.fibres.shape
    places = [
        (key, where, exponent, fibre) for key, (where, fibre, exponent) in axis.places.items()
        if key[0] in at.values
    ]  # fmt: skip
    entries = {
        (key, int(place)): at.positions(symmetry, key, np.array([place]))
        for key, where, _, _ in places
        for place in where.reshape(-1)
    }
    for block in range(blocks):
        for i in range(n):
            for j in range(i) if axis.orthogonal else range(n):
                for key, where, exponent, fibre in places:
                    for row in np.flatnonzero(fibre == block):
                        here, there = entries[key, int(where[row, i])], entries[key, int(where[row, j])]
                        if axis.orthogonal:
                            columns.put(columns.count, here, at.theta[there])
                            columns.put(columns.count, there, -at.theta[here])
                        elif exponent[row] > 0:
                            columns.put(columns.count, here, at.theta[there])
                        else:
                            columns.put(columns.count, there, -at.theta[here])
                columns.count += 1


def _pairs(symmetry: Symmetry, at: Coordinates, columns: _Columns) -> None:
    turns = symmetry.structure.turns
    places = [(key, *place) for key, place in turns.places.items() if key[0] in at.values]
    for pair in range(turns.count):
        rows = [
            (
                at.positions(symmetry, key, where[[k], 0]),
                at.positions(symmetry, key, where[[k], 1]),
                exponent[k],
            )
            for key, where, which, exponent in places
            for k in np.flatnonzero(which == pair)
        ]
        for here, there, _ in rows:
            columns.put(columns.count, here, -at.theta[there])
            columns.put(columns.count, there, at.theta[here])
        columns.count += 1
        if turns.scaled[pair]:
            for here, there, exponent in rows:
                columns.put(columns.count, here, exponent * at.theta[here])
                columns.put(columns.count, there, exponent * at.theta[there])
            columns.count += 1
