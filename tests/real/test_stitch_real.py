"""Stitching real networks on real images: ResNet20 and tiny10 from different seeds, and a planted element."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import intertwine
from intertwine import zoo
from intertwine.data import Dataset
from intertwine.stitching import Training, stitch

CUTS = ["relu", *(f"layer{stage}.{block}.relu_1" for stage in (1, 2, 3) for block in range(3))]


def _net(shared_data: Path, name: str, seed: int) -> nn.Module:
    path = shared_data / "checkpoints" / f"{name}-cifar10-seed{seed}.safetensors"
    return zoo.load_weights(zoo.build(name), path).eval()


@pytest.fixture(scope="module")
def data(cifar10_test: Callable[..., Dataset]) -> tuple[tuple, tuple]:
    images = cifar10_test("cifar10-legacy", limit=700)
    return (images.images[:400], images.labels[:400]), (images.images[400:], images.labels[400:])


def test_theorem_4_2_on_a_trained_resnet(shared_data: Path, data: tuple) -> None:
    """B = g . A: the closed form of the group is as good as the network, at all ten cuts; no training."""
    a = _net(shared_data, "resnet20", 0)
    few = data[0][0][:40], data[0][1][:40]
    b = intertwine.act(a, intertwine.trace(a, few[0][:2]).sample(3))
    report = stitch(a, b, few, few, at=CUTS, kinds=["group", "identity"], batch=20)
    assert report.layers == CUTS
    for layer in CUTS:
        assert report[layer, "group"].start == 0 and not report[layer, "group"].training_needed
    assert min(report[layer, "identity"].start for layer in CUTS) > 30


def test_resnets_of_two_seeds(shared_data: Path, data: tuple) -> None:
    nets = [_net(shared_data, "resnet20", seed) for seed in (0, 1)]
    at = ["layer3.1.relu_1", "layer3.2.relu_1"]
    report = stitch(*nets, *data, at=at, kinds=["identity", "group", "rank:4", "full"], batch=50,
                    training=Training(epochs=2))  # fmt: skip
    middle = {kind: report[at[0], kind] for kind in report.kinds}
    last = {kind: report[at[1], kind] for kind in report.kinds}
    assert report.accuracy_a > 0.85 and report.accuracy_b > 0.85
    assert middle["full"].start < middle["group"].start < middle["identity"].start
    assert middle["group"].trained < middle["group"].start - 10
    assert middle["full"].trained < middle["full"].start - 10
    assert last["full"].trained < 4 and last["group"].trained < 6
    assert middle["group"].sparsity == pytest.approx(1 - 1 / 64, abs=0.01)


@pytest.mark.nightly  # by day across architectures in tests/unit/test_stitch.py
def test_tiny10_inside_and_across_architectures(shared_data: Path, data: tuple) -> None:
    tiny, resnet = _net(shared_data, "tiny10", 0), _net(shared_data, "resnet20", 0)
    report = stitch(tiny, resnet, *data, at="relu_6", at_b="layer3.2.relu_1", kinds=["full"], batch=50,
                    training=Training(epochs=2))  # fmt: skip
    found = report["relu_6 -> layer3.2.relu_1", "full"]
    assert found.widths == (64, 64) and found.trained < 15
    report = stitch(resnet, resnet, *data, at="layer3.1.relu", kinds=["group"], batch=50)
    assert report["layer3.1.relu", "group"].inside and report["layer3.1.relu", "group"].start == 0
    assert torch.equal(report["layer3.1.relu", "group"].matrix, torch.eye(64))
