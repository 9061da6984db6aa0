"""Planes, grids, evaluation and storage."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from intertwine.errors import InputError
from intertwine.exploring import (
    MAX_POINTS,
    EquivalenceSample,
    EvaluationPlan,
    FlatLayout,
    Grid,
    Landscape,
    Plane,
    evaluate,
    function_distance,
    plan_evaluation,
    plane_through,
    random_plane,
    span,
)

STREAMED = EvaluationPlan(False, 1, 16, 0.0, "test")
BATCHED = EvaluationPlan(True, 7, 10, 0.0, "test")


def net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1)).double()


def objective_of(seed: int = 0):
    return function_distance(net(seed), torch.randn(40, 2, dtype=torch.float64))


def sample_of(points: torch.Tensor) -> EquivalenceSample:
    layout = FlatLayout(("w",), ((points.shape[1],),))
    return EquivalenceSample(layout, points[0], points, (0.0,) * len(points), 1e-6, 1.0)


def test_span_is_orthonormal_and_holds_its_points():
    points = torch.randn(4, 9, dtype=torch.float64)
    plane = span(sample_of(points))
    torch.testing.assert_close(
        plane.basis @ plane.basis.T, torch.eye(3, dtype=torch.float64), atol=1e-13, rtol=0
    )
    torch.testing.assert_close(plane.points(plane.marks), points, atol=1e-12, rtol=0)
    assert float(plane.residuals(points).max()) < 1e-12
    # Gram-Schmidt, not any other basis: theta_i needs only the first i coordinates.
    assert float(torch.triu(plane.marks[1:], diagonal=1).abs().max()) < 1e-12
    assert (plane.marks[1:].diagonal() > 0).all()


def test_residuals_measure_what_is_outside():
    plane = span(sample_of(torch.eye(5, dtype=torch.float64)[:3]))
    off = torch.zeros(1, 5, dtype=torch.float64)
    off[0, 0], off[0, 4] = 1.0, 2.5
    assert float(plane.residuals(off)[0]) == pytest.approx(2.5)


def test_dependent_points_have_no_plane():
    points = torch.stack([torch.zeros(3), torch.ones(3), 2 * torch.ones(3)])
    with pytest.raises(InputError, match="theta_2 is not independent"):
        span(sample_of(points))


@pytest.mark.parametrize("dim", [0, 5])
def test_impossible_dimensions(dim):
    with pytest.raises(InputError, match=f"dimension {dim} is not possible"):
        span(sample_of(torch.eye(7)), dim)
    with pytest.raises(InputError, match="not possible"):
        Grid.cube(dim, 1.0, 4)


def test_a_plane_needs_enough_points():
    with pytest.raises(InputError, match="needs 4 points, the sample has 2"):
        span(sample_of(torch.eye(5)[:2]), 3)


def test_grid_limits():
    with pytest.raises(InputError, match=f"more than the maximum of {MAX_POINTS:,}"):
        Grid.cube(4, 1.0, 100)
    with pytest.raises(InputError, match="low < high"):
        Grid.cube(2, (1.0, 1.0), 5)
    with pytest.raises(InputError, match="at least 2 points"):
        Grid.cube(2, 1.0, 1)


def test_grid_coordinates_follow_c_order():
    grid = Grid(((0.0, 1.0), (10.0, 12.0)), (2, 3))
    assert grid.coordinates().tolist() == [[0, 10], [0, 11], [0, 12], [1, 10], [1, 11], [1, 12]]
    assert grid.coordinates([4]).tolist() == [[1, 11]]


@pytest.mark.parametrize("dim", [1, 2, 3, 4])
@pytest.mark.parametrize("plan", [STREAMED, BATCHED])
def test_every_grid_point_has_its_own_j(dim, plan):
    objective = objective_of()
    others = [objective.theta + 0.5 * torch.randn_like(objective.theta) for _ in range(dim)]
    plane = plane_through(objective, [objective.theta, *others])
    grid = Grid.cube(dim, 1.0, 3)
    landscape = evaluate(plane, grid, plan=plan)
    assert landscape.values.shape == (3,) * dim and landscape.evaluations == 3**dim
    for index in np.ndindex(*landscape.values.shape):
        at = torch.tensor([axis[i] for axis, i in zip(grid.axes, index, strict=True)], dtype=torch.float64)
        module = objective.module(plane.points(at[None])[0])
        expected = (module(objective.inputs[0]) - objective.outputs).square().sum(1).mean()
        assert landscape.values[index] == pytest.approx(float(expected), rel=1e-10, abs=1e-14)
    assert landscape.mark_values[0] == 0 and landscape.mark_values[1] > 0


def test_adaptive_equals_full_on_the_level():
    objective = objective_of(3)
    others = [objective.theta + torch.randn_like(objective.theta) for _ in range(2)]
    plane = plane_through(objective, [objective.theta, *others])
    grid = Grid.cube(2, 4.0, 65)
    full = evaluate(plane, grid, plan=BATCHED)
    level = float(np.quantile(full.values, 0.2))
    adaptive = evaluate(plane, grid, plan=BATCHED, epsilon=level)
    assert np.array_equal(adaptive.inside(level), full.inside(level))
    assert adaptive.evaluations < full.evaluations / 2
    known = adaptive.evaluated
    np.testing.assert_allclose(adaptive.values[known], full.values[known], rtol=1e-10, atol=1e-14)


def test_progress_is_reported():
    objective = objective_of()
    plane = random_plane(objective, 1)
    seen: list[int] = []
    evaluate(plane, Grid.cube(1, 1.0, 9), plan=BATCHED, progress=lambda done, total, _: seen.append(done))
    assert seen == [7, 9]


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan"), [1e-3, 0.0]])
def test_epsilon_must_be_positive(epsilon):
    objective = objective_of()
    with pytest.raises(InputError, match="epsilon must be positive"):
        evaluate(random_plane(objective), Grid.cube(2, 1.0, 4), epsilon=epsilon)


def test_mismatches_are_refused():
    objective = objective_of()
    plane = random_plane(objective)
    with pytest.raises(InputError, match="3-dimensional grid for a 2-dimensional plane"):
        evaluate(plane, Grid.cube(3, 1.0, 3))


def test_files_round_trip(tmp_path):
    objective = objective_of()
    plane = random_plane(objective, 2, seed=4)
    again = Plane.load(plane.save(tmp_path / "plane.safetensors"))
    assert torch.equal(again.basis, plane.basis) and torch.equal(again.marks, plane.marks)
    assert again.names == plane.names and again.layout == plane.layout and again.notes == plane.notes
    with pytest.raises(InputError, match="no objective"):
        evaluate(again, Grid.cube(2, 1.0, 3))
    landscape = evaluate(again, Grid.cube(2, 1.0, 9), objective, epsilon=0.01, plan=BATCHED)
    loaded = Landscape.load(landscape.save(tmp_path / "landscape.safetensors"))
    assert np.array_equal(loaded.values, landscape.values) and loaded.grid == landscape.grid
    assert np.array_equal(loaded.evaluated, landscape.evaluated) and loaded.levels == (0.01,)
    with pytest.raises(InputError, match="holds 'plane', not 'landscape'"):
        Landscape.load(tmp_path / "plane.safetensors")
    (tmp_path / "junk.safetensors").write_bytes(b"not a file")
    with pytest.raises(InputError, match="is not a result of explore"):
        Plane.load(tmp_path / "junk.safetensors")
    with pytest.raises(InputError, match="no such file"):
        Plane.load(tmp_path / "absent.safetensors")


def test_filter_normalised_directions():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2)).double()
    objective = function_distance(model, torch.randn(4, 2, 4, 4, dtype=torch.float64))
    plane = random_plane(objective, 1, seed=1)
    direction = objective.layout.unflatten(plane.basis[0])
    theta = objective.layout.unflatten(objective.theta)
    for name in ("0.weight", "3.weight"):
        ratios = direction[name].flatten(1).norm(dim=1) / theta[name].flatten(1).norm(dim=1)
        torch.testing.assert_close(ratios, ratios[0].expand_as(ratios))
    assert float(direction["0.bias"].abs().max()) == 0
    raw = objective.layout.unflatten(random_plane(objective, 1, seed=1, normalise="none").basis[0])
    assert float(raw["0.bias"].abs().max()) > 0


def test_plan_stays_within_the_memory_bound():
    objective = function_distance(net(), torch.randn(4096, 2, dtype=torch.float64))
    each = objective.bytes_per_example()
    plan = plan_evaluation(objective, memory=600 * each)
    assert plan.vectors * plan.examples <= 600
    forced = plan_evaluation(objective, memory=600 * each, batched=True)
    assert forced.batched and forced.vectors * forced.examples <= 600
    with pytest.raises(InputError, match="memory bound must be positive"):
        plan_evaluation(objective, memory=0)


def test_models_that_vmap_cannot_batch_are_streamed():
    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2, 1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.weight if self.weight.sum() > 0 else -x @ self.weight

    objective = function_distance(Branch(), torch.randn(8, 2))
    plan = plan_evaluation(objective)
    assert not plan.batched and "batching is not possible" in plan.reason
    with pytest.raises(InputError, match="cannot be evaluated batched"):
        plan_evaluation(objective, batched=True)


def test_batch_statistics_are_not_cut():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    objective = function_distance(model, torch.randn(64, 2), batch_norm="batch")
    assert plan_evaluation(objective).examples == 64
    with pytest.raises(InputError, match="cannot be cut into pieces"):
        plan_evaluation(objective, memory=10 * objective.bytes_per_example())


def test_screening_uses_less_of_c_and_takes_the_same_sides():
    torch.manual_seed(0)
    objective = function_distance(net(3), torch.randn(4000, 2, dtype=torch.float64))
    others = [objective.theta + torch.randn_like(objective.theta) for _ in range(2)]
    plane = plane_through(objective, [objective.theta, *others])
    grid = Grid.cube(2, 4.0, 17)
    full = evaluate(plane, grid, plan=BATCHED, epsilon=0.5)
    screened = evaluate(plane, grid, plan=STREAMED, epsilon=0.5, screen=5.0)
    assert screened.facts["inputs_per_point"] < 0.6 * objective.size == 0.6 * full.facts["inputs_per_point"]
    assert np.array_equal(screened.inside(0.5), full.inside(0.5))
    with pytest.raises(InputError, match="screening needs"):
        evaluate(plane, grid, screen=4.0)


def test_a_screen_that_cannot_decide_uses_all_of_c():
    objective = function_distance(net(), torch.randn(3000, 2, dtype=torch.float64))
    vector = objective.theta + 0.3
    exact = float(objective.values(vector[None])[0])
    mean, used = objective.screen(vector, (exact,), sigmas=4.0)
    assert used == 3000 and mean == pytest.approx(exact, rel=1e-12)
