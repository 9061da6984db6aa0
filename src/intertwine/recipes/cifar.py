"""The preset `cifar`: trained nets and images of CIFAR from folders, where `quick` has digits.

--data DIR holds cifar10/ and cifar100/ (test.parquet, train*.parquet), tiny-imagenet/val.parquet and
text/tinyshakespeare.txt; --weights DIR the checkpoints below. The nets are not the source's: a claim that
passes on them agrees in kind.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intertwine.errors import DataError
from intertwine.recipes import Setting

if TYPE_CHECKING:
    from torch import nn

    from intertwine.data import Dataset

FOLDERS = ("data", "../shared/data")
CIFAR100 = "0.5070,0.4865,0.4409/0.2673,0.2564,0.2761"


@dataclass(frozen=True)
class Checkpoint:
    """Which net of the zoo a file of weights is for, and how its inputs are normalised."""

    model: str
    normalize: str
    options: dict[str, Any] = field(default_factory=dict)


CHECKPOINTS: dict[str, Checkpoint] = {
    **{f"tiny10-cifar10-seed{k}": Checkpoint("tiny10", "cifar10-legacy") for k in range(10)},
    **{f"resnet20-cifar10-{k}": Checkpoint("resnet20", "cifar10-legacy") for k in ("seed0", "seed1", "c")},
    **{f"resnet{depth}-cifar10-c": Checkpoint(f"resnet{depth}", "cifar10-legacy") for depth in (32, 56)},
    **{
        f"resnet{depth}-cifar100-c": Checkpoint(f"resnet{depth}", CIFAR100, {"classes": 100})
        for depth in (20, 32)
    },
    "vgg16-cifar10": Checkpoint("vgg16", "cifar10"),
    **{f"vit48-cifar10-{k}": Checkpoint("vit48", "0.5,0.5,0.5/0.5,0.5,0.5") for k in "ab"},
    **{f"modadd59-{k}": Checkpoint("modadd59", "none") for k in "ab"},
    **{f"nanogpt64-shakespeare-seed{k}": Checkpoint("nanogpt64", "none") for k in (0, 1)},
}
TINY10 = tuple(f"tiny10-cifar10-seed{k}" for k in range(10))
RESNET20 = ("resnet20-cifar10-seed0", "resnet20-cifar10-seed1", "resnet20-cifar10-c")


def find(setting: Setting, path: str) -> Path:
    """A file of the data or of the checkpoints; DataError says where it looked."""
    given = setting.weights if path.endswith(".safetensors") else setting.data
    places = [given] if given is not None else [Path(f) for f in FOLDERS]
    if path.endswith(".safetensors"):
        places = [p for place in places for p in (place, place / "checkpoints")]
    for place in places:
        if (place / path).is_file():
            return place / path
    raise DataError(
        f"{path} is not here",
        where=", ".join(str(place) for place in places),
        do="give --data DIR and --weights DIR, or use --preset quick",
    )


def load_images(
    setting: Setting, normalize: str, limit: int | None, *, split: str = "test", name: str = "cifar10"
) -> Dataset:
    """The first images of a split of CIFAR-10 or CIFAR-100, or of Tiny ImageNet, at 32x32 pixels."""
    from dataclasses import replace

    from torch.nn.functional import avg_pool2d

    from intertwine.data import load_data

    files = {"tiny-imagenet": "val", "cifar100": "train-10k" if split == "train" else split}
    file = files.get(name, split)
    data = load_data(f"parquet:{find(setting, f'{name}/{file}.parquet')}", normalize=normalize, limit=limit)
    if data.images.shape[-1] == 64:
        data = replace(data, images=avg_pool2d(data.images, 2))
    return data


def load_checkpoint(setting: Setting, name: str) -> nn.Module:
    """A trained net."""
    from intertwine import zoo

    return zoo.load_weights(build_untrained(name), find(setting, f"{name}.safetensors")).eval()


def build_untrained(name: str, seed: int = 0) -> nn.Module:
    """The net of a checkpoint before training."""
    import torch

    from intertwine import zoo

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return zoo.build(CHECKPOINTS[name].model, **CHECKPOINTS[name].options)
