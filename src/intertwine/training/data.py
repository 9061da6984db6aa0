"""A training split and a test split from one DATA string, and batches of them made by a single gather.

digits, npz:FILE, imagefolder:DIR, torchvision:NAME:ROOT and fashion-mnist[:DIR] know both splits;
cifar10[:DIR] and parquet:DIR are folders with train.parquet and test.parquet; of text:FILE the last tenth is
held out; everything else needs a second DATA string for the test split.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from intertwine.data import Dataset, Streamed, load_data
from intertwine.errors import DataError
from intertwine.reading import user_path
from intertwine.training.recipe import Augment

# Where the two parquet files of CIFAR-10 usually are.
CIFAR_FOLDERS = ("data/cifar10", "../shared/data/cifar10", "~/data/cifar10")


@dataclass(frozen=True, eq=False)
class Splits:
    """What to train on and what to test on."""

    name: str
    train: Dataset
    test: Dataset

    @cached_property
    def digest(self) -> str:
        """A name for the content: equal images and labels, equal digest."""
        return hashlib.sha256(self.train.fingerprint() + self.test.fingerprint()).hexdigest()[:16]


def load_splits(
    spec: str, *, test: str | None = None, normalize: str = "none", limit: int | None = None,
    size: int | None = None, memory: float | None = None, **text: Any,
) -> Splits:  # fmt: skip
    """Both splits of a DATA string; `test` names the second one where the first does not hold it.

    Images that would take more than `memory` bytes (half of the machine's) are read from their files. text:
    context, tokenizer and prepare of `load_data`.

    >>> splits = load_splits("digits")
    >>> len(splits.train), len(splits.test)
    (1297, 500)
    """
    first, second = _specs(spec, test)
    train = load_data(
        first, normalize=normalize, limit=limit, size=size, split="train", memory=memory, **text
    )
    held_out = load_data(second, normalize=normalize, size=size, split="test", memory=memory, **text)
    if test is None and first == second and torch.equal(train.labels, held_out.labels[: len(train)]):
        few = torch.arange(0, len(train), max(1, len(train) // 100))
        if train.shape == held_out.shape and torch.equal(train.rows(few), held_out.rows(few)):
            raise DataError(f"{spec} has no test split", do="give data with both splits")
    if train.shape != held_out.shape:
        raise DataError(f"training images are {train.shape}, test images {held_out.shape}")
    return Splits(spec, train, held_out)


def _specs(spec: str, test: str | None) -> tuple[str, str]:
    kind, _, rest = spec.partition(":")
    if kind == "cifar10":
        folder = find_cifar10(rest)
        return f"parquet:{folder / 'train.parquet'}", test or f"parquet:{folder / 'test.parquet'}"
    if kind == "parquet" and rest and user_path(rest, DataError).is_dir():
        return f"parquet:{rest}/train.parquet", test or f"parquet:{rest}/test.parquet"
    if kind == "parquet" and test is None:
        raise DataError(
            f"{spec} is one file, and training needs a test split too",
            do="give --train-data too, or parquet:DIR with train.parquet and test.parquet in it",
        )
    if kind == "text" and test is None and not rest.endswith("]"):
        return f"{spec}[:90%]", f"{spec}[90%:]"
    return spec, test or spec


def find_cifar10(folder: str = "") -> Path:
    """The folder that holds CIFAR-10 as train.parquet and test.parquet; DataError says where it looked."""
    places = [user_path(f, DataError) for f in ([folder] if folder else CIFAR_FOLDERS)]
    for place in places:
        if (place / "train.parquet").is_file() and (place / "test.parquet").is_file():
            return place
    raise DataError(
        "CIFAR-10 is not here",
        where=", ".join(str(place.absolute()) for place in places),
        do="put train.parquet and test.parquet (the Hugging Face data set cifar10) in a folder and give "
        "cifar10:DIR, or use torchvision:CIFAR10:ROOT",
    )


def batches_of(data: Dataset, augment: Augment) -> Gather | Stream:
    """What makes a run's batches, for images in memory or in files."""
    return Stream(data, augment) if isinstance(data, Streamed) else Gather(data.images, augment)


class Gather:
    """Augmented batches of images that are in memory.

    The images lie as N x (H + 2p) x (W + 2p) x C with a border of zeros for translations of up to p pixels,
    so that choosing, shifting and flipping is one gather of rows, and the result is channels-last already.

    >>> images = torch.arange(8.0).view(2, 1, 2, 2)
    >>> Gather(images, Augment()).batch(torch.tensor([1]), torch.Generator())
    tensor([[[[4., 5.],
              [6., 7.]]]])
    """

    def __init__(self, images: Tensor, augment: Augment) -> None:
        if images.ndim != 4 and (augment.flip or augment.translate):
            raise DataError(
                f"vectors of length {images.shape[-1]} can be neither flipped nor translated",
                do="use a recipe without augment",
            )
        self.augment, self.shape = augment, tuple(images.shape[1:])
        self.plain = images if images.ndim != 4 else None
        if self.plain is None:
            p = augment.translate
            padded = F.pad(images, (p, p, p, p)) if p else images
            self.height, self.width = padded.shape[2:]
            self.pixels = padded.permute(0, 2, 3, 1).reshape(-1, images.shape[1])

    def expect(self, chosen: Tensor) -> None:
        """These come next: nothing to prepare."""

    def batch(self, chosen: Tensor, generator: torch.Generator, share: float = 0.0) -> Tensor:
        """The chosen images, each shifted and flipped at random; `share` of the run is over."""
        if self.plain is not None:
            return self.plain[chosen]
        count, (channels, height, width) = len(chosen), self.shape
        y, x = torch.arange(height), torch.arange(width).expand(count, width)
        if self.augment.flip:
            flip = torch.randint(2, (count, 1), generator=generator).bool()
            x = torch.where(flip, x.flip(1), x)
        reach = self.augment.translate
        down, right = torch.randint(2 * reach + 1, (2, count, 1), generator=generator)
        if share >= self.augment.until:
            down, right = torch.full_like(down, reach), torch.full_like(right, reach)
        rows = chosen[:, None] * self.height + down + y
        places = rows[:, :, None] * self.width + (x + right)[:, None, :]
        found = self.pixels.index_select(0, places.flatten())
        return found.view(count, height, width, channels).permute(0, 3, 1, 2)


class Stream:
    """The same batches of images in files: the next one is decoded while the model works on this one."""

    def __init__(self, data: Dataset, augment: Augment) -> None:
        self.data, self.augment = data, augment
        self.worker = ThreadPoolExecutor(1, "decode")
        self.coming: tuple[Tensor, Future[Tensor]] | None = None

    def expect(self, chosen: Tensor) -> None:
        """Begin to decode what comes next."""
        self.coming = (chosen, self.worker.submit(self.data.rows, chosen)) if len(chosen) else None

    def batch(self, chosen: Tensor, generator: torch.Generator, share: float = 0.0) -> Tensor:
        """As `Gather.batch`, with the same random numbers."""
        ready = self.coming is not None and torch.equal(self.coming[0], chosen)
        images = self.coming[1].result() if self.coming and ready else self.data.rows(chosen)
        return Gather(images, self.augment).batch(torch.arange(len(chosen)), generator, share)


def shrink(images: Tensor, scale: float) -> Tensor:
    """Images with `scale` times their side, each pixel the mean of what it covers.

    >>> shrink(torch.ones(2, 3, 8, 8), 0.5).shape
    torch.Size([2, 3, 4, 4])
    """
    if scale == 1 or images.ndim != 4:
        return images
    size = [max(1, round(side * scale)) for side in images.shape[2:]]
    return F.interpolate(images, size=size, mode="bilinear", antialias=True, align_corners=False)
