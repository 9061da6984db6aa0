"""The zoo by name: a factory, an input shape, a number of classes and one line about each net."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

from torch import nn

from intertwine.errors import InputError, NotFound
from intertwine.zoo.agent import VIEW, ActorCritic
from intertwine.zoo.cct import cct
from intertwine.zoo.convnext_cifar import convnext_cifar
from intertwine.zoo.lenet import lenet5
from intertwine.zoo.mlp import mlp
from intertwine.zoo.mobilenet_cifar import mobilenet, mobilenetv2
from intertwine.zoo.modadd import modadd
from intertwine.zoo.myrtle import myrtle, myrtle_plain
from intertwine.zoo.nanogpt import nanogpt
from intertwine.zoo.resnet import resnet
from intertwine.zoo.resnet_cifar import resnet_cifar
from intertwine.zoo.resnet_open import resnet50_open
from intertwine.zoo.tiny10 import tiny10
from intertwine.zoo.vgg import digits_vgg, vgg
from intertwine.zoo.vit48 import vit48

_MNIST, _CIFAR, _DIGITS = (1, 28, 28), (3, 32, 32), (1, 8, 8)


@dataclass(frozen=True)
class Entry:
    """One net of the zoo; `shape` is that of one input, without the batch.

    tokens: inputs are whole numbers below it; 0 where they are real numbers. objective: what it predicts of
    text.
    """

    name: str
    factory: Callable[..., nn.Module]
    shape: tuple[int, ...]
    classes: int
    description: str
    tokens: int = 0
    objective: str | None = None


def _entries() -> list[Entry]:
    rows: list[tuple[str, Callable[..., nn.Module], tuple[int, ...], str]] = [
        ("mlp", mlp, _MNIST, "ReLU perceptron 784-512-256-128-10"),
        ("lenet5", lenet5, _MNIST, "LeNet-5 with ReLU and max pooling"),
        ("digits-vgg", digits_vgg, _DIGITS, "five conv-BN-ReLU layers for 8x8 digits; trained weights ship"),
        (
            "vgg16-plain",
            partial(vgg, 16, batch_norm=False),
            _CIFAR,
            "VGG16 without batch norm, one linear layer",
        ),
        ("myrtle", myrtle, _CIFAR, "Myrtle CNN: four conv-BN-ReLU layers"),
        ("myrtle-plain", myrtle_plain, _CIFAR, "Myrtle CNN without batch norm"),
        ("myrtle-constant", partial(myrtle, (512,) * 4), _CIFAR, "Myrtle CNN, 512 channels everywhere"),
        ("tiny10", tiny10, _CIFAR, "eight convolutions without padding, batch norm"),
        ("vit48", vit48, _CIFAR, "vision transformer, patches of 4, width 48, no final norm"),
        ("cct6", cct, _CIFAR, "compact convolutional transformer, six blocks, sinusoidal positions"),
        ("convnext-cifar", convnext_cifar, _CIFAR, "small ConvNeXt: no activation on its residual outputs"),
        (
            "resnet20-open",
            partial(resnet_cifar, 20, opened=True),
            _CIFAR,
            "ResNet20 without ReLU on its residual outputs",
        ),
        ("resnet50-open", resnet50_open, _CIFAR, "ResNet50 without ReLU on its residual outputs"),
    ]
    rows += [
        (f"vgg{d}", partial(vgg, d), _CIFAR, f"VGG{d}, batch norm, one linear layer")
        for d in (11, 13, 16, 19)
    ]
    rows += [(f"resnet{d}", partial(resnet, d), _CIFAR, f"ResNet{d} with a 3x3 stem") for d in (18, 34, 50)]
    for d in (20, 32, 44, 56, 110):
        conv, pad = partial(resnet_cifar, d), partial(resnet_cifar, d, pad=True)
        rows += [(f"resnet{d}", conv, _CIFAR, f"ResNet{d} 16/32/64, 1x1-conv shortcuts")]
        rows += [(f"resnet{d}-pad", pad, _CIFAR, f"ResNet{d} 16/32/64, zero-padded shortcuts")]
    entries = [Entry(name, factory, shape, 10, text) for name, factory, shape, text in rows]
    return [
        *entries,
        *(
            Entry(
                f"resnet{d}-cifar100",
                partial(resnet_cifar, d, classes=100),
                _CIFAR,
                100,
                f"ResNet{d} 16/32/64 for CIFAR-100",
            )
            for d in (20, 32, 56)
        ),
        Entry("nanogpt64", nanogpt, (64,), 65, "character GPT, four blocks of width 64", 65, "causal"),
        Entry("modadd59", modadd, (2,), 59, "one transformer layer that adds mod 59", 59),
        Entry("mobilenet", mobilenet, _CIFAR, 100, "MobileNet for CIFAR-100, depthwise separable"),
        Entry("mobilenetv2", mobilenetv2, _CIFAR, 100, "MobileNetV2 for CIFAR-100, inverted residuals"),
        Entry("minigrid-agent", ActorCritic, VIEW, 7, "three convolutions, actor and critic"),
        Entry(
            "minigrid-agent-bottleneck",
            partial(ActorCritic, bottleneck=8),
            VIEW,
            7,
            "minigrid-agent with 8 features before its heads",
        ),
    ]


_REGISTRY: dict[str, Entry] = {entry.name: entry for entry in _entries()}


def names() -> list[str]:
    """Every name that `build` knows, sorted.

    >>> "resnet20-pad" in names()
    True
    """
    return sorted(_REGISTRY)


def entry(name: str) -> Entry:
    """The registry entry of a name; NotFound with the nearest names otherwise."""
    if name not in _REGISTRY:
        near = difflib.get_close_matches(name, _REGISTRY, n=3, cutoff=0.4)
        hint = f"did you mean {', '.join(near)}? " if near else ""
        raise NotFound(f"the zoo has no model {name!r}", do=f"{hint}the zoo has {', '.join(names())}")
    return _REGISTRY[name]


def build(name: str, **kwargs: Any) -> nn.Module:
    """A fresh model in eval mode; `kwargs` go to the factory (`classes`, `in_channels`, `width`, ...).

    >>> build("tiny10", classes=100).fc.out_features
    100
    """
    factory = entry(name).factory
    try:
        return factory(**kwargs).eval()
    except TypeError as error:
        raise InputError(f"cannot build {name!r} with {kwargs}: {error}") from error


def checkpoint(name: str, seed: int = 0) -> Path:
    """Where the trained weights that ship with the package are.

    >>> checkpoint("digits-vgg", 1).name
    'digits-vgg-seed1.safetensors'
    """
    folder = Path(str(resources.files("intertwine.zoo") / "checkpoints"))
    path = folder / f"{name}-seed{seed}.safetensors"
    if not path.is_file():
        shipped = ", ".join(sorted(p.stem for p in folder.glob("*.safetensors"))) or "none"
        raise NotFound(
            f"no trained weights of {name!r} with seed {seed} ship with the package", do=f"shipped: {shipped}"
        )
    return path
