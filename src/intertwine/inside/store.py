"""Activations of one layer for all images, in memory or in a file: one forward pass for all bases."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from intertwine.errors import Unsupported
from intertwine.symmetry.values import GraphValue

MEMORY = 2 << 30


def layout(value: GraphValue, channels: int) -> tuple[int, int, int]:
    """(first token that is a place, h, w): how the positions of a value lie in the image."""
    places = [size for dim, size in enumerate(value.shape) if dim not in (0, channels)]
    if not places:
        return 0, 1, 1
    if len(places) == 2:
        return 0, places[0], places[1]
    if len(places) == 1:
        for skipped in (0, 1, 2):  # a class token, and one of distillation
            side = round((places[0] - skipped) ** 0.5)
            if side * side == places[0] - skipped:
                return skipped, side, side
    raise Unsupported(
        f"{value.name!r} has shape {list(value.shape)}, whose positions are no grid",
        so="its units have no place in the image",
        do="name a value of N x C x H x W, of N x tokens x C, or of N x C",
    )


class ActivationStore:
    """(images, positions, units) of float32; a file takes the place of memory above `memory` bytes."""

    def __init__(self, images: int, value: GraphValue, channels: int, memory: int = MEMORY) -> None:
        self.skip, self.height, self.width = layout(value, channels)
        self.dim = channels
        self.units = value.shape[channels]
        shape = (images, self.height * self.width, self.units)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        if 4 * int(np.prod(shape)) > memory:
            self._folder = tempfile.TemporaryDirectory(prefix="intertwine-")
            self.array: np.ndarray = np.memmap(
                Path(self._folder.name) / "activations", np.float32, "w+", shape=shape
            )
        else:
            self.array = np.zeros(shape, np.float32)

    def put(self, start: int, value: Tensor) -> None:
        """The values of images from `start` on."""
        rows = value.movedim(self.dim, -1).reshape(len(value), -1, self.units)[:, self.skip :]
        self.array[start : start + len(rows)] = rows.float().cpu().numpy()

    def rotated(self, matrix: Tensor | None, step: int = 32) -> Iterator[tuple[int, Tensor]]:
        """(first image, (images, positions, units)) in the basis of the columns of a matrix."""
        for start in range(0, len(self.array), step):
            rows = torch.from_numpy(np.ascontiguousarray(self.array[start : start + step]))
            yield start, rows if matrix is None else rows @ matrix

    def maps(self, rows: Tensor) -> Tensor:
        """(positions, units) of one image as (units, h, w)."""
        return rows.T.reshape(self.units, self.height, self.width)

    def close(self) -> None:
        """Remove the file, if there is one."""
        if self._folder is not None:
            del self.array
            self._folder.cleanup()
