"""Files that other programs run compute what the model does, or are not written; controls of merge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from intertwine.cli import main
from intertwine.errors import InputError, VerificationFailed
from intertwine.merging import deploy
from intertwine.merging.deploy import exporting

NET = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))
    return net, torch.randn(2, 6)
"""


@pytest.mark.filterwarnings("ignore")  # exporters warn about themselves
@pytest.mark.parametrize("form", ["torch", "onnx"])
def test_merge_and_export(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ratios, axes left alone, multiples, latency and an export in one command; loads from another folder."""
    if form == "onnx":
        pytest.importorskip("onnxscript")
        pytest.importorskip("onnxruntime")
    (tmp_path / "net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    command = ["merge", "net.py:make", "--ratio", "2=0.5", "--multiple", "8", "--latency", "--json"]
    assert main([*command, "-o", "small", "--export", form]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["complexity"] == {"0": 32, "2": 16}
    assert report["export"]["max_error"] < 1e-5
    assert report["export"]["batches"] == [2, 1, 3]
    assert report["latency_before"] > 0
    assert Path(report["export"]["path"]).is_file()
    assert main(["merge", "net.py:make", "--ratio", "nothing.*=0.5"]) == 2
    assert main(["merge", "net.py:make", "--ratio", "0.5"]) == 2
    assert main(["merge", "net.py:make", "--export", form]) == 2


class Drawn(nn.Module):
    """Computes something else every time."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand(())


@pytest.mark.filterwarnings("ignore")
def test_a_file_that_differs_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = exporting(Drawn(), (torch.randn(2, 3),), {}, tmp_path / "out", "torch")
    with pytest.raises(VerificationFailed, match="differs"), drawn:
        pass
    assert not list(tmp_path.iterdir())
    assert deploy.latencies([Drawn()], (torch.randn(2, 3),), {}, repeats=2)[0] > 0


@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_saved_leaves_no_file_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full when the folder is written: the old export stays, plan and page do not come."""

    def full(*_: object) -> None:
        raise InputError("cannot write small: No space left on device")

    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "small.pt2").write_bytes(b"old")
    monkeypatch.chdir(tmp_path)
    command = ["merge", "net.py:make", "--ratio", "2=0.5", "-o", "small", "--export", "torch"]
    command += ["--plan", "plan.json", "--page", "page.html"]
    with monkeypatch.context() as disk:
        disk.setattr("intertwine.zoo.save_model", full)
        assert main(command) == 2
    assert {p.name for p in tmp_path.iterdir()} - {"__pycache__"} == {"net.py", "small.pt2"}
    assert (tmp_path / "small.pt2").read_bytes() == b"old"
    assert main(command) == 0
    assert {"small", "plan.json", "page.html"} <= {p.name for p in tmp_path.iterdir()}
    assert (tmp_path / "small.pt2").read_bytes() != b"old"
