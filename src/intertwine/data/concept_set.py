"""Images in which concepts are marked: by masks of pixels, or as a label of the whole image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from intertwine.errors import DataError

CATEGORIES = ("colour", "texture", "part", "object", "scene")  # in the order of figures


@dataclass(frozen=True, eq=False)
class Annotation:
    """planes: layers x H x W numbers of concepts, -1 where there is none; whole: concepts of the whole image.

    categories: those that were looked for in this image, also where nothing of them was found.
    """

    planes: np.ndarray
    whole: tuple[int, ...]
    categories: frozenset[str]


@dataclass(frozen=True, eq=False)
class ConceptSet:
    """`image(i)` is C x H x W bytes, `annotation(i)` what is marked in it; both are read when asked for.

    names, categories: of every concept. statistics: mean and deviation for the network, or None.
    """

    name: str
    count: int
    shape: tuple[int, int, int]
    names: tuple[str, ...]
    categories: tuple[str, ...]
    image: Callable[[int], np.ndarray]
    annotation: Callable[[int], Annotation]
    statistics: tuple[tuple[float, ...], tuple[float, ...]] | None = None

    def __len__(self) -> int:
        return self.count

    def rows(self, numbers: Sequence[int]) -> Tensor:
        """Images as the network reads them: in [0, 1], then normalised."""
        images = torch.from_numpy(np.stack([self.image(int(i)) for i in numbers])).float() / 255
        if self.statistics is None:
            return images
        mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in self.statistics)
        return (images - mean) / std

    def grey(self) -> ConceptSet:
        """The same images with one channel, the mean of theirs: for networks that take no colours."""
        mean = self.statistics and tuple((float(np.mean(values)),) for values in self.statistics)
        statistics = (mean[0], mean[1]) if mean else None

        def image(i: int) -> np.ndarray:
            return np.asarray(self.image(i).mean(0, keepdims=True).round(), np.uint8)

        return replace(self, shape=(1, *self.shape[1:]), image=image, statistics=statistics)

    def take(self, count: int) -> ConceptSet:
        """The first `count` images."""
        return replace(self, count=min(count, self.count))

    def checked(self) -> ConceptSet:
        """Itself, or DataError: no images, or a first mask that does not fit its image."""
        if not self.count or not self.names:
            raise DataError(f"{self.name} holds {self.count} images and {len(self.names)} concepts")
        planes = self.annotation(0).planes
        if planes.size and planes.shape[1:] != self.shape[1:]:
            raise DataError(f"masks of {planes.shape[1:]} on images of {self.shape[1:]}", where=self.name)
        return self


def join(sets: Sequence[ConceptSet]) -> ConceptSet:
    """Several sets as one; concepts keep apart, images must be of one size."""
    if len(sets) == 1:
        return sets[0]
    shapes = {s.shape for s in sets}
    if len(shapes) > 1:
        raise DataError(f"images of {' and '.join(map(str, sorted(shapes)))}", do="give --size N")
    starts = np.cumsum([0, *(len(s) for s in sets)])
    shifts = np.cumsum([0, *(len(s.names) for s in sets)])

    def find(i: int) -> tuple[int, int]:
        k = int(np.searchsorted(starts, i, side="right")) - 1
        return k, i - int(starts[k])

    def image(i: int) -> np.ndarray:
        k, inner = find(i)
        return sets[k].image(inner)

    def annotation(i: int) -> Annotation:
        k, inner = find(i)
        found, shift = sets[k].annotation(inner), int(shifts[k])
        planes = np.where(found.planes >= 0, found.planes + shift, -1)
        return Annotation(planes, tuple(c + shift for c in found.whole), found.categories)

    return ConceptSet(
        "+".join(s.name for s in sets), int(starts[-1]), sets[0].shape,
        tuple(n for s in sets for n in s.names), tuple(c for s in sets for c in s.categories),
        image, annotation, sets[0].statistics,
    )  # fmt: skip
