"""What `merge` returns: the smaller model, what went from where, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from intertwine.data import Evaluation
from intertwine.errors import InputError
from intertwine.merging.folding import Folding
from intertwine.merging.lists import dropped_entries, entries
from intertwine.merging.plan import MergePlan
from intertwine.merging.shrink import numbers_of
from intertwine.merging.storage import save_merged
from intertwine.results import Result, Table


@dataclass(frozen=True, repr=False)
class Merged(Result):
    """model: the smaller model, which really runs. FLOPs are those of one call; accuracies need data.

    taken: axis -> the parameters that went with it, axis after axis, so that they add up.
    """

    model: nn.Module
    plan: MergePlan
    parameters_before: int
    parameters_after: int
    flops_before: int
    flops_after: int
    evaluation_before: Evaluation | None
    evaluation_after: Evaluation | None
    seconds: float
    folding: Folding | None = None
    taken: Mapping[str, int] = field(default_factory=dict)
    evaluation_cut: Evaluation | None = None

    @property
    def accuracy_before(self) -> float | None:
        """Of the model itself."""
        return accuracy_of(self.evaluation_before)

    @property
    def accuracy_after(self) -> float | None:
        """Of the smaller model."""
        return accuracy_of(self.evaluation_after)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `intertwine merge --json` prints it."""
        plan = self.plan
        left_out = ("model", "plan", "folding", "evaluation_before", "evaluation_after", "evaluation_cut")
        numbers = {name: value for name, value in vars(self).items() if name not in left_out}
        for when in ("before", "after", *(["cut"] if self.evaluation_cut is not None else [])):
            found = getattr(self, f"evaluation_{when}")
            numbers[f"accuracy_{when}"] = accuracy_of(found)
            numbers[f"evaluation_{when}"] = None if found is None else found.to_dict()
        return {
            **numbers, "complexity": plan.complexity, "merges": plan.merges, "method": plan.method,
            "repair": plan.repair, "left_alone": dict(plan.left_alone),
            "kinds": {axis.name: axis.kind for axis in plan.axes},
        }  # fmt: skip

    def tables(self) -> Sequence[Table]:
        """A row an axis."""
        columns = ["axis", "kind", "width", "complexity", "parameters taken", "relative error"]
        rows = [
            [a.name, a.kind, a.size, a.width, self.taken.get(a.name, 0), a.costs[-1] if a.costs else 0.0]
            for a in self.plan.axes
        ]
        return [Table("merge", columns, rows, columns[2:])]

    def save(self, path: str | Path, source: str = "", *, input: str | None = None) -> Path:
        """The page (.html), the numbers (.json), or else a folder that `intertwine.load` reads.

        source: how the original is made ("zoo:vgg16", "net.py:make"); input: its example, as in "1x3x32x32".
        """
        if Path(path).suffix in (".html", ".json"):
            return super().save(path)
        if not source:
            raise InputError("a folder needs to say how the original is made", do='give source="zoo:vgg16"')
        return save_merged(self.model, path, source, self.details(input))

    def details(self, input: str | None = None) -> dict[str, Any]:
        """What is kept with a saved model."""
        plan = self.plan
        known: dict[str, Any] = {"input": input, "method": plan.method, "widths": plan.complexity}
        if self.folding is not None:
            known["folding"] = self.folding.to_dict()
        numbers = numbers_of(self.model, plan)
        if numbers:
            known["numbers"] = numbers
        counts = {path: len(entries(self.model.get_submodule(path))) for path in dropped_entries(plan)}
        if counts:
            known["entries"] = counts
        return {**known, "left_alone": dict(plan.left_alone)}

    def remarks(self) -> list[str]:
        """What was left alone and why, and what it costs."""
        lines = [f"left alone: {name}: {reason}" for name, reason in self.plan.left_alone.items()]
        for what, before, after in (
            ("parameters", self.parameters_before, self.parameters_after),
            ("flops", self.flops_before, self.flops_after),
        ):
            share = f"{before:,} -> {after:,} ({after / before:.1%})" if before else "none counted"
            lines.append(f"{what}: {share}")
        if self.evaluation_before is not None and self.evaluation_before.inputs:
            if self.evaluation_before.tokens or self.accuracy_before is None:
                lines += [f"before: {self.evaluation_before}", f"after: {self.evaluation_after}"]
            else:
                lines.append(f"accuracy: {self.accuracy_before:.2%} -> {self.accuracy_after:.2%}")
        if self.evaluation_cut is not None:
            lines.append(f"before fine-tuning: {self.evaluation_cut}")
        return lines


@dataclass(frozen=True, repr=False)
class MergeCurve(Result):
    """What `merge` gives at each threshold."""

    betas: tuple[float, ...]
    merged: tuple[Merged, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `intertwine merge --betas --json` prints it."""
        rows = zip(self.betas, self.merged, strict=True)
        return {"sweep": [{"beta": beta, **each.to_dict()} for beta, each in rows]}

    def tables(self) -> Sequence[Table]:
        """A row a threshold."""
        columns = ["beta", "merges", "parameters_after", "flops_after", "accuracy_after"]
        rows = [[row[name] for name in columns] for row in self.to_dict()["sweep"]]
        return [Table("merge", columns, rows, columns)]


def accuracy_of(found: Evaluation | None) -> float | None:
    """None where nothing was measured, or where the model predicts nothing of the data."""
    return None if found is None or math.isnan(found.accuracy) else found.accuracy
