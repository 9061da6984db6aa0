"""Real architectures: elements act on every value as `symmetry.values` states."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from shallow import SHALLOW, gmlp_s16, mixer_s16, narrow_swin, of_timm
from torch import nn

from intertwine import Symmetry, zoo
from value_oracle import check_every_value

FULL = [
    ("torchvision:resnet18", 64),
    ("timm:vit_tiny_patch16_224", 224),
    ("torchvision:shufflenet_v2_x1_0", 64),
]
BY_NIGHT = [
    ("torchvision:swin_t", 64),
    ("timm:levit_128", 224),
    ("timm:gmlp_s16_224", 224),
    ("timm:mixer_s16_224", 224),
    ("timm:ghostnet_100", 64),
    ("timm:convmixer_768_32", 32),
    ("timm:coatnet_nano_rw_224", 224),
]
# All their kinds of blocks, and few of each.
FEWER_BLOCKS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "swin_t": (narrow_swin, 32),
    "ghostnet_100": SHALLOW["ghostnet_100"],
    "levit_128": (of_timm("levit_128", depth=(2, 2, 2)), 224),
    "gmlp_s16_224": (gmlp_s16, 64),
    "mixer_s16_224": (mixer_s16, 64),
}


def check(spec: str, size: int | None = None) -> Symmetry:
    source = zoo.resolve(spec, input=None if size is None else f"2x3x{size}x{size}")
    model = source.model.double().eval()
    example = source.example if isinstance(source.example, tuple) else (source.example,)
    args = tuple(x.double() if torch.is_tensor(x) and x.is_floating_point() else x for x in example)
    return check_every_value(model, args, source.kwargs)


def hold(symmetry: Symmetry) -> None:
    assert not symmetry.unknown_ops
    assert any(not v.group.is_trivial for v in symmetry.values.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "size"),
    [
        *(pytest.param(*row, id=row[0]) for row in FULL),
        *(pytest.param(*row, id=row[0], marks=pytest.mark.nightly) for row in BY_NIGHT),
    ],
)
def test_vision(spec: str, size: int) -> None:
    hold(check(spec, size))


@pytest.mark.slow
@pytest.mark.parametrize("name", FEWER_BLOCKS)
def test_vision_with_fewer_blocks(name: str) -> None:
    build, size = FEWER_BLOCKS[name]
    torch.manual_seed(0)
    hold(check_every_value(build().double().eval(), (torch.randn(2, 3, size, size).double(),), {}))


@pytest.mark.parametrize("family", ["gpt2", "llama", "bert"])
def test_language(family: str) -> None:
    pytest.importorskip("transformers")
    check(f"hf:{family}")
