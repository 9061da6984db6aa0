"""`merge` with invariant distances does not see which point of an orbit a model is."""

from __future__ import annotations

import pytest
import torch
from architectures import ARCHITECTURES, built, symmetry_of
from grammar import Net, nets
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from intertwine import Symmetry, act, apply_merge, plan_merge, trace
from repeats import examples


def check(model: nn.Module, x: Tensor, symmetry: Symmetry, seed: int, beta: float = 0.6) -> int:
    """How many merges there are; the same, with the same function, on another point of the orbit."""
    found = []
    for twin in (model, act(model, symmetry.sample(seed))):
        plan = plan_merge(twin, symmetry, beta=beta, method="ifm", distance="invariant")
        with torch.no_grad():
            found.append((plan.complexity, apply_merge(twin, plan)(x)))
    (widths, output), (moved_widths, moved_output) = found
    assert moved_widths == widths
    torch.testing.assert_close(moved_output, output, rtol=1e-6, atol=1e-6 * float(output.abs().max()))
    return plan.merges


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architectures(name: str) -> None:
    model, x = built(name, generic=True)
    symmetry = symmetry_of(name)
    mergeable = any(a.mergeable and not a.group.linear for a in symmetry.axes)
    assert (check(model, x, symmetry, seed=1) > 0) == mergeable


@settings(
    derandomize=True,
    max_examples=examples(6, 10),
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
@given(nets(), st.integers(0, 1000))
def test_random_nets(net: Net, seed: int) -> None:
    note(repr(net))
    check(net.model, net.inputs, trace(net.model, net.inputs), seed)


class Experts(nn.Module):
    """A soft mixture whose experts lie in one tensor: the channels of each may have an order of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.router, self.leave = nn.Linear(5, 6), nn.Linear(6, 3), nn.Linear(6, 2)
        self.up, self.down = nn.Parameter(torch.randn(3, 6, 9)), nn.Parameter(torch.randn(3, 9, 6))

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        hidden = torch.einsum("nd,edh->neh", x, self.up).relu()
        each = torch.einsum("neh,ehd->ned", hidden, self.down)
        out: Tensor = self.leave(x + (self.router(x).softmax(-1)[..., None] * each).sum(1))
        return out


def test_experts_in_one_tensor_keep_one_order() -> None:
    """A channel goes from all of them at once: the merge works on the part of the group that says so.

    Matrices and two families of scales meet in one weight, where the point of least norm is hard to reach.
    """
    torch.manual_seed(0)
    model, x = Experts().double().eval(), torch.randn(4, 5, dtype=torch.float64)
    symmetry = trace(model, x)
    assert symmetry.alike is not symmetry
    assert all(check(model, x, symmetry.alike, seed) for seed in range(3))


def test_paper_distances_do_see_it() -> None:
    """The control: the source's distance is not invariant, and another function comes out."""
    model, x = built("mlp", generic=True)
    symmetry = trace(model, x)
    twins = model, act(model, symmetry.sample(1))
    with torch.no_grad():
        left, right = (
            apply_merge(twin, plan_merge(twin, symmetry, beta=0.6, method="ifm"))(x) for twin in twins
        )
    assert float((left - right).abs().max()) > 1e-3
