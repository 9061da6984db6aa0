"""What `combine` hands back: the model, how it came about, and what every stage is worth."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from intertwine.symmetry import Element

if TYPE_CHECKING:
    from intertwine.report.page import Page


@dataclass(frozen=True)
class CombineStage:
    """name: a model, or what had been done. accuracy in [0, 1], loss in nats; None without labels."""

    name: str
    accuracy: float | None = None
    loss: float | None = None


@dataclass(frozen=True, eq=False)
class Combination:
    """model: the combined network. elements: what brought each network onto the first, or None where nothing
    had to move. stages: the networks, then the combined one as it came about; the last is `model`."""

    model: nn.Module
    elements: tuple[Element | None, ...]
    stages: tuple[CombineStage, ...]
    how: str
    align: str
    repair: str
    shares: tuple[float, ...]
    inputs: int
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def before(self) -> tuple[CombineStage, ...]:
        """The networks that were given."""
        return self.stages[: len(self.shares)]

    @property
    def after(self) -> CombineStage:
        """The combined network."""
        return self.stages[-1]

    def __repr__(self) -> str:
        worth = "" if self.after.accuracy is None else f", accuracy {self.after.accuracy:.2%}"
        return f"Combination({len(self.shares)} models, {self.how}, repair {self.repair}{worth})"

    def _repr_html_(self) -> str:
        from intertwine.combining._page import stage_table

        return stage_table(self)

    def page(self) -> Page:
        """One HTML page: what was done, and accuracy and loss of every stage."""
        from intertwine.combining._page import combine_page

        return combine_page(self)

    def save(self, path: str | Path) -> Path:
        """Write the weights as safetensors."""
        from intertwine.zoo import save_weights

        return save_weights(self.model, path)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `intertwine combine --json` prints it."""
        measured = self.after.loss is not None
        numbers = {
            "accuracy_before": [s.accuracy for s in self.before],
            "accuracy_after": self.after.accuracy,
            "loss_before": [s.loss for s in self.before],
            "loss_after": self.after.loss,
        }
        return {
            "how": self.how,
            "align": self.align,
            "repair": self.repair,
            "shares": list(self.shares),
            "inputs": self.inputs,
            "seconds": self.seconds,
            **(numbers if measured else {}),
            "stages": [vars(stage) for stage in self.stages],
            "notes": list(self.notes),
        }
