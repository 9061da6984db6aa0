"""attribute and dissect, each as a user calls it, on the families that they must work on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from intertwine.cli import main

pytestmark = pytest.mark.usefixtures("one_thread")

FACTORY = """
import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.one, self.two = (nn.Conv2d(c, 6, 3, padding=1) for c in (3, 6, 6))
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        x = F.relu(self.stem(x))
        return self.head(F.relu(x + self.two(F.relu(self.one(x)))).mean((2, 3)))


def factory():
    torch.manual_seed(0)
    return Net()
"""
# model, side of its images, an axis, the value to dissect
MODELS = {
    "zoo VGG": ("zoo:vgg11", 32, "features.0", "features.2"),
    "zoo ResNet": ("zoo:resnet20", 32, "layer3.2.conv1", "layer3.2.relu_1"),
    "timm ViT": ("timm:test_vit", 160, "blocks.0.mlp.fc1", "blocks.0.mlp.act"),
    "timm ConvNeXt": ("timm:test_convnext", 160, "stages.3.blocks.0.mlp.fc1", "stages.3.blocks.0.mlp.act"),
    "factory": ("net.py:factory", 16, "one", "relu_2"),
}


@pytest.mark.parametrize("family", MODELS)
def test_attribute_and_dissect(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A page, and numbers that say something: heat that is not 0, and IoUs that the layer's group keeps."""
    model, side, axis, at = MODELS[family]
    if model.startswith("timm:"):
        pytest.importorskip("timm")
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(FACTORY)
    draws = torch.Generator().manual_seed(0)
    images = torch.randn(4, 3, side, side, generator=draws).numpy()
    np.savez("images.npz", images=images, labels=np.array([0, 1, 0, 1]))
    common = [model, "--input", f"1x3x{side}x{side}", "--seed", "0", "--json"]
    looked = ["--axis", axis, "--channel", "1,2", "--data", "npz:images.npz", "-o", "seen.html"]
    assert main(["attribute", *common, *looked]) == 0, capsys.readouterr().err
    (seen,) = json.loads(capsys.readouterr().out)["classes"]
    assert len(seen["inputs"]) == 4 and seen["members"] == [1, 2] and max(seen["scores"]) > 0
    assert Path("seen.html").read_text().count("data:image/png;base64,") >= 4

    cut = ["--at", at, "--concepts", f"shapes:6:{side}", "--rotate", "group", "-o", "cut.html"]
    assert main(["dissect", *common, *cut]) == 0, capsys.readouterr().err
    own, moved = json.loads(capsys.readouterr().out)["readings"]
    assert [u["iou"] for u in own["best"]] == [u["iou"] for u in moved["best"]]
    assert own["best"][0]["iou"] > 0 and "Interpretable units" in Path("cut.html").read_text()
