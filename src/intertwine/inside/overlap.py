"""Intersection over union of every unit's mask with every concept (source 002, F.1).

M_k(x) = resize(a_k(x)) > T_k,    IoU_kc = sum_x |M_k & L_c| / sum_x |M_k or L_c|,

the sums over images in which the category of c was looked for (Bau et al. 2017). The mask of a unit is empty
where its largest activation does not exceed T_k, because interpolation never exceeds what it interpolates: of
all pairs of units and images only the few that count are ever resized.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from intertwine.data.concept_set import Annotation


def unit_masks(maps: Tensor, thresholds: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """(units that are active, their masks at the size of the image); maps: (units, h, w)."""
    active = (maps.flatten(1).amax(1) > thresholds).nonzero()[:, 0]
    chosen = maps[active]
    if not len(active):
        return active, torch.zeros(0, *size, dtype=torch.bool)
    if tuple(chosen.shape[1:]) != size:
        chosen = functional.interpolate(chosen[None], size, mode="bilinear", align_corners=False)[0]
    return active, chosen > thresholds[active, None, None]


class Overlap:
    """Running counts of pixels for one basis."""

    def __init__(self, units: int, categories: tuple[str, ...]) -> None:
        self.kinds = tuple(dict.fromkeys(categories))
        self.of = np.array([self.kinds.index(c) for c in categories])
        self.both = torch.zeros(units, len(categories), dtype=torch.int64)
        self.unit = torch.zeros(units, len(self.kinds), dtype=torch.int64)

    def add(self, maps: Tensor, thresholds: Tensor, found: Annotation, size: tuple[int, int]) -> None:
        """One image: maps (units, h, w)."""
        active, masks = unit_masks(maps, thresholds, size)
        if not len(active):
            return
        concepts = self.both.shape[1]
        row, pixel = masks.flatten(1).nonzero(as_tuple=True)
        area = torch.bincount(row, minlength=len(active))
        for k, kind in enumerate(self.kinds):
            if kind in found.categories:
                self.unit[active, k] += area
        for plane in torch.from_numpy(found.planes).flatten(1):
            label = plane[pixel]
            marked = label >= 0
            key = row[marked] * concepts + label[marked]
            counts = torch.bincount(key, minlength=len(active) * concepts)
            self.both[active] += counts.reshape(len(active), concepts)
        for concept in found.whole:
            self.both[active, concept] += area

    def iou(self, concept_area: Tensor) -> Tensor:
        """(units, concepts), 0 where a concept never occurs."""
        union = self.unit[:, self.of] + concept_area - self.both
        return torch.where(union > 0, self.both / union.clamp_min(1), 0.0)


def concept_area(found: Annotation, concepts: int, size: tuple[int, int]) -> Tensor:
    """Pixels of every concept in one image."""
    labels = torch.from_numpy(found.planes).flatten()
    area = torch.bincount(labels[labels >= 0], minlength=concepts)
    for concept in found.whole:
        area[concept] += size[0] * size[1]
    return area
