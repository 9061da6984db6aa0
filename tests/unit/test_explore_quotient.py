"""Equivalent parameters have one canonical form, which computes the same function; others have another."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from intertwine.exploring import function_distance
from intertwine.exploring.known import KnownSymmetry
from intertwine.exploring.quotient import Quotient
from intertwine.orbit.balance import minimise


class Attention(nn.Module):
    """Pre-norm attention with two heads: matrices inside the heads, and the heads themselves."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return x + self.attention(y, y, y, need_weights=False)[0]


class Encoder(nn.Module):
    """A residual stream that permutes, with attention and a perceptron on it."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.first, self.second = nn.Linear(3, 6), Attention(), Attention()
        self.leave = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(self.second(self.first(self.enter(x))).mean(1))


class Grouped(nn.Module):
    """Two queries share each key and value: the heads of a group lie across the axes inside them."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.norm, self.query, self.out = nn.LayerNorm(width), nn.Linear(width, 8), nn.Linear(8, width)
        self.key, self.value = nn.Linear(width, 4), nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        query = self.query(y).unflatten(2, (4, 2)).transpose(1, 2)
        key, value = (
            make(y).unflatten(2, (2, 2)).repeat_interleave(2, dim=2).transpose(1, 2)
            for make in (self.key, self.value)
        )
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


class Loop(nn.Module):
    """A weight from a linear axis to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.turn, self.leave = nn.Linear(4, 3), nn.Linear(3, 3, bias=False), nn.Linear(3, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        return self.leave(x + self.turn(x))


class FixedOrder(nn.Module):
    """The middle channels keep their places, but not their signs; their weights come first."""

    def __init__(self) -> None:
        super().__init__()
        self.second, self.third = nn.Linear(5, 4, bias=False), nn.Linear(4, 6, bias=False)
        self.first, self.last = nn.Linear(3, 5, bias=False), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.first(x).tanh()).tanh() * torch.arange(1.0, 5.0, dtype=x.dtype)
        return self.last(self.third(x).tanh())


def groups() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Conv2d(6, 6, 3, groups=3), nn.ReLU(), nn.Conv2d(6, 2, 1)
    )


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear-linear": (lambda: nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 5)), (8, 4)),
    "three linear": (lambda: nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 5), nn.Linear(5, 4)), (8, 4)),
    # The matrix between has 8 channels and rank 2: the canonical form is a limit of the orbit.
    "rank deficient": (lambda: nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 2)), (8, 3)),
    # The last axis has rank 2, and with it the first, which alone would have 4.
    "rank falls twice": (lambda: nn.Sequential(nn.Linear(5, 6), nn.Linear(6, 4), nn.Linear(4, 2)), (8, 5)),
    "convolutions": (lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.Conv2d(3, 2, 3)), (4, 2, 6, 6)),
    "mixed": (
        lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3), nn.Linear(3, 4)),
        (8, 4),
    ),
    "attention": (Attention, (4, 5, 6)),
    "encoder": (Encoder, (4, 5, 3)),
    "grouped queries": (
        lambda: nn.Sequential(nn.Linear(3, 6), Grouped(), Grouped(), nn.Linear(6, 2)),
        (4, 5, 3),
    ),
    "groups": (groups, (4, 2, 6, 6)),
    "loop": (Loop, (8, 4)),
    "fixed order": (FixedOrder, (8, 3)),
    "tanh": (lambda: nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)), (8, 3)),
}


@pytest.fixture(scope="module", params=CASES)
def quotient(request) -> Quotient:
    make, shape = CASES[request.param]
    torch.manual_seed(0)
    model, inputs = make().double(), torch.randn(shape, dtype=torch.float64)
    return Quotient(KnownSymmetry(model, inputs[:2], function_distance(model, inputs)))


def test_the_canonical_form_is_one_and_computes_the_function(quotient):
    objective = quotient.known.objective
    assert float(objective.values(quotient.reference[None])[0]) < 1e-24
    torch.testing.assert_close(quotient.canonical(objective.theta), quotient.reference, rtol=0, atol=1e-10)
    for seed in range(3):
        moved = quotient.known.sample(torch.Generator().manual_seed(seed))
        assert float((moved - objective.theta).norm()) > 0.3
        torch.testing.assert_close(quotient.canonical(moved), quotient.reference, rtol=0, atol=1e-8)
        # Least norm: nothing on the orbit is shorter.
        assert float(quotient.reference.norm()) <= float(moved.norm()) + 1e-12


def test_each_part_of_the_group_is_divided_out(quotient):
    for part in ("permutation", "scale", "sign", "linear"):
        moved = quotient.known.sample(torch.Generator().manual_seed(5), part)
        torch.testing.assert_close(quotient.canonical(moved), quotient.reference, rtol=0, atol=1e-8)


def test_parameters_off_the_orbit_have_their_own_canonical_form(quotient):
    known, theta = quotient.known, quotient.known.objective.theta
    other = theta + 0.2 * torch.randn(theta.shape, generator=torch.Generator().manual_seed(3)).to(theta)
    form = quotient.canonical(other)
    assert float((form - quotient.reference).norm()) > 0.1
    again = quotient.canonical(known.act(other, known.symmetry.sample(7)))
    torch.testing.assert_close(again, form, rtol=0, atol=1e-8)
    # The same function as before, not that of theta.
    both = known.objective.values(torch.stack([other, form]))
    assert float(both[0]) == pytest.approx(float(both[1]), rel=1e-9) and float(both[0]) > 1e-4


def test_a_small_step_off_the_orbit_stays_small(quotient):
    theta = quotient.known.objective.theta
    step = 1e-4 * torch.randn(theta.shape, generator=torch.Generator().manual_seed(4)).to(theta)
    distance = float((quotient.canonical(theta + step) - quotient.reference).norm())
    assert 1e-7 < distance < 50 * float(step.norm())


def test_what_reads_a_dead_channel_does_not_count():
    torch.manual_seed(0)
    model, inputs = CASES["mixed"][0]().double(), torch.randn(8, 4, dtype=torch.float64)
    with torch.no_grad():
        model[0].weight[2], model[0].bias[2] = 0, 0
    quotient = Quotient(KnownSymmetry(model, inputs[:2], function_distance(model, inputs)))
    objective = quotient.known.objective
    with torch.no_grad():
        model[2].weight[:, 2] += 1
    other = objective.layout.flatten(dict(model.named_parameters()))
    moved = quotient.known.act(other, quotient.known.symmetry.sample(0))
    torch.testing.assert_close(quotient.canonical(moved), quotient.reference, rtol=0, atol=1e-8)


def test_newton_finds_the_last_digits():
    """a e^(2x) + b e^(-2x) has its minimum at log(b / a) / 4, and a e^(2x) - 2x at -log(a) / 2."""
    a, b = np.random.default_rng(0).uniform(1e-6, 1e3, (2, 7))
    both = csr_array(np.concatenate([np.eye(7), -np.eye(7)]))
    found = minimise(both, np.concatenate([a, b]), np.zeros(7))
    np.testing.assert_allclose(found, np.log(b / a) / 4, rtol=0, atol=1e-13)
    one_sided = minimise(csr_array(np.eye(7)), a, np.ones(7))
    np.testing.assert_allclose(one_sided, -np.log(a) / 2, rtol=0, atol=1e-13)


def test_dead_channels_are_left_alone():
    found = minimise(csr_array(np.eye(2)), np.array([4.0, 0.0]), np.ones(2))
    np.testing.assert_allclose(found, [-np.log(2), 0], rtol=0, atol=1e-13)
