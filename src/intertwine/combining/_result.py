"""What `combine` hands back: the model, how it came about, and what every stage is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from intertwine.merging.branches import Branches
from intertwine.merging.folding import Folding
from intertwine.results import Result, Table
from intertwine.symmetry import Element

if TYPE_CHECKING:
    from intertwine.pages.page import Page
    from intertwine.zoo.sources import Source


COSINE = "cosine with the networks' mean"


@dataclass(frozen=True)
class CombineStage:
    """name: a model, or what had been done. accuracy in [0, 1], loss in nats; None without labels. error:
    half the width of the accuracy's 95 % interval. cosine: of encoders, which predict nothing, the mean
    cosine of the embeddings with the mean of the networks'.

    heads: the same of every network's own outputs, where they are kept side by side."""

    name: str
    accuracy: float | None = None
    loss: float | None = None
    heads: tuple[CombineStage, ...] = ()
    error: float | None = None
    cosine: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        plain = {"name": self.name, "accuracy": self.accuracy, "loss": self.loss, "error": self.error}
        if self.cosine is not None:
            plain["cosine"] = self.cosine
        return {**plain, "heads": [head.to_dict() for head in self.heads]} if self.heads else plain


@dataclass(frozen=True, eq=False, repr=False)
class Combination(Result):
    """model: the combined network. elements: what brought each network onto the first, or None where nothing
    had to move. stages: the networks, then the combined one as it came about; the last is `model`. heads:
    whether there is one output for all networks, or each keeps its own. folding: how the norms of `model`
    were rewritten, if it is not of the architecture that was given. Where norms were folded on the way,
    elements are those of the folded networks. like: the network whose architecture `model` has."""

    model: nn.Module
    elements: tuple[Element | None, ...]
    stages: tuple[CombineStage, ...]
    how: str
    align: str
    repair: str
    shares: tuple[float, ...]
    inputs: int
    seconds: float
    heads: str = "one"
    notes: tuple[str, ...] = ()
    folding: Folding | None = None
    like: int = 0

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
        worth += "" if self.after.cosine is None else f", cosine {self.after.cosine:.4f}"
        return f"Combination({len(self.shares)} models, {self.how}, repair {self.repair}{worth})"

    def tables(self) -> list[Table]:
        """A row a stage, and a row for each head where there are several."""
        if self.after.cosine is not None:
            found: list[list[Any]] = [[s.name, s.cosine] for s in self.stages]
            return [Table(self._title(), ["network", COSINE], found, [COSINE])]
        columns = ["network", "accuracy", "loss"]
        rows: list[list[Any]] = []
        for stage in self.stages:
            rows += [[s.name, s.accuracy, s.loss] for s in (stage, *stage.heads)]
        return [Table(self._title(), columns, rows, columns[1:])]

    def _title(self) -> str:
        if self.how == "zip":
            return "zip, one output for all" if self.heads == "one" else "zip, each network keeps its outputs"
        return f"{self.how}, aligned by {self.align}, repair: {self.repair}"

    def remarks(self) -> tuple[str, ...]:
        """What should be known beside."""
        return self.notes

    def page(self, facts: Mapping[str, Any] | None = None, **_: Any) -> Page:
        """One HTML page: what was done, and accuracy and loss of every stage."""
        from intertwine.combining._page import combine_page

        return combine_page(self, facts or {})

    def save(self, path: str | Path) -> Path:
        """The weights (.safetensors), the page (.html) or the numbers (.json)."""
        if Path(path).suffix != ".safetensors":
            return super().save(path)
        from intertwine.zoo import save_weights

        return save_weights(self.model, path)

    def details(self, input: str | None = None, sources: Sequence[Source] = ()) -> dict[str, Any]:
        """What is kept with a saved model, so that it can be built again. input: the shape of its example.
        sources: the networks that it is rebuilt from; the one that it is like may be narrower."""
        folding = None if self.folding is None else self.folding.to_dict()
        several = isinstance(self.model, Branches)
        before = {
            n: t.numel() for s in sources[self.like : self.like + 1] for n, t in s.model.state_dict().items()
        }
        sizes = {n: t.numel() for n, t in self.model.state_dict().items()}
        return {
            "input": input,
            "method": self.how,
            "folding": folding,
            "wider": several or any(size > before.get(n, size) for n, size in sizes.items()),
            "networks": [source.name for source in sources] if several else [],
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `intertwine combine --json` prints it."""
        numbers: dict[str, Any] = {}
        if self.after.loss is not None:
            numbers = {
                "accuracy_before": [s.accuracy for s in self.before],
                "accuracy_after": self.after.accuracy,
                "loss_before": [s.loss for s in self.before],
                "loss_after": self.after.loss,
            }
        if self.after.cosine is not None:
            numbers = {
                "cosine_before": [s.cosine for s in self.before],
                "cosine_after": self.after.cosine,
            }
        return {
            "how": self.how, "align": self.align, "repair": self.repair, "shares": list(self.shares),
            "heads": self.heads, "inputs": self.inputs, "seconds": self.seconds, **numbers,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "stages": [stage.to_dict() for stage in self.stages], "notes": list(self.notes),
        }  # fmt: skip
