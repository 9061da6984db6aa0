"""`resnet50-open`: a ResNet50 without ReLU on its residual outputs (source 002, F.3).

The residual stream then meets no activation of its own, only the ReLUs inside the blocks: the network on
which the source asks whether units of the stream are still interpretable in their own basis. The source
trains it on ImageNet; this one has the 3x3 stem of the zoo's other ResNets, and the same names.
"""

from __future__ import annotations

import torch
from torch import Tensor

from intertwine.zoo.resnet import Bottleneck, ResNet


class OpenBottleneck(Bottleneck):
    """shortcut(x) + bn(conv(relu(bn(conv(relu(bn(conv(x)))))))), with nothing after the sum."""

    def forward(self, x: Tensor) -> Tensor:
        shortcut: Tensor = x if self.downsample is None else self.downsample(x)
        out = torch.relu(self.bn1(self.conv1(x)))
        out = torch.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        result: Tensor = out + shortcut
        return result


def resnet50_open(*, classes: int = 10, in_channels: int = 3, width: int = 64) -> ResNet:
    """ResNet50 whose blocks end with the sum.

    >>> from intertwine.zoo.resnet import resnet
    >>> a, b = resnet50_open(width=4).state_dict(), resnet(50, width=4).state_dict()
    >>> a.keys() == b.keys()
    True
    """
    return ResNet(OpenBottleneck, (3, 4, 6, 3), classes=classes, in_channels=in_channels, width=width)
