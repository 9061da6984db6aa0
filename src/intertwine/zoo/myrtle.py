"""The Myrtle CNN: four convolutions, max pooling and one linear layer (source 002, figure 26).

`myrtle` has biases and batch norm (figure 26a, 1,558,026 parameters); `myrtle-plain` has no batch norm, and
a bias in its first convolution only (figure 26b, 1,555,200); `myrtle-constant` is 26a with 512 channels
everywhere (D.8).
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

_WIDTHS = (64, 128, 256, 512)


def _head(channels: int, classes: int, bias: bool) -> list[nn.Module]:
    return [nn.MaxPool2d(4), nn.Flatten(), nn.Linear(channels, classes, bias=bias)]


def myrtle(widths: Sequence[int] = _WIDTHS, *, classes: int = 10, in_channels: int = 3) -> nn.Sequential:
    """Conv-BN-ReLU with pooling after all but the first.

    >>> sum(p.numel() for p in myrtle().parameters())
    1558026
    """
    layers: list[nn.Module] = []
    channels = in_channels
    for index, width in enumerate(widths):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if index else []
        channels = width
    return nn.Sequential(*layers, *_head(channels, classes, bias=True))


def myrtle_plain(
    widths: Sequence[int] = _WIDTHS, *, classes: int = 10, in_channels: int = 3
) -> nn.Sequential:
    """Conv-ReLU, used in section 3.3 to stay within the theory.

    >>> sum(p.numel() for p in myrtle_plain().parameters())
    1555200
    """
    layers: list[nn.Module] = []
    channels = in_channels
    for index, width in enumerate(widths):
        layers += [nn.Conv2d(channels, width, 3, padding=1, bias=index == 0), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if index else []
        channels = width
    return nn.Sequential(*layers, *_head(channels, classes, bias=False))
