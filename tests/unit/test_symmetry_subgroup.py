"""The part of the group that leaves some weights where they are, and the helpers that show the group."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from intertwine import act, trace
from intertwine.symmetry.subgroup import find_subgroup


class Positions(nn.Module):
    """A buffer added to a stream that turns: with it in place, nothing of the stream may move."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(3, 4), nn.Linear(4, 5)
        self.middle = nn.Linear(5, 6)
        self.last = nn.Linear(6, 2)
        self.register_buffer("places", torch.randn(7, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.middle(self.leave(self.enter(x) + self.places)).tanh())


class Mixed(nn.Module):
    """Batch norm with stored statistics between axes that are free."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 4)
        self.last = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.second(self.norm(self.first(x)).tanh()).relu())


def models() -> list[tuple[nn.Module, Tensor]]:
    torch.manual_seed(0)
    mixed = Mixed().double().eval()
    with torch.no_grad():
        mixed.norm.running_mean.normal_()
        mixed.norm.running_var.uniform_(0.5, 2)
        mixed.norm.weight.normal_()
        mixed.norm.bias.normal_()
    return [
        (Positions().double(), torch.randn(7, 3, dtype=torch.float64)),
        (mixed, torch.randn(7, 3, dtype=torch.float64)),
    ]


@pytest.mark.parametrize("model, x", models(), ids=["positions", "mixed"])
def test_the_subgroup_leaves_what_is_held_and_the_function(model, x):
    symmetry = trace(model, x)
    buffers = dict(model.named_buffers())
    group = find_subgroup(symmetry, buffers)
    assert not group.whole and group.held and len(group.held) < len(group.axes)
    moves = False
    for seed in range(5):
        moved = act(model, group.sample(np.random.default_rng(seed)))
        for name, buffer in moved.named_buffers():
            torch.testing.assert_close(buffer, buffers[name], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(moved(x), model(x))
        # Negative control: the whole group moves them.
        whole = act(model, symmetry.sample(seed))
        moves |= any(not torch.allclose(b, buffers[name]) for name, b in whole.named_buffers())
        changed = [n for n, p in moved.named_parameters() if not torch.equal(p, model.get_parameter(n))]
        assert {"last.weight"} < set(changed)
    assert moves


def test_parameters_can_be_held_too():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    x = torch.randn(5, 3, dtype=torch.float64)
    group = find_subgroup(trace(model, x), ["2.weight"])
    moved = act(model, group.sample(np.random.default_rng(0)))
    assert all(torch.equal(moved.get_parameter(n), p) for n, p in model.named_parameters())
    assert not group.log_scales.nnz and group.held == {"0", "2"}


def test_holding_nothing_is_the_whole_group():
    model, x = models()[1]
    symmetry = trace(model, x)
    group = find_subgroup(symmetry, ["no such weight"])
    assert group.whole and not group.held
    same, element = group.sample(np.random.default_rng(3)), symmetry.sample(3)
    assert (same @ element.inverse()).is_identity(1e-10)


@pytest.mark.parametrize("hold", [False, True])
def test_log_scales_are_the_free_rescalings(hold):
    model, x = models()[1]
    symmetry = trace(model, x)
    group = find_subgroup(symmetry, dict(model.named_buffers()) if hold else ())
    # Batch norm: in front of it, and not with its statistics held; ReLU: in front of it. Tanh has signs only.
    assert group.log_scales.shape == (len(symmetry.identity().log_scale), 4 if hold else 9)
    numbers = np.random.default_rng(0).normal(size=group.log_scales.shape[1])
    moved = act(model, replace(symmetry.identity(), log_scale=group.log_scales @ numbers))
    torch.testing.assert_close(moved(x), model(x))
    assert not torch.allclose(moved.last.weight, model.last.weight)
