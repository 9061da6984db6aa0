"""The whole of explore on very different architectures, each J checked against a plain forward pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from intertwine.errors import MissingExtra
from intertwine.exploring import Grid, evaluate, find_equivalents, function_distance, plan_evaluation, span
from intertwine.zoo import build, resolve


class VitBlock(nn.Module):
    """Pre-norm attention and a GELU perceptron, each with a residual."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.before(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.after(x))


class Recurrent(nn.Module):
    """The last state of an LSTM, read out."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.read = nn.LSTM(3, 6, batch_first=True), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.read(self.lstm(x)[0][:, -1])


def resnet18() -> nn.Module:
    try:
        return resolve("torchvision:resnet18").model
    except MissingExtra as error:
        pytest.skip(error.what)


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)),
        (32, 5),
    ),
    "lenet5": (lambda: build("lenet5", classes=1), (8, 1, 28, 28)),
    "tiny10": (lambda: build("tiny10"), (2, 3, 32, 32)),
    "vit block": (VitBlock, (16, 6, 8)),
    "lstm": (Recurrent, (16, 5, 3)),
    "resnet18": (resnet18, (2, 3, 32, 32)),
}


@pytest.mark.parametrize("name", CASES)
def test_architectures(name):
    make, shape = CASES[name]
    torch.manual_seed(0)
    model = make()
    inputs = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    objective = function_distance(model, inputs)
    sample = find_equivalents(
        objective, n=3, tolerance=0.5 * objective.spread, optimizer="adam", learning_rate=1e-3,
        starts="perturbed", spread=0.02, population=3, max_steps=200,
    )  # fmt: skip
    plane = span(sample)
    grid = Grid.cube(2, plane.reach(), 3)
    landscape = evaluate(plane, grid, epsilon=objective.spread)
    assert landscape.evaluated[0, 0] and landscape.mark_values == pytest.approx(sample.losses, rel=1e-3)
    corner = objective.module(plane.points(grid.coordinates([0]))[0]).eval()
    with torch.no_grad():
        expected = (corner(inputs) - objective.outputs).flatten(1).square().sum(1).mean()
    assert landscape.values[0, 0] == pytest.approx(float(expected), rel=1e-4)
    assert landscape.values.max() > max(landscape.mark_values)


@pytest.mark.parametrize("name", ["mlp", "vit block", "tiny10"])
def test_batched_agrees_with_streamed(name):
    make, shape = CASES[name]
    torch.manual_seed(0)
    objective = function_distance(make().double(), torch.randn(shape, dtype=torch.float64)[:2])
    rows = objective.theta + 0.01 * torch.randn(2, objective.layout.length, dtype=torch.float64)
    torch.testing.assert_close(
        objective.values(rows, batched=True), objective.values(rows), rtol=1e-9, atol=1e-12
    )


def test_a_plan_exists_for_what_vmap_cannot_do():
    objective = function_distance(Recurrent(), torch.randn(8, 5, 3))
    assert plan_evaluation(objective).examples == 8
