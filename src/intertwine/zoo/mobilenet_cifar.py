"""`mobilenet` and `mobilenetv2` for 32x32 images and 100 classes (source 003, section 3.3, on CIFAR-100).

Both keep the published widths and depths and stride less at the start, as is usual for small images: the stem
of both and the second stage of MobileNetV2 have stride 1.
"""

from __future__ import annotations

from torch import Tensor, nn

# (channels, stride) of the depthwise separable blocks of MobileNet.
_SEPARABLE = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1),
)  # fmt: skip
# (expansion, channels, blocks, stride) of the stages of MobileNetV2.
_STAGES = (
    (1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip


def _unit(
    fan_in: int,
    fan_out: int,
    kernel: int,
    stride: int = 1,
    groups: int = 1,
    active: type[nn.Module] | None = None,
) -> list[nn.Module]:
    """Convolution, batch norm, and the activation where there is one."""
    conv = nn.Conv2d(fan_in, fan_out, kernel, stride, kernel // 2, groups=groups, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_in")  # the default lets 28 layers fade to nothing
    return [conv, nn.BatchNorm2d(fan_out), *([active()] if active else [])]


class InvertedResidual(nn.Module):
    """1x1 widen, 3x3 depthwise, 1x1 narrow without activation; plus x where the shape stays."""

    def __init__(self, fan_in: int, fan_out: int, expansion: int, stride: int) -> None:
        super().__init__()
        wide = fan_in * expansion
        widen = _unit(fan_in, wide, 1, active=nn.ReLU6) if expansion > 1 else []
        depthwise = _unit(wide, wide, 3, stride, wide, nn.ReLU6)
        self.block = nn.Sequential(*widen, *depthwise, *_unit(wide, fan_out, 1))
        self.keeps = stride == 1 and fan_in == fan_out

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.block(x)
        return x + out if self.keeps else out


class MobileNet(nn.Module):
    """Stem, blocks, global mean, one linear layer."""

    def __init__(self, features: list[nn.Module], width: int, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(*features)
        self.classifier = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.classifier(self.features(x).mean((2, 3)))
        return out


def mobilenet(*, classes: int = 100, in_channels: int = 3, width: int = 32) -> MobileNet:
    """MobileNet; `width` is that of the stem, and everything scales with it.

    >>> sum(p.numel() for p in mobilenet().parameters())
    3309476
    """
    channels, features = width, _unit(in_channels, width, 3, active=nn.ReLU)
    for base, stride in _SEPARABLE:
        fan_out = base * width // 32
        depthwise = _unit(channels, channels, 3, stride, channels, nn.ReLU)
        features.append(nn.Sequential(*depthwise, *_unit(channels, fan_out, 1, active=nn.ReLU)))
        channels = fan_out
    return MobileNet(features, channels, classes)


def mobilenetv2(*, classes: int = 100, in_channels: int = 3, width: int = 32) -> MobileNet:
    """MobileNetV2; `width` is that of the stem, and everything scales with it.

    >>> sum(p.numel() for p in mobilenetv2().parameters())
    2351972
    """
    channels, features = width, _unit(in_channels, width, 3, active=nn.ReLU6)
    for expansion, base, blocks, stride in _STAGES:
        fan_out = base * width // 32
        for index in range(blocks):
            features.append(InvertedResidual(channels, fan_out, expansion, 1 if index else stride))
            channels = fan_out
    head = 1280 * width // 32
    features.append(nn.Sequential(*_unit(channels, head, 1, active=nn.ReLU6)))
    return MobileNet(features, head, classes)
