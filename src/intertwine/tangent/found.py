"""What `dimension` found: three numbers that add up, where what is missing lies, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from intertwine.results import Result, Table
from intertwine.symmetry import Translation
from intertwine.tangent.kinds import KINDS, Direction
from intertwine.tangent.looked import Looked

_VERDICTS = {
    "complete": "No continuous symmetry was missed at these weights: orbit and rank add up to all of theta.",
    "explained": "Every direction that changes nothing is in the group or has a name below.",
    "open": "Some directions change nothing, are not in the group, and have no explanation.",
    "unsure": "The singular values have no clear gap, or more inputs would raise the rank: no verdict.",
}
_LOOKED = ("axis", "channels", "pairs", "missed below")
_PARTS = (*_LOOKED, "numbers", "orbit", "rank", "gap", "deficit", "verdict")


@dataclass(frozen=True, eq=False)
class Dimension(Result):
    """parameters: how many numbers theta has, `statistics` of them running statistics of norms.

    orbit: dimension of the orbit of theta. rank: of the Jacobian, with the gap of its singular values.
    deficit: parameters - orbit - rank, the directions that change nothing and that the group does not have;
    `directions` says where they lie. error: how far the orbit's tangents are from the null space. inputs:
    calls of the model; settled: more inputs would not raise the rank. scope: "" for all of theta, or the axis
    whose channels were looked at, all else held; looked: how many of them, and what that says of the others.
    translations: of the directions, those that move constants and change nothing at any distance, as elements
    that `act` takes. parts: the axes, or the looks at one of them.
    """

    parameters: int
    statistics: int
    orbit: int
    rank: int
    gap: float
    directions: tuple[Direction, ...]
    error: float
    inputs: int
    settled: bool
    singular_values: np.ndarray
    scope: str = ""
    looked: Looked | None = None
    parts: tuple[Dimension, ...] = field(default=())
    translations: tuple[Translation, ...] = field(default=(), repr=False)

    @property
    def deficit(self) -> int:
        """Directions that change nothing and that the group does not have."""
        return self.parameters - self.orbit - self.rank

    @property
    def unexplained(self) -> int:
        """Those of the deficit that have no name."""
        return sum(d.count for d in self.directions if not d.explained)

    @property
    def certain(self) -> bool:
        """Whether the singular values have a gap, the orbit is in the null space, and inputs were enough."""
        return self.gap >= 1e3 and self.error < 1e-6 and self.settled

    @property
    def verdict(self) -> str:
        """complete; explained (every missing direction has a name); open; or unsure (no gap, few inputs)."""
        if not self.certain:
            return "unsure"
        return "complete" if not self.deficit else "open" if self.unexplained else "explained"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `intertwine dimension --json` prints it."""
        plain = {
            "scope": self.scope or "all weights",
            "verdict": self.verdict,
            "parameters": self.parameters,
            "statistics": self.statistics,
            "orbit": self.orbit,
            "rank": self.rank,
            "gap": self.gap,
            "deficit": self.deficit,
            "unexplained": self.unexplained,
            "directions": [d.to_dict() for d in self.directions],
            "error": self.error,
            "inputs": self.inputs,
            "settled": self.settled,
        }
        if self.looked is not None:
            plain |= self.looked.to_dict()
        return {**plain, "parts": [p.to_dict() for p in self.parts]} if self.parts else plain

    def __repr__(self) -> str:
        numbers = f"{self.parameters} = orbit {self.orbit} + rank {self.rank} + deficit {self.deficit}"
        where = f"{self.scope}: " if self.scope else ""
        return f"Dimension({where}{numbers}, gap {self.gap:.0e}, {self.verdict})"

    def tables(self) -> Sequence[Table]:
        """The numbers; a row an axis, or a look at one; and a row a place of what is missing."""
        tables = [Table(self.verdict, ["what", "value"], self._numbers(), ["value"])]
        if self.parts:
            tables += [Table("axis by axis, all else held", _PARTS, [part._row() for part in self.parts])]
        if self.directions:
            rows = [[d.count, d.kind, d.place, KINDS[d.kind]] for d in self.directions]
            title = "directions that change nothing and are not in the group"
            tables += [Table(title, ["directions", "kind", "where", "because"], rows)]
        return tables

    def remarks(self) -> Sequence[str]:
        """The verdict in words; of a part of theta it says no more than that."""
        if self.scope and self.verdict == "complete":
            return ["Within what was looked at, all other weights held, no continuous symmetry was missed."]
        return [_VERDICTS[self.verdict]]

    def _row(self) -> list[Any]:
        seen = self.looked
        looked = ["", "", ""]
        if seen is not None:
            looked = [f"{seen.channels} of {seen.of}", f"{seen.pairs:.1%}", f"{seen.below:.1%}"]
        numbers = [self.parameters, self.orbit, self.rank, f"{self.gap:.0e}", self.deficit, self.verdict]
        return [self.scope, *looked, *numbers]

    def _numbers(self) -> list[list[Any]]:
        rows: list[list[Any]] = [
            ["numbers in theta", self.parameters],
            ["of them running statistics", self.statistics],
            ["dimension of the orbit", self.orbit],
            ["rank of the Jacobian", self.rank],
            ["gap of its singular values", f"{self.gap:.1e}"],
            ["deficit", self.deficit],
            ["not explained", self.unexplained],
            ["calls of the model", self.inputs],
            ["orbit's tangents outside the null space", f"{self.error:.1e}"],
        ]
        if self.looked is not None:
            rows += [["looked at", str(self.looked)]]
        return [row for row in rows if self.statistics or not row[0].startswith("of them")]
