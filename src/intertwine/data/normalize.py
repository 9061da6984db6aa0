"""x -> (x - mean) / std per channel, with the presets of the published checkpoints."""

from __future__ import annotations

from torch import Tensor

from intertwine.errors import DataError, InputError
from intertwine.numbers import Several, finite, positive
from intertwine.text import quoted

Statistics = tuple[tuple[float, ...], tuple[float, ...]]

# cifar10-legacy: the std of many old scripts (an average of per-image deviations); their checkpoints need it.
PRESETS: dict[str, Statistics | None] = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)),
    "cifar10-legacy": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "none": None,
}


def parse_normalize(text: str) -> Statistics | None:
    """Mean and std of a preset or of "M,M,M/S,S,S"; None for "none".

    >>> parse_normalize("0.5/0.25")
    ((0.5,), (0.25,))
    """
    if text in PRESETS:
        return PRESETS[text]
    try:
        means, stds = text.split("/")
        mean, std = Several(finite)(means), Several(positive)(stds)
    except ValueError:
        mean, std = (), ()
    if not mean or len(mean) != len(std):
        raise InputError(
            f"cannot read the normalisation {quoted(text)}",
            do=f"use one of {', '.join(PRESETS)}, or means/stds as in 0.5,0.5,0.5/0.2,0.2,0.2",
        )
    return mean, std


def normalize_(images: Tensor, statistics: Statistics | None) -> Tensor:
    """Normalise N x C x H x W images in place (they are ours, and may be large)."""
    if statistics is None:
        return images
    mean, std = (images.new_tensor(values) for values in statistics)
    channels = images.shape[1] if images.ndim == 4 else 0
    if len(mean) not in (1, channels) or not channels:
        raise DataError(
            f"{len(mean)} means cannot normalise images of shape {tuple(images.shape[1:])}",
            do="use --normalize none",
        )
    return images.sub_(mean.view(1, -1, 1, 1)).div_(std.view(1, -1, 1, 1))
