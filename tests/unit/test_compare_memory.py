"""Comparing within bounds: namesakes where the moments of all pairs do not fit; no values of empty memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from intertwine import act, compare, trace
from intertwine.comparing.collecting import Runner
from intertwine.comparing.features import pool
from intertwine.errors import DataError, InputError


def test_where_all_pairs_do_not_fit_namesakes_are_compared_in_several_passes() -> None:
    torch.manual_seed(0)
    blocks = ([nn.Sequential(nn.Linear(12, 12), nn.ReLU()) for _ in range(6)] for _ in "ab")
    a, b = (nn.Sequential(*net).double() for net in blocks)  # other batches round otherwise
    data = torch.randn(64, 12, dtype=torch.float64)
    whole = compare(a, b, data, ["procrustes", "cca", "cka-rbf"])
    layers = len(whole.layers_a)
    narrow = compare(
        a, b, data, ["procrustes", "cca"], memory=2 * 8 * 3 * 12 * 12 * 2
    )  # two layers at a time
    assert narrow.layers_a == whole.layers_a and narrow.inputs == {"procrustes": 64, "cca": 64}
    for name in ("procrustes", "cca"):
        np.testing.assert_allclose(np.diag(narrow.values[name]), np.diag(whole.values[name]), atol=1e-12)
        assert np.isnan(narrow.values[name]).sum() == layers * layers - layers
        assert whole.identification(name) > 0
    assert sum("only layers of one name are compared" in note for note in narrow.notes) == 1
    with pytest.raises(InputError, match="only layers of one name"):
        narrow.identification("cca")
    with pytest.raises(InputError, match="read only once"):
        compare(a, b, iter(data.split(16)), "procrustes", memory=8 * 3 * 12 * 12 * 2)
    with pytest.raises(InputError, match="moments of"):
        compare(a, b, data, "procrustes", memory=100)  # not even one layer


class _Parts(nn.Module):
    """Writes its two halves into memory that holds nothing yet, as DeepSeek's attention does."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.read = nn.Linear(6, 4), nn.Linear(6, 4), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        both = x.new_full((len(x), 8), float("nan"))
        both[:, :4] = torch.relu(self.left(x))
        both[:, 4:] = torch.relu(self.right(x))
        out: Tensor = self.read(both)
        return out


def test_a_value_that_is_half_written_is_no_layer() -> None:
    torch.manual_seed(0)
    net, data = _Parts(), torch.randn(40, 6)
    symmetry = trace(net, data[:2])
    other = act(net, symmetry.sample(0))
    found = compare(net, other, data, "auto", at="all")
    names = [name for name, _, _ in found.matched("auto")]
    assert sum("scatter" in name for name in names) == 1  # the second of two
    assert min(value for _, _, value in found.matched("auto")) > 1 - 1e-6


def test_inputs_come_in_parts_whose_values_fit_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of 256 photographs of a ResNet is tens of gigabytes of values: it is read in parts."""
    torch.manual_seed(0)
    layers = ([nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4)] for _ in "ab")
    a, b = (nn.Sequential(*net).double() for net in layers)
    data = torch.randn(64, 3, 8, 8, dtype=torch.float64)
    rows: list[int] = []
    run = Runner.run
    monkeypatch.setattr(Runner, "run", lambda self, x, *a, **k: rows.append(len(x)) or run(self, x, *a, **k))
    measures = ["procrustes", "cca", "auto"]
    whole = compare(a, b, data, measures)
    at_once, rows[:] = max(rows), []
    parts = compare(a, b, data, measures, memory=100_000)
    assert at_once == 64 and max(rows) < 32
    assert parts.inputs == whole.inputs
    for name in measures:
        np.testing.assert_allclose(parts.values[name], whole.values[name], atol=1e-10)


def test_pixels_are_averaged_when_a_value_is_computed() -> None:
    """Then no map is held: that is what a ResNet's values cost beside its forward pass."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 5, 3), nn.Flatten(), nn.Linear(80, 4))
    runner, x = Runner(net, "all"), torch.randn(6, 3, 8, 8)
    whole, output = runner.run(x)
    pooled, same = runner.run(x, pooled=True)
    assert torch.equal(output, same) and list(pooled) == list(whole)
    for name, value in whole.items():
        assert torch.equal(pooled[name], pool(value)), name
    assert runner.held(x, pooled=True) < runner.held(x) / 4


class _Masked(nn.Module):
    """Scores with a mask added to them, infinite or as large as a number can be."""

    def __init__(self, least: float) -> None:
        super().__init__()
        self.least, self.enter, self.q, self.k = least, nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.enter(x))
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        scores = (self.q(h) @ self.k(h).mT).masked_fill(future, self.least) + 1
        out: Tensor = scores.softmax(-1) @ h
        return out


@pytest.mark.parametrize("least", [-float("inf"), torch.finfo(torch.float32).min])
def test_masked_values_are_left_out_of_all_and_refused_by_name(least: float) -> None:
    torch.manual_seed(0)
    net, data = _Masked(least), torch.randn(30, 5, 4)
    symmetry = trace(net, data[:2])
    found = compare(net, act(net, symmetry.sample(0)), data, ["auto", "cka"], at="all")
    assert [note for note in found.notes if "(a mask)" in note and "add" in note]
    assert not {"masked_fill", "add"} & set(found.layers_a) and "softmax" in found.layers_a
    assert min(value for _, _, value in found.matched("auto")) > 1 - 1e-6
    with pytest.raises(DataError, match="NaN or infinity"):
        compare(net, net, data, "cka", at=["add"])
