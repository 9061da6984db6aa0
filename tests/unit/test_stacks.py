"""Stacks of matrices: every slice has an order of its own where nothing sees two of them at once, else not.

The proof is switched off: what the rules claim is acted with. `OWN` names the stacks whose slices have their
own order, `ONE` those of which some op sees several slices, so that one order is left for all, or none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from intertwine import Symmetry, act, align, find_isomorphism, merge, trace
from intertwine.graph.export import export
from intertwine.orbit.action import GroupAction, double
from intertwine.orbit.balance import Balance
from intertwine.orbit.pair import Pairing
from intertwine.symmetry.subgroup import find_subgroup

Body = Callable[[Any, Tensor], Tensor]


class Stacks(nn.Module):
    """A router r, stacks u (3 of 5 by 4) and d (3 of 4 by 2), biases b, a matrix w, and a use of them."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.r = nn.Linear(5, 3)
        self.u, self.d = nn.Parameter(torch.randn(3, 5, 4)), nn.Parameter(torch.randn(3, 4, 2))
        self.b, self.w = nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(4, 2))
        self.c = nn.Parameter(torch.randn(4))
        self.body = body
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self, x)


def best(m: Any, x: Tensor, k: int = 2) -> Tensor:
    return m.r(x).topk(k, -1).indices


def all_of(m: Any, x: Tensor) -> Tensor:
    """(rows, experts, channels)."""
    return torch.einsum("bi,eih->beh", x, m.u)


def picked(m: Any, x: Tensor, choice: Tensor) -> Tensor:
    """(rows, 1, channels) of the expert of every row."""
    return torch.bmm(x[:, None], m.u[choice])


def read(m: Any, h: Tensor, choice: Tensor) -> Tensor:
    return torch.bmm(h, m.d[choice])[:, 0]


def one(m: Any, x: Tensor) -> Tensor:
    return best(m, x, 1)[:, 0]


OWN: dict[str, Body] = {
    "all": lambda m, x: torch.einsum("beh,eho->bo", all_of(m, x).relu(), m.d),
    "with biases": lambda m, x: torch.einsum("beh,eho->bo", (all_of(m, x) + m.b).relu(), m.d),
    "gated": lambda m, x: torch.einsum("beh,eho->bo", all_of(m, x).sigmoid() * (all_of(m, x) + m.b), m.d),
    "batched": lambda m, x: (x @ m.u).relu().matmul(m.d).sum(0),
    "one by one": lambda m, x: sum((x @ u).relu() @ d for u, d in zip(m.u, m.d, strict=True)),
    "two of them": lambda m, x: (x @ m.u[0]).relu() @ m.d[0] + (x @ m.u[2]).tanh() @ m.d[2],
    "a softmax in each": lambda m, x: torch.einsum("beh,eho->bo", all_of(m, x).softmax(-1), m.d),
    "looked up": lambda m, x: read(m, picked(m, x, c := one(m, x)).relu(), c),
    "looked up with biases": lambda m, x: read(m, (picked(m, x, c := one(m, x)) + m.b[c][:, None]).relu(), c),
    "two a row": lambda m, x: torch.einsum(
        "bkh,bkho->bo", torch.einsum("bi,bkih->bkh", x, m.u[c := best(m, x)]).relu(), m.d[c]
    ),
    "by the input": lambda m, x: read(m, picked(m, x, c := (x[:, 0] > 0).long() + 1).relu(), c),
    "no function between": lambda m, x: read(m, picked(m, x, c := one(m, x)), c),
    "cubes": lambda m, x: read(m, (h := picked(m, x, c := one(m, x))) * h.square(), c),
    "halves": lambda m, x: torch.einsum(
        "beh,eho->bo", torch.cat([p := (h := all_of(m, x))[..., :2].relu() * h[..., 2:], p.abs()], -1), m.d
    ),
    "a norm over all": lambda m, x: torch.einsum(
        "beh,eho->bo", nn.functional.layer_norm(all_of(m, x), (3, 4)), m.d
    ),
}

