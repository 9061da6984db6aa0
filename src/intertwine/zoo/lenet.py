"""`lenet5`: two 5x5 convolutions and three linear layers on 28x28 images (source 004, B.1 and D)."""

from __future__ import annotations

from torch import nn


def lenet5(*, classes: int = 10, in_channels: int = 1) -> nn.Sequential:
    """LeNet-5 with ReLU and max pooling; the first convolution pads 28x28 to the original's 32x32.

    >>> sum(p.numel() for p in lenet5().parameters())
    61706
    """
    return nn.Sequential(
        nn.Conv2d(in_channels, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 5 * 5, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )
