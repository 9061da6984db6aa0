"""The transformer, the open ResNet and the MobileNets are what they claim; their symmetry: tests/models."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from intertwine import trace, zoo
from intertwine.zoo.cct import cct, sinusoids
from intertwine.zoo.convnext_cifar import convnext_cifar
from intertwine.zoo.mobilenet_cifar import mobilenet, mobilenetv2
from intertwine.zoo.resnet_cifar import resnet_cifar
from intertwine.zoo.resnet_open import resnet50_open

# Narrow versions: the graph is that of the registered net, and float64 runs in a second.
NARROW: dict[str, nn.Module] = {
    "cct6": cct(width=32),
    "convnext-cifar": convnext_cifar(width=8),
    "resnet50-open": resnet50_open(width=8),
    "resnet20-open": resnet_cifar(20, opened=True, width=8),
    "mobilenet": mobilenet(width=8),
    "mobilenetv2": mobilenetv2(width=8),
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small float64 convolutions on several threads mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", NARROW)
def test_registered(name: str) -> None:
    classes = 100 if name.startswith("mobilenet") else 10
    assert zoo.entry(name).classes == classes
    model = zoo.build(name)
    assert list(model.state_dict()) == list(NARROW[name].state_dict())
    with torch.no_grad():
        assert model(torch.randn(1, 3, 32, 32)).shape == (1, classes)


def test_the_open_resnet_goes_below_zero() -> None:
    """Its residual stream has negative entries, the usual one has none."""
    x = torch.randn(2, 3, 32, 32)
    nets = [resnet50_open(width=4).eval(), zoo.build("resnet50", width=4)]
    with torch.no_grad():
        lowest = [float(net.layer1(torch.relu(net.bn1(net.conv1(x)))).min()) for net in nets]
    assert lowest[0] < 0 and lowest[1] == 0


def test_sinusoids_shift_by_rotation() -> None:
    """Each pair (sin, cos) turns by the same angle from one position to the next."""
    pairs = torch.view_as_complex(sinusoids(16, 8)[0].view(16, 4, 2).double())
    assert torch.allclose(pairs.abs(), torch.ones_like(pairs.abs()), atol=1e-6)
    steps = pairs[1:] / pairs[:-1]
    assert torch.allclose(steps, steps[:1].expand_as(steps), atol=1e-5)


def test_the_transformer_sees_positions() -> None:
    """Without positions, the net would not notice that the halves of the image changed places."""
    net = cct(width=32).eval()
    image = torch.randn(1, 3, 32, 32)
    image[..., 13:19] = image[..., :3] = image[..., -3:] = 0
    moved = image.roll(16, 3)
    with torch.no_grad():
        before = (net(image) - net(moved)).abs().max()
        net.positions.zero_()
        after = (net(image) - net(moved)).abs().max()
    assert after < 1e-6 < 1e-4 < before


def test_the_open_stream_may_change_sign() -> None:
    """Between its sums and its readers there is no ReLU, so each channel gains one free sign."""
    free = []
    for net in (resnet50_open(width=4).eval(), zoo.build("resnet50", width=4)):
        symmetry = trace(net, torch.randn(1, 3, 32, 32))
        reads = {axis for axis in symmetry.axes for m in axis.members if (m.param, m.dim) == ("fc.weight", 1)}
        (stream,) = reads
        free.append(stream.group.sign)
    assert free[0] == free[1] + 1
