"""Adaptive refinement against the full grid, and topology of sets that are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intertwine.errors import InputError
from intertwine.exploring import Grid, Landscape, Refinement, describe_set, find_topology
from intertwine.exploring.refine import refine
from intertwine.exploring.topology import box_dimension, component_sizes, count_boxes


def counted(values: np.ndarray):
    """An evaluation that refuses to be asked twice for a point."""
    asked = np.zeros(values.size, dtype=bool)

    def evaluate(flat: np.ndarray) -> np.ndarray:
        assert not asked[flat].any(), "a point was evaluated twice"
        asked[flat] = True
        return values.ravel()[flat]

    return evaluate, asked


def bumps(seed: int, shape: tuple[int, ...], count: int, width: float) -> np.ndarray:
    """A smooth non-negative function with valleys down to zero at random places."""
    rng = np.random.default_rng(seed)
    axes = np.meshgrid(*[np.linspace(-1, 1, n) for n in shape], indexing="ij")
    centres = rng.uniform(-0.8, 0.8, (count, len(shape)))
    distances = [sum((a - c) ** 2 for a, c in zip(axes, centre, strict=True)) for centre in centres]
    return np.min(distances, axis=0) / width


@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 3),
    shape=st.sampled_from([(40, 53), (65, 65), (21, 22, 23)]),
    quantile=st.floats(0.03, 0.6),
)
@settings(max_examples=40)
def test_refined_level_sets_are_those_of_the_full_grid(seed, count, shape, quantile):
    values = bumps(seed, shape, count, 1.0)
    level = float(np.quantile(values, quantile))
    evaluate, asked = counted(values)
    result = refine(evaluate, shape, (level,), Refinement())
    assert np.array_equal(result.values < level, values < level)
    assert np.array_equal(result.evaluated.ravel(), asked)
    np.testing.assert_allclose(result.values[result.evaluated], values[result.evaluated], rtol=1e-12)
    assert result.facts["evaluations"] == asked.sum() <= values.size


@given(seed=st.integers(0, 10**6), shape=st.sampled_from([(30,), (33, 20), (9, 10, 11), (7, 7, 7, 7)]))
@settings(max_examples=30)
def test_boundaries_are_evaluated_whatever_the_function(seed, shape):
    """Even for noise: each pair of neighbours on opposite sides has been evaluated, and values are true."""
    values = np.random.default_rng(seed).random(shape)
    evaluate, _ = counted(values)
    result = refine(evaluate, shape, (0.5,), Refinement(audit=0.0))
    inside = result.values < 0.5
    for axis in range(len(shape)):
        left, right = (np.take(inside, range(k, shape[axis] - 1 + k), axis=axis) for k in (0, 1))
        known_left, known_right = (
            np.take(result.evaluated, range(k, shape[axis] - 1 + k), axis=axis) for k in (0, 1)
        )
        assert (known_left & known_right)[left != right].all()


def test_several_levels_at_once():
    values = bumps(1, (65, 65), 2, 1.0)
    levels = (0.01, 0.1, 0.4)
    evaluate, asked = counted(values)
    result = refine(evaluate, values.shape, levels, Refinement())
    for level in levels:
        assert np.array_equal(result.values < level, values < level)
    assert asked.sum() < values.size / 2


def test_refinement_pays_on_a_fine_grid():
    values = bumps(5, (200, 200), 1, 1.0)
    evaluate, asked = counted(values)
    refine(evaluate, values.shape, (0.1,), Refinement())
    assert asked.sum() < values.size / 15


def test_a_narrow_valley_between_coarse_points_is_found():
    """sqrt(J) is V-shaped across the valley x = y + 0.37, whose width is a fifth of a coarse cell."""
    axis = np.linspace(-1, 1, 129)
    values = np.square(axis[:, None] - axis[None, :] + 0.37)
    level = 0.01**2
    evaluate, asked = counted(values)
    result = refine(evaluate, values.shape, (level,), Refinement(audit=0.0))
    assert np.array_equal(result.values < level, values < level) and (values < level).any()
    assert asked.sum() < values.size / 3


def test_the_audit_finds_what_was_missed_and_repairs_it():
    """A pit that no coarse point can see: only the audit can find it."""
    values = np.ones((65, 65))
    values[9:15, 9:15] = 0.0  # the coarse lattice 0, 8, 16, ... sees 1 everywhere
    blind = refine(counted(values)[0], values.shape, (0.5,), Refinement(audit=0.0))
    assert not (blind.values < 0.5).any()
    audited = refine(counted(values)[0], values.shape, (0.5,), Refinement(audit=0.2, seed=0))
    assert audited.facts["audit_wrong"] > 0
    assert np.array_equal(audited.values < 0.5, values < 0.5)


@pytest.mark.parametrize("bad", [{"coarse": 0}, {"slack": -1.0}, {"audit": 2.0}])
def test_impossible_refinements(bad):
    with pytest.raises(InputError, match="not a possible refinement"):
        Refinement(**bad)


@given(st.integers(0, 10**6), st.integers(1, 6))
@settings(max_examples=30)
def test_separate_blocks_are_separate_components(seed, count):
    grid = np.zeros((count * 4, 10), dtype=bool)
    rng = np.random.default_rng(seed)
    for k in range(count):
        start = rng.integers(0, 7)
        grid[4 * k : 4 * k + 2, start : start + 3] = True
    assert component_sizes(grid).tolist() == [6] * count
    assert describe_set(grid).components == count


def test_diagonal_neighbours_belong_together():
    assert describe_set(np.eye(12, dtype=bool)).components == 1


@pytest.mark.parametrize("side", [1, 2, 3, 5])
def test_boxes_are_counted(side):
    rng = np.random.default_rng(0)
    inside = rng.random((17, 13)) < 0.05
    expected = {(i // side, j // side) for i, j in np.argwhere(inside)}
    assert count_boxes(inside, side) == len(expected)


def test_dimension_of_known_sets():
    cube = np.zeros((64, 64, 64), dtype=bool)
    cube[:, 31, 17] = True
    assert box_dimension(cube) == pytest.approx(1.0, abs=1e-9)
    cube[:, :, 17] = True
    assert box_dimension(cube) == pytest.approx(2.0, abs=1e-9)
    assert box_dimension(np.ones((32, 32, 32), dtype=bool)) == pytest.approx(3.0, abs=1e-9)
    assert box_dimension(np.zeros((64, 64), dtype=bool)) is None
    assert box_dimension(np.ones((9, 9), dtype=bool)) is None


def test_the_cantor_dust_is_not_a_line():
    """Two of four quarters kept, again and again: log 2 / log 4."""
    dust = np.ones(1, dtype=bool)
    for _ in range(5):
        dust = np.concatenate([dust, np.zeros(2 * len(dust), dtype=bool), dust])
    assert box_dimension(dust) == pytest.approx(0.5, abs=0.05)


def test_topology_of_a_landscape():
    grid = Grid.cube(2, 1.0, 65)
    x, y = np.meshgrid(*grid.axes, indexing="ij")
    values = np.minimum((x - 0.5) ** 2 + y**2, (x + 0.5) ** 2 + y**2)
    landscape = Landscape(grid, values, np.ones_like(values, bool), (0.01,), np.zeros((0, 2)), (), ())
    small, large = find_topology(landscape, [0.3, 0.01])
    assert (small.epsilon, small.components, large.components) == (0.01, 2, 1)
    assert not small.touches_edge and large.touches_edge
    assert find_topology(landscape) == (small,)
    with pytest.raises(InputError, match="epsilon must be positive"):
        find_topology(landscape, [-1.0])
