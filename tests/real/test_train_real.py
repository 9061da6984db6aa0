"""Training on real images: CIFAR-10 is found and normalised, and a few steps learn what transfers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from intertwine import zoo
from intertwine.data import Dataset, evaluate, load_data
from intertwine.training import Splits, build_model, load_splits, read_recipe, train
from intertwine.training.objective import TrainingObjective, measure

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def splits(shared_data: Path, cifar10_test: Callable[..., Dataset]) -> Splits:
    path = shared_data / "cifar10" / "train.parquet"
    images = load_data(f"parquet:{path}", normalize="cifar10", limit=3000, split="train")
    return Splits("cifar10", images, cifar10_test(limit=1000))


def test_the_folder_of_cifar10(shared_data: Path, cifar10_test: Callable[..., Dataset]) -> None:
    found = load_splits(f"cifar10:{shared_data / 'cifar10'}", normalize="cifar10", limit=500)
    assert len(found.train) == 500 and len(found.test) == 10_000
    assert found.train.images.mean() == pytest.approx(0, abs=0.1)
    assert found.train.images.std() == pytest.approx(1, abs=0.1)
    assert torch.equal(found.test.images[:50], cifar10_test(limit=50).images)


def test_a_little_training_goes_a_little_way(splits: Splits, tmp_path: Path) -> None:
    """Two epochs on 3,000 images; guessing gives 10 %."""
    recipe = replace(read_recipe("fast"), epochs=2)
    run = train(build_model("tiny10", splits), splits, recipe, tmp_path / "run")
    net = zoo.load_weights(build_model("tiny10", splits, seed=1), run.weights)
    assert evaluate(net, splits.test).accuracy == pytest.approx(run.accuracy) and run.accuracy > 0.25


def test_the_loops_own_evaluation(shared_data: Path, cifar10_test: Callable[..., Dataset]) -> None:
    """On a published checkpoint it says what `evaluate` says."""
    net = zoo.load_weights(
        zoo.build("tiny10"), shared_data / "checkpoints" / "tiny10-cifar10-seed0.safetensors"
    )
    data = cifar10_test("cifar10-legacy", limit=1000)
    expected = evaluate(net, data)
    found = measure(net, data, TrainingObjective("cross-entropy", 0.1))
    assert found == pytest.approx((expected.accuracy, expected.loss))
    assert expected.accuracy > 0.8
