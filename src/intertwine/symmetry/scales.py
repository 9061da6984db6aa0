"""Ledger -> every rescaling: null spaces of the scale equations, over the reals and over GF(2).

The equations fall apart into connected components, one for each channel (or block of channels). Components
that look alike (the same equations with the same local numbering) are solved once, exactly, with fractions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from intertwine.ir.ledger import ZERO, Equation, Ids, Ledger
from intertwine.symmetry.colours import mix


@dataclass(frozen=True)
class ScaleKind:
    """Components that are alike: row k of `scales` are the unknowns of component k in one common order.

    real: (unknowns, r) basis of the null space; sign: the same over GF(2).
    """

    scales: Ids
    real: np.ndarray
    sign: np.ndarray


@dataclass(frozen=True)
class Scalings:
    """All rescalings. component: scale -> number of its component; kind: component -> index of its kind."""

    kinds: tuple[ScaleKind, ...]
    component: Ids
    kind: Ids
    kind_of: Ids
    row_of: Ids
    local_of: Ids

    def exponents(self, scale: int) -> tuple[int, int, np.ndarray, np.ndarray]:
        """(kind, row, real exponents, sign exponents) of one scale; all 0 for the constant, which no equation
        binds."""
        k, r, i = int(self.kind_of[scale]), int(self.row_of[scale]), int(self.local_of[scale])
        bound = int(scale != ZERO)
        return k, r, bound * self.kinds[k].real[i], bound * self.kinds[k].sign[i]


def solve_scales(ledger: Ledger, held: Ids | None = None) -> Scalings:
    """Solve all scale equations. held: scales that are 0 besides."""
    if held is not None:
        ledger = replace(ledger, equations=[*ledger.equations, Equation((1.0,), (1,), (held,))])
    n = ledger.scales
    terms, origin = _table(ledger)
    component = _components(terms, n)
    local, sizes, members = _local_numbers(component)
    rows, term_of = _equation_rows(ledger, terms, origin, component, local)
    signature = mix(sizes.astype(np.int64))
    if len(rows):
        # The order of a component's equations is that in which the rules wrote them, so it can be hashed.
        order = np.argsort(rows[:, 0], kind="stable")
        rows, term_of = rows[order], term_of[order]
        start = np.r_[0, np.flatnonzero(np.diff(rows[:, 0])) + 1]
        rank = np.arange(len(rows)) - np.repeat(start, np.diff(np.r_[start, len(rows)]))
        digest = mix(rank)
        for column in range(1, rows.shape[1]):
            digest = mix(digest.view(np.int64) ^ (rows[:, column] + 7919 * column))
        np.add.at(signature, rows[:, 0], digest)
        first = np.searchsorted(rows[:, 0], np.arange(len(sizes)))
        last = np.searchsorted(rows[:, 0], np.arange(len(sizes)), side="right")
    else:
        first = last = np.zeros(len(sizes), np.int64)
    _, representative, kind = np.unique(signature, return_index=True, return_inverse=True)
    offset = np.r_[0, np.cumsum(sizes)]
    kinds = []
    row_of_component = np.zeros(len(sizes), np.int64)
    for k, r in enumerate(representative):
        alike = np.flatnonzero(kind == k)
        row_of_component[alike] = np.arange(len(alike))
        scales = members[offset[alike][:, None] + np.arange(sizes[r])]
        system = [(ledger.equations[e], row) for row, e in _rows_of(rows, term_of, first[r], last[r])]
        real, sign = _null_spaces(system, int(sizes[r]))
        kinds.append(ScaleKind(scales, real, sign))
    return Scalings(tuple(kinds), component, kind, kind[component], row_of_component[component], local)


def _table(ledger: Ledger) -> tuple[Ids, Ids]:
    """All equations as rows of scales (0 where there is no term), and the equation each row comes from."""
    width = max([len(e.scales) for e in ledger.equations], default=1)
    lengths = [len(e.scales[0]) for e in ledger.equations]
    blank = np.zeros(max(lengths, default=0), np.int64)
    columns = [
        np.concatenate(
            [
                e.scales[k] if k < len(e.scales) else blank[:n]
                for e, n in zip(ledger.equations, lengths, strict=True)
            ]
            or [blank]
        )
        for k in range(width)
    ]
    terms = np.stack(columns, axis=1)
    origin = np.repeat(np.arange(len(lengths)), lengths)
    alive = terms.any(axis=1)
    return terms[alive], origin[alive]


def _heads(terms: Ids) -> Ids:
    """The first scale of every row that is not the constant."""
    head = terms[:, 0]
    for column in terms.T[1:]:
        head = np.where(head != 0, head, column)
    return head


def _components(terms: Ids, n: int) -> Ids:
    """Connected components of the scales; scale 0 is the constant and connects nothing."""
    head = _heads(terms)
    row, column = np.nonzero(terms[:, 1:])
    edges = (np.ones(len(row), np.int8), (head[row], terms[row, column + 1]))
    result: Ids = connected_components(coo_array(edges, shape=(n, n)), directed=False)[1].astype(np.int64)
    return result


def _local_numbers(component: Ids) -> tuple[Ids, Ids, Ids]:
    """Number the scales of each component as they were made: (numbers, sizes, scales by component)."""
    order = np.argsort(component, kind="stable")
    sizes = np.bincount(component)
    local = np.empty_like(component)
    local[order] = np.arange(len(component)) - np.repeat(np.r_[0, np.cumsum(sizes)[:-1]], sizes)
    return local, sizes, order


def _equation_rows(ledger: Ledger, terms: Ids, origin: Ids, component: Ids, local: Ids) -> tuple[Ids, Ids]:
    """Rows (component, shape of the equation, local numbers), -1 for a constant term, and their equations."""
    shapes: dict[object, int] = {}
    shape = np.array([shapes.setdefault((e.real, e.sign), len(shapes)) for e in ledger.equations], np.int64)
    rows = np.empty((len(terms), 2 + terms.shape[1]), np.int64)
    rows[:, 0] = component[_heads(terms)]
    rows[:, 1] = shape[origin]
    rows[:, 2:] = np.where(terms != 0, local[terms], -1)
    return rows, origin


def _rows_of(rows: Ids, origin: Ids, first: int, last: int) -> list[tuple[Ids, int]]:
    return [(rows[i, 2:], int(origin[i])) for i in range(first, last)]


def _null_spaces(system: list[tuple[Equation, Ids]], size: int) -> tuple[np.ndarray, np.ndarray]:
    real: list[dict[int, Fraction]] = []
    sign: list[set[int]] = []
    for equation, places in system:
        if equation.real is not None:
            row: dict[int, Fraction] = {}
            for c, i in zip(equation.real, places, strict=False):
                if i >= 0:
                    row[int(i)] = row.get(int(i), Fraction(0)) + Fraction(c).limit_denominator(10**6)
            real.append({i: c for i, c in row.items() if c})
        if equation.sign is not None:
            ones: set[int] = set()
            for c, i in zip(equation.sign, places, strict=False):
                if i >= 0 and c % 2:
                    ones ^= {int(i)}
            sign.append(ones)
    return null_space(real, size), null_space_gf2(sign, size)


def null_space(rows: list[dict[int, Fraction]], size: int) -> np.ndarray:
    """Basis (size, r) of the null space of sparse rows, by exact elimination.

    >>> null_space([{0: Fraction(1), 1: Fraction(-2)}], 2).tolist()
    [[1.0], [0.5]]
    """
    solved: dict[int, dict[int, Fraction]] = {}
    users: dict[int, set[int]] = {}  # unknown -> the pivots whose expressions (may) hold it
    for row in rows:
        row = _substitute(row, solved)
        if not row:
            continue
        pivot = max(row)
        scale = row.pop(pivot)
        expression = {i: -c / scale for i, c in row.items()}
        for other in users.pop(pivot, set()):
            terms = solved[other]
            factor = terms.pop(pivot, None)
            if factor is not None:
                for i, c in expression.items():
                    terms[i] = terms.get(i, Fraction(0)) + factor * c
                    users.setdefault(i, set()).add(other)
                solved[other] = {i: c for i, c in terms.items() if c}
        for i in expression:
            users.setdefault(i, set()).add(pivot)
        solved[pivot] = expression
    free = [i for i in range(size) if i not in solved]
    basis = np.zeros((size, len(free)))
    for column, i in enumerate(free):
        basis[i, column] = 1.0
    place = {i: column for column, i in enumerate(free)}
    for pivot, terms in solved.items():
        for i, c in terms.items():
            basis[pivot, place[i]] = float(c)
    return basis


def _substitute(row: dict[int, Fraction], solved: dict[int, dict[int, Fraction]]) -> dict[int, Fraction]:
    out: dict[int, Fraction] = {}
    for i, c in row.items():
        for j, d in solved.get(i, {i: Fraction(1)}).items():
            out[j] = out.get(j, Fraction(0)) + c * d
    return {i: c for i, c in out.items() if c}


def null_space_gf2(rows: list[set[int]], size: int) -> np.ndarray:
    """Basis (size, r) of the null space over GF(2); a row is the set of its ones.

    >>> null_space_gf2([{0, 1}], 2).tolist()
    [[1], [1]]
    """
    solved: dict[int, set[int]] = {}
    users: dict[int, set[int]] = {}  # unknown -> the pivots whose expressions hold it
    for given in rows:
        row: set[int] = set()
        for i in given:
            row ^= solved.get(i, {i})
        if not row:
            continue
        pivot = max(row)
        expression = row - {pivot}
        for other in users.pop(pivot, set()):
            solved[other].remove(pivot)
            for i in expression:
                (users[i].remove if i in solved[other] else users.setdefault(i, set()).add)(other)
            solved[other] ^= expression
        for i in expression:
            users.setdefault(i, set()).add(pivot)
        solved[pivot] = expression
    free = [i for i in range(size) if i not in solved]
    basis = np.zeros((size, len(free)), np.int64)
    place = {i: column for column, i in enumerate(free)}
    for i, column in place.items():
        basis[i, column] = 1
    for pivot, terms in solved.items():
        basis[pivot, [place[i] for i in terms]] = 1
    return basis


def invert_gf2(rows: np.ndarray) -> tuple[Ids, np.ndarray]:
    """(chosen, T) over GF(2): the first independent rows S, as many as there are, and T with S T = 1.

    The null space of [1 | rows], in the unknowns (y, x) with rows x = y: a y that is not free belongs to a
    row that depends on those before it, and with free x at zero the others tell x by y.

    >>> chosen, inverse = invert_gf2(np.array([[1, 1], [1, 1], [0, 1]]))
    >>> chosen.tolist(), (np.array([[1, 1], [0, 1]]) @ inverse % 2).tolist()
    ([0, 2], [[1, 0], [0, 1]])
    """
    count, unknowns = rows.shape
    system = [{k, *(count + np.flatnonzero(row % 2)).tolist()} for k, row in enumerate(rows)]
    basis = null_space_gf2(system, count + unknowns)
    free = basis.argmax(axis=0) if basis.size else np.zeros(0, np.int64)  # pivots come after what they hold
    return free[free < count], basis[count:, free < count]
