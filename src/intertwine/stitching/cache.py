"""The values of A at every cut, computed once: in memory up to a bound, beyond it in a file that is mapped.

One pass over the inputs serves all cuts of a pair, and the moments for the closed forms come along.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from intertwine.data.batches import take, tensors_of
from intertwine.data.evaluation import like_inputs
from intertwine.errors import DataError, ModelError
from intertwine.stitching.junctions import Junction
from intertwine.stitching.maps import resize
from intertwine.stitching.start import StitchMoments
from intertwine.symmetry.surgery import Surgeon

MEMORY = 2 * 1024**3


class TensorStore:
    """Makes tensors in memory until `memory` bytes are used, then in mapped files of a temporary folder.

    >>> with TensorStore(memory=100) as store:
    ...     small, large = store.empty((5, 5), torch.float32), store.empty((50, 5), torch.float32)
    ...     (store.in_memory, store.on_disk)
    (100, 1000)
    """

    def __init__(self, memory: int = MEMORY, folder: str | Path | None = None) -> None:
        self.memory, self.in_memory, self.on_disk = memory, 0, 0
        self._parent = folder
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A tensor to be filled."""
        count = math.prod(shape)
        size = count * torch.empty(0, dtype=dtype).element_size()
        if self.in_memory + size <= self.memory:
            self.in_memory += size
            return torch.empty(tuple(shape), dtype=dtype)
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="intertwine-", dir=self._parent)
        free = shutil.disk_usage(self._folder.name).free
        if size > 0.9 * free:
            raise DataError(
                f"the activations need {size / 1e9:.1f} GB more, {free / 1e9:.1f} GB are free",
                where=self._folder.name,
                do="use fewer inputs or fewer layers at a time",
            )
        path = Path(self._folder.name) / f"{self.on_disk}.bin"
        self.on_disk += size
        return torch.from_file(str(path), shared=True, size=count, dtype=dtype).view(tuple(shape))


@dataclass
class Recorded:
    """What the passes over one data set left behind."""

    labels: Tensor
    output_a: Tensor
    output_b: Tensor
    values: list[list[Tensor]]  # for each junction: A's value, then the live values of the skip
    moments: list[StitchMoments] = field(default_factory=list)

    def accuracy(self, first: int | None = None) -> tuple[float, float]:
        """Shares of the (first) inputs that A and B get right."""
        right = [(o.argmax(1) == self.labels)[:first].double() for o in (self.output_a, self.output_b)]
        return float(right[0].mean()), float(right[1].mean())


def _rows_of(output: Tensor, count: int) -> Tensor:
    """An output, which has a row for each of so many inputs."""
    if output.shape[:1] != (count,):
        what = f"the model's output is {tuple(output.shape)} for {count} inputs"
        raise ModelError(what, do="return a row for each input")
    return output


@torch.no_grad()
def record(
    a: Surgeon,
    b: Surgeon,
    junctions: Sequence[Junction],
    inputs: Any,
    labels: Tensor,
    store: TensorStore,
    *,
    inputs_b: Any = None,
    moments: bool = True,
    progress: Any = None,
) -> Recorded:
    """Run A once and B once over the inputs; keep what the suffixes will read, and the moments of both.

    inputs_b: the same inputs as B wants them, where its normalisation differs.
    """
    part_a, part_b = a.record([j.a for j in junctions]), b.record([j.b for j in junctions])
    sums = [StitchMoments(*j.widths) for j in junctions] if moments else []
    kept: list[list[Tensor]] = []
    outputs: tuple[list[Tensor], list[Tensor]] = ([], [])
    likes, count = (like_inputs(part_a), like_inputs(part_b)), len(labels)
    for start in range(0, count, a.batch):
        rows = slice(start, start + a.batch)
        batch = tensors_of(take(inputs, rows), likes[0])
        batch_b = tensors_of(take(inputs if inputs_b is None else inputs_b, rows), likes[1])
        found_a, found_b = iter(part_a(*batch)), iter(part_b(*batch_b))
        for k, junction in enumerate(junctions):
            mine = [next(found_a) for _ in range(1 + len(junction.a.live))]
            other = [next(found_b) for _ in range(1 + len(junction.b.live))]
            keep = [mine[0], *(mine[1:] if junction.skip == "a" else other[1:])]
            if not junction.inside:
                keep = keep[:1]
            if start == 0:
                kept.append([store.empty((count, *v.shape[1:]), v.dtype) for v in keep])
            for whole, value in zip(kept[k], keep, strict=True):
                whole[rows] = value.cpu()
            if moments:
                below, above = junction.a.value.layout, junction.b.value.layout
                sums[k].add(resize(below.features(mine[0]), above.pixels), above.features(other[0]))
        for side, found in zip(outputs, (found_a, found_b), strict=True):
            side.append(_rows_of(next(found), len(labels[rows])).cpu())
        if progress is not None:
            progress(len(labels[rows]))
    return Recorded(labels.cpu(), torch.cat(outputs[0]), torch.cat(outputs[1]), kept, sums)
