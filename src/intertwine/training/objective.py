"""What a recipe minimises, and what it counts as right.

cross-entropy: -log softmax f(x)_y with label smoothing; right where argmax f(x) = y. Of text: at every
position that has a target.
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
from intertwine.data.tokens import IGNORED
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
            each = output.flatten(0, -2), labels.flatten()
            return F.cross_entropy(*each, label_smoothing=self.label_smoothing, ignore_index=IGNORED)
        if output.shape[1] == 1:
            return F.mse_loss(output[:, 0], labels.to(output.dtype))
        return F.mse_loss(output, F.one_hot(labels, output.shape[1]).to(output.dtype))

    def correct(self, output: Tensor, labels: Tensor) -> Tensor:
        """The number of right answers."""
        answer = output[:, 0].round().long() if output.shape[1:] == (1,) else output.argmax(-1)
        return (answer == labels).sum()


def targets_in(labels: Tensor) -> int:
    """How many answers are asked for: one an image, or one a token."""
    return int((labels != IGNORED).sum())


def objective_of(recipe: Recipe) -> TrainingObjective:
    return TrainingObjective(recipe.loss, recipe.label_smoothing)


def assert_fits(model: nn.Module, data: Sequence[Dataset], recipe: Recipe, like: Tensor) -> None:
    """Raise DataError unless the model has an output for every class of all of these data."""
    with torch.no_grad():
        outputs = scores(model, like, tokens=data[0].labels.dim() == 2).shape[-1]
    for each in data:
        top = int(each.labels.max())
        if top < 0:
            raise DataError(
                f"of {each.name} nothing is predicted by this model",
                so="it cannot be trained on",
                do="give --tokenizer with a mask token, if it predicts masked ones",
            )
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
    training, right, total, count = model.training, 0, 0.0, 0
    model.eval()
    try:
        with torch.no_grad():
            for images, labels in data.batches(batch):
                asked = targets_in(labels)
                if not asked:
                    continue
                images = images.to(first.device)
                output = scores(model, images, first.dtype, tokens=labels.dim() == 2).float()
                labels = labels.to(output.device)
                right += int(plain.correct(output, labels))
                total += float(plain.value(output.double(), labels)) * asked
                count += asked
    finally:
        model.train(training)
    return right / count, total / count
