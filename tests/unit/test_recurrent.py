"""Recurrent modules: units of the state move in every gate, with signs where the function is odd."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from intertwine import trace, verify


class Reader(nn.Module):
    """A convolution over time, a recurrent layer, and a head on its outputs and its last state."""

    def __init__(self, kind: type[nn.RNNBase], layers: int = 1, **options: object) -> None:
        super().__init__()
        self.front = nn.Conv1d(3, 6, 3, padding=1)
        self.body = kind(6, 5, layers, batch_first=True, **options)
        ways = 2 if options.get("bidirectional") else 1
        width = int(options.get("proj_size", 0)) or 5  # type: ignore[call-overload]
        self.head, self.last = nn.Linear(ways * width, 4), nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        out, state = self.body(torch.relu(self.front(x.transpose(1, 2))).transpose(1, 2))
        state = state[0] if isinstance(state, tuple) else state
        return self.head(out.mean(1)) + self.last(state[-1])


X = torch.randn(2, 7, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("kind", "options", "group"),
    [
        (nn.LSTM, {}, "signed permutation"),
        (nn.LSTM, {"layers": 2, "bidirectional": True}, "signed permutation"),
        (nn.LSTM, {"bias": False}, "signed permutation"),
        (nn.LSTM, {"proj_size": 3}, "signed permutation"),
        (nn.GRU, {"layers": 2}, "signed permutation"),
        (nn.GRU, {"bidirectional": True}, "signed permutation"),
        (nn.RNN, {}, "signed permutation"),
        (nn.RNN, {"nonlinearity": "relu", "layers": 2}, "positive monomial"),
    ],
)
def test_the_state_moves(kind: type[nn.RNNBase], options: dict[str, object], group: str) -> None:
    torch.manual_seed(0)
    model = Reader(kind, **options)  # type: ignore[arg-type]
    symmetry = trace(model, X, prove=False)
    assert not symmetry.unknown_ops
    assert verify(model, X, symmetry=symmetry, samples=3).exact
    assert symmetry.axis("front").group.name == "positive monomial"
    states = [a for a in symmetry.axes if any("body" in m.param for m in a.members) and a.name != "front"]
    moving = [a for a in states if a.group.permutation]
    assert moving and all(a.group.name in (group, "general linear", "permutation") for a in moving)
    assert any(a.group.name == group and a.size == 5 for a in moving)
    assert not any(a.mergeable for a in moving)  # the module knows its own width


class Cells(nn.Module):
    """The same by hand, with a state that is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.start = nn.GRUCell(3, 5), nn.Parameter(torch.randn(5))
        self.other, self.head = nn.LSTMCell(5, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.start.expand(x.shape[0], 5)
        state = None
        for t in range(4):
            h = self.cell(x[:, t], h)
            state = self.other(h, state)
        return self.head(state[0])


def test_cells_and_a_state_that_is_learned() -> None:
    torch.manual_seed(0)
    model = Cells()
    symmetry = trace(model, X, prove=False)
    assert not symmetry.unknown_ops
    assert verify(model, X, symmetry=symmetry, samples=3).exact
    learned = next(a for a in symmetry.axes if any(m.param == "start" for m in a.members))
    assert learned.group.name == "signed permutation" and learned.size == 5