ONE: dict[str, Body] = {
    "summed before": lambda m, x: torch.einsum("bh,eho->bo", all_of(m, x).sum(1).relu(), m.d),
    "the largest of them": lambda m, x: all_of(m, x).amax(1) @ m.w,
    "one bias for all": lambda m, x: torch.einsum("beh,eho->bo", (all_of(m, x) + m.c).relu(), m.d),
    "read by one matrix": lambda m, x: (all_of(m, x).relu() @ m.w).sum(1),
    "in another order": lambda m, x: torch.einsum("beh,eho->bo", all_of(m, x).relu(), m.d.flip(0)),
    "neighbours": lambda m, x: torch.einsum("beh,eho->bo", (h := all_of(m, x)) + h.roll(1, 1), m.d),
    "products of two": lambda m, x: torch.einsum("beh,bfh->bef", h := all_of(m, x).relu(), h).sum(1),
    "two choices": lambda m, x: read(m, picked(m, x, one(m, x)).relu(), one(m, x.flip(1))),
    "rows of others": lambda m, x: read(m, picked(m, x, c := one(m, x)).relu().flip(0), c),
    "rows that are shifted": lambda m, x: read(m, picked(m, x, c := one(m, x)).relu().roll(1, 0), c),
    "rows that are added": lambda m, x: read(m, (h := picked(m, x, c := one(m, x))) + h.cumsum(0), c),
    "the mean of rows": lambda m, x: picked(m, x, one(m, x)).relu().mean(0) @ m.w,
    "a softmax over rows": lambda m, x: read(m, picked(m, x, c := one(m, x)).softmax(0), c),
    "rows by rows": lambda m, x: (h := picked(m, x, one(m, x))[:, 0].relu()) @ h.T,
    "k exchanged": lambda m, x: torch.einsum(
        "bkh,bkho->bo", torch.einsum("bi,bkih->bkh", x, m.u[c := best(m, x)]).relu().flip(1), m.d[c]
    ),
    "k mixed": lambda m, x: torch.einsum(
        "bkh,bjho->bo", torch.einsum("bi,bkih->bkh", x, m.u[c := best(m, x)]).relu(), m.d[c]
    ),
    "k first": lambda m, x: torch.einsum(
        "kbh,bkho->bo", torch.einsum("bi,bkih->kbh", x, m.u[c := best(m, x)]).relu(), m.d[c]
    ),
    "sorted channels": lambda m, x: read(m, picked(m, x, c := one(m, x)).sort(-1).values, c),
    "an output": all_of,
    "rows as an output": lambda m, x: picked(m, x, one(m, x)).relu(),
    "a slice beside all": lambda m, x: torch.einsum("beh,eho->bo", all_of(m, x), m.d) + (x @ m.u[0]) @ m.w,
    "one slice read twice": lambda m, x: (x @ m.u[0]).relu() @ m.d[0] + (x @ m.u[1]).relu() @ m.d[0],
    "cut across": lambda m, x: (x @ m.u.movedim(0, 1).flatten(1)).unflatten(1, (4, 3)).sum(2) @ m.w,
}

