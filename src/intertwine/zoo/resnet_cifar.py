"""ResNet20, 32, 44, 56 and 110 for 32x32 images: three stages of 16, 32 and 64 channels, 6n + 2 layers.

Two published variants. `resnet20` has 1x1-conv + BN shortcuts where the shape changes and torchvision's
names. `resnet20-pad` has shortcuts without parameters: `x[:, :, ::2, ::2]` with zero channels on both
sides; its classifier is called `linear`. For a symmetry they differ: padding fixes where the narrow stream
sits in the wide one.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from intertwine.zoo.resnet import Activation, BasicBlock, conv3x3, make_stage


class PadBlock(BasicBlock):
    """A basic block whose shortcut subsamples the image and pads the channels with zeros (option A)."""

    def __init__(self, fan_in: int, width: int, stride: int = 1, activation: Activation = torch.relu) -> None:
        super().__init__(fan_in, width, stride, activation)
        self.stride = stride
        self.pad = (width - fan_in) // 2

    @staticmethod
    def projected(fan_in: int, fan_out: int, stride: int) -> None:
        """No weights on this shortcut."""

    def shortcut(self, x: Tensor) -> Tensor:
        if not self.pad and self.stride == 1:
            return x
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.pad, self.pad))


class OpenBlock(BasicBlock):
    """A basic block with nothing after its sum: the residual stream meets no activation of its own."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.bn2(self.conv2(self.activation(self.bn1(self.conv1(x))))) + self.shortcut(x)
        return out


class CifarResNet(nn.Module):
    """Stem, three stages of `blocks` blocks each, global mean, one linear layer called `head`."""

    def __init__(
        self,
        block: type[BasicBlock],
        blocks: int,
        *,
        head: str,
        classes: int,
        in_channels: int,
        width: int,
        activation: Activation,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.conv1 = conv3x3(in_channels, width)
        self.bn1 = nn.BatchNorm2d(width)
        stage = partial(make_stage, partial(block, activation=activation), blocks)
        self.layer1 = stage(width, width, 1)
        self.layer2 = stage(width, 2 * width, 2)
        self.layer3 = stage(2 * width, 4 * width, 2)
        self.head = head
        self.add_module(head, nn.Linear(4 * width, classes))

    def forward(self, x: Tensor) -> Tensor:
        x = self.activation(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        out: Tensor = self.get_submodule(self.head)(x.mean((2, 3)))
        return out


def resnet_cifar(
    depth: int,
    *,
    pad: bool = False,
    opened: bool = False,
    classes: int = 10,
    in_channels: int = 3,
    width: int = 16,
    slope: float | None = None,
) -> CifarResNet:
    """ResNet of depth 6n + 2; `pad` chooses zero-padded shortcuts and the name `linear` for the classifier.

    `opened`: no activation after the residual sums, as in the modified ResNet of source 002, F.3.
    `slope`: LeakyReLU with this negative slope in place of ReLU (source 002, table 3).

    >>> sum(p.numel() for p in resnet_cifar(20, pad=True).parameters())
    269722
    """
    block = PadBlock if pad else OpenBlock if opened else BasicBlock
    head = "linear" if pad else "fc"
    blocks = (depth - 2) // 6
    activation = torch.relu if slope is None else partial(F.leaky_relu, negative_slope=slope)
    return CifarResNet(
        block, blocks, head=head, classes=classes, in_channels=in_channels, width=width, activation=activation
    )
