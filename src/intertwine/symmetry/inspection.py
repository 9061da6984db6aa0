"""inspect: every hidden axis of a model with its group, proved, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from intertwine.checks import checked
from intertwine.results import Result, Table
from intertwine.symmetry.symmetry import Symmetry
from intertwine.symmetry.tracing import trace


@dataclass(frozen=True, repr=False)
class Inspection(Result):
    """symmetry: what was inferred; the model and its example are kept for the page, which verifies it."""

    symmetry: Symmetry
    model: nn.Module = field(repr=False)
    inputs: Any = field(repr=False)
    kwargs: Mapping[str, Any] | None = field(default=None, repr=False)

    def explain(self, axis: str) -> str:
        """Why the channels of one axis are together."""
        return self.symmetry.explain(axis)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `intertwine inspect --json` prints it."""
        proof = self.symmetry.proof
        return {
            "axes": [axis.to_dict() for axis in self.symmetry.axes],
            "rotary_pairs": self.symmetry.structure.turns.count,
            "exchanges": [family.to_dict() for family in self.symmetry.families],
            "unknown_ops": self.symmetry.unknown_ops,
            "proof": None if proof is None else proof.to_dict(),
        }

    def __repr__(self) -> str:
        frozen = sum(bool(axis.frozen_because) for axis in self.symmetry.axes)
        proved = "not proved" if self.symmetry.proof is None else "proved"
        return f"Inspection({len(self.symmetry.axes)} axes, {frozen} frozen, {proved})"

    def tables(self) -> Sequence[Table]:
        """A row an axis."""
        columns = ["axis", "size", "group", "weights", "mergeable", "frozen because"]
        rows = [
            [a.name, a.size, str(a.group), len(a.members), a.mergeable, a.frozen_because or ""]
            for a in self.symmetry.axes
        ]
        return [Table(f"{len(rows)} axes", columns, rows, ["size", "weights"])]

    def remarks(self) -> list[str]:
        """The proof, and ops without a rule."""
        unknown = self.symmetry.unknown_ops.items()
        lines = [f"no rule for {op} (first at {place}): what it touches is frozen" for op, place in unknown]
        pairs = self.symmetry.structure.turns.count
        turns = [
            f"{pairs} pairs of channels of rotary embeddings may be turned, each by its own complex number"
        ]
        modules = [str(family) for family in self.symmetry.families]
        return [str(self.symmetry.proof or "not proved"), *(turns if pairs else []), *modules, *lines]


@checked
def inspect(
    model: nn.Module,
    inputs: Any,
    *,
    kwargs: Mapping[str, Any] | None = None,
    proof: bool = True,
    seed: int = 0,
) -> Inspection:
    """Which weights carry the same hidden axis, and which group acts on it; `trace` as a table and a page.

    >>> import torch
    >>> mlp = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> inspect(mlp, torch.zeros(1, 3)).tables()[0].rows[0][:3]
    ['0', 8, 'positive monomial']
    """
    return Inspection(trace(model, inputs, kwargs, prove=proof, seed=seed), model, inputs, kwargs)
