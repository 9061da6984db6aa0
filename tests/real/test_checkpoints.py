"""The published checkpoints load into the zoo and reach the accuracies that were measured on them.

By default on the first 300 to 2,000 test images, within three standard errors; the whole 10,000 take some
minutes: INTERTWINE_FULL=1 runs them, and then the accuracies must agree to 0.01 points.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from intertwine import zoo
from intertwine.data import Dataset, Tokens, evaluate

FULL = os.environ.get("INTERTWINE_FULL") == "1"

PUBLISHED = [
    ("resnet20", "resnet20-cifar10-seed0", "cifar10-legacy", 0.9153, 1000),
    ("resnet20", "resnet20-cifar10-seed1", "cifar10-legacy", 0.9203, 2000),
    ("resnet20-pad", "resnet20a-cifar10", "imagenet", 0.9173, 1000),
    ("vgg16", "vgg16-cifar10", "cifar10", 0.9100, 300),
    ("resnet20", "resnet20-cifar10-c", "cifar10-legacy", 0.9260, 2000),
    ("resnet32", "resnet32-cifar10-c", "cifar10-legacy", 0.9353, 500),
    ("resnet56", "resnet56-cifar10-c", "cifar10-legacy", 0.9437, 300),
    ("vit48", "vit48-cifar10-a", "0.5,0.5,0.5/0.5,0.5,0.5", 0.7462, 2000),
    ("vit48", "vit48-cifar10-b", "0.5,0.5,0.5/0.5,0.5,0.5", 0.4703, 2000),
]
CIFAR100 = "0.5070,0.4865,0.4409/0.2673,0.2564,0.2761"


# Other seeds of an architecture: they load below, and are measured at night.
AGAIN = ("resnet20-cifar10-seed1", "resnet20-cifar10-c", "vit48-cifar10-b")


@pytest.mark.parametrize(
    ("name", "file", "normalize", "accuracy", "count"),
    [pytest.param(*row, marks=pytest.mark.nightly if row[1] in AGAIN else ()) for row in PUBLISHED],
)
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


@pytest.mark.parametrize(
    ("depth", "accuracy", "count"),
    [(20, 0.6883, 1000), pytest.param(32, 0.701, 500, marks=pytest.mark.nightly), (56, 0.727, 300)],
)
def test_cifar100(depth: int, accuracy: float, count: int, shared_data: Path) -> None:
    from intertwine.data import load_data

    file = shared_data / "checkpoints" / f"resnet{depth}-cifar100-c.safetensors"
    model = zoo.resolve(f"zoo:resnet{depth}-cifar100", weights=file).model
    data = load_data(f"parquet:{shared_data / 'cifar100' / 'test.parquet'}", normalize=CIFAR100, limit=count)
    tolerance = 3 * math.sqrt(accuracy * (1 - accuracy) / count)
    assert evaluate(model, data).accuracy == pytest.approx(accuracy, abs=tolerance)


@pytest.mark.parametrize(("seed", "loss"), [(0, 1.734), (1, 1.730)])
def test_character_gpt(seed: int, loss: float, shared_data: Path) -> None:
    """The loss on the last tenth of the text, and far worse on the same text backwards."""
    from intertwine.data import load_data

    file = shared_data / "checkpoints" / f"nanogpt64-shakespeare-seed{seed}.safetensors"
    source = zoo.resolve("zoo:nanogpt64", weights=file)
    text = f"text:{shared_data / 'text' / 'tinyshakespeare.txt'}"
    got = evaluate(source.model, load_data(f"{text}[90%:]", prepare=source.prepare))
    assert got.loss == pytest.approx(loss, abs=1e-3)
    assert got.loss_error < 0.02
    data = load_data(f"{text}[90%:]", prepare=source.prepare, limit=100)
    assert isinstance(data, Tokens)
    backwards = Tokens("backwards", data.ids.flip(0), data.context, data.objective, data.words)
    assert evaluate(source.model, backwards).loss > loss + 1


@pytest.mark.parametrize("which", "ab")
def test_modular_addition(which: str, shared_data: Path) -> None:
    file = shared_data / "checkpoints" / f"modadd59-{which}.safetensors"
    source = zoo.resolve("zoo:modadd59", weights=file)
    pairs = torch.cartesian_prod(torch.arange(59), torch.arange(59))
    assert evaluate(source.model, (pairs, pairs.sum(1) % 59)).accuracy == 1
    assert evaluate(source.model, (pairs, (pairs.sum(1) + 1) % 59)).accuracy < 0.1


def test_every_checkpoint_loads_by_name(shared_data: Path) -> None:
    """The name of a file says the net of the zoo that it belongs to."""
    files = sorted((shared_data / "checkpoints").glob("*.safetensors"))
    assert files
    for file in files:
        name = file.stem.partition("-")[0].replace("20a", "20-pad")
        zoo.resolve(f"zoo:{name}", weights=file)
