"""The nets and images of figures 3.1 to 3.3 of source 003, in each setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from intertwine.recipes import Progress, Setting
from intertwine.recipes.cifar import CHECKPOINTS, build_untrained, load_checkpoint, load_images
from intertwine.recipes.nets import Net, load_net_data, make_net, train_net

if TYPE_CHECKING:
    from torch import Tensor, nn

    from intertwine.comparing.experiments import Source
    from intertwine.data import Dataset
    from intertwine.training import Splits

IMAGES = 200  # of each data set in the preset cifar
SEEDS = (1, 2)
DIGITS = Net("digits-vgg", "digits", "digits", {}, 15)
CIFAR100, IMAGENET32, VOC = "torchvision:CIFAR100:data", "parquet:data/imagenet32", "imagefolder:data/voc"


@dataclass(frozen=True)
class World:
    """Nets by name (TASK_NUMBER; the task "random" is untrained) and test images by name of the data set.

    normalize: net -> how its images are normalised, where nets differ in that and `images` are of 0 to 1.
    """

    nets: dict[str, nn.Module]
    images: dict[str, Tensor]
    layer: str
    normalize: Mapping[str, str] = field(default_factory=dict)

    def seen(self, data: str, net: str) -> Tensor:
        """The images of a data set as a net wants them."""
        from intertwine.data.normalize import normalize_, parse_normalize

        if net not in self.normalize:
            return self.images[data]
        return normalize_(self.images[data].clone(), parse_normalize(self.normalize[net]))


def digits_world(folder: Path, progress: Progress) -> World:
    """Nets of two seeds trained on digits and on turned digits, untrained ones, and three test sets."""
    import torch

    net, splits = DIGITS, load_net_data(DIGITS)
    noise = torch.Generator().manual_seed(0)
    images = {
        "digits": splits.test.images,
        "turned": splits.test.images.rot90(1, (2, 3)),
        "noisy": splits.test.images + 0.3 * torch.randn(splits.test.images.shape, generator=noise),
    }
    turned = _turned(splits)
    nets: dict[str, nn.Module] = {}
    for seed in SEEDS:
        nets[f"digits_s{seed}"] = train_net(net, splits, folder, seed, progress)[0]
        other = replace(net, data="digits-turned")
        nets[f"turned_s{seed}"] = train_net(other, turned, folder, seed, progress)[0]
        nets[f"random_s{seed}"] = make_net(net, splits, 100 + seed)
    return World(nets, images, "features.17")


def _turned(splits: Splits) -> Splits:
    from intertwine.training import Splits as Parts

    def turn(part: Dataset) -> Dataset:
        return replace(part, images=part.images.rot90(1, (2, 3)).contiguous())

    return Parts("digits-turned", turn(splits.train), turn(splits.test))


def paper_world(folder: Path, progress: Progress) -> World:
    """ResNet18 of two seeds on CIFAR-100 and on ImageNet32, untrained ones, 5,800 test images of each set."""
    from intertwine.data import load_data

    tasks = {"Cifar": Net("resnet18", CIFAR100, "ifm"), "Imagenet": Net("resnet18", IMAGENET32, "ifm")}
    nets: dict[str, nn.Module] = {}
    images: dict[str, Tensor] = {}
    for name, net in tasks.items():
        splits = load_net_data(net)
        images[name] = splits.test.images[:5800]
        for seed in SEEDS:
            nets[f"{name}_s{seed}"] = train_net(net, splits, folder, seed, progress)[0]
            nets.setdefault(f"random_s{seed}", make_net(net, splits, 100 + seed))
    images["VOC"] = load_data(VOC, normalize="cifar10", size=32).images
    return World(nets, images, "layer4.1.relu_1")


def cifar_world(setting: Setting) -> World:
    """ResNets of two depths on CIFAR-10 and on CIFAR-100, untrained ones, and images of three data sets."""
    nets: dict[str, nn.Module] = {}
    normalize: dict[str, str] = {}
    for data, task in (("cifar10", "CIFAR-10"), ("cifar100", "CIFAR-100")):
        for depth in (20, 32):
            name = f"resnet{depth}-{data}-c"
            nets[f"{task}_{depth}"] = load_checkpoint(setting, name)
            normalize[f"{task}_{depth}"] = CHECKPOINTS[name].normalize
    for depth in (20, 32):
        nets[f"random_{depth}"] = build_untrained(f"resnet{depth}-cifar10-c", seed=depth).eval()
        normalize[f"random_{depth}"] = normalize[f"CIFAR-10_{depth}"]
    names = {"CIFAR-10": "cifar10", "CIFAR-100": "cifar100", "Tiny ImageNet": "tiny-imagenet"}
    images = {shown: load_images(setting, "none", IMAGES, name=n).images for shown, n in names.items()}
    return World(nets, images, "mean", normalize)


def find_world(folder: Path, setting: Setting, progress: Progress) -> World:
    """The nets and images of Figures 3.1 to 3.3."""
    if setting.preset == "cifar":
        return cifar_world(setting)
    return (digits_world if setting.quick else paper_world)(folder, progress)


# Three figures look at the same features: within a process they are made once.
_KEPT: dict[tuple[Path, Setting], dict[Source, Tensor]] = {}


def find_features(folder: Path, setting: Setting, progress: Progress) -> dict[Source, Tensor]:
    """(data set, net) -> features; a net is read once for all data sets."""
    key = (folder.resolve(), setting)
    if key not in _KEPT:
        _KEPT[key] = _features(find_world(folder, setting, progress))
    return _KEPT[key]


def _features(world: World) -> dict[Source, Tensor]:
    import torch

    from intertwine import collect

    sizes = [len(images) for images in world.images.values()]
    found: dict[Source, Tensor] = {}
    for name, net in world.nets.items():
        images = torch.cat([world.seen(data, name) for data in world.images])
        parts = collect(net, images, at=world.layer)[world.layer].flatten(1).split(sizes)
        found |= {(data, name): part for data, part in zip(world.images, parts, strict=True)}
    return {(data, name): found[data, name] for data in world.images for name in world.nets}
