"""What merge does where nothing is said: which method, which rewritings, what is measured on, what counts."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from intertwine import trace
from intertwine.errors import Unsupported
from intertwine.merging import factor, merge
from intertwine.merging.calibration import random_inputs
from intertwine.merging.decide import Options, Planner
from intertwine.merging.limits import Together
from intertwine.merging.plan import AxisPlan, Merge
from intertwine.merging.sequential import KnownOutputs


class Block(nn.Module):
    """A causal language model of one pre-norm block with a head of its own."""

    def __init__(self, tokens: int = 40, width: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.table, self.head = nn.Embedding(tokens, width), nn.Linear(width, tokens, bias=False)
        self.ln_1, self.ln_2, self.ln_f = (nn.LayerNorm(width) for _ in range(3))
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.one, self.two = nn.Linear(width, 12), nn.Linear(12, width)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        y = self.ln_1(x)
        q, k, v = (m(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for m in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2)
        scores = scores + torch.full(scores.shape[-2:], -1e9, dtype=x.dtype).triu(1)
        x = x + self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        x = x + self.two(F.gelu(self.one(self.ln_2(x))))
        out: Tensor = self.head(self.ln_f(x))
        return out


@pytest.fixture(scope="module")
def block() -> Block:
    torch.manual_seed(0)
    return Block().eval().requires_grad_(False)


def tokens(rows: int) -> Tensor:
    return torch.randint(0, 40, (rows, 6), generator=torch.Generator().manual_seed(1))


def test_attention_is_cut_over_all_kinds_without_being_told(block: Block) -> None:
    found = merge(block, tokens(2), target_params=0.7, train_data=[tokens(64)])
    assert found.plan.method == "sequential"
    assert found.folding is not None and found.folding.norms
    assert {a.kind for a in found.plan.axes} == {"channels", "heads", "rank", "stream"}
    assert found.parameters_after <= 0.7 * found.parameters_before
    assert set(found.taken) == {a.name for a in found.plan.axes} and min(found.taken.values()) >= 0
    text = found.page().render()
    assert "in which layer" in text and "all layers" in text


def test_what_has_no_attention_is_as_before_and_uniform_is_one_width_of_every_kind(block: Block) -> None:
    mlp = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    assert merge(mlp, torch.zeros(1, 4), target_params=0.5).plan.method == "moments"
    assert merge(block, tokens(2), beta=0.01).plan.method == "moments"
    even = merge(block, tokens(2), target_params=0.7, uniform=True)
    assert even.plan.method == "sequential" and even.folding is not None
    assert {a.kind for a in even.plan.axes} == {"channels", "heads", "rank", "stream"}
    widths: dict[tuple[str, str], set[int]] = {}
    for axis in even.plan.axes:
        widths.setdefault((axis.kind, re.sub(r"\d+", "*", axis.name)), set()).add(axis.width)
    assert all(len(found) == 1 for found in widths.values())


def test_calibrate_names_the_method_and_what_is_measured_on(block: Block) -> None:
    symmetry = trace(block, tokens(2))
    own, even = (random_inputs(block, symmetry, rows=30, writes=w)[0][0] for w in (True, False))
    again = torch.randint(0, 40, (30, 6), generator=torch.Generator().manual_seed(0))
    assert torch.equal(even, again) and not torch.equal(own, even)
    options = Options("sequential", parameters={"calibrate": "random"})
    planner = Planner(block, symmetry, options, data=[tokens(9)], inputs=((tokens(2),), {}))
    assert len(planner.calibration[0][0]) == 256  # not the data
    found = merge(block, tokens(2), target_params=0.9, calibrate="random", fold=False)
    assert found.plan.method == "sequential" and found.folding is None
    reads_both_ways = nn.Sequential(nn.Embedding(40, 3), nn.Flatten(), nn.Linear(18, 2))
    with pytest.raises(Unsupported, match="write its own text"):
        random_inputs(reads_both_ways, trace(reads_both_ways, tokens(2)), writes=True)


def test_outputs_of_padding_do_not_count() -> None:
    class Off(nn.Module):
        """Adds a number where there is padding, and another where there is none."""

        def __init__(self, padded: float, real: float) -> None:
            super().__init__()
            self.off = torch.tensor([padded, real])

        def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
            return x + self.off[attention_mask][..., None] * torch.arange(3)

    mask = (torch.arange(5) < 3).long().expand(4, 5)
    call: Any = ((torch.randn(4, 5, 3),), {"attention_mask": mask})
    outputs = KnownOutputs(Off(0.0, 0.0), call)
    assert len(outputs.before) == 12
    assert outputs.error(Off(9.0, 0.0)) == 0.0 < outputs.error(Off(0.0, 0.1))


def test_an_axis_in_a_basis_of_its_own_is_not_cut_by_channels_as_well(block: Block) -> None:
    base = factor(block, tokens(2))
    planner = Planner(base, trace(base, tokens(2)), Options("sequential"), data=[tokens(64)])
    names = [a.name for a in planner.weighed.axes]
    assert len(names) == len(set(names))
    assert [a.kind for a in planner.weighed.axes if "table" in a.name] == ["rank"]


def test_a_cheap_step_behind_a_dear_one_pays_for_both() -> None:
    merges = tuple(Merge(0, k, 0.0, 1.0) for k in (5, 4, 3, 2, 1))
    axis = AxisPlan("a", 6, merges, False, (), True, (), (3.0, 3.0, 3.5, 6.0, 9.0))
    hull = Together((axis,)).hull()
    np.testing.assert_allclose(hull[6:0:-1], [0, 3.5 / 3, 7 / 3, 3.5, 6.0, 9.0])
    convex = AxisPlan("b", 6, merges, False, (), True, (), (0.0, 1.0, 3.0, 6.0, 10.0))
    np.testing.assert_allclose(Together((convex,)).hull()[6:0:-1], [0, 0, 1, 3, 6, 10])


def test_random_tokens_stand_between_those_that_the_example_begins_and_ends_with() -> None:
    net = nn.Sequential(nn.Embedding(50, 4), nn.Linear(4, 2))
    framed = torch.tensor([[7, 1, 2, 9], [7, 3, 4, 9]])
    for example, ends in ((framed, (7, 9)), (framed[:1], None), (framed[:1].expand(2, 4), None)):
        (tokens,), _ = random_inputs(net, trace(net, example), rows=30)
        found = (set(tokens[:, 0].tolist()), set(tokens[:, -1].tolist()))
        assert (found == ({ends[0]}, {ends[1]})) if ends else min(map(len, found)) > 5
        assert len(set(tokens[:, 1].tolist())) > 5
