"""Train a smaller model a little after it was cut: what `merge(..., finetune=...)` and `--finetune` do."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from torch import nn

from intertwine import numbers
from intertwine.graph.copying import copy_model
from intertwine.training.data import Splits
from intertwine.training.journal import Listener
from intertwine.training.recipe import Optimizer, Recipe, Schedule
from intertwine.training.start import train
from intertwine.zoo import load_weights


@dataclass(frozen=True)
class Finetune:
    """model -> the same model after some epochs; called again with the same model, it goes on where it was.

    data: what to train on and what to look at after every epoch. out: the folder of the run (see `train`);
    it may go when all is done. The learning rate is small and falls to zero: the weights are good already.

    >>> Finetune("digits", epochs=3, out="run").recipe.epochs
    3
    """

    data: Splits | str
    epochs: int
    out: str | Path
    learning_rate: float = 0.01
    batch: int = 128
    seed: int = 0
    threads: int | None = None
    listener: Listener | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        numbers.count(self.epochs, "epochs")

    @property
    def recipe(self) -> Recipe:
        """How it is trained."""
        descent = Optimizer("sgd", self.learning_rate, momentum=0.9, nesterov=True, weight_decay=5e-4)
        return Recipe(self.epochs, self.batch, descent, Schedule("cosine", warmup=0.1))

    def __call__(self, model: nn.Module) -> nn.Module:
        """The trained copy, in eval mode."""
        run = train(
            model, self.data, self.recipe, self.out, seed=self.seed, threads=self.threads,
            listener=self.listener, name="a smaller model",
        )  # fmt: skip
        trained = copy_model(model)
        load_weights(trained, run.weights)
        return trained.eval()
