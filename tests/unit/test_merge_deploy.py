"""Files that other programs run compute what the model does, or are not written; controls of merge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from intertwine.cli import main
from intertwine.errors import VerificationFailed
from intertwine.merging import deploy
from intertwine.merging.deploy import export_model

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
    with pytest.raises(VerificationFailed, match="differs"):
        export_model(Drawn(), (torch.randn(2, 3),), {}, tmp_path / "out", "torch")
    assert not list(tmp_path.iterdir())
    assert deploy.latencies([Drawn()], (torch.randn(2, 3),), {}, repeats=2)[0] > 0
