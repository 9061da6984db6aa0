"""What classes of a trained VGG16 see, and what units of a trained ResNet detect in photographs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from intertwine import attribute, dissect, zoo
from intertwine.data import Dataset
from intertwine.data.concepts import load_concepts

pytestmark = pytest.mark.usefixtures("one_thread")


def test_features_of_a_class_see_the_same(shared_data: Path, cifar10_test: Callable[..., Dataset]) -> None:
    """Equivalent features of VGG16 agree far better than random ones, in maps and in attributions."""
    path = shared_data / "checkpoints" / "vgg16-cifar10.safetensors"
    model = zoo.load_weights(zoo.build("vgg16"), path)
    data = cifar10_test("cifar10", limit=200)
    found = attribute(model, data, "features.20", by="ward", beta=0.1, classes=3, controls=3)
    assert found.at == "features.22" and found.found >= 3
    for view in found.classes:
        assert view.maps.members > view.maps.random + 2 * view.maps.spread
        assert view.heat.members > view.heat.random + 0.1


def test_rotations_of_a_trained_layer(shared_data: Path) -> None:
    """On real masks and textures: its own group changes no IoU to the last bit, a rotation does."""
    path = shared_data / "checkpoints" / "resnet20-cifar10-seed0.safetensors"
    model = zoo.load_weights(zoo.build("resnet20"), path)
    folder = shared_data / "concepts"
    spec = f"object={folder / 'camvid.parquet'}+texture={folder / 'dtd10.parquet'}"
    data = load_concepts(spec, size=64, limit=30, normalize="cifar10-legacy")
    assert "road" in data.names and "banded" in data.names and len(data) == 60
    own, moved = dissect(model, data, "layer3.2.relu_1", rotate="group").readings
    assert sorted(own.iou.tolist()) == sorted(moved.iou.tolist())
    assert len(own.detectors) > 0
    turned = dissect(model, data, "layer3.2.relu_1", rotate="orthogonal", powers=(1.0,)).readings[-1]
    assert not np.array_equal(np.sort(turned.iou), np.sort(own.iou))
