"""`diffusers:NAME`: small denoising UNets of the diffusers library, from config; nothing is downloaded."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from intertwine.errors import MissingExtra
from intertwine.vision_shim import prepare
from intertwine.zoo.vision import not_found

_SIDE, _TOKENS, _TEXT = 16, 5, 20
# Two levels of one residual block each, the lower with attention. The groups of a norm after a skip
# connection reach across its two parts, as they do in the full-size models.
_COMMON: dict[str, Any] = {
    "sample_size": _SIDE,
    "in_channels": 3,
    "out_channels": 3,
    "layers_per_block": 1,
    "block_out_channels": (16, 24),
    "norm_num_groups": 4,
    "attention_head_dim": 8,
}
_CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "unet2d": (
        "UNet2DModel",
        {
            "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
            "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
        },
    ),
    "unet2d-condition": (
        "UNet2DConditionModel",
        {
            "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
            "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
            "cross_attention_dim": _TEXT,
            "attention_head_dim": 4,
        },
    ),
}

Built = tuple[nn.Module, tuple[Tensor, ...], dict[str, Any]]


def names() -> list[str]:
    """What can follow `diffusers:`.

    >>> names()
    ['unet2d', 'unet2d-condition']
    """
    return list(_CONFIGS)


def build_diffusers(name: str) -> Built:
    """A small random UNet and the arguments of one call: noisy images, time steps, a text if it reads one."""
    if name not in _CONFIGS:
        raise not_found("diffusers", name, _CONFIGS)
    class_name, config = _CONFIGS[name]
    model = getattr(_import_diffusers(), class_name)(**_COMMON | config)
    kwargs: dict[str, Any] = {"timestep": torch.tensor([3, 700])}
    if "cross_attention_dim" in config:
        kwargs["encoder_hidden_states"] = torch.randn(2, _TOKENS, _TEXT)
    return model, (torch.randn(2, 3, _SIDE, _SIDE),), kwargs


def _import_diffusers() -> Any:
    prepare()
    try:
        import diffusers
    except ModuleNotFoundError as error:
        raise MissingExtra("diffusers is not installed", do='pip install "intertwine[diffusion]"') from error
    return diffusers
