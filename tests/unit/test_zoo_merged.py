"""intertwine.load: what merge wrote comes back, and code runs only when allowed."""

from __future__ import annotations

import pytest
import torch

import intertwine
from intertwine.cli import main
from intertwine.errors import InputError, WeightsError
from intertwine.zoo import checkpoint, load_weights, resolve


def test_round_trip(tmp_path, capsys):
    out = tmp_path / "small"
    assert (
        main(["merge", "zoo:digits-vgg", "--weights", "shipped:0", "--target-params", "0.5", "-o", str(out)])
        == 0
    )
    small = intertwine.load(out)
    source = resolve("zoo:digits-vgg")
    full = load_weights(source.model, checkpoint("digits-vgg", 0))
    kept = sum(p.numel() for p in small.parameters()) / sum(p.numel() for p in full.parameters())
    assert kept <= 0.5 and type(small) is type(full) and not small.training
    assert small(source.example[0]).shape == full(source.example[0]).shape


def test_code_runs_only_when_allowed(tmp_path, capsys):
    (tmp_path / "net.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def make():\n"
        "    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)), (torch.zeros(2, 4),)\n"
    )
    out = tmp_path / "small"
    assert main(["merge", f"{tmp_path / 'net.py'}:make", "--target-params", "0.6", "-o", str(out)]) == 0
    with pytest.raises(InputError, match="running the Python code"):
        intertwine.load(out)
    assert intertwine.load(out, run_code=True)(torch.zeros(1, 4)).shape == (1, 3)


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(WeightsError, match="not a merged model"):
        intertwine.load(tmp_path)
