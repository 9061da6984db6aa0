"""Comparing within bounds: namesakes where the moments of all pairs do not fit; no values of empty memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from intertwine import act, compare, trace
from intertwine.comparing.collecting import Runner
from intertwine.errors import InputError


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
    monkeypatch.setattr(Runner, "run", lambda self, x, only=None: rows.append(len(x)) or run(self, x, only))
    measures = ["procrustes", "cca", "auto"]
    whole = compare(a, b, data, measures)
    at_once, rows[:] = max(rows), []
    parts = compare(a, b, data, measures, memory=100_000)
    assert at_once == 64 and max(rows) < 32
    assert parts.inputs == whole.inputs
    for name in measures:
        np.testing.assert_allclose(parts.values[name], whole.values[name], atol=1e-10)
