"""The experiments of Yellapragada 2020 on real networks and images, in small."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import torch

from intertwine import zoo
from intertwine.comparing import collect
from intertwine.comparing.experiments import ObservedNetwork, existence_proof, relate
from intertwine.data import Dataset

CAT, DOG = 3, 5


def test_existence_proof_on_cats_and_dogs(shared_data: Path, cifar10_test: Callable[..., Dataset]) -> None:
    """Chapter 4 with a ResNet20: the same features, opposite functions, less so the more is masked."""
    model = zoo.load_weights(
        zoo.build("resnet20"), shared_data / "checkpoints" / "resnet20-cifar10-seed0.safetensors"
    )
    data = cifar10_test("cifar10-legacy", limit=3000)
    chosen = (data.labels == CAT) | (data.labels == DOG)
    features = collect(model, data.images[chosen], at="mean")["mean"]
    labels = (data.labels[chosen] == DOG).long()
    half = len(labels) // 2
    rows = existence_proof((features[:half], labels[:half]), (features[half:], labels[half:]))
    assert all(row.cka > 0.99 and row.cca > 0.99 for row in rows)
    assert 0.3 < rows[0].jsd <= math.log(2) and rows[-1].jsd < rows[0].jsd
    assert rows[0].rank_coefficient is not None and rows[0].rank_coefficient < -0.6
    assert rows[0].accuracy_true > 0.8 and rows[0].accuracy_flipped > 0.8


def test_untrained_pairs_break_the_relation(shared_data: Path, cifar10_test: Callable[..., Dataset]) -> None:
    """Figure 3.4: untrained networks agree in their outputs whatever their features do."""
    images = cifar10_test("cifar10-legacy", limit=200).images

    def network(seed: int, trained: bool) -> ObservedNetwork:
        model = zoo.resolve("zoo:tiny10", seed=seed).model
        if trained:
            zoo.load_weights(model, shared_data / "checkpoints" / f"tiny10-cifar10-seed{seed}.safetensors")
        features = collect(model, images, at="mean")
        return ObservedNetwork(f"{seed}", features["mean"], features.outputs, trained)

    relation = relate([network(seed, trained) for trained in (True, False) for seed in range(3)])
    trained, untrained = ([p for p in relation.pairs if p.trained is kind] for kind in (True, False))
    assert len(trained) == len(untrained) == 3
    assert max(p.jsd for p in untrained) < 0.2 * min(p.jsd for p in trained)
    assert torch.tensor([p.similarity for p in trained]).mean() > 0.5
