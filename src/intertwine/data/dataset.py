"""A labelled data set, and the raw form the readers hand over."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from intertwine.errors import DataError

MOST_CLASSES = 1_000_000


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images (float32, N x C x H x W; N x D for plain vectors), labels (int64, N) and class names."""

    name: str
    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    batch: int = 256

    def __len__(self) -> int:
        return len(self.labels)

    def batches(self, batch: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Images and labels in their order, `batch` at a time; the last batch may be smaller."""
        step = batch or self.batch
        for start in range(0, len(self), step):
            part = slice(start, start + step)
            yield self.rows(part), self.labels[part]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one image."""
        return tuple(self.images.shape[1:])

    def rows(self, chosen: Tensor | slice) -> Tensor:
        """The chosen images."""
        return self.images[chosen]

    def head(self, count: int) -> Tensor:
        """The first images."""
        return self.rows(slice(count))

    def fingerprint(self) -> bytes:
        """A digest of the content: equal images and labels, equal digest."""
        total = hashlib.sha256()
        for tensor in (self.images, self.labels):
            total.update(repr((tuple(tensor.shape), tensor.dtype)).encode())
            total.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
        return total.digest()

    def take(self, count: int) -> Dataset:
        """The first `count` examples (views, no copy)."""
        return replace(self, images=self.images[:count], labels=self.labels[:count])

    def drop(self, count: int) -> Dataset:
        """All but the first `count` examples (views, no copy)."""
        return replace(self, images=self.images[count:], labels=self.labels[count:])


@dataclass(frozen=True, eq=False)
class Raw:
    """What a reader returns: labels, and images before scaling (uint8 means 0..255)."""

    images: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...] | None = None


def assert_well_formed(raw: Raw, where: str) -> None:
    """Raise DataError unless every image is finite and has one integer label >= 0."""
    images, labels = raw.images, raw.labels
    if labels.ndim != 1 or len(labels) != len(images):
        raise DataError(f"{len(images)} images but labels of shape {labels.shape}", where=where)
    if not len(images):
        raise DataError("the data set is empty", where=where)
    assert_labels(labels, raw.classes, where)
    if images.ndim not in (2, 4) or 0 in images.shape:
        raise DataError(
            f"images of shape {images.shape}",
            where=where,
            do="give N x C x H x W, N x H x W x C, N x H x W or N x D",
        )
    if np.issubdtype(images.dtype, np.floating):
        if not np.isfinite(images).all():
            raise DataError("some image values are NaN or infinite", where=where)
        if max(images.max(), -images.min()) > np.finfo(np.float32).max:
            raise DataError("some image values overflow float32", where=where, do="scale them to [0, 1]")


def assert_labels(labels: np.ndarray, classes: tuple[str, ...] | None, where: str) -> None:
    """Raise DataError unless the labels count classes: whole numbers from 0, within reason."""
    if not np.issubdtype(labels.dtype, np.integer):
        raise DataError(f"labels must be integers from 0, not {labels.dtype}", where=where)
    if labels.min() < 0:
        raise DataError(f"labels must be integers from 0, not {labels.min()}", where=where)
    if classes is not None and labels.max() >= len(classes):
        raise DataError(f"label {labels.max()} but only {len(classes)} class names", where=where)
    if labels.max() >= MOST_CLASSES:
        raise DataError(
            f"the label {labels.max()}: labels number the classes, at most {MOST_CLASSES:,}",
            where=where,
            do="number the classes from 0",
        )
