"""Mixtures of experts: the hidden axis of the experts and the stream pass products in groups.

`aten._grouped_mm` exists in bfloat16 only (on this side of torch.export), that of transformers in float64.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from intertwine import Symmetry, trace, verify, zoo
from intertwine.vision_shim import prepare


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
    assert symmetry.axis("up").group.name == "positive monomial" and symmetry.axis("up").size == 32
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


def test_mixtral() -> None:
    prepare()
    pytest.importorskip("transformers")
    source = zoo.resolve("hf:mixtral?layers=1")
    symmetry = trace(source.model, source.example, source.kwargs, prove=False)
    report = verify(source.model, source.example, torch.float32, kwargs=source.kwargs, symmetry=symmetry)
    assert report.exact and report.parameter_coverage > 0.9, (report.frozen, report.unknown_ops)
