"""Experts of a mixture: copies and unused ones go for nothing, others at the cost that is measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.mixtral import IDS, small_mixtral, without_the_copy
from torch import Tensor, nn
from torch.nn import functional as F

from intertwine import trace
from intertwine.merging import MergePlan, apply_merge, plan_merge
from intertwine.merging.decide import Options, Planner
from intertwine.merging.experts import Mixture, find_mixtures
from intertwine.symmetry import Symmetry


class Router(nn.Module):
    def __init__(self, width: int, experts: int, chosen: int) -> None:
        super().__init__()
        self.chosen, self.weight = chosen, nn.Parameter(torch.randn(experts, width))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        best, which = F.linear(x, self.weight).softmax(-1).topk(self.chosen, -1)
        return best / best.sum(-1, keepdim=True), which


class Net(nn.Module):
    """A mixture whose experts lie in one tensor, beside a skip."""

    def __init__(self, width: int = 6, hidden: int = 5, experts: int = 4, chosen: int = 1) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(3, width), nn.Linear(width, 4)
        self.router, self.count = Router(width, experts, chosen), experts
        self.up = nn.Parameter(torch.randn(experts, width, hidden))
        self.down = nn.Parameter(torch.randn(experts, hidden, width))

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x).relu()
        share, which = self.router(x)
        gates = torch.zeros(len(x), self.count, dtype=x.dtype).scatter(1, which, share)
        each = torch.einsum("neh,ehd->ned", torch.einsum("nd,edh->neh", x, self.up).relu(), self.down)
        out: Tensor = self.head(x + (gates[..., None] * each).sum(1))
        return out


def _net(chosen: int = 1) -> Net:
    torch.manual_seed(0)
    return Net(chosen=chosen).double().eval().requires_grad_(False)


def _copied(net: Net) -> Net:
    """Expert 2 a copy of expert 0, and so is its row of the router."""
    for tensor in (net.router.weight, net.up, net.down):
        tensor[2] = tensor[0].clone()
    return net


X = torch.randn(200, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def _planned(net: nn.Module, example: Any, data: Any, kinds: str = "experts") -> tuple[Planner, Symmetry]:
    symmetry = trace(net, *example, prove=False)
    options = Options("sequential", repair="weights", parameters={"kinds": kinds})
    return Planner(net, symmetry, options, None, data, True, example), symmetry


def test_a_mixture_is_found_with_all_that_carries_its_experts() -> None:
    assert find_mixtures(trace(_net(), X[:2], prove=False), _net()) == [
        Mixture("router.weight", 4, ("router.weight", "up", "down"))
    ]


def test_a_copy_of_an_expert_is_given_back_exactly() -> None:
    net = _copied(_net())
    share = 1 - (6 + 2 * 30) / sum(p.numel() for p in net.parameters())
    plan = plan_merge(net, trace(net, X[:2]), method="sequential", target_params=share, data=[X])
    small: Any = apply_merge(net, MergePlan.from_json(plan.to_json()))
    assert small.up.shape == (3, 6, 5) and small.router.weight.shape == (3, 6) and small.count == 3
    assert {a.name: a.width for a in plan.axes if a.merges} == {"router/experts": 3}
    torch.testing.assert_close(small(X), net(X), rtol=0, atol=1e-8)


def test_costs_are_those_of_the_smaller_model() -> None:
    """Each expert weighs as its tokens do; of the best two a copy is no duplicate, and is not called one."""
    for chosen, exact in ((1, True), (2, False)):
        net = _copied(_net(chosen))
        planner, _ = _planned(net, ((X[:2],), {}), [X[:16]])
        (axis,) = planner.weighed.axes
        assert len(axis.merges) == 4 - chosen  # as many are left as are chosen
        assert (axis.costs[0] < 1e-20) is exact
        small = apply_merge(net, replace(planner.blank(), axes=(axis.first(2),)))
        spread = [y - y.mean(-1, keepdim=True) for y in (net(X[:16]), small(X[:16]) - net(X[:16]))]
        assert axis.costs[1] == pytest.approx(float(spread[1].square().sum() / spread[0].square().sum()))


def test_an_expert_that_is_never_chosen_costs_nothing() -> None:
    net = _net(chosen=2)
    net.inner.weight.abs_()
    net.inner.bias.abs_()
    x = X.abs()
    net.router.weight[1] = -9.0
    planner, _ = _planned(net, ((x[:2],), {}), [x])
    (axis,) = planner.weighed.axes
    assert axis.merges[0].drop == 1 and axis.costs[0] < 1e-20 < 1e-6 < axis.costs[1]


def test_a_number_of_experts_that_cannot_change_is_left_alone() -> None:
    class Fixed(Net):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + self.up.reshape(4, -1).sum()

    torch.manual_seed(0)
    net = Fixed().double().eval().requires_grad_(False)
    planner, _ = _planned(net, ((X[:2],), {}), [X])
    assert not planner.weighed.axes
    assert planner.rigid["router/experts"] == "the number of experts is written into the forward"


def test_mixtral_loses_the_copy_of_an_expert() -> None:
    model = small_mixtral().double().eval().requires_grad_(False)
    block = model.model.layers[0].mlp
    for tensor in (block.gate.weight, block.experts.gate_up_proj, block.experts.down_proj):
        tensor.mul_(10)
        tensor[4] = tensor[1].clone()
    small = without_the_copy(model)
    assert small.model.layers[0].mlp.experts.num_experts == 4 == len(small.model.layers[0].mlp.gate.weight)
    written = small.generate(IDS[:1, :3], max_new_tokens=4, do_sample=False)
    assert written.shape == (1, 7)
