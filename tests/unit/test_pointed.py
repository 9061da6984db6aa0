"""Entries that an index points at: channels beside it pass, those that it names stay where they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from intertwine import Symmetry, act
from intertwine.graph.export import export

ROWS, PAIR = torch.tensor([2, 0]), torch.tensor([[0], [1]])
PASSES: dict[str, Callable[[Any, Tensor, Tensor], Tensor]] = {
    "rows put": lambda m, a, b: m(a.index_put((ROWS,), b[:2])),
    "rows added": lambda m, a, b: m(a.index_put((ROWS,), b[:2], accumulate=True)),
    "a mask of rows": lambda m, a, b: m(a.index_put((b.sum(-1) > 0,), torch.zeros(()).double())),
    "rows taken": lambda m, a, b: m(a.take_along_dim(b.argsort(0), 0)),
    "distances": lambda m, a, b: F.pairwise_distance(a, b),
    "cross products of rows": lambda m, a, b: m(torch.linalg.cross(a[:3], b[:3], dim=0)),
    "contracted": lambda m, a, b: torch.tensordot(a, b, dims=([1], [1])),
    "a mask of channels": lambda m, a, b: m(a.index_put((a > 0.1,), torch.zeros(()).double())),
}
STAYS: dict[str, Callable[[Any, Tensor, Tensor], Tensor]] = {
    "channels put": lambda m, a, b: m(a.index_put((PAIR, ROWS), b[:2, :2])),
    "a row of numbers put": lambda m, a, b: m(a.index_put((ROWS[:1],), torch.arange(6.0).double())),
    "channels taken": lambda m, a, b: m(a.take_along_dim(torch.arange(5, -1, -1)[None], 1)),
    "entries taken": lambda m, a, b: a.take_along_dim(torch.tensor([1, 7])),
    "cross products of channels": lambda m, a, b: torch.linalg.cross(a[:, :3], b[:, :3]),
}


class Net(nn.Module):
    """Two layers of 6 channels with tanh, what is done with them, and a layer that reads it."""

    def __init__(self, body: Callable[[Any, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.last, self.body = nn.Linear(5, 6), nn.Linear(5, 6), nn.Linear(6, 2), body
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self.last, self.a(x).tanh(), self.b(x).tanh())


@pytest.mark.parametrize("name", [*PASSES, *STAYS])
def test_what_an_index_points_at(name: str) -> None:
    model, x = Net({**PASSES, **STAYS}[name]), torch.randn(4, 5, dtype=torch.float64)
    symmetry = Symmetry(export(model, (x,)))
    moves = any(a.group.permutation and a.size == 6 for a in symmetry.axes if a.name == "a")
    assert moves == (name in PASSES)
    with torch.no_grad():
        error = float((act(model, symmetry.sample(0))(x) - model(x)).abs().max())
    assert error <= 1e-12
