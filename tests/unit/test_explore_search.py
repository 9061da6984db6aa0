"""The search: exact invariants of the four-parameter network, restarts, and failure that keeps the best."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from intertwine.errors import InputError
from intertwine.exploring import EquivalenceSample, NotConverged, find_equivalents, function_distance, span
from intertwine.exploring.optimizers import RowLBFGS, make_optimizer
from intertwine.exploring.search import is_independent


def four(a: float, b: float, c: float, d: float) -> nn.Sequential:
    """phi(x) = c relu(a x) + d relu(b x) (appendix B.2 of GENNI)."""
    net = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[a], [b]]))
        net[2].weight.copy_(torch.tensor([[c, d]]))
    return net


def invariants(vector: Tensor) -> tuple[float, float]:
    """phi is p x for x > 0 and n x for x < 0: p and n are all that the function is."""
    a, c = vector[:2], vector[2:]
    return float((a * c)[a > 0].sum()), float((a * c)[a < 0].sum())


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "lbfgs"])
def test_found_points_satisfy_the_exact_invariants(optimizer):
    model = four(0.9, -0.7, 0.8, 0.6)
    x = torch.randn(1024, 1, generator=torch.Generator().manual_seed(0))
    lr = 0.2 if optimizer == "sgd" else None
    sample = find_equivalents(model, x, 4, optimizer=optimizer, learning_rate=lr, tolerance=1e-6, seed=3)
    assert len(sample) == 4 and max(sample.losses) < 1e-6
    for point in sample.points:
        assert invariants(point) == pytest.approx(invariants(sample.theta), abs=1e-2)
        assert float((point - sample.theta).norm()) > 1e-3
    assert span(sample).dim == 3


def test_losses_are_the_j_of_the_points():
    objective = function_distance(four(1, -1, 0.5, 0.5), torch.randn(256, 1))
    sample = find_equivalents(objective, n=3, optimizer="lbfgs", tolerance=1e-7)
    torch.testing.assert_close(
        objective.values(sample.points),
        torch.tensor(sample.losses, dtype=torch.float64),
        rtol=1e-3,
        atol=1e-9,
    )


def test_losers_are_restarted():
    # Most starts have the wrong signs for a two-sided function: dead units with zero gradient.
    model, x = four(1.0, -1.0, 1.0, 1.0), torch.randn(256, 1)
    sample = find_equivalents(model, x, 4, optimizer="sgd", tolerance=1e-6, population=4, learning_rate=0.2)
    assert sample.facts["restarts"] > 0 and max(sample.losses) < 1e-6


def test_a_known_symmetry_gives_the_floor():
    model, x = four(1.0, -1.0, 1.0, 1.0), torch.randn(256, 1)

    def swap(generator: torch.Generator) -> Tensor:
        return torch.tensor([-1.0, 1.0, 1.0, 1.0])

    sample = find_equivalents(model, x, 2, optimizer="lbfgs", tolerance=1e-6, equivalent=swap)
    assert sample.known_symmetry_loss is not None and sample.known_symmetry_loss < 1e-12


def test_starts_that_never_converge_keep_the_best():
    model, x = four(1.0, -1.0, 1.0, 1.0), torch.randn(256, 1)
    with pytest.raises(NotConverged, match="0 of 3 starts reached J < 1e-30 within 30 steps") as caught:
        find_equivalents(model, x, 3, optimizer="adam", tolerance=1e-30, max_steps=30)
    best = caught.value.best
    assert len(best) == 3 and all(0 < loss < 10 for loss in best.losses)
    objective = function_distance(model, x)
    assert float(objective.values(best.points)[0]) == pytest.approx(best.losses[0], rel=1e-3)
    assert "variance" in str(caught.value) and "more steps" in str(caught.value)


def test_starts_depend_on_the_seed_only_and_leave_the_global_state_alone():
    model, x = four(1.0, -1.0, 1.0, 1.0), torch.randn(64, 1)
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    one, two, other = (
        find_equivalents(model, x, 2, optimizer="lbfgs", tolerance=1e-6, seed=seed) for seed in (1, 1, 2)
    )
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(one.points, two.points) and not torch.equal(one.points, other.points)


def test_perturbed_starts_stay_near():
    model, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), torch.randn(128, 4)
    sample = find_equivalents(model, x, 3, optimizer="lbfgs", starts="perturbed", spread=0.01)
    assert float((sample.points - sample.theta).norm(dim=1).max()) < 0.5 * float(sample.theta.norm())


def test_a_model_with_loose_parameters_gets_random_ones():
    class Loose(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.randn(6))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.scale

    sample = find_equivalents(Loose(), torch.randn(64, 6), 1, optimizer="lbfgs", tolerance=1e-8)
    torch.testing.assert_close(sample.points[0], sample.theta, atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tolerance": 0.0}, "tolerance must be a number above 0"),
        ({"tolerance": -1.0}, "tolerance must be a number above 0"),
        ({"optimizer": "newton"}, "no optimizer named"),
        ({"learning_rate": -1.0}, "learning_rate must be a number above 0"),
        ({"starts": "zero"}, "no starts named"),
        ({"n": 9}, "cannot be independent"),
        ({"n": 0}, "at least 1"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        find_equivalents(four(1, 1, 1, 1), torch.randn(16, 1), **arguments)


def test_inputs_are_needed():
    with pytest.raises(InputError, match="needs inputs"):
        find_equivalents(four(1, 1, 1, 1))


def test_sample_round_trip(tmp_path):
    sample = find_equivalents(four(1, -1, 1, 1), torch.randn(64, 1), 2, optimizer="lbfgs", tolerance=1e-6)
    again = EquivalenceSample.load(sample.save(tmp_path / "sample.safetensors"))
    assert torch.equal(again.points, sample.points) and torch.equal(again.theta, sample.theta)
    assert again.losses == sample.losses and again.layout == sample.layout and again.facts == sample.facts
    model = four(1, -1, 1, 1)
    model.load_state_dict(again.parameters(1))
    assert torch.equal(model[0].weight.flatten(), sample.points[1][:2])
    assert [p.name for p in tmp_path.iterdir()] == ["sample.safetensors"]


def test_independence_needs_distance_too():
    one = torch.ones(3)
    assert is_independent(one, []) and not is_independent(one.clone(), [one])
    assert is_independent(torch.tensor([1.0, 0, 0]), [one])


def test_rows_do_not_influence_each_other():
    """A row alone and the same row among others take the same steps."""

    def closure(rows: Tensor) -> tuple[Tensor, Tensor]:
        weights = torch.arange(1.0, 4.0, dtype=rows.dtype)
        return (weights * rows.square()).sum(1) + rows.pow(4).sum(1), 2 * weights * rows + 4 * rows.pow(3)

    rows = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for name in ("sgd", "adam", "lbfgs"):
        together, alone = make_optimizer(name), make_optimizer(name)
        many, single = rows.clone(), rows[2:3].clone()
        for _ in range(15):
            many, _ = together.step(many, closure)
            single, _ = alone.step(single, closure)
        tolerance = 1e-12 if name != "lbfgs" else 1e-6
        torch.testing.assert_close(many[2:3], single, rtol=tolerance, atol=tolerance)


def test_lbfgs_solves_an_ill_conditioned_quadratic():
    scales = torch.logspace(0, 4, 6, dtype=torch.float64)
    optimizer, rows = RowLBFGS(), torch.ones(3, 6, dtype=torch.float64)
    for _ in range(60):
        rows, _ = optimizer.step(rows, lambda r: ((scales * r.square()).sum(1) / 2, scales * r))
    assert float(rows.abs().max()) < 1e-6


def test_the_clock_ends_a_search():
    """A tolerance that nothing reaches, and no limit of steps to speak of."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    with pytest.raises(NotConverged) as caught:
        find_equivalents(net, torch.randn(64, 2), 2, tolerance=1e-30, max_steps=10**9, max_seconds=0.05)
    assert 0 < caught.value.best.facts["steps"] < 10**6 and len(caught.value.best) == 2


def test_starts_very_near_theta_are_points_of_their_own() -> None:
    """Their differences are short, not dependent; points that differ by rounding alone are dependent."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    sample = find_equivalents(net, torch.randn(32, 6), 3, starts="perturbed", spread=1e-4, population=3)
    assert len(sample) == 3 and sample.facts["steps"] == 0
    assert not is_independent(sample.points[1] * (1 + 1e-7), [sample.points[1]])
