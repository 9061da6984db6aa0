"""Architectures of torchvision and timm with all their kinds of blocks and few of each.

What is inferred of a block does not depend on how often it stands in a net; the nets as their authors
publish them are rows of `make nightly`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from intertwine.vision_shim import import_vision

models, timm = import_vision("torchvision").models, import_vision("timm")


def resnext50() -> nn.Module:
    return models.ResNet(models.resnet.Bottleneck, [1, 2, 1, 1], groups=32, width_per_group=4)


def densenet121() -> nn.Module:
    return models.DenseNet(32, (2, 3, 2, 2), 64)


def mobilenet_v3_small() -> nn.Module:
    rows, last = models.mobilenetv3._mobilenet_v3_conf("mobilenet_v3_small")
    return models.MobileNetV3([*rows[:4], *rows[6:8]], last)


def efficientnet_b0() -> nn.Module:
    rows, last = models.efficientnet._efficientnet_conf("efficientnet_b0", width_mult=1.0, depth_mult=0.3)
    return models.EfficientNet(rows, 0.2, last_channel=last)


def shufflenet_v2() -> nn.Module:
    return models.ShuffleNetV2([2, 3, 2], [24, 116, 232, 464, 1024])


def regnet_y_400mf() -> nn.Module:
    blocks = models.regnet.BlockParams.from_init_params(
        depth=6, w_0=48, w_a=67.0, w_m=2.09, group_width=8, se_ratio=0.25
    )
    return models.RegNet(blocks)


def convnext_tiny() -> nn.Module:
    row = models.convnext.CNBlockConfig
    return models.ConvNeXt([row(48, 96, 1), row(96, 192, 2), row(192, None, 1)])


def swin_t() -> nn.Module:
    return models.SwinTransformer([4, 4], 48, [2, 2, 1], [3, 6, 12], [7, 7])


def narrow_swin() -> nn.Module:
    """Plain and shifted windows, and a merge of patches between them."""
    return models.SwinTransformer([4, 4], 24, [2, 1], [3, 6], [4, 4])


def googlenet() -> nn.Module:
    """Four branches that are concatenated, twice."""
    net = import_vision("torchvision.models.googlenet")  # the name of a function, too
    first, second = net.Inception(16, 8, 12, 16, 4, 8, 8), net.Inception(40, 16, 12, 24, 4, 8, 8)
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(56, 10))
    stem = net.BasicConv2d(3, 16, kernel_size=7, stride=2, padding=3)
    return nn.Sequential(stem, first, nn.MaxPool2d(3, 2, ceil_mode=True), second, head)


def ghostnet() -> nn.Module:
    """Blocks with and without a stride, a squeeze and a shortcut of their own."""
    rows = (
        [3, 16, 16, 0, 1],
        [3, 48, 24, 0, 2],
        [3, 72, 24, 0, 1],
        [5, 72, 40, 0.25, 2],
        [5, 120, 40, 0.25, 1],
    )
    return timm.models.ghostnet.GhostNet([[row] for row in rows], width=0.5)


def mixer_s16() -> nn.Module:
    return timm.models.MlpMixer(img_size=64, patch_size=16, num_blocks=2, embed_dim=64)


def gmlp_s16() -> nn.Module:
    blocks = timm.models.mlp_mixer
    return blocks.MlpMixer(
        img_size=64, patch_size=16, num_blocks=3, embed_dim=64, mlp_ratio=6,
        block_layer=blocks.SpatialGatingBlock, mlp_layer=blocks.GatedMlp,
    )  # fmt: skip


def of_timm(name: str, **smaller: Any) -> Callable[[], nn.Module]:
    return lambda: timm.create_model(name, **smaller)


SHALLOW: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "resnext50_32x4d": (resnext50, 64),
    "densenet121": (densenet121, 64),
    "mobilenet_v3_small": (mobilenet_v3_small, 64),
    "efficientnet_b0": (efficientnet_b0, 64),
    "shufflenet_v2_x1_0": (shufflenet_v2, 64),
    "regnet_y_400mf": (regnet_y_400mf, 64),
    "convnext_tiny": (convnext_tiny, 64),
    "swin_t": (swin_t, 64),
    "resnetv2_50": (of_timm("resnetv2_50", layers=(1, 2, 1, 1), channels=(64, 128, 192, 256)), 64),
    "googlenet": (googlenet, 32),
    "ghostnet_100": (ghostnet, 64),
    "poolformer_s12": (of_timm("poolformer_s12", layers=(1, 2, 1, 1), embed_dims=(32, 64, 96, 128)), 64),
    "res2net50_26w_4s": (of_timm("res2net50_26w_4s", layers=(1, 2, 1, 1)), 64),
    "eva02_tiny_patch14_224": (of_timm("eva02_tiny_patch14_224", depth=2, img_size=112), 112),
}
