"""merge, then train a little: the same call goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import intertwine
from intertwine.cli import main
from intertwine.data import Dataset
from intertwine.errors import InputError
from intertwine.training import Finetune, Splits, load_splits

pytest.importorskip("lightning_fabric")


def blobs(seed: int) -> Dataset:
    """Four clouds that a small network tells apart."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (160,), generator=draw)
    centres = 2 * torch.eye(4)[labels]
    images = centres + 0.5 * torch.randn(160, 4, generator=draw)
    return Dataset("blobs", images, labels, tuple("abcd"))


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 4)).eval()


def test_a_smaller_model_is_trained(net: nn.Module, tmp_path: Path) -> None:
    splits = Splits("blobs", blobs(0), blobs(1))
    before = [p.clone() for p in net.parameters()]
    how = Finetune(splits, epochs=4, out=tmp_path / "run", learning_rate=0.1, batch=32, threads=1)
    call = {"target_params": 0.5, "data": splits.test, "method": "magnitude"}
    small = intertwine.merge(net, torch.zeros(2, 4), finetune=how, **call)
    assert small.evaluation_cut is not None and small.accuracy_after is not None
    assert small.accuracy_after > max(0.8, small.evaluation_cut.accuracy)
    assert small.to_dict()["accuracy_cut"] == small.evaluation_cut.accuracy
    assert any("before fine-tuning" in line for line in small.remarks())
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    # the same call finds the finished run, and gives the same weights
    again = intertwine.merge(net, torch.zeros(2, 4), finetune=how, **call)
    assert all(
        torch.equal(a, b) for a, b in zip(small.model.parameters(), again.model.parameters(), strict=True)
    )
    plain = intertwine.merge(net, torch.zeros(2, 4), **call)
    assert plain.evaluation_cut is None
    assert "accuracy_cut" not in plain.to_dict()


def test_a_smaller_model_of_text_is_trained(tmp_path: Path) -> None:
    """Every position counts, and the last tenth of the text is held out."""
    text = "".join("abcd"[k % 4] for k in range(4000)) + "dcba" * 100
    (tmp_path / "a.txt").write_text(text)
    splits = load_splits(f"text:{tmp_path / 'a.txt'}", context=16)
    assert len(splits.train) == 3960 // 16 - (3960 % 16 == 0) and len(splits.test) == 440 // 16
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(4, 6), nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    how = Finetune(splits, epochs=4, out=tmp_path / "run", learning_rate=0.1, batch=16, threads=1)
    small = intertwine.merge(
        net, splits.train.head(2), target_params=0.6, data=splits.train, method="magnitude", finetune=how
    )
    assert small.evaluation_cut is not None and small.evaluation_after is not None
    assert small.evaluation_after.accuracy == 1.0 > small.evaluation_cut.accuracy  # the text goes round
    seen = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert seen[-1]["test_accuracy"] < 0.2 and seen[-1]["accuracy"] <= 1.0  # and its end goes the other way


def test_what_cannot_be_trained_is_told(net: nn.Module, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="other shapes"):
        intertwine.merge(
            net, torch.zeros(2, 4), target_params=0.5, method="magnitude", finetune=lambda small: net
        )
    with pytest.raises(InputError, match="epochs"):
        Finetune("digits", epochs=0, out=tmp_path)


def test_the_command_says_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["merge", "zoo:mlp", "--target-params", "0.5", "--finetune", "2"]) == 2
    assert "--finetune needs data" in capsys.readouterr().err
