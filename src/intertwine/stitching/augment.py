"""Random translations and flips of the training images, drawn once: batch norms remember augmented data."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from intertwine.errors import DataError


def augment(
    images: Tensor, pad: int, *, flip: bool = False, black: Sequence[float] = (0.0,), seed: int = 0
) -> Tensor:
    """Every image moved by up to `pad` pixels, the border filled with `black`, and half of them mirrored.

    Networks trained on shifted images keep batch-norm statistics of such images. Measured again on images
    without borders, they cost a network points of accuracy that no stitch is to blame for. black: a value a
    channel after normalisation, -mean/std.

    >>> moved = augment(torch.ones(2, 1, 4, 4), 1, seed=3)
    >>> moved.shape, float(moved.max())
    (torch.Size([2, 1, 4, 4]), 1.0)
    """
    if images.ndim != 4 or pad < 0 or pad >= min(images.shape[2:]):
        raise DataError(
            f"images of shape {list(images.shape)} cannot be moved by {pad} pixels",
            do="leave augmentation out",
        )
    count, channels, height, width = images.shape
    random = torch.Generator().manual_seed(seed)
    shifts = torch.randint(0, 2 * pad + 1, (count, 2), generator=random).tolist()
    mirrored = (torch.rand(count, generator=random) < 0.5).tolist()
    fill = images.new_tensor(black).expand(channels)
    framed = fill[:, None, None].repeat(1, height + 2 * pad, width + 2 * pad)
    moved = torch.empty_like(images)
    for i, (down, right) in enumerate(shifts):
        framed[:, pad : pad + height, pad : pad + width] = images[i]
        window = framed[:, down : down + height, right : right + width]
        moved[i] = window.flip(-1) if flip and mirrored[i] else window
    return moved
