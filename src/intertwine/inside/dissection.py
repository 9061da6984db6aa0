"""What `intertwine.dissect` returns: detectors in every basis, and examples of the best ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from intertwine.data.concept_set import CATEGORIES
from intertwine.results import Result, Table


@dataclass(frozen=True, eq=False)
class UnitExample:
    """A unit and what excites it: images (C x H x W bytes) with the unit's masks (H x W)."""

    unit: int
    concept: str
    category: str
    iou: float
    images: tuple[np.ndarray, ...]
    masks: tuple[np.ndarray, ...]


@dataclass(frozen=True, eq=False)
class LayerReading:
    """One layer in one basis. iou, concept: the best concept of every unit; draw: which random element."""

    layer: str
    by: str
    alpha: float
    draw: int
    iou: np.ndarray
    concept: np.ndarray
    names: tuple[str, ...]
    categories: tuple[str, ...]
    threshold: float
    examples: tuple[UnitExample, ...] = ()

    @property
    def basis(self) -> str:
        """In words: own basis, Q^0.4, an element of the group."""
        if self.by == "none":
            return "own"
        return f"Q^{self.alpha:g}" if self.by == "orthogonal" else "its group"

    @property
    def units(self) -> int:
        return len(self.iou)

    @property
    def detectors(self) -> np.ndarray:
        """The units that detect a concept."""
        return np.flatnonzero(self.iou > self.threshold)

    @property
    def share(self) -> float:
        """Detectors among all units."""
        return len(self.detectors) / max(self.units, 1)

    def units_by_category(self) -> dict[str, int]:
        """Detectors of each category."""
        return _ordered(Counter(self.categories[c] for c in self.concept[self.detectors]))

    def concepts_by_category(self) -> dict[str, int]:
        """Distinct concepts detected, of each category."""
        unique = set(self.concept[self.detectors].tolist())
        return _ordered(Counter(self.categories[c] for c in unique))

    def detected(self) -> dict[str, int]:
        """Concept -> how many units detect it, the most frequent first."""
        return dict(Counter(self.names[c] for c in self.concept[self.detectors]).most_common())

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "layer": self.layer,
            "by": self.by,
            "alpha": self.alpha,
            "draw": self.draw,
            "units": self.units,
            "interpretable units": len(self.detectors),
            "units by category": self.units_by_category(),
            "unique concepts": len(self.detected()),
            "concepts by category": self.concepts_by_category(),
            "concepts": self.detected(),
            "best": [
                {"unit": int(u), "concept": self.names[self.concept[u]], "iou": float(self.iou[u])}
                for u in np.argsort(-self.iou, kind="stable")[:10]
            ],
        }


@dataclass(frozen=True, eq=False, repr=False)
class Dissection(Result):
    """All readings of a network: layers x bases. groups: layer -> its own inferred group."""

    data: str
    images: int
    quantile: float
    threshold: float
    groups: dict[str, str]
    readings: tuple[LayerReading, ...]

    def of(self, layer: str | None = None) -> list[LayerReading]:
        """The readings of one layer, the first unless named."""
        name = layer or self.readings[0].layer
        return [r for r in self.readings if r.layer == name]

    def to_dict(self) -> dict[str, Any]:
        """Every number, as `intertwine dissect --json` prints it."""
        return {
            "data": self.data,
            "images": self.images,
            "quantile": self.quantile,
            "threshold": self.threshold,
            "groups": self.groups,
            "readings": [r.to_dict() for r in self.readings],
        }

    def tables(self) -> Sequence[Table]:
        """A row a layer and basis."""
        columns = [
            "layer",
            "basis",
            "draw",
            "units",
            "interpretable",
            "share",
            "unique concepts",
            "by category",
        ]
        rows = [
            [
                r.layer, r.basis, r.draw, r.units, len(r.detectors), round(r.share, 3), len(r.detected()),
                ", ".join(f"{kind} {n}" for kind, n in r.units_by_category().items()),
            ]
            for r in self.readings
        ]  # fmt: skip
        return [Table(f"units that detect a concept of {self.data}", columns, rows)]


def _ordered(counts: Counter[str]) -> dict[str, int]:
    rest = [c for c in counts if c not in CATEGORIES]
    return {c: counts[c] for c in (*CATEGORIES, *sorted(rest)) if c in counts}
