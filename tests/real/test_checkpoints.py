"""The published checkpoints load into the zoo and reach the accuracies that were measured on them.

By default on the first 2,000 test images (1,000 for VGG16), within three standard errors; the whole 10,000
take some minutes: INTERTWINE_FULL=1 runs them, and then the accuracies must agree to 0.01 points.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from intertwine import zoo
from intertwine.data import Dataset, evaluate

FULL = os.environ.get("INTERTWINE_FULL") == "1"

PUBLISHED = [
    ("resnet20", "resnet20-cifar10-seed0", "cifar10-legacy", 0.9153, 2000),
    ("resnet20", "resnet20-cifar10-seed1", "cifar10-legacy", 0.9203, 2000),
    ("resnet20-pad", "resnet20a-cifar10", "imagenet", 0.9173, 2000),
    ("vgg16", "vgg16-cifar10", "cifar10", 0.9100, 1000),
]


@pytest.mark.parametrize(("name", "file", "normalize", "accuracy", "count"), PUBLISHED)
def test_published_accuracy(
    name: str,
    file: str,
    normalize: str,
    accuracy: float,
    count: int,
    shared_data: Path,
    cifar10_test: Callable[..., Dataset],
) -> None:
    model = zoo.load_weights(zoo.build(name), shared_data / "checkpoints" / f"{file}.safetensors")
    data = cifar10_test(normalize, limit=None if FULL else count)
    tolerance = 1e-4 if FULL else 3 * math.sqrt(accuracy * (1 - accuracy) / count)
    assert evaluate(model, data).accuracy == pytest.approx(accuracy, abs=tolerance)


def test_tiny10_accuracy(shared_data: Path, cifar10_test: Callable[..., Dataset]) -> None:
    path = shared_data / "checkpoints" / "tiny10-cifar10-seed0.safetensors"
    model = zoo.load_weights(zoo.build("tiny10"), path)
    accuracy = evaluate(model, cifar10_test("cifar10-legacy", limit=None if FULL else 2000)).accuracy
    # published as "about 85 to 86 %"
    assert 0.84 < accuracy < 0.88


def test_wrong_normalisation_is_worse(shared_data: Path, cifar10_test: Callable[..., Dataset]) -> None:
    """Negative control: accuracy is sensitive to what the reader does to the pixels."""
    path = shared_data / "checkpoints" / "tiny10-cifar10-seed0.safetensors"
    model = zoo.load_weights(zoo.build("tiny10"), path)
    right = evaluate(model, cifar10_test("cifar10-legacy", limit=500)).accuracy
    assert evaluate(model, cifar10_test("none", limit=500)).accuracy < right - 0.1


@pytest.mark.parametrize("seed", range(10))
def test_every_tiny10_seed_fits(seed: int, shared_data: Path) -> None:
    path = shared_data / "checkpoints" / f"tiny10-cifar10-seed{seed}.safetensors"
    model = zoo.load_weights(zoo.build("tiny10"), path)
    stored = zoo.read_weights(path)
    assert all(stored[name].equal(value) for name, value in model.state_dict().items())


def test_imagenet_sample_reads(shared_data: Path) -> None:
    path = shared_data / "imagenet-sample" / "val.parquet"
    from intertwine.data import load_data

    data = load_data(f"parquet:{path}", normalize="imagenet", limit=20)
    assert data.images.shape == (20, 3, 224, 224)
    assert len(set(data.labels.tolist())) == 20
    # natural images are near the mean and spread of the preset
    assert abs(float(data.images.mean())) < 0.7
    assert 0.5 < float(data.images.std()) < 1.5
