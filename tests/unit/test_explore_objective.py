"""The objective: J against its definition, batched against streamed, and what it refuses."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from intertwine.errors import InputError, ModelError, WeightsError
from intertwine.exploring import FlatLayout, data_loss, function_distance


def small_net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)).double()


def vector_of(objective, model: nn.Module) -> Tensor:
    return objective.layout.flatten(dict(model.named_parameters()))


def test_j_is_its_definition():
    model, other, x = small_net(0), small_net(1), torch.randn(37, 3, dtype=torch.float64)
    objective = function_distance(model, x)
    expected = (model(x) - other(x)).square().sum(1).mean()
    found = objective.values(vector_of(objective, other)[None], examples=10)
    torch.testing.assert_close(found[0], expected.detach(), rtol=1e-12, atol=0)
    assert objective.values(objective.theta[None])[0] == 0


def test_batched_and_streamed_agree():
    objective = function_distance(small_net(), torch.randn(33, 3, dtype=torch.float64))
    rows = objective.theta + torch.randn(7, objective.layout.length, dtype=torch.float64)
    streamed = objective.values(rows, batched=False, examples=8)
    batched = objective.values(rows, batched=True)
    torch.testing.assert_close(batched, streamed, rtol=1e-12, atol=1e-14)


def test_gradients_agree_with_autograd():
    model = small_net()
    x = torch.randn(20, 3, dtype=torch.float64)
    objective = function_distance(model, x)
    other = small_net(5)
    (other(x) - model(x).detach()).square().sum(1).mean().backward()
    expected = torch.cat([p.grad.reshape(-1) for p in other.parameters()])
    for batched in (True, False):
        means, gradients = objective.gradients(vector_of(objective, other).repeat(2, 1), batched=batched)
        torch.testing.assert_close(gradients[1], expected, rtol=1e-10, atol=1e-12)
        assert means[0] == means[1]


def test_the_callers_model_is_not_touched():
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 1)
    ).train()
    before = copy.deepcopy(model.state_dict())
    objective = function_distance(model, torch.randn(5, 1, 4, 4))
    objective.gradients(objective.theta.repeat(2, 1), batched=True)
    objective.values(objective.theta[None] + 1)
    assert model.training and all(p.requires_grad and p.grad is None for p in model.parameters())
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_buffers_are_stated_and_held():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).double()
    x = torch.randn(16, 3, dtype=torch.float64)
    stored = function_distance(model, x)
    assert stored.splittable and "held at their values" in stored.notes[0]
    torch.testing.assert_close(stored.outputs, copy.deepcopy(model).eval()(x).detach())
    batch = function_distance(model, x, batch_norm="batch")
    assert not batch.splittable and "statistics of C" in batch.notes[0]
    torch.testing.assert_close(batch.outputs, copy.deepcopy(model).train()(x).detach())
    # The pieces must not change the statistics: asking for pieces is ignored.
    moved = batch.theta[None] + 0.1
    torch.testing.assert_close(batch.values(moved, examples=4), batch.values(moved))


def test_data_loss_is_cross_entropy():
    model, x, y = small_net(), torch.randn(12, 3, dtype=torch.float64), torch.randint(0, 2, (12,))
    objective = data_loss(model, x, y)
    expected = nn.functional.cross_entropy(model(x), y).detach()
    torch.testing.assert_close(objective.values(objective.theta[None], examples=5)[0], expected)
    with pytest.raises(InputError, match="no loss named"):
        data_loss(model, x, y, loss="hinge")
    with pytest.raises(InputError, match="11 targets for 12 inputs"):
        data_loss(model, x, y[:11])


def test_tied_parameters_are_one_coordinate():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.b(torch.relu(self.a(x)))

    model, x = Tied().double(), torch.randn(9, 3, dtype=torch.float64)
    objective = function_distance(model, x)
    assert objective.layout.names == ("a.weight",)
    doubled = copy.deepcopy(model)
    with torch.no_grad():
        doubled.a.weight *= 2
    expected = (doubled(x) - model(x)).square().sum(1).mean().detach()
    for batched in (True, False):
        found = objective.values((2 * objective.theta).repeat(2, 1), batched=batched)[0]
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("model", "inputs", "message"),
    [
        (nn.LSTM(3, 4, batch_first=True), torch.randn(2, 5, 3), "output is a tuple, not a tensor"),
        (nn.ReLU(), torch.randn(2, 3), "no parameters"),
        (nn.Linear(4, 1), torch.randn(2, 3), "does not run on these inputs"),
        (nn.Linear(3, 1), torch.full((2, 3), float("nan")), "not finite"),
    ],
)
def test_models_that_cannot_be_compared(model, inputs, message):
    with pytest.raises(ModelError, match=message):
        function_distance(model, inputs)


def test_inputs_that_make_no_sense():
    with pytest.raises(InputError, match="rows"):
        function_distance(nn.Bilinear(2, 2, 1), (torch.randn(3, 2), torch.randn(4, 2)))
    with pytest.raises(InputError, match="batch_norm is"):
        function_distance(nn.Linear(2, 1), torch.randn(3, 2), batch_norm="none")


def test_layout_refuses_other_weights():
    layout = FlatLayout(("w",), ((2, 2),))
    with pytest.raises(WeightsError, match="no parameter named 'w'"):
        layout.flatten({})
    with pytest.raises(WeightsError, match="expected"):
        layout.flatten({"w": torch.zeros(3)})


def test_spread_is_the_j_of_the_best_constant():
    model, x = small_net(), torch.randn(50, 3, dtype=torch.float64)
    objective = function_distance(model, x)
    outputs = model(x).detach()
    best = (outputs - outputs.mean(0)).square().sum(1).mean()
    assert objective.spread == pytest.approx(float(best), rel=1e-12)


@pytest.mark.parametrize(("weights", "dimensions"), [((1.0, -2.0), 2), ((1.0, 2.0), 3)])
def test_the_zero_set_has_the_dimension_of_the_derivative(
    weights: tuple[float, float], dimensions: int
) -> None:
    """Units on both sides: one scale each. On one side: a c + b d = const, one dimension more."""
    from intertwine.exploring import random_plane
    from intertwine.exploring.functional import zero_set

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
    net[0].weight.data = torch.tensor(weights)[:, None]
    objective = function_distance(net, torch.randn(64, 1))
    found = zero_set(objective, random_plane(objective, 2, seed=0))
    assert found["functional dimension at theta"] == 4 - dimensions
    assert found["dimension of J = 0 at theta"] == dimensions
    assert found["directions of the plane in which J = 0 at theta"] == max(0, dimensions - 2)
