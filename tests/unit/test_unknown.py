"""Sizes that data decide: rows that are picked keep the symmetries of their channels; nothing else moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from intertwine import act, find_isomorphism, merge, trace
from intertwine.symmetry.transform import EVERY_PART

X = torch.randn(6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


class Experts(nn.Module):
    """Each expert takes the rows that chose it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.router = nn.Linear(5, 2)
        self.up = nn.ModuleList([nn.Linear(5, 4) for _ in range(2)])
        self.down = nn.ModuleList([nn.Linear(4, 3) for _ in range(2)])
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        weight, choice = self.router(x).topk(1, -1)
        out = torch.zeros(len(x), 3).to(x)
        for k, (up, down) in enumerate(zip(self.up, self.down, strict=True)):
            rows = torch.where(choice[:, 0] == k)[0]
            out = out.index_add(0, rows, down(up(x[rows]).relu()) * weight[rows])
        return out


class Net(nn.Module):
    def __init__(self, between: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.between = nn.Linear(5, 4), nn.Linear(4, 2), between
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.between(self.first(x), x))
        return out


def test_experts_on_their_own_rows_change_places_and_are_found_and_merged() -> None:
    model = Experts()
    symmetry = trace(model, X)
    assert not symmetry.proof.refuted
    assert [family.members for family in symmetry.families] == [("*.0", "*.1")]
    assert symmetry.axis("up.0").group.name == "positive monomial"
    twin = act(model, symmetry.sample(1, parts=EVERY_PART))
    assert torch.allclose(twin(X), model(X), atol=1e-10)
    found = find_isomorphism(model, twin, symmetry)
    assert found is not None and torch.allclose(
        act(model, found.element).router.weight, twin.router.weight, atol=1e-10
    )
    with torch.no_grad():  # two equal units
        model.up[0].weight[1], model.up[0].bias[1] = model.up[0].weight[0], model.up[0].bias[0]
    rows = torch.randn(200, 5, dtype=torch.float64)
    small = merge(model, rows, target_params=0.95, method="ifm").model
    assert small.up[0].out_features == 3 and torch.allclose(small(rows), model(rows), atol=1e-8)


def test_values_of_unknown_length_are_not_listed() -> None:
    symmetry = trace(Net(lambda h, x: h.relu()[x.sum(-1) > 0]), X)
    assert symmetry.axis("first").group.name == "positive monomial"
    assert all(None not in value.shape for value in symmetry.values.values())
    assert len(symmetry.values) < len(trace(Net(lambda h, x: h.relu()), X).values) + 2


@pytest.mark.parametrize(
    ("between", "group"),
    [
        (lambda h, x: h[x.sum(-1) > 0].relu(), "positive monomial"),
        (lambda h, x: h[h.norm(dim=-1) > 1], "orthogonal"),
        (lambda h, x: h[h[:, 0] > 0], "general linear"),  # of the other three
        (lambda h, x: h[(h > 0).any(-1)], "permutation"),
        (lambda h, x: h[h > 0][: len(x)].sum() * h, "trivial"),
        (lambda h, x: h.relu() * (h > 0.5).nonzero().sum(0)[0], "trivial"),
        (lambda h, x: h[x.sum(-1) > 0].t().reshape(-1, 4), "trivial"),
    ],
)
def test_what_decides_about_rows_does_not_move(between: Any, group: str) -> None:
    model = Net(between)
    symmetry = trace(model, X, prove=False)
    groups = {
        axis.group.name for axis in symmetry.axes if axis.name.startswith("first") and ".in" not in axis.name
    }
    assert group in groups, groups
    moved = act(model, symmetry.sample(0, parts=EVERY_PART))
    for x in (X, X[:3], X.flip(0)):
        assert torch.allclose(moved(x), model(x), atol=1e-9)


def test_a_model_that_makes_a_distribution_is_traced() -> None:
    checked = torch.distributions.Distribution._validate_args
    policy = Net(lambda h, x: torch.distributions.Normal(h.relu(), 1.0).mean)
    assert trace(policy, X).axis("first").group.name == "positive monomial"
    assert torch.distributions.Distribution._validate_args is checked
