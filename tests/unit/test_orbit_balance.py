"""The gauge of least norm: an element; equal norms on an orbit; a limit where there is no least norm."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from intertwine import Symmetry, act, trace
from intertwine.orbit import Balance, GroupAction
from intertwine.orbit.matrices import balancing, least_norm
from intertwine.orbit.state import State
from intertwine.symmetry.subgroup import find_subgroup
from intertwine.symmetry.transform import apply_element


class Loop(nn.Module):
    """A weight from a linear axis to itself, and a batch norm, before which a scale only ever enlarges."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.turn, self.leave = nn.Linear(4, 3), nn.Linear(3, 3, bias=False), nn.Linear(3, 5)
        self.norm, self.last = nn.BatchNorm1d(5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        return self.last(self.norm(self.leave(x + self.turn(x))).relu())


def deep() -> nn.Module:
    """Scales that are coupled through the whole depth: axis by axis this takes hundreds of sweeps."""
    layers = [layer for _ in range(10) for layer in (nn.Linear(5, 5), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(5, 3), nn.Linear(3, 4))


CASES: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "deep": (deep, 5),
    "loop": (Loop, 4),
    "rank deficient": (lambda: nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 2)), 3),
}


def balanced(
    symmetry: Symmetry, model: nn.Module, limit: bool = False
) -> tuple[State, dict[str, Tensor], frozenset[str]]:
    group = find_subgroup(symmetry)
    action = GroupAction(group, dict(model.named_parameters()))
    weights = {name: tensor.detach() for name, tensor in symmetry.weights(model).items()}
    state = action.state(weights)
    Balance(action, limit=limit)(state)
    return state, weights, action.params


@pytest.fixture(params=CASES)
def traced(request) -> tuple[nn.Module, Symmetry, int]:
    make, width = CASES[request.param]
    torch.manual_seed(0)
    model = make().double().eval()
    return model, trace(model, torch.zeros(2, width, dtype=torch.float64)), width


def norms(weights: dict[str, Tensor]) -> Tensor:
    return torch.stack([weights[name].norm() for name in sorted(weights)])


def test_the_gauge_is_an_element(traced):
    model, symmetry, width = traced
    state, weights, params = balanced(symmetry, model)
    moved = apply_element(state.element, weights)
    for name in params:
        torch.testing.assert_close(moved[name], state.weights[name], rtol=1e-11, atol=1e-12)
    assert (state.element.sign == 1).all()
    np.testing.assert_array_equal(state.element.relabel, symmetry.identity().relabel)
    x = torch.randn(6, width, dtype=torch.float64)
    torch.testing.assert_close(act(model, state.element)(x), model(x))


def test_models_of_one_orbit_have_weights_of_equal_norms(traced):
    """Permutations, signs and rotations, which are left between them, change no norm."""
    model, symmetry, _ = traced
    # Without the limit a rank-deficient axis has no least norm; with it, it has.
    deficient = symmetry.axes[0].size == 8
    first = balanced(symmetry, model, limit=deficient)[0].weights
    for seed in range(3):
        other = balanced(symmetry, act(model, symmetry.sample(seed)), limit=deficient)[0].weights
        torch.testing.assert_close(norms(other), norms(first), rtol=1e-10, atol=0)


def test_nothing_on_the_orbit_is_shorter():
    torch.manual_seed(0)
    model = deep().double()
    symmetry = trace(model, torch.zeros(2, 5, dtype=torch.float64))
    weights = balanced(symmetry, model)[0].weights
    for seed in range(4):
        near = apply_element(symmetry.sample(seed, ("scale", "linear"), spread=1e-3), weights)
        assert float(norms(weights).norm()) < float(norms(near).norm())


def test_what_reads_a_dead_channel_vanishes_in_the_limit_only():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    with torch.no_grad():
        model[0].weight[1], model[0].bias[1] = 0, 0
    symmetry = trace(model, torch.zeros(2, 3, dtype=torch.float64))
    gauge, limit = (balanced(symmetry, model, limit=limit)[0] for limit in (False, True))
    assert float(limit.weights["2.weight"][:, 1].norm()) < 1e-15
    # As an element can: of norm 1, by a scale that can be undone.
    assert float(gauge.weights["2.weight"][:, 1].norm()) == pytest.approx(1)
    assert np.abs(gauge.element.log_scale).max() < 5
    for name in ("0.weight", "2.weight"):
        others = [0, 2, 3]
        left, right = (w[name] if name[0] == "0" else w[name].T for w in (gauge.weights, limit.weights))
        torch.testing.assert_close(left[others], right[others], rtol=1e-12, atol=0)


def sides(make: int, read: int, width: int = 4) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(make + 10 * read)
    m, r = (torch.randn(2, width, k, generator=draw, dtype=torch.float64) for k in (make, read))
    return m, r


@pytest.mark.parametrize("make, read", [(6, 5), (6, 2), (2, 6), (3, 2)])
def test_least_norm_keeps_the_product_and_balances(make, read):
    m, r = sides(make, read)
    x, y = least_norm(m, r)
    torch.testing.assert_close((y @ r).mT @ (x @ m), r.mT @ m)
    torch.testing.assert_close((x @ m) @ (x @ m).mT, (y @ r) @ (y @ r).mT)
    nuclear = torch.linalg.matrix_norm(r.mT @ m, "nuc")
    torch.testing.assert_close((x @ m).square().sum((1, 2)), nuclear)
    rank = min(make, read, 4)
    torch.testing.assert_close(x @ y.mT, torch.diag_embed((torch.arange(4) < rank).double()).expand(2, 4, 4))


def test_balancing_is_symmetric_and_can_be_undone():
    for make, read in [(6, 5), (6, 2), (2, 6), (3, 2)]:
        m, r = sides(make, read)
        x = balancing(m, r)
        torch.testing.assert_close(x, x.mT)
        assert float(torch.linalg.cond(x).max()) < 1e3
        moved, dual = x @ m, torch.linalg.inv(x).mT @ r
        if min(make, read) >= 4:
            torch.testing.assert_close(moved @ moved.mT, dual @ dual.mT)
        elif max(make, read) >= 4:
            whole = moved if make > read else dual
            torch.testing.assert_close(whole @ whole.mT, torch.eye(4, dtype=x.dtype).expand(2, 4, 4))
