"""Images that do not fit memory stay in their files and are decoded when a batch asks for them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from intertwine.data.dataset import Dataset
from intertwine.data.decode import Item, decode
from intertwine.data.normalize import Statistics, normalize_
from intertwine.errors import DataError

_LOOKED_AT = 16  # images, spread evenly, that decide between grey and colour


@dataclass(frozen=True, eq=False)
class Encoded:
    """What a reader of image files returns: (name, file or bytes) of every image, not yet decoded."""

    items: Sequence[tuple[str, Item]]
    labels: np.ndarray
    classes: tuple[str, ...] | None = None
    size: int | None = None

    def decoded(self, chosen: Sequence[int] | None = None, channels: int | None = None) -> np.ndarray:
        """uint8 images, all or the chosen ones."""
        items = self.items if chosen is None else [self.items[i] for i in chosen]
        return decode(items, self.size, channels)

    def sample(self) -> np.ndarray:
        """A few images, spread evenly."""
        count = min(_LOOKED_AT, len(self.items))
        return self.decoded([index * len(self.items) // count for index in range(count)])


class Streamed(Dataset):
    """A data set whose images are decoded, scaled to [0, 1] and normalised batch by batch.

    An image folder stays on the disk; a parquet file's encoded bytes stay in memory. What needs all images
    at once (`images`) gets a DataError.
    """

    def __init__(
        self, name: str, encoded: Encoded, labels: Tensor, classes: tuple[str, ...], batch: int,
        statistics: Statistics | None,
    ) -> None:  # fmt: skip
        fields = {"name": name, "labels": labels, "classes": classes, "batch": batch}
        like = encoded.sample()
        fields |= {"encoded": encoded, "statistics": statistics, "_shape": tuple(like.shape[1:])}
        for field, value in fields.items():
            object.__setattr__(self, field, value)  # the base class is frozen
        normalize_(torch.from_numpy(like[:1]).float(), statistics)  # complains now if it does not fit

    encoded: Encoded
    statistics: Statistics | None
    _shape: tuple[int, ...]

    @property
    def images(self) -> Tensor:
        """All images: what this data set cannot give."""
        gigabytes = 4e-9 * len(self) * float(np.prod(self.shape))
        raise DataError(
            f"{len(self):,} images of {tuple(self.shape)} take {gigabytes:.1f} GB and are streamed, but this "
            "needs them in memory",
            where=self.name,
            do="give --limit N",
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one image."""
        return self._shape

    def rows(self, chosen: Tensor | slice) -> Tensor:
        """The chosen images, decoded now."""
        numbers = range(len(self))[chosen] if isinstance(chosen, slice) else chosen.tolist()
        pixels = self.encoded.decoded(numbers, self.shape[0])
        if pixels.shape[1:] != self.shape:
            raise DataError(
                f"images of {pixels.shape[1:]} among images of {self.shape}",
                where=self.name,
                do="give --size N to resize and crop them",
            )
        return normalize_(torch.from_numpy(pixels).float().div_(255), self.statistics)

    def take(self, count: int) -> Streamed:
        """The first `count` examples."""
        part = Encoded(self.encoded.items[:count], self.encoded.labels[:count], None, self.encoded.size)
        return Streamed(self.name, part, self.labels[:count], self.classes, self.batch, self.statistics)

    def fingerprint(self) -> bytes:
        """A digest of the names and sizes of the files, or of the encoded bytes, and of the labels."""
        total = hashlib.sha256(repr((self.shape, self.statistics)).encode())
        for name, item in self.encoded.items:
            total.update(
                os.fsencode(f"{Path(name).name} {item.stat().st_size}") if isinstance(item, Path) else b""
            )
            total.update(item if isinstance(item, bytes) else b"")
        total.update(self.labels.numpy().tobytes())
        return total.digest()
