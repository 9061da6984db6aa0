"""Real architectures: elements act on every value as `symmetry.values` states."""

from __future__ import annotations

import pytest
import torch

from intertwine import Symmetry, zoo
from value_oracle import check_every_value

SMALL = [
    ("torchvision:resnet18", 64),
    ("torchvision:shufflenet_v2_x1_0", 64),
    ("torchvision:swin_t", 64),
    ("timm:vit_tiny_patch16_224", 224),
    ("timm:levit_128", 224),
    ("timm:gmlp_s16_224", 224),
    ("timm:mixer_s16_224", 224),
    ("timm:ghostnet_100", 64),
]
BY_NIGHT = [("timm:convmixer_768_32", 32), ("timm:coatnet_nano_rw_224", 224)]


def check(spec: str, size: int | None = None) -> Symmetry:
    source = zoo.resolve(spec, input=None if size is None else f"2x3x{size}x{size}")
    model = source.model.double().eval()
    example = source.example if isinstance(source.example, tuple) else (source.example,)
    args = tuple(x.double() if torch.is_tensor(x) and x.is_floating_point() else x for x in example)
    return check_every_value(model, args, source.kwargs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "size"),
    [
        *(pytest.param(*row, id=row[0]) for row in SMALL),
        *(pytest.param(*row, id=row[0], marks=pytest.mark.nightly) for row in BY_NIGHT),
    ],
)
def test_vision(spec: str, size: int) -> None:
    pytest.importorskip(spec.split(":")[0])
    symmetry = check(spec, size)
    values = symmetry.values
    assert not symmetry.unknown_ops
    assert any(not v.group.is_trivial for v in values.values())


@pytest.mark.parametrize("family", ["gpt2", "llama", "bert"])
def test_language(family: str) -> None:
    pytest.importorskip("transformers")
    check(f"hf:{family}")
