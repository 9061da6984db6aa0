"""`tiny10`: eight convolutions without padding, for which ten independently trained checkpoints are public.

conv{1..8} of 16 16 32/2 32 32 64/2 64 channels and a last 1x1 of 64, each followed by bn{i} and ReLU; spatial
mean; `fc`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

# (channels, kernel size, stride) of conv1 ... conv8.
_LAYERS = ((16, 3, 1), (16, 3, 1), (32, 3, 2), (32, 3, 1), (32, 3, 1), (64, 3, 2), (64, 3, 1), (64, 1, 1))


class Tiny10(nn.Module):
    """relu(bn_i(conv_i(x))) eight times, mean over the image, linear."""

    def __init__(self, *, classes: int, in_channels: int) -> None:
        super().__init__()
        channels = in_channels
        for index, (width, kernel, stride) in enumerate(_LAYERS, start=1):
            self.add_module(f"conv{index}", nn.Conv2d(channels, width, kernel, stride))
            self.add_module(f"bn{index}", nn.BatchNorm2d(width))
            channels = width
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        for index in range(1, len(_LAYERS) + 1):
            x = self.get_submodule(f"conv{index}")(x)
            x = torch.relu(self.get_submodule(f"bn{index}")(x))
        out: Tensor = self.fc(x.mean((2, 3)))
        return out


def tiny10(*, classes: int = 10, in_channels: int = 3) -> Tiny10:
    """The eight-convolution net.

    >>> tuple(tiny10().conv8.weight.shape)
    (64, 64, 1, 1)
    """
    return Tiny10(classes=classes, in_channels=in_channels)