X = torch.randn(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def traced(body: Body) -> tuple[nn.Module, Symmetry]:
    model = Stacks(body)
    symmetry = Symmetry(export(model, (X,)))
    with torch.no_grad():
        expected = model(X)
        for seed in range(4):
            error = float((act(model, symmetry.sample(seed))(X) - expected).abs().max())
            assert error <= 1e-10 * float(expected.abs().max())
    return model, symmetry


def orders(symmetry: Symmetry, weight: str) -> int:
    """How many orders there are along the dimensions of a stack after the first."""
    slices = symmetry.structure.classes.of[symmetry.structure.slots[weight, 0].ids]
    along = [a for a in symmetry.axes if any(m.param == weight and m.dim for m in a.members)]
    return sum(len(a.classes) for a in along if a.group.permutation and not np.isin(a.classes, slices).any())


@pytest.mark.parametrize("name", OWN)
def test_every_slice_has_an_order_of_its_own(name: str) -> None:
    _, symmetry = traced(OWN[name])
    assert orders(symmetry, "u") == (2 if name == "two of them" else 3)


@pytest.mark.parametrize("name", ONE)
def test_one_order_where_slices_meet(name: str) -> None:
    _, symmetry = traced(ONE[name])
    assert orders(symmetry, "u") <= 1


def test_what_stacks_have_in_common_is_what_merging_sees() -> None:
    _, symmetry = traced(OWN["all"])
    (own,) = [a for a in symmetry.axes if a.name == "u.2"]
    (alike,) = [a for a in symmetry.alike.axes if a.name == "u.2"]
    assert (own.size, own.mergeable, alike.size, alike.mergeable) == (12, False, 4, True)
    wide = Stacks(OWN["all"])
    with torch.no_grad():
        wide.u[..., 3], wide.d[:, 3] = wide.u[..., 1], wide.d[:, 1]  # one channel twice, in all slices
    found = merge(wide, X, symmetry=trace(wide, X), method="ifm", beta=1e-9)
    assert found.model.u.shape == (3, 5, 3)
    assert torch.allclose(found.model(X), wide(X), atol=1e-10)


@pytest.mark.parametrize(
    "name", ["looked up", "all", "a norm over all", "the largest of them", "summed before"]
)
def test_an_image_is_found_on_its_orbit(name: str) -> None:
    model, symmetry = traced({**OWN, **ONE}[name])
    for seed in (2, 5):
        assert find_isomorphism(model, act(model, symmetry.sample(seed)), symmetry, restarts=0)


class Heads(nn.Module):
    """Attention with weights [heads, d, n], narrower or wider than the stream, and a gain for each head."""

    def __init__(self, n: int, gain: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(3, 5), nn.Linear(5, 2)
        self.q, self.k, self.v, self.o = (nn.Parameter(torch.randn(3, 5, n)) for _ in range(4))
        self.g = nn.Parameter(torch.randn(3, 1, 1)) if gain else 1.0
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        q, k, v = (torch.einsum("btd,ndh->bnth", x, w) for w in (self.q, self.k, self.v))
        seen = (q * self.g @ k.mT).softmax(-1) @ v
        return self.last(torch.einsum("bnth,ndh->btd", seen, self.o))


@pytest.mark.parametrize(("n", "gain"), [(2, False), (6, False), (6, True)])
def test_stacked_heads_are_found_under_a_matrix_of_each(n: int, gain: bool) -> None:
    model = Heads(n, gain)
    symmetry = Symmetry(export(model, (torch.randn(4, 3, 3, dtype=torch.float64),)))
    assert {a.name: str(a.group) for a in symmetry.axes}["q.2"] == "general linear in each of 3 blocks"
    moved = act(model, symmetry.sample(n))
    assert find_isomorphism(model, moved, symmetry, restarts=0).error <= 1e-10
    if gain:
        assert align(model, moved, symmetry=symmetry).distance_after <= 1e-10
    with torch.no_grad():
        moved.q[0] *= 3.0  # the control
    assert Pairing(symmetry, moved, model).on_orbit() is None


def test_stacks_that_are_rescaled_have_a_point_of_least_norm() -> None:
    model, symmetry = traced(OWN["all"])
    action = GroupAction(find_subgroup(symmetry), dict(model.named_parameters()))
    state = action.state(double(dict(model.named_parameters())))
    Balance(action)(state)
    made, read = state.weights["u"].norm(dim=1), state.weights["d"].norm(dim=2)  # of every channel of a slice
    assert torch.allclose(made, read) and not torch.allclose(model.u.norm(dim=1), model.d.norm(dim=2))
