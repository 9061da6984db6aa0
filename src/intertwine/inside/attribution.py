"""What `intertwine.attribute` returns: plain data that prints as JSON, makes a page and is saved whole."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from intertwine.files import replacing
from intertwine.inside.classes import Agreement
from intertwine.results import Result, Table


@dataclass(frozen=True, eq=False)
class ClassView:
    """One class: its members, the inputs that excite it most, and attributions on these.

    maps, heat: how alike the members' activations and attributions are. heats: method -> (inputs, places).
    each: (members shown, inputs, places) by the first method. alive: members that are ever active.
    incomplete: the worst relative error of the completeness of integrated gradients, if they were asked for.
    """

    members: tuple[int, ...]
    alive: int
    maps: Agreement
    heat: Agreement
    inputs: tuple[int, ...]
    scores: tuple[float, ...]
    by_label: Mapping[str, float]
    shown: tuple[int, ...]
    heats: Mapping[str, np.ndarray]
    each: np.ndarray
    incomplete: float | None = None

    def excited_by(self) -> list[str]:
        """The three labels whose inputs excite the class most."""
        return sorted(self.by_label, key=lambda name: -self.by_label[name])[:3]

    def to_dict(self) -> dict[str, Any]:
        """Plain data without the maps themselves."""
        return {
            "members": list(self.members),
            "alive": self.alive,
            "correlation of maps": vars(self.maps),
            "correlation of attributions": vars(self.heat),
            "inputs": list(self.inputs),
            "scores": list(self.scores),
            "mean score by label": dict(self.by_label),
            "incomplete": self.incomplete,
        }


@dataclass(frozen=True, eq=False, repr=False)
class Attribution(Result):
    """Classes of an axis and what they see.

    found: how many classes there are (not all need be shown); dead: channels of the axis that are never
    active on the `looked_at` inputs; rows, labels, tokens: the inputs shown, by number.
    """

    axis: str
    at: str
    group: str
    beta: float | None
    by: str
    methods: tuple[str, ...]
    classes: tuple[ClassView, ...]
    found: int
    dead: int
    looked_at: int
    rows: Mapping[int, np.ndarray]
    labels: Mapping[int, str]
    tokens: Mapping[int, tuple[str, ...]]

    def to_dict(self) -> dict[str, Any]:
        """Every number but the maps, as `intertwine attribute --json` prints it."""
        return {
            "axis": self.axis,
            "at": self.at,
            "group": self.group,
            "beta": self.beta,
            "by": self.by,
            "methods": list(self.methods),
            "classes found": self.found,
            "channels never active": self.dead,
            "inputs looked at": self.looked_at,
            "classes": [view.to_dict() for view in self.classes],
        }

    def tables(self) -> Sequence[Table]:
        """A row a class."""
        columns = [
            "class", "features", "ever active", "correlation of maps", "of random classes",
            "correlation of attributions", "of random classes ", "most excited by",
        ]  # fmt: skip
        rows = [
            [
                k, len(view.members), view.alive, round(view.maps.members, 3), view.maps.by_chance,
                round(view.heat.members, 3), view.heat.by_chance, ", ".join(view.excited_by()),
            ]
            for k, view in enumerate(self.classes)
        ]  # fmt: skip
        return [Table(f"{self.axis} ({self.group}) at {self.at}", columns, rows)]

    def save(self, path: str | Path) -> Path:
        """Numbers and maps in one .npz file: `summary` (JSON), `class0/guided`, ...; or .html, .json."""
        if Path(path).suffix in (".html", ".json"):
            return super().save(path)
        arrays: dict[str, Any] = {"summary": np.array(json.dumps(self.to_dict()))}
        for k, view in enumerate(self.classes):
            arrays[f"class{k}/members"] = view.each
            arrays |= {f"class{k}/{method}": heat for method, heat in view.heats.items()}
        arrays |= {f"input{n}": row for n, row in self.rows.items()}
        with replacing(path) as beside, beside.open("wb") as file:
            np.savez_compressed(file, **arrays)
        return Path(path)
