"""VGG for 32x32 images with one linear classifier instead of three (source 000, appendix D).

The parameters are named as torchvision names them (`features.N`), and the classifier is a single
`classifier`. `digits_vgg` is the same net, small enough to ship trained: 1x8x8 images, 35 k weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

# Widths of the convolutions in units of the base width 64; "M" halves the image.
Plan = Sequence[int | str]
PLANS: dict[int, Plan] = {
    11: (1, "M", 2, "M", 4, 4, "M", 8, 8, "M", 8, 8, "M"),
    13: (1, 1, "M", 2, 2, "M", 4, 4, "M", 8, 8, "M", 8, 8, "M"),
    16: (1, 1, "M", 2, 2, "M", 4, 4, 4, "M", 8, 8, 8, "M", 8, 8, 8, "M"),
    19: (1, 1, "M", 2, 2, "M", 4, 4, 4, 4, "M", 8, 8, 8, 8, "M", 8, 8, 8, 8, "M"),
}
DIGITS_PLAN: Plan = (1, 1, "M", 2, 2, "M", 4, "M")


class VGG(nn.Module):
    """Conv (BN) ReLU stacks with pooling in between; the plan pools the image down to one pixel."""

    def __init__(self, plan: Plan, *, batch_norm: bool, classes: int, in_channels: int, width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = in_channels
        for step in plan:
            if isinstance(step, str):
                layers.append(nn.MaxPool2d(2))
                continue
            layers.append(nn.Conv2d(channels, step * width, 3, padding=1))
            channels = step * width
            if batch_norm:
                layers.append(nn.BatchNorm2d(channels))
            layers.append(nn.ReLU())
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.classifier(torch.flatten(self.features(x), 1))
        return out


def vgg(
    depth: int, *, batch_norm: bool = True, classes: int = 10, in_channels: int = 3, width: int = 64
) -> VGG:
    """VGG of 11, 13, 16 or 19 layers; `width` is that of the first convolution.

    >>> vgg(16).features[40]
    Conv2d(512, 512, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))
    """
    return VGG(PLANS[depth], batch_norm=batch_norm, classes=classes, in_channels=in_channels, width=width)


def digits_vgg(
    *,
    batch_norm: bool = True,
    classes: int = 10,
    in_channels: int = 1,
    width: int = 16,
    constant: bool = False,
) -> VGG:
    """Five convolutions on scikit-learn's 1x8x8 digits; the package ships two trained seeds of it.

    constant: `width` channels everywhere, as in appendix D.8 of source 002.

    >>> sum(p.numel() for p in digits_vgg().parameters()) < 40_000
    True
    """
    plan = [1 if isinstance(step, int) else step for step in DIGITS_PLAN] if constant else DIGITS_PLAN
    return VGG(plan, batch_norm=batch_norm, classes=classes, in_channels=in_channels, width=width)
