"""ResNet18, 34 and 50 for 32x32 images: a 3x3 stem with stride 1 and no max pooling.

Source 000, appendix D ("the convolution kernel size is set to be 3 at the first layer") and figure 28a of
source 002 (11,173,962 parameters for ResNet18). The names are torchvision's.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


def conv3x3(fan_in: int, fan_out: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(fan_in, fan_out, 3, stride=stride, padding=1, bias=False)


def projection(fan_in: int, fan_out: int, stride: int) -> nn.Sequential | None:
    """The 1x1-conv + BN shortcut, or None where the identity fits."""
    if stride == 1 and fan_in == fan_out:
        return None
    return nn.Sequential(nn.Conv2d(fan_in, fan_out, 1, stride=stride, bias=False), nn.BatchNorm2d(fan_out))


Activation = Callable[[Tensor], Tensor]


class BasicBlock(nn.Module):
    """relu(shortcut(x) + bn(conv(relu(bn(conv(x)))))), or another activation."""

    expansion = 1

    def __init__(self, fan_in: int, width: int, stride: int = 1, activation: Activation = torch.relu) -> None:
        super().__init__()
        self.activation = activation
        self.conv1 = conv3x3(fan_in, width, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv3x3(width, width)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = self.projected(fan_in, width, stride)

    projected = staticmethod(projection)

    def shortcut(self, x: Tensor) -> Tensor:
        out: Tensor = x if self.downsample is None else self.downsample(x)
        return out

    def forward(self, x: Tensor) -> Tensor:
        out = self.activation(self.bn1(self.conv1(x)))
        return self.activation(self.bn2(self.conv2(out)) + self.shortcut(x))


class Bottleneck(nn.Module):
    """1x1 reduce, 3x3 (which carries the stride, as torchvision's does), 1x1 expand by four."""

    expansion = 4

    def __init__(self, fan_in: int, width: int, stride: int = 1) -> None:
        super().__init__()
        fan_out = width * self.expansion
        self.conv1 = nn.Conv2d(fan_in, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv3x3(width, width, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, fan_out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(fan_out)
        self.downsample = projection(fan_in, fan_out, stride)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        out = torch.relu(self.bn1(self.conv1(x)))
        out = torch.relu(self.bn2(self.conv2(out)))
        return torch.relu(self.bn3(self.conv3(out)) + shortcut)


Block = Callable[[int, int, int], nn.Module]


def make_stage(
    block: Block, blocks: int, fan_in: int, width: int, stride: int, expansion: int = 1
) -> nn.Sequential:
    """`blocks` blocks of one width; the first carries the stride."""
    fan_out = width * expansion
    rest = (block(fan_out, width, 1) for _ in range(blocks - 1))
    return nn.Sequential(block(fan_in, width, stride), *rest)


class ResNet(nn.Module):
    """Stem, four stages that double the width and halve the image, global mean, `fc`."""

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        blocks: tuple[int, int, int, int],
        *,
        classes: int,
        in_channels: int,
        width: int,
    ) -> None:
        super().__init__()
        e = block.expansion
        self.conv1 = conv3x3(in_channels, width)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = make_stage(block, blocks[0], width, width, 1, e)
        self.layer2 = make_stage(block, blocks[1], width * e, 2 * width, 2, e)
        self.layer3 = make_stage(block, blocks[2], 2 * width * e, 4 * width, 2, e)
        self.layer4 = make_stage(block, blocks[3], 4 * width * e, 8 * width, 2, e)
        self.fc = nn.Linear(8 * width * e, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        out: Tensor = self.fc(x.mean((2, 3)))
        return out


_DEPTHS: dict[int, tuple[type[BasicBlock] | type[Bottleneck], tuple[int, int, int, int]]] = {
    18: (BasicBlock, (2, 2, 2, 2)),
    34: (BasicBlock, (3, 4, 6, 3)),
    50: (Bottleneck, (3, 4, 6, 3)),
}


def resnet(depth: int, *, classes: int = 10, in_channels: int = 3, width: int = 64) -> ResNet:
    """ResNet of 18, 34 or 50 layers with a 3x3 stem.

    >>> sum(p.numel() for p in resnet(18).parameters())
    11173962
    """
    block, blocks = _DEPTHS[depth]
    return ResNet(block, blocks, classes=classes, in_channels=in_channels, width=width)
