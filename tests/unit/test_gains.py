"""Matrices beside other scalings: gains of heads, outer products, groups of a convolution.

What the rules claim is acted with, the proof switched off; a product of elements acts as both, one after the
other, which it would not if matrices and scalings did not commute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.value_oracle import wrong_values
from torch import Tensor, nn
from torch.nn import functional as F

from intertwine import Symmetry, act, align, find_isomorphism
from intertwine.graph.export import export

Body = Callable[[Any, Tensor], Tensor]


class Net(nn.Module):
    """Layers a (5 to 6), b (5 to 6), last, gains g of two parts, and what is done with them."""

    def __init__(self, body: Body, reads: int = 6) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.last = nn.Linear(5, 6), nn.Linear(5, 6), nn.Linear(reads, 2)
        self.g, self.f = nn.Parameter(torch.randn(2, 1)), nn.Parameter(torch.randn(3))
        self.body = body
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.body(self, x))


def parts(x: Tensor) -> Tensor:
    """Two parts of three channels."""
    return x.unflatten(-1, (2, 3))


def outer(x: Tensor, y: Tensor) -> Tensor:
    return (x[..., None] * y[..., None, :]).flatten(1)


ALL, IN_TWO = "general linear", "general linear in each of 2 blocks"
CASES: dict[str, tuple[Body, int, dict[str, str]]] = {
    "gain": (lambda m, x: (parts(m.a(x)) * m.g).flatten(1), 6, {"a": IN_TWO, "a/blocks": "monomial"}),
    "gain of a function": (lambda m, x: (parts(m.a(x)) * m.g.exp()).flatten(1), 6,
                           {"a": IN_TWO, "a/blocks": "permutation"}),
    "gain that is used twice": (lambda m, x: (parts(m.a(x)) * m.g + parts(m.b(x)) * m.g).flatten(1), 6,
                                {"a": IN_TWO, "a/blocks": "monomial"}),
    "length": (lambda m, x: (parts(m.a(x)) * m.g * parts(m.b(x)).norm(dim=-1, keepdim=True)).flatten(1), 6,
               {"a": IN_TWO, "b": "orthogonal in each of 2 blocks"}),
    "outer": (lambda m, x: outer(m.a(x)[:, :3], m.b(x)), 18, {"a[0:3]": ALL, "b": ALL}),
    "one side": (lambda m, x: outer(m.a(x)[:, :3].relu(), m.b(x)), 18, {"a[0:3]": "permutation", "b": ALL}),
    "its length": (lambda m, x: F.rms_norm(outer(m.a(x)[:, :3], m.b(x)), (18,)), 18,
                   {"a[0:3]": "orthogonal", "b": "orthogonal"}),
    # What lets no matrix pass.
    "gain of every channel": (lambda m, x: (parts(m.a(x)) * m.f).flatten(1), 6, {"a/blocks": "monomial"}),
    "nonlinear": (lambda m, x: (parts(m.a(x)) * m.g).relu().flatten(1), 6,
                  {"a": "permutation in each of 2 blocks"}),
    "both sides one": (lambda m, x: outer(m.a(x), m.a(x)), 36, {"a": "permutation"}),
    "something added": (lambda m, x: outer(m.a(x)[:, :3], m.a(x)[:, 4:]) + m.b(x), 6,
                        {"a[0:3]": "permutation", "a[4:6]": "permutation"}),
    "outer, then nonlinear": (lambda m, x: outer(m.a(x)[:, :3], m.b(x)).relu(), 18,
                              {"a[0:3]": "permutation", "b": "permutation"}),
}  # fmt: skip


def assert_exact(model: nn.Module, x: Tensor, symmetry: Symmetry) -> None:
    with torch.no_grad():
        expected = model(x)
        g, h = symmetry.sample(0), symmetry.sample(1)
        assert float((act(model, g)(x) - expected).abs().max()) <= 1e-11 * float(expected.abs().max())
        both, after = act(model, g @ h).state_dict(), act(act(model, h), g).state_dict()
        back = act(act(model, g), g.inverse()).state_dict()
    for name, value in model.state_dict().items():
        assert torch.allclose(both[name], after[name], rtol=1e-10, atol=1e-10)
        assert torch.allclose(back[name], value, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_matrices_beside_scalings(name: str) -> None:
    body, reads, wanted = CASES[name]
    model, x = Net(body, reads), torch.randn(4, 5, dtype=torch.float64)
    symmetry = Symmetry(export(model, (x,)))
    found = {a.name: str(a.group) for a in symmetry.axes}
    assert {axis: found.get(axis) for axis in wanted} == wanted
    assert_exact(model, x, symmetry)


GROUPED = {
    "chain": ([(4, 6, 1), (6, 4, 2), (4, 2, 1)], {"0": IN_TWO, "1": IN_TWO}),
    "groups in groups": ([(4, 12, 1), (12, 8, 4), (8, 8, 2), (8, 2, 1)],
                         {"0": "general linear in each of 4 blocks", "2": IN_TWO}),
    "groups that cross": ([(4, 12, 1), (12, 12, 4), (12, 12, 3), (12, 2, 1)], {"0[0:3]": ALL, "2[0:4]": ALL}),
}  # fmt: skip


@pytest.mark.parametrize("name", GROUPED)
def test_groups_of_a_convolution(name: str) -> None:
    layers, wanted = GROUPED[name]
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Conv1d(i, o, 3, padding=1, groups=g) for i, o, g in layers)).double()
    x = torch.randn(2, 4, 5, dtype=torch.float64)
    symmetry = Symmetry(export(model, (x,)))
    found = {a.name: str(a.group) for a in symmetry.axes}
    assert {axis: found.get(axis) for axis in wanted} == wanted
    assert_exact(model, x, symmetry)


@pytest.mark.parametrize("name", ["gain", "outer"])
def test_values_are_turned_as_their_gains_say(name: str) -> None:
    body, reads, _ = CASES[name]
    model, x = Net(body, reads), torch.randn(4, 5, dtype=torch.float64)
    symmetry = Symmetry(export(model, (x,)))
    assert not wrong_values(symmetry, model, (x,), symmetry.sample(0))


@pytest.mark.parametrize("name", ["gain", "gain that is used twice", "length", "gain of every channel"])
def test_a_model_with_gains_is_found_on_its_orbit(name: str) -> None:
    body, reads, _ = CASES[name]
    model, x = Net(body, reads), torch.randn(4, 5, dtype=torch.float64)
    symmetry = Symmetry(export(model, (x,)))
    for seed in range(6):
        found = find_isomorphism(model, act(model, symmetry.sample(seed)), symmetry, restarts=0)
        assert found.element is not None and found.error <= 1e-10


def test_a_grouped_chain_is_aligned_with_its_image() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Conv1d(i, o, 1, groups=g) for i, o, g in GROUPED["chain"][0])).double()
    x = torch.randn(2, 4, 5, dtype=torch.float64)
    symmetry = Symmetry(export(model, (x,)))
    found = align(model, act(model, symmetry.sample(3)), symmetry=symmetry)
    assert found.distance_after <= 1e-10
