"""Weights are fitted from sums over rows, in a run that computes no product twice; in place or not."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from intertwine.merging.measured import cross_sums
from intertwine.merging.plan import MergePlan
from intertwine.merging.refit import OutputBefore, observe, refit


class InPlace(nn.Module):
    """What a gave is changed after it was seen, and what c reads before its product is used."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 5, bias), nn.Linear(4, 3, bias), nn.Linear(5, 3, bias)

    def forward(self, x: Tensor) -> Tensor:
        h, skip = self.a(x), self.b(x)
        y = self.c(h.tanh_())
        h.zero_()
        return skip.add_(y)


def _net(bias: bool) -> tuple[InPlace, Tensor]:
    torch.manual_seed(0)
    return InPlace(bias).double().requires_grad_(False), torch.randn(300, 4, dtype=torch.float64)


@pytest.mark.parametrize("bias", [True, False])
def test_what_a_weight_gave_is_kept_though_ops_work_in_place(bias: bool) -> None:
    net, x = _net(bias)
    found = observe(net, ((x,), {})).outputs
    hidden = net.a(x)
    assert torch.allclose(found["a.weight"].rows(), hidden, atol=1e-14)
    assert torch.allclose(found["b.weight"].rows(), net.b(x), atol=1e-14)
    assert torch.allclose(found["c.weight"].rows(), net.c(hidden.tanh()), atol=1e-14)


@pytest.mark.parametrize("bias", [True, False])
def test_weights_that_were_spoilt_are_fitted_back(bias: bool) -> None:
    net, x = _net(bias)
    spoilt = copy.deepcopy(net)
    for parameter in spoilt.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    before = {name: p.clone() for name, p in spoilt.named_parameters()}
    shapes = {name: tuple(p.shape) for name, p in net.named_parameters()}
    targets = observe(net, ((x,), {})).outputs
    weights = refit(spoilt, MergePlan(()), ((x,), {}), targets, shapes)
    assert weights.keys() == shapes.keys()
    for name, parameter in net.named_parameters():
        assert torch.allclose(torch.from_numpy(weights[name]), parameter, atol=1e-7)
        assert not torch.allclose(before[name], parameter, atol=1e-2)
        assert torch.equal(before[name], spoilt.get_parameter(name))
    # where one weight has no target, what it gives is its own, and the others make up for it
    del targets["b.weight"]
    assert "b.weight" not in refit(spoilt, MergePlan(()), ((x,), {}), targets, shapes)


def test_what_is_read_says_as_much_as_what_is_given() -> None:
    torch.manual_seed(0)
    net = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).double().eval().requires_grad_(False)
    x = 1 + torch.randn(50, 6, 8, dtype=torch.float64)
    spoilt = copy.deepcopy(net)
    for parameter in spoilt.parameters():
        parameter.add_(0.05 * torch.randn_like(parameter))
    shapes = {name: tuple(p.shape) for name, p in net.named_parameters()}
    targets = observe(net, ((x,), {})).outputs
    assert {each.made is None for each in targets.values()} == {True, False}
    outputs = {name: OutputBefore(each.rows(), each.skip) for name, each in targets.items()}
    read, given = (refit(spoilt, MergePlan(()), ((x,), {}), t, shapes) for t in (targets, outputs))
    assert len(read) >= 6 and read.keys() == given.keys()
    assert all(abs(read[name] - given[name]).max() < 1e-9 for name in read)
    assert max(abs(read[name] - spoilt.get_parameter(name).numpy()).max() for name in read) > 0.01


def test_sums_of_products_do_not_drown_in_the_means() -> None:
    torch.manual_seed(0)
    x, y = 1000 + torch.randn(5000, 3), torch.randn(5000, 2) - 1000
    total, cross = cross_sums(x, y)
    assert torch.allclose(total, y.double().sum(0), rtol=1e-12)
    middle = x.double().mean(0)
    want = (x.double() - middle).T @ y.double()
    assert torch.allclose(cross - torch.outer(middle, total), want, atol=0.05)
    naive = (x.T @ y).double() - torch.outer(middle, total)
    assert float((naive - want).abs().max()) > 1.0
