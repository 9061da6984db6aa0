"""Networks widened by exact duplication: merging gives back the original widths and the same function."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from intertwine import Symmetry, act, trace, zoo
from intertwine.merging import apply_merge, plan_merge, widen
from intertwine.merging.places import find_places
from intertwine.symmetry.prove import make_generic
from repeats import examples

# The rescaled case holds the plain one in it; both, where that is cheap.
CHEAP = ["mlp", "lenet5", "digits-vgg"]
NETS = ["myrtle-plain", "tiny10", "resnet20", "resnet20-pad", "vit48", "convnext-cifar"]
# Nightly: chains, as digits-vgg is one, and the blocks of resnet20.
ALIKE = ("myrtle-plain", "tiny10", "resnet20-pad")
# The same blocks in nets of others.
LARGE = [
    ("torchvision:resnet18", True),
    ("torchvision:mobilenet_v2", True),
    ("torchvision:convnext_tiny", True),
    ("timm:vit_tiny_patch16_224", True),
]


def generic(source: zoo.Source, symmetry: Symmetry) -> nn.Module:
    """Double precision and no constant weights, on which everything looks equal."""
    model = source.model.double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in symmetry.weights(model).values():
            tensor.copy_(make_generic(tensor, generator))
    return model


def planted(model: nn.Module, symmetry: Symmetry, rng: np.random.Generator, extra: float = 0.3) -> Any:
    """(wide model, names of the widened axes): a random third more channels on every axis that can be."""
    sources = {}
    for axis in symmetry.axes:
        if axis.mergeable and all(np.ptp(p.where) + 1 == p.where.size for p in find_places(symmetry, axis)):
            more = rng.integers(0, axis.size, max(1, int(extra * axis.size)))
            sources[axis.name] = np.r_[np.arange(axis.size), more]
    return widen(model, symmetry, sources, seed=int(rng.integers(1 << 30))), sources


def check(spec: str, seed: int, rescale: bool, input: str | None = None) -> None:
    source = zoo.resolve(spec, seed=seed, input=input)
    example = tuple(x.double() if x.is_floating_point() else x for x in source.example)
    symmetry = trace(source.model.double(), example)
    model = generic(source, symmetry)
    rng = np.random.default_rng(seed)
    wide, sources = planted(model, symmetry, rng)
    with torch.no_grad():
        torch.testing.assert_close(wide(*example), model(*example), rtol=1e-9, atol=1e-9)
    wider = trace(wide, example)
    if rescale:
        wide = act(wide, wider.sample(seed, parts=("scale", "sign"), spread=0.3))
    plan = plan_merge(
        wide, wider, method="ifm", beta=1e-12, distance="invariant" if rescale else "paper", check=False
    )
    small = apply_merge(wide, plan)
    for name in sources:
        assert plan.complexity[name] == symmetry.axis(name).size, name
    assert {n: p.shape for n, p in small.named_parameters()} == {
        n: p.shape for n, p in model.named_parameters()
    }
    with torch.no_grad():
        torch.testing.assert_close(small(*example), model(*example), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    ("name", "rescale"),
    [
        *((name, False) for name in CHEAP),
        *(
            pytest.param(name, True, marks=pytest.mark.nightly if name in ALIKE else ())
            for name in CHEAP + NETS
        ),
    ],
)
def test_zoo(name: str, rescale: bool) -> None:
    check(f"zoo:{name}", 0, rescale)


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "rescale"), [(name, False) for name in NETS])
def test_zoo_as_it_is(name: str, rescale: bool) -> None:
    check(f"zoo:{name}", 0, rescale)


@pytest.mark.nightly
@pytest.mark.parametrize(("spec", "rescale"), LARGE)
def test_large(spec: str, rescale: bool) -> None:
    if importlib.util.find_spec(spec.split(":")[0]) is None:
        pytest.skip("needs the extra vision")
    check(spec, 0, rescale, input="1x3x224x224" if "vit" in spec else "1x3x64x64")


@settings(max_examples=examples(4, 15))
@given(
    widths=st.lists(st.integers(2, 7), min_size=2, max_size=4),
    activation=st.sampled_from([nn.ReLU, nn.GELU, nn.Tanh, nn.SiLU, nn.LeakyReLU]),
    norm=st.booleans(),
    seed=st.integers(0, 2**20),
    rescale=st.booleans(),
)
def test_random_mlps(
    widths: list[int], activation: type[nn.Module], norm: bool, seed: int, rescale: bool
) -> None:
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for a, b in zip(widths, [*widths[1:], 3], strict=True):
        layers += [nn.Linear(a, b), *([nn.BatchNorm1d(b)] if norm else []), activation()]
    net = nn.Sequential(*layers, nn.Linear(3, 2)).double().eval()
    example = torch.randn(4, widths[0], dtype=torch.float64)
    symmetry = trace(net, example)
    net = generic(zoo.Source("net", net, (example,)), symmetry)
    rng = np.random.default_rng(seed)
    wide, _ = planted(net, symmetry, rng, extra=0.8)
    wider = trace(wide, example)
    if rescale:
        wide = act(wide, wider.sample(seed, parts=("scale", "sign"), spread=0.3))
    plan = plan_merge(wide, wider, method="ifm", beta=1e-11, distance="invariant" if rescale else "paper")
    assert list(plan.complexity.values()) == [symmetry.axis(name).size for name in plan.complexity]
    with torch.no_grad():
        torch.testing.assert_close(apply_merge(wide, plan)(example), net(example), rtol=1e-8, atol=1e-8)


def test_negative_control() -> None:
    """Channels that differ are not merged at tiny beta."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2)).double()
    plan = plan_merge(net, trace(net, torch.zeros(1, 3).double()), method="ifm", beta=1e-6)
    assert plan.merges == 0
