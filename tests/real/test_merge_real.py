"""Merging on real checkpoints: the released code's widths, and accuracy that the default must keep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from intertwine import Symmetry, act, trace, zoo
from intertwine.data import Dataset, evaluate
from intertwine.merging import apply_merge, plan_merge
from intertwine.orbit import find_isomorphism

# What the released IFM code makes of this checkpoint (widths of the 13 convolutions).
RELEASED = {
    0.1: [29, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 241],
    0.15: [23, 62, 122, 128, 255, 256, 256, 511, 512, 512, 512, 185, 37],
}


@pytest.fixture(scope="module")
def vgg(shared_data: Path) -> tuple[torch.nn.Module, Symmetry]:
    path = shared_data / "checkpoints" / "vgg16-cifar10.safetensors"
    model = zoo.load_weights(zoo.build("vgg16"), path)
    return model, trace(model, torch.zeros(1, 3, 32, 32))


@pytest.mark.parametrize("beta", [0.1, 0.15])
def test_parity_with_the_released_code(beta: float, vgg: tuple[torch.nn.Module, Symmetry]) -> None:
    plan = plan_merge(*vgg, method="ifm", order="interleaved", norm="sum", beta=beta, check=False)
    assert list(plan.complexity.values()) == RELEASED[beta]


def test_default_keeps_the_accuracy_at_a_third(
    vgg: tuple[torch.nn.Module, Symmetry], cifar10_test: Callable[..., Dataset]
) -> None:
    model, symmetry = vgg
    data = cifar10_test("cifar10", limit=500)
    small = apply_merge(model, plan_merge(model, symmetry, target_params=0.36, check=False))
    kept = sum(p.numel() for p in small.parameters()) / sum(p.numel() for p in model.parameters())
    assert kept <= 0.36
    assert evaluate(small, data).accuracy > evaluate(model, data).accuracy - 0.025


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_planted_isomorphism_of_a_trained_net(seed: int, shared_data: Path) -> None:
    path = shared_data / "checkpoints" / f"resnet20-cifar10-seed{seed}.safetensors"
    model = zoo.load_weights(zoo.build("resnet20"), path)
    symmetry = trace(model, torch.zeros(1, 3, 32, 32))
    element = symmetry.sample(seed, parts=("permutation", "scale", "sign"), spread=0.3)
    assert find_isomorphism(model, act(model, element), symmetry).error < 1e-6
    other = shared_data / "checkpoints" / f"resnet20-cifar10-seed{1 - seed}.safetensors"
    assert not find_isomorphism(model, zoo.load_weights(zoo.build("resnet20"), other), symmetry)
