"""What every stage is worth: accuracy and loss on labelled data, of all outputs or of each network's own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from intertwine.combining._result import CombineStage
from intertwine.data import evaluate
from intertwine.data.evaluation import Embeddings, embedding_of, logits_of
from intertwine.errors import DataError


class OneHead(nn.Module):
    """Some of the outputs of a network."""

    def __init__(self, model: nn.Module, start: int, stop: int | None) -> None:
        super().__init__()
        self.model, self.start, self.stop = model, start, stop

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return logits_of(self.model(*args, **kwargs))[..., self.start : self.stop]


class MeanEmbedding(nn.Module):
    """The mean of what encoders make of an input."""

    def __init__(self, models: Sequence[nn.Module], shares: Sequence[float]) -> None:
        super().__init__()
        self.models, self.shares = nn.ModuleList(models), tuple(shares)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        made = [embedding_of(model(*args, **kwargs)) for model in self.models]
        return torch.stack([s * x for s, x in zip(self.shares, made, strict=True)]).sum(0)


class Worth:
    """data: one data set, or with heads of their own one for each network. widths: their outputs. mean: of
    encoders, what their embeddings are compared with."""

    def __init__(self, data: Any, widths: Sequence[int] | None = None, mean: nn.Module | None = None) -> None:
        if (
            data is not None
            and widths is not None
            and not (isinstance(data, list) and len(data) == len(widths))
        ):
            raise DataError(
                f"{len(widths)} networks keep their own outputs, which one data set has no labels for",
                do=f"give a list of {len(widths)} data sets (--head-data for each but the first)",
            )
        self.data, self.widths = data, widths
        self.mean = None if mean is None else Embeddings(mean)

    def __bool__(self) -> bool:
        return self.data is not None

    def network(self, name: str, model: nn.Module, number: int) -> CombineStage:
        """One of the networks that were given."""
        return self._scored(
            name, model, self.data if self.widths is None else self.data and self.data[number]
        )

    def stage(self, name: str, model: nn.Module) -> CombineStage:
        """What was made of them; with heads of their own, the mean over heads and each of them."""
        if self.widths is None or self.data is None:
            return self._scored(name, model, self.data)
        parts, start = [], 0
        for k, width in enumerate(self.widths):
            parts.append(self._scored(f"head {k + 1}", OneHead(model, start, start + width), self.data[k]))
            start += width
        accuracy = sum(p.accuracy or 0.0 for p in parts) / len(parts)
        return CombineStage(name, accuracy, sum(p.loss or 0.0 for p in parts) / len(parts), tuple(parts))

    def _scored(self, name: str, model: nn.Module, data: Any) -> CombineStage:
        if data is None:
            return CombineStage(name)
        found = evaluate(model, data, reference=self.mean)
        if not math.isnan(found.cosine):
            return CombineStage(name, cosine=found.cosine)
        error = None if math.isnan(found.accuracy_error) else found.accuracy_error
        return CombineStage(name, found.accuracy, found.loss, error=error)
