"""The trained nets that recipes work on: the source's on CIFAR, or small ones on digits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intertwine.recipes import Progress

if TYPE_CHECKING:
    from torch import nn

    from intertwine.training import Splits


@dataclass(frozen=True)
class Net:
    """A net of the zoo to be trained: options go to its factory, `epochs` and `rate` change the recipe."""

    model: str
    data: str
    recipe: str
    options: Mapping[str, Any] = field(default_factory=dict)
    epochs: int | None = None
    rate: float | None = None

    def name(self, seed: int) -> str:
        """What the run's folder is called; every input is in it or in the run's own record."""
        parts = [self.model, *(f"{k}{v}" for k, v in self.options.items()), self.data, self.recipe]
        parts += [f"e{self.epochs}"] if self.epochs else []
        parts += [f"lr{self.rate:g}"] if self.rate else []
        return "-".join([*parts, f"seed{seed}"]).replace(":", "-")


def load_net_data(net: Net) -> Splits:
    """The data that a net is trained and tested on."""
    from intertwine.training import load_splits, read_recipe

    return load_splits(net.data, normalize=read_recipe(net.recipe).normalize or "none")


def make_net(net: Net, splits: Splits, seed: int) -> nn.Module:
    """The untrained net of a seed."""
    import torch

    from intertwine import zoo

    images, classes = splits.train.images, splits.train.classes
    options = {"in_channels": images.shape[1], "classes": len(classes), **net.options}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return zoo.build(net.model, **options)


def train_net(
    net: Net, splits: Splits, folder: Path, seed: int, progress: Progress, checkpoints: tuple[int, ...] = ()
) -> tuple[nn.Module, Path]:
    """The trained net of a seed and its run's folder; a finished run is read, a stopped one goes on."""
    from intertwine import zoo
    from intertwine.training import read_recipe, train

    recipe = read_recipe(net.recipe)
    if net.epochs is not None:
        drops = tuple(d for d in recipe.schedule.drops if d < net.epochs)
        recipe = replace(recipe, epochs=net.epochs, schedule=replace(recipe.schedule, drops=drops))
    if net.rate is not None:
        recipe = replace(recipe, optimizer=replace(recipe.optimizer, learning_rate=net.rate))
    recipe = replace(recipe, checkpoints=checkpoints)

    def tell(row: Mapping[str, Any]) -> None:
        progress(int(row["epoch"]), recipe.epochs, f"epochs of {net.name(seed)}")

    fresh = make_net(net, splits, seed)
    where = folder / "runs" / net.name(seed)
    run = train(fresh, splits, recipe, where, seed=seed, name=net.model, listener=tell)
    return zoo.load_weights(make_net(net, splits, seed), run.weights).eval(), run.folder


def load_checkpoints(net: Net, splits: Splits, run: Path, seed: int) -> Iterator[tuple[int, nn.Module]]:
    """(epoch, net) for the weights that a run kept on its way."""
    from intertwine import zoo

    for path in sorted((run / "checkpoints").glob("epoch-*.safetensors")):
        epoch = int(path.stem.rpartition("-")[2])
        yield epoch, zoo.load_weights(make_net(net, splits, seed), path).eval()
