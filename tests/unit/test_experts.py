"""Mixtures of experts: the hidden axis of the experts and the stream pass products in groups.

`aten._grouped_mm` exists in bfloat16 only (on this side of torch.export), that of transformers in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from intertwine import Symmetry, act, trace, verify, zoo
from intertwine.graph.export import export
from intertwine.vision_shim import prepare
from value_oracle import wrong_values


class Experts(nn.Module):
    """Tokens are sorted by the expert that a router chooses, multiplied in groups, and put back."""

    def __init__(self, product: Callable[..., Tensor]) -> None:
        super().__init__()
        self.product = product
        self.first, self.router, self.last = nn.Linear(4, 16), nn.Linear(16, 3), nn.Linear(16, 2)
        self.up, self.down = nn.Parameter(torch.randn(3, 16, 32)), nn.Parameter(torch.randn(3, 32, 16))

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        weight, choice = self.router(h).softmax(-1).topk(1, -1)
        order = choice[:, 0].argsort()
        ends = nn.functional.one_hot(choice[:, 0], 3).sum(0).cumsum(0).to(torch.int32)
        y = self.product(h[order], self.up, ends)
        y = self.product(torch.relu(y), self.down, ends)
        back = torch.zeros_like(h).index_add(0, order, y)
        return self.last(h + weight * back)


def assert_experts_move(symmetry: Symmetry) -> None:
    assert not symmetry.unknown_ops
    hidden = [a for a in symmetry.axes if a.group.permutation and "up" in {m.param for m in a.members}]
    hidden = [a for a in hidden if "router.weight" not in {m.param for m in a.members}]
    assert {a.group.name for a in hidden} == {"positive monomial"}  # of each expert on its own
    assert sorted(a.size for a in hidden) in ([32, 32, 32], [96])
    stream = next(a for a in symmetry.axes if ("first.weight", 0) in [(m.param, m.dim) for m in a.members])
    assert {"up", "down", "router.weight", "last.weight"} <= {m.param for m in stream.members}
    assert stream.group.name == "general linear"


def test_a_mixture_of_experts() -> None:
    prepare()
    pytest.importorskip("transformers.integrations.moe")
    torch.manual_seed(0)
    model = Experts(torch.ops.transformers.grouped_mm_fallback.default).double()
    x = torch.randn(12, 4, dtype=torch.float64)
    symmetry = trace(model, x, prove=False)
    assert_experts_move(symmetry)
    assert verify(model, x, symmetry=symmetry, samples=3).exact


def test_the_product_of_torch_has_the_same_rule() -> None:
    torch.manual_seed(0)
    model = Experts(torch._grouped_mm).to(torch.bfloat16)
    assert_experts_move(trace(model, torch.randn(16, 4).to(torch.bfloat16), prove=False))


def product(a: Tensor, b: Tensor, ends: Tensor) -> Tensor:
    out: Tensor = torch.ops.transformers.grouped_mm_fallback.default(a, b, ends)
    return out


def ends(choice: Tensor) -> Tensor:
    return torch.histc(choice.float(), bins=3, min=0, max=2).cumsum(0, dtype=torch.int32)


def put_back(m: Sorted, h: Tensor, choice: Tensor) -> Tensor:
    order = choice.argsort()
    bounds = ends(choice[order])
    y = product(product(h[order // 2], m.up, bounds).relu() + m.bias[choice[order]], m.down, bounds)
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order))
    return y[back]


def put_back_by_sorting(m: Sorted, h: Tensor, choice: Tensor) -> Tensor:
    chosen, order = choice.sort()
    return product(h[order // 2], m.up, ends(chosen))[:, :2].unsqueeze(-1).squeeze(-1)[order.argsort()]


def added_up(m: Sorted, h: Tensor, choice: Tensor) -> Tensor:
    order = choice.argsort()
    y = product(h[order // 2], m.up, ends(choice))
    return torch.zeros_like(y).index_add(0, order // 2, y)


def one_after_the_other(m: Sorted, h: Tensor, choice: Tensor) -> Tensor:
    order = choice.argsort()
    return product(h[order // 2], m.up, ends(choice)).cumsum(0)[order.argsort()]


def downwards(m: Sorted, h: Tensor, choice: Tensor) -> Tensor:
    order = choice.argsort(descending=True)
    return product(h[order // 2], m.up, ends(choice))[order.argsort()]


def groups_of_others(m: Sorted, h: Tensor, choice: Tensor) -> Tensor:
    order = choice.argsort()
    return product(h[order // 2], m.up, ends(choice.view(-1, 2)[:, :1].repeat(1, 2).view(-1)))[
        order.argsort()
    ]


def left_in_order(m: Sorted, h: Tensor, choice: Tensor) -> Tensor:
    order = choice.argsort()
    return product(h[order // 2], m.up, ends(choice))


def beside_others(m: Sorted, h: Tensor, choice: Tensor) -> Tensor:
    order = choice.argsort()
    return (product(h[order // 2], m.up, ends(choice)) * h.repeat(2, 1)[:, :1])[order.argsort()]


class Sorted(nn.Module):
    """Rows in the order of the two experts that a router chooses for each."""

    def __init__(self, compute: Callable[[Any, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.compute, self.router = compute, nn.Linear(4, 3)
        self.up, self.down = nn.Parameter(torch.randn(3, 4, 5)), nn.Parameter(torch.randn(3, 5, 2))
        self.bias = nn.Parameter(torch.randn(3, 5))

    def forward(self, h: Tensor) -> Tensor:
        return self.compute(self, h, self.router(h).topk(2, -1).indices.view(-1))


@pytest.mark.parametrize("compute", [put_back, put_back_by_sorting, added_up])
def test_experts_of_sorted_rows_change_places(compute: Callable[..., Tensor]) -> None:
    assert_sorted(compute, free=True)


@pytest.mark.parametrize(
    "compute", [one_after_the_other, downwards, groups_of_others, left_in_order, beside_others]
)
def test_experts_of_sorted_rows_stay(compute: Callable[..., Tensor]) -> None:
    assert_sorted(compute, free=False)


def assert_sorted(compute: Callable[..., Tensor], free: bool) -> None:
    """What is claimed is exact; what is not changes the function, done by hand."""
    prepare()
    pytest.importorskip("transformers.integrations.moe")
    torch.manual_seed(0)
    model, x = Sorted(compute).double(), torch.randn(6, 4, dtype=torch.float64)
    symmetry, other = Symmetry(export(model, (x,))), Sorted(compute).double()
    router = next(a for a in symmetry.axes if ("up", 0) in [(m.param, m.dim) for m in a.members])
    assert router.group.permutation == free and not router.mergeable
    assert wrong_values(symmetry, model, (x,), symmetry.sample(1)) == {}
    other.load_state_dict({name: tensor.flip(0) for name, tensor in model.state_dict().items()})
    with torch.no_grad():
        for moved in (other, act(model, symmetry.sample(0))):
            error = float((moved(x) - model(x)).abs().max() / model(x).abs().max())
            assert error <= 1e-10 if free or moved is not other else error > 1e-3


def test_mixtral() -> None:
    prepare()
    pytest.importorskip("transformers")
    source = zoo.resolve("hf:mixtral?layers=1")
    symmetry = trace(source.model, source.example, source.kwargs)
    report = verify(source.model, source.example, torch.float32, kwargs=source.kwargs, symmetry=symmetry)
    assert report.exact and report.parameter_coverage > 0.9, (report.frozen, report.unknown_ops)
