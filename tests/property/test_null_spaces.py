"""Null spaces of scale and sign equations: every equation holds on the basis, and nothing is left out."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from intertwine.symmetry.scales import null_space, null_space_gf2

SIZE = 9
places = st.integers(0, SIZE - 1)
coefficients = st.integers(-3, 3).filter(bool).map(Fraction)


@given(st.lists(st.dictionaries(places, coefficients, min_size=1, max_size=4), max_size=12))
def test_over_the_rationals(rows: list[dict[int, Fraction]]) -> None:
    system = np.zeros((len(rows), SIZE))
    for k, row in enumerate(rows):
        system[k, list(row)] = [float(c) for c in row.values()]
    basis = null_space([dict(row) for row in rows], SIZE)
    assert np.abs(system @ basis).max(initial=0.0) < 1e-9
    rank = np.linalg.matrix_rank(system) if len(rows) else 0
    assert basis.shape == (SIZE, SIZE - rank) and np.linalg.matrix_rank(basis) == basis.shape[1]


@given(st.lists(st.sets(places, max_size=4), max_size=12))
def test_over_gf2(rows: list[set[int]]) -> None:
    basis = null_space_gf2([set(row) for row in rows], SIZE)
    found = {tuple((basis @ bits) % 2) for bits in np.ndindex(*[2] * basis.shape[1])}
    vectors = (np.array(v) for v in np.ndindex(*[2] * SIZE))
    solutions = {tuple(v) for v in vectors if all(v[list(row)].sum() % 2 == 0 for row in rows)}
    assert found == solutions
