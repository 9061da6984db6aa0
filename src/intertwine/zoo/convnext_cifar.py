"""`convnext-cifar`: a small ConvNeXt for 32x32 images (Liu et al. 2022; source 002, section 6).

A block adds scale * W2 gelu(W1 norm(depthwise(x))) to its input, with nothing after the sum: like the open
ResNets its residual stream meets no activation of its own. Stages of 1:1:3 blocks, a 2x2 stem.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Norm(nn.LayerNorm):
    """Layer norm over the channels of N x C x H x W."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Block(nn.Module):
    """x + scale * W2 gelu(W1 norm(depthwise(x)))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        inner = self.scale * self.narrow(F.gelu(self.wide(inner)))
        result: Tensor = x + inner.permute(0, 3, 1, 2)
        return result


def convnext_cifar(*, classes: int = 10, in_channels: int = 3, width: int = 32) -> nn.Sequential:
    """Three stages of width, 2 width and 4 width, at 16x16, 8x8 and 4x4 pixels of a 32x32 image.

    >>> convnext_cifar(width=8)(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 10])
    """
    layers: list[nn.Module] = [nn.Conv2d(in_channels, width, 2, 2), Norm(width)]
    for stage, blocks in enumerate((1, 1, 3)):
        if stage:
            layers += [Norm(width), nn.Conv2d(width, 2 * width, 2, 2)]
            width *= 2
        layers += [Block(width) for _ in range(blocks)]
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(width), nn.Linear(width, classes))
    return nn.Sequential(*layers, *head)
