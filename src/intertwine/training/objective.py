"""What a recipe minimises, and what it counts as right.

cross-entropy: -log softmax f(x)_y with label smoothing; right where argmax f(x) = y.
mse: |f(x) - target|^2 with the label itself as the target of a single output (source 004), or its one-hot
vector; right where the rounded output, or the largest, is the label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from intertwine.data import Dataset
from intertwine.data.evaluation import like_inputs, scores
from intertwine.errors import DataError
from intertwine.training.recipe import Recipe


@dataclass(frozen=True)
class TrainingObjective:
    """The loss of a batch, and how many of its answers are right."""

    loss: Literal["cross-entropy", "mse"]
    label_smoothing: float = 0.0

    def value(self, output: Tensor, labels: Tensor) -> Tensor:
        """The mean loss of a batch."""
        if self.loss == "cross-entropy":
            return F.cross_entropy(output, labels, label_smoothing=self.label_smoothing)
        if output.shape[1] == 1:
            return F.mse_loss(output[:, 0], labels.to(output.dtype))
        return F.mse_loss(output, F.one_hot(labels, output.shape[1]).to(output.dtype))

    def correct(self, output: Tensor, labels: Tensor) -> Tensor:
        """The number of right answers."""
        answer = output[:, 0].round().long() if output.shape[1] == 1 else output.argmax(1)
        return (answer == labels).sum()


def objective_of(recipe: Recipe) -> TrainingObjective:
    return TrainingObjective(recipe.loss, recipe.label_smoothing)


def assert_fits(model: nn.Module, data: Sequence[Dataset], recipe: Recipe, like: Tensor) -> None:
    """Raise DataError unless the model has an output for every class of all of these data."""
    with torch.no_grad():
        outputs = scores(model, like).shape[1]
    for each in data:
        top = int(each.labels.max())
        if top >= outputs and not (recipe.loss == "mse" and outputs == 1):
            raise DataError(
                f"{each.name} has the label {top}, the model only {outputs} outputs",
                do=f"give --classes {top + 1}",
            )


def measure(
    model: nn.Module, data: Dataset, objective: TrainingObjective, batch: int = 500
) -> tuple[float, float]:
    """(accuracy, mean loss without smoothing) in eval mode; the mode is put back."""
    plain = TrainingObjective(objective.loss)
    first = like_inputs(model)
    training, right, total = model.training, 0, 0.0
    model.eval()
    try:
        with torch.no_grad():
            for images, labels in data.batches(batch):
                output = scores(model, images.to(first.device, first.dtype)).float()
                labels = labels.to(output.device)
                right += int(plain.correct(output, labels))
                total += float(plain.value(output.double(), labels)) * len(labels)
    finally:
        model.train(training)
    return right / len(data), total / len(data)
