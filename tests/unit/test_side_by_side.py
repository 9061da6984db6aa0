"""Runs side by side: each thing is made once, and no run sees another one's state or random numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from intertwine.graph.example import Example
from intertwine.graph.side_by_side import run_side_by_side
from intertwine.symmetry.prove import Stage


def test_made_once_where_all_read_in_the_same_order() -> None:
    made: list[str] = []
    table = {name: lambda name=name: made.append(name) or name for name in "abc"}
    works = [lambda read: [read[k]() for k in "abac"], lambda read: [read[k]() for k in "abbac"]]
    assert run_side_by_side(works, table) == [list("abac"), list("abbac")]
    assert made == list("abac")


def test_other_orders_cost_more_and_give_the_same() -> None:
    made: list[str] = []
    table = {name: lambda name=name: made.append(name) or name for name in "abc"}
    works = [lambda read: [read[k]() for k in "abc"], lambda read: [read[k]() for k in "cba"]]
    assert run_side_by_side(works, table) == [list("abc"), list("cba")]
    assert len(made) > 3


def test_every_run_has_its_own_random_numbers_and_the_callers_stay() -> None:
    def work(read: Any) -> list[float]:
        torch.manual_seed(5)
        first = float(torch.rand(()))
        read["w"]()
        return [first, float(torch.rand(()))]

    torch.manual_seed(1)
    before = torch.get_rng_state()
    one, other = run_side_by_side([work, work], {"w": lambda: torch.rand(3)})
    assert one == other and torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("where", ["maker", "work"])
def test_an_error_ends_all_runs(where: str) -> None:
    left = []

    def fail() -> None:
        raise ValueError("no")

    def work(read: Any) -> None:
        try:
            read["w"]()
            if where == "work":
                fail()
            read["w"]()
        finally:
            left.append(1)

    with pytest.raises(ValueError, match="no"):
        run_side_by_side([work, work], {"w": fail if where == "maker" else lambda: None})
    assert len(left) == 2


class WritesAndDraws(nn.Module):
    """A buffer that forward writes, and noise inside."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        self.seen += h.mean(0)
        return self.b(torch.relu(h + self.seen)) + torch.rand(2)


def test_a_frugal_stage_at_several_sizes() -> None:
    """The same as one run after another, to the last bit, written buffers included."""
    model = WritesAndDraws()
    examples = [Example.of(torch.randn(n, 3)) for n in (2, 1, 5)]
    names = [n for n, _ in model.named_parameters()] + ["seen"]
    whole, frugal = (Stage(model, names, examples[0], memory=m) for m in (10**9, 0))
    assert frugal.frugal and not whole.frugal
    made: list[str] = []

    def weight(name: str) -> Tensor:
        made.append(name)
        return frugal.weight(name)

    found = list(frugal.outcomes(weight, examples))
    assert sorted(made) == sorted(names)  # once for all sizes
    for a, b in zip(whole.outcomes(whole.weight, examples), found, strict=True):
        assert torch.equal(a.outputs[0], b.outputs[0]) and torch.equal(a.written["seen"], b.written["seen"])
