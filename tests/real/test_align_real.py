"""Pairs of independently trained networks: what alignment does to the loss barrier between them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from intertwine import act, trace, zoo
from intertwine.align import align, alignment_report, interpolate
from intertwine.data import load_data

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
pytestmark = pytest.mark.skipif(not (SHARED / "cifar10").exists(), reason="the shared data is not here")


@pytest.fixture(scope="module")
def images():
    """(training, test) images, few enough for a test."""
    return [
        load_data(f"parquet:{SHARED}/cifar10/{split}.parquet", normalize="cifar10-legacy", limit=200)
        for split in ("train", "test")
    ]


@pytest.mark.parametrize("name, seeds", [("tiny10", (0, 1)), ("tiny10", (2, 3)), ("resnet20", (0, 1))])
def test_permutations_lower_the_barrier_and_the_group_does_not_raise_it(name, seeds, images):
    train, test = images
    a, b = (
        zoo.load_weights(zoo.build(name), SHARED / "checkpoints" / f"{name}-cifar10-seed{s}.safetensors")
        for s in seeds
    )
    symmetry = trace(a, torch.zeros(1, 3, 32, 32))
    barriers = {}
    for group in ("none", "permutation", "full"):
        moved = b
        if group != "none":
            moved = act(b, align(a, b, symmetry, by="activations", group=group, data=train).element)
            with torch.no_grad():
                torch.testing.assert_close(moved(test.images[:20]), b(test.images[:20]), rtol=1e-3, atol=1e-3)
        curve = interpolate([a, moved], test, [0.0, 0.25, 0.5, 0.75, 1.0], repair="reset", statistics=train)
        barriers[group] = curve.barrier
    assert barriers["permutation"] < 0.7 * barriers["none"]
    assert barriers["full"] <= barriers["permutation"] + 1e-6


def test_what_explains_the_distance_of_a_real_pair():
    a, b = (
        zoo.load_weights(zoo.build("tiny10"), SHARED / "checkpoints" / f"tiny10-cifar10-seed{s}.safetensors")
        for s in (0, 1)
    )
    report = alignment_report(a, b, trace(a, torch.zeros(1, 3, 32, 32)))
    assert 0.1 < report.permutation < 0.6 and report.rest > 0.3
