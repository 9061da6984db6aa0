"""Places of the largest scores name channels, where scores are equal by accident only; and where they do not.

Every refusal is a negative control: the same permutation done by hand changes what the model computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from intertwine import Symmetry, act, trace
from intertwine.graph.export import export
from value_oracle import wrong_values


class Experts(nn.Module):
    """Four experts with matrices and biases, of which `choose` takes two for each row."""

    def __init__(self, choose: Callable[[Any, Tensor], Tensor], first: nn.Module | None = None) -> None:
        super().__init__()
        self.first = nn.Linear(5, 5) if first is None else first
        self.router = nn.Linear(5, 4, bias=False)
        self.up, self.bias = nn.Parameter(torch.randn(4, 3, 5)), nn.Parameter(torch.randn(4, 3))
        self.choose = choose

    def forward(self, x: Tensor) -> Tensor:
        return self.choose(self, self.first(x))

    def of(self, choice: Tensor, x: Tensor) -> Tensor:
        return (torch.einsum("bi,bkoi->bko", x, self.up[choice]) + self.bias[choice]).sum(1)

    def reversed(self) -> nn.Module:
        """The same experts in the opposite order."""
        state = {
            n: t.flip(0) if n in ("router.weight", "up", "bias") else t for n, t in self.state_dict().items()
        }
        other = Experts(self.choose, self.first).to(self.up.dtype)
        other.load_state_dict(state)
        return other


def two_best(m: Any, x: Tensor, score: Callable[[Tensor], Tensor] = lambda s: s) -> Tensor:
    return m.of(score(m.router(x)).topk(2, -1).indices, x)


TAKEN = {
    "as they are": two_best,
    "softmax": lambda m, x: two_best(m, x, lambda s: s.softmax(-1)),
    "sigmoid, scaled": lambda m, x: two_best(m, x, lambda s: 2.5 * s.sigmoid()),
    "looked up as rows": lambda m, x: m.of(m.router(x).topk(2, -1).indices.view(-1).view(-1, 2), x),
    "gathered": lambda m, x: m.router(x).tanh().gather(1, m.router(x).topk(2, -1).indices) @ x[:2, :4].T[:2],
    "embedded": lambda m, x: F.embedding(m.router(x).topk(2, -1).indices, m.bias).sum(1),
}  # fmt: skip
REFUSED = {
    "places are numbers": lambda m, x: two_best(m, x) + m.router(x).topk(2, -1).indices.sum(-1, keepdim=True),
    "places are an output": lambda m, x: m.router(x).topk(2, -1).indices.to(x.dtype),
    "compared": lambda m, x: two_best(m, x) * (m.router(x).topk(2, -1).indices == 0).any(-1, keepdim=True),
    "scores after ReLU": lambda m, x: two_best(m, x - 3, lambda s: (s - 2).relu()),
    "padded": lambda m, x: m.of(F.pad(m.router(x).topk(2, -1).indices, (1, 0)), x),
    "another table": lambda m, x: x[:2].sum(0)[m.router(x).topk(2, -1).indices],
    "rounded scores": lambda m, x: two_best(m, x, lambda s: (1 + s / 100).bfloat16()),
    "softmax over rows": lambda m, x: two_best(m, x[:1], lambda s: s.softmax(0)),
}  # fmt: skip


def router(symmetry: Symmetry) -> Any:
    return next(a for a in symmetry.axes if ("router.weight", 0) in [(m.param, m.dim) for m in a.members])


def change(model: nn.Module, other: nn.Module, x: Tensor) -> float:
    with torch.no_grad():
        expected = model(x)
        return float((other(x) - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("name", TAKEN)
def test_experts_change_places(name: str) -> None:
    torch.manual_seed(0)
    model, x = Experts(TAKEN[name]).double(), torch.randn(6, 5, dtype=torch.float64)
    symmetry = Symmetry(export(model, (x,)))
    axis = router(symmetry)
    assert axis.group.permutation and not axis.mergeable  # two equal experts are chosen beside each other
    assert wrong_values(symmetry, model, (x,), symmetry.sample(1)) == {}
    for seed in range(3):
        assert change(model, act(model, symmetry.sample(seed)), x) <= 1e-10
    assert change(model, model.reversed(), x) <= 1e-10


@pytest.mark.parametrize("name", REFUSED)
def test_experts_stay(name: str) -> None:
    torch.manual_seed(0)
    model, x = Experts(REFUSED[name]).double(), torch.randn(6, 5, dtype=torch.float64)
    assert router(Symmetry(export(model, (x,)))).frozen_because
    assert change(model, model.reversed(), x) > 1e-3


@pytest.mark.parametrize(
    ("first", "free"),
    [
        (nn.Sequential(nn.Linear(5, 5), nn.ReLU()), False),  # all 0 on an open set of inputs
        (nn.Sequential(nn.ReLU(), nn.Linear(5, 5)), True),
        (nn.Sequential(nn.ReLU(), nn.Linear(5, 5, bias=False)), False),
        (nn.Sequential(nn.Linear(5, 5), nn.RMSNorm(5)), True),
        (nn.Sequential(nn.Linear(5, 5, bias=False), nn.RMSNorm(5)), False),  # 0 where the input is
        (nn.Identity(), False),
        (nn.Sequential(nn.ReLU(), nn.LayerNorm(5)), True),
        (nn.Sequential(nn.Linear(5, 5), nn.SiLU()), True),
    ],
)  # fmt: skip
def test_rows_that_vanish_have_no_best_expert(first: nn.Module, free: bool) -> None:
    torch.manual_seed(0)
    model, x = Experts(two_best, first).double(), -torch.rand(6, 5, dtype=torch.float64)
    axis = router(Symmetry(export(model, (x,))))
    assert axis.group.permutation == free
    if not free:
        with torch.no_grad():
            for p in first.parameters():
                p.copy_(p.abs() if p.dim() > 1 else 0 * p)  # then nothing is left of negative numbers
        assert max(change(model, model.reversed(), each) for each in (x, 0 * x)) > 1e-3


@pytest.mark.parametrize("padding", [None, 0])
def test_a_padding_token_has_no_best_expert(padding: int | None) -> None:
    torch.manual_seed(0)
    model = Experts(two_best, nn.Embedding(7, 5, padding_idx=padding)).double()
    axis = router(Symmetry(export(model, (torch.arange(6),))))
    assert axis.group.permutation == (padding is None)
    assert (change(model, model.reversed(), torch.arange(6)) <= 1e-10) == (padding is None)


def test_the_proof_agrees() -> None:
    torch.manual_seed(0)
    symmetry = trace(Experts(two_best), torch.randn(6, 5))
    assert router(symmetry).group.permutation and not symmetry.proof.refuted
