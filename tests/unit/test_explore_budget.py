"""The size of an exploration follows from what a pass costs."""

from __future__ import annotations

import time

import pytest
import torch
from torch import Tensor, nn

from intertwine.exploring import budget, function_distance, random_plane
from intertwine.exploring.budget import plan_attempts, plan_bound, plan_inputs, plan_points


def objective_of(size: int = 32):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    return function_distance(model, torch.randn(size, 3))


@pytest.fixture
def clock(monkeypatch):
    """Every pass takes as long as the test says."""

    def cost(seconds: float) -> None:
        monkeypatch.setattr(budget, "_seconds", lambda call: seconds)

    return cost


def test_cheap_models_start_at_random_and_dear_ones_near_theta(clock):
    objective, tolerance = objective_of(), 1e-3
    clock(1e-4)
    cheap = plan_attempts(objective, tolerance, n=3, batch=256, seconds=60)
    assert cheap[0].starts == "random" and cheap[0].steps == 5000 and cheap[0].population == 6
    assert all(attempt.starts == "perturbed" for attempt in cheap[1:])
    clock(1.0)
    dear = plan_attempts(objective, tolerance, n=3, batch=256, seconds=60)
    assert {attempt.starts for attempt in dear} == {"perturbed"} and dear[0].population == 3
    assert dear[0].steps == 10
    # With few steps only starts that are nearly there, and no farther than those of a cheap model.
    assert dear[0].spread <= cheap[1].spread and dear[0].lr < cheap[1].lr


def test_what_the_user_asks_for_is_kept(clock):
    clock(100.0)
    attempts = plan_attempts(objective_of(), 1e-3, n=3, batch=256, seconds=1, steps=77)
    assert attempts[0].starts == "random" and {attempt.steps for attempt in attempts} == {77}


def test_some_start_is_always_tried(clock):
    clock(1.0)
    attempts = plan_attempts(objective_of(), 1e-30, n=3, batch=256, seconds=1)
    assert [attempt.spread for attempt in attempts] == [1e-5]


def test_inputs_by_cost(clock):
    clock(32e-3)  # a millisecond each
    assert plan_inputs(objective_of()) == 250
    clock(32e-9)
    assert plan_inputs(objective_of()) == 1024
    clock(32.0)
    assert plan_inputs(objective_of()) == 8


def test_the_level_is_in_the_picture():
    objective = objective_of()
    plane = random_plane(objective, 2)
    bound = plan_bound(plane, objective, 0.1, 0.05)
    ends = bound * torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]])
    assert bound > 0.05 and float(objective.values(plane.points(ends)).min()) > 0.1
    assert plan_bound(plane, objective, 1e-12, 0.5) == 0.5
    assert plan_bound(plane, objective, 1e30, 1.0) == 256


def test_points_by_cost():
    for dim in (1, 2, 3, 4):
        counts = [plan_points(seconds, dim, 60.0) for seconds in (1e-7, 1e-3, 1e-1, 10.0)]
        assert counts == sorted(counts, reverse=True) and counts[0] > counts[-1]


def test_the_clock_runs():
    class Slow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x: Tensor) -> Tensor:
            time.sleep(0.02)
            return x * self.weight

    assert plan_inputs(function_distance(Slow(), torch.ones(10, 1)), seconds=0.25) <= 125
