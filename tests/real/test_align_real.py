"""Pairs of independently trained networks: what alignment does to the loss barrier between them."""

from __future__ import annotations

import pytest
import torch

from intertwine import act, trace, zoo
from intertwine.aligning import align, alignment_report, interpolation_curve
from intertwine.data import load_data


@pytest.fixture(scope="module")
def images(shared_data, cifar10_test):
    """(training, test) images, few enough for a test."""
    path = shared_data / "cifar10" / "train.parquet"
    train = load_data(f"parquet:{path}", normalize="cifar10-legacy", limit=200)
    return train, cifar10_test("cifar10-legacy", limit=200)


@pytest.fixture
def pair(shared_data):
    """pair(name, seeds): trained networks of one architecture."""

    def load(name, seeds):
        folder = shared_data / "checkpoints"
        files = [folder / f"{name}-cifar10-seed{seed}.safetensors" for seed in seeds]
        return [zoo.load_weights(zoo.build(name), file) for file in files]

    return load


@pytest.mark.parametrize(
    "name, seeds",
    [
        ("tiny10", (0, 1)),
        pytest.param("tiny10", (2, 3), marks=pytest.mark.nightly),
        pytest.param("resnet20", (0, 1), marks=pytest.mark.nightly),
    ],
)
def test_permutations_lower_the_barrier_and_the_group_does_not_raise_it(name, seeds, images, pair):
    train, test = images
    a, b = pair(name, seeds)
    symmetry = trace(a, torch.zeros(1, 3, 32, 32))
    barriers = {}
    for group in ("none", "permutation", "full"):
        moved = b
        if group != "none":
            moved = act(b, align(a, b, symmetry, by="activations", group=group, data=train).element)
            with torch.no_grad():
                torch.testing.assert_close(moved(test.images[:20]), b(test.images[:20]), rtol=1e-3, atol=1e-3)
        ts = [0.0, 0.25, 0.5, 0.75, 1.0]
        curve = interpolation_curve([a, moved], test, ts, repair="reset", train_data=train)
        barriers[group] = curve.barrier
    assert barriers["permutation"] < 0.7 * barriers["none"]
    assert barriers["full"] <= barriers["permutation"] + 1e-6


def test_what_explains_the_distance_of_a_real_pair(pair):
    a, b = pair("tiny10", (0, 1))
    report = alignment_report(a, b, trace(a, torch.zeros(1, 3, 32, 32)))
    assert 0.1 < report.permutation < 0.6 and report.rest > 0.3
