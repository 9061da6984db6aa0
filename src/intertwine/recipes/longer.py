"""Does longer training with weight decay make equal features? A question that source 000 leaves open.

The source finds two features of a VGG16 at a distance of 2e-15 after 150 epochs with weight decay 1e-4, and
does not say what makes them equal. Here one net is trained with three weight decays, with and without batch
norm, and looked at along the way. A run that was stopped goes on: the same command ends what it began.

paper: the source's VGG16 and recipe. cifar: VGG11 of an eighth of the width on 2,000 images. quick: digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intertwine.recipes import PRESETS, Claim, Outcome, Progress, Reproduction, Setting
from intertwine.recipes.cifar import load_images
from intertwine.recipes.claims import above, holds, mean_interval
from intertwine.recipes.pages import write_outcome

if TYPE_CHECKING:
    from torch import nn

    from intertwine.training import Splits

DECAYS = (0.0, 1e-4, 5e-4)
SETTINGS = tuple(product((True, False), DECAYS))  # batch norm, weight decay
BETA = 0.1  # a middle value of the source's grid
DEAD = 1e-3  # of the largest feature: what is smaller is called dead


@dataclass(frozen=True)
class Plan:
    """A net and how long it is trained on how many images; rates: with batch norm, and without."""

    model: str
    width: int
    epochs: int
    images: int | None
    tested: int | None
    batch: int
    rates: tuple[float, float] = (0.1, 0.02)

    @property
    def looks(self) -> tuple[int, ...]:
        """The epochs at which the weights are kept."""
        return tuple(sorted({0, *(round(self.epochs * k / 12) for k in (1, 2, 4, 6, 8, 10, 12))}))


PLANS = {
    "quick": Plan("digits-vgg", 8, 24, None, None, 32),
    "cifar": Plan("vgg11", 8, 60, 2000, 500, 32),
    "paper": Plan("vgg16", 64, 150, None, None, 128),
}


def load_parts(plan: Plan, setting: Setting) -> Splits:
    """What the nets are trained and tested on."""
    from intertwine.training import Splits, load_splits

    if setting.preset == "cifar":
        parts = [
            load_images(setting, "cifar10", n, split=s)
            for s, n in (("train", plan.images), ("test", plan.tested))
        ]
        return Splits("cifar10", *parts)
    return load_splits("digits") if setting.quick else load_splits("cifar10", normalize="cifar10")


def build(plan: Plan, splits: Splits, norm: bool) -> nn.Module:
    """The untrained net; without batch norm it starts as He et al. say, or it does not learn at all."""
    import torch
    from torch import nn

    from intertwine import zoo

    channels, classes = splits.train.images.shape[1], len(splits.train.classes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = zoo.build(plan.model, width=plan.width, batch_norm=norm, in_channels=channels, classes=classes)
        for module in net.modules() if not norm else ():
            if isinstance(module, nn.Conv2d) and module.bias is not None:
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                nn.init.zeros_(module.bias)
    return net


def train_one(plan: Plan, splits: Splits, norm: bool, decay: float, folder: Path, progress: Progress) -> Path:
    """The folder of one run, which goes on where it was stopped."""
    from intertwine.training import read_recipe, train

    recipe = read_recipe("ifm")
    drops = tuple(sorted({d * plan.epochs // recipe.epochs for d in recipe.schedule.drops} - {0}))
    rate = plan.rates[0 if norm else 1]
    recipe = replace(
        recipe, epochs=plan.epochs, batch=plan.batch, checkpoints=plan.looks, channels_last=True,
        schedule=replace(recipe.schedule, drops=drops), evaluate_every=plan.epochs,
        optimizer=replace(recipe.optimizer, learning_rate=rate, weight_decay=decay),
    )  # fmt: skip
    name = f"{plan.model}-w{plan.width}-{'bn' if norm else 'plain'}-wd{decay:g}-e{plan.epochs}"

    def tell(row: Any) -> None:
        progress(int(row["epoch"]), plan.epochs, f"epochs of {name}")

    where = folder / "runs" / "longer" / name
    return train(build(plan, splits, norm), splits, recipe, where, seed=0, name=name, listener=tell).folder


def trained_nets(
    setting: Setting, norm: bool, decay: float, folder: Path, progress: Progress
) -> tuple[Iterator[tuple[int, nn.Module]], Splits]:
    """The nets of one run, (epoch, net), and its data."""
    from intertwine import zoo

    plan = PLANS[setting.preset]
    splits = load_parts(plan, setting)
    run = train_one(plan, splits, norm, decay, folder, progress)
    nets = (
        (int(path.stem.rpartition("-")[2]), zoo.load_weights(build(plan, splits, norm), path).eval())
        for path in sorted((run / "checkpoints").glob("epoch-*.safetensors"))
    )
    return nets, splits


def label(norm: bool, decay: float) -> str:
    """How a run is called."""
    return f"{'batch norm' if norm else 'no batch norm'}, weight decay {decay:g}"


@dataclass(frozen=True)
class Look:
    """One net at one epoch. smallest: by axis, the smallest normalised distance of two features."""

    norm: bool
    decay: float
    epoch: int
    accuracy: float
    smallest: dict[str, float]
    alive: dict[str, float]  # the same among features that are not dead
    dead: int
    features: int
    left: int  # features left at beta

    @property
    def name(self) -> str:
        """The line of the figure."""
        return label(self.norm, self.decay)


def look(net: nn.Module, splits: Splits, norm: bool, decay: float, epoch: int) -> Look:
    """Distances, dead features and complexity of a net; its accuracy on the test split."""
    from intertwine import trace
    from intertwine.data import evaluate
    from intertwine.merging import Options, Planner
    from intertwine.merging.experiments import feature_norms, normalized_distances
    from intertwine.recipes.ifm import RELEASED

    symmetry = trace(net, splits.test.head(1))
    smallest, alive, dead, features = {}, {}, 0, 0
    for axis in (a for a in symmetry.axes if a.mergeable):
        table, norms = normalized_distances(net, symmetry, axis.name), feature_norms(net, symmetry, axis.name)
        living = norms > DEAD * norms.max()
        smallest[axis.name] = _least(table)
        alive[axis.name] = _least(table[np.ix_(living, living)])
        dead, features = dead + int((~living).sum()), features + axis.size
    plan = Planner(net, symmetry, Options(**RELEASED)).at_beta(BETA)
    accuracy = float(evaluate(net, splits.test).accuracy)
    left = sum(plan.complexity.values())
    return Look(norm, decay, epoch, accuracy, smallest, alive, dead, features, left)


def _least(table: np.ndarray) -> float:
    pairs = table[np.triu_indices(len(table), 1)]
    return float(pairs.min()) if len(pairs) else float("nan")


def equal_features(name: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Smallest distance, dead features and complexity over the epochs of six trainings."""
    from intertwine.pages.similarity_figures import lines

    plan = PLANS[setting.preset]
    found: list[Look] = []
    for norm, decay in SETTINGS:
        nets, splits = trained_nets(setting, norm, decay, folder, progress)
        found += [look(net, splits, norm, decay, epoch) for epoch, net in nets]
    last = {(f.norm, f.decay): f for f in found if f.epoch == plan.epochs}
    labels = list(dict.fromkeys(f.name for f in found))

    def series(measure: Any) -> dict[str, tuple[list[float], list[float]]]:
        return {
            label: ([f.epoch for f in found if f.name == label],
                    [measure(f) for f in found if f.name == label])
            for label in labels
        }  # fmt: skip

    # a distance of exactly 0 has no logarithm: it is drawn at the smallest number of the arithmetic
    least = series(lambda f: float(np.log10(max(min(f.smallest.values()), 1e-17))))
    figures = {
        f"Smallest distance of two features of a layer, log10, the least of "
        f"{len(found[0].smallest)} layers; one seed":
            lines(least, x_title="epochs", y_title="log10 of the smallest normalised distance"),
        f"Features left at beta {BETA:g}, share; one seed":
            lines(series(lambda f: f.left / f.features), x_title="epochs", y_title="share of features left"),
        f"Dead features, share (smaller than {DEAD:g} of the largest of their layer); one seed":
            lines(series(lambda f: f.dead / f.features), x_title="epochs", y_title="share of features"),
    }  # fmt: skip
    rows = [
        {"net": f.name, "epoch": f.epoch, "accuracy": f.accuracy, "smallest": min(f.smallest.values()),
         "smallest among the living": min(f.alive.values()), "dead": f.dead, "left": f.left,
         "features": f.features}
        for f in found
    ]  # fmt: skip
    return write_outcome(
        folder, name, "does longer training with weight decay make equal features?", figures, setting=setting,
        claims=_claims(last), tables={"Nets": rows},
        facts={"rows": rows, "training images": len(splits.train), "test images": len(splits.test)},
        differs=f"{plan.model} of width {plan.width} (the source: VGG16 of width 64), {plan.epochs} epochs "
        f"on {len(splits.train):,} images in batches of {plan.batch}; learning rate {plan.rates[0]:g} with "
        f"batch norm and {plan.rates[1]:g} without; one seed; the rest is the source's recipe. Weight decay "
        "against none, and nets without batch norm, are ours.",
    )  # fmt: skip


def _claims(last: dict[tuple[bool, float], Look]) -> list[Claim]:
    own = last[True, 1e-4]
    least, living = min(own.smallest.values()), min(own.alive.values())
    claims = [
        holds("smallest normalised distance after training, batch norm, weight decay 1e-4",
              "The minimum distance between two features is 2e-15",
              f"{least:.1e}, among features that are not dead {living:.1e}",
              "below 1e-6 (two features equal up to rounding)", least < 1e-6,
              why="No two features became equal in as many steps as were made here."),
    ]  # fmt: skip
    for norm, what in ((True, "batch norm"), (False, "no batch norm")):
        with_decay, without = last[norm, max(DECAYS)], last[norm, 0.0]
        ratios = [
            float(np.log10(max(without.smallest[a], 1e-17) / max(with_decay.smallest[a], 1e-17)))
            for a in without.smallest
        ]
        claims.append(
            above(f"{what}: powers of ten by which weight decay {max(DECAYS):g} makes the smallest distance "
                  f"smaller than none does, mean over {len(ratios)} layers",
                  "(ours: our explanation of the source's equal features)", [mean_interval(ratios)],
                  why=f"Features left at beta {BETA:g}: {with_decay.left} with and {without.left} without, "
                      f"of {without.features}; dead: {with_decay.dead} and {without.dead}.")
        )  # fmt: skip
    return claims


RECIPES = (
    Reproduction(
        "ifm-training", "does longer training with weight decay make equal features?",
        "source 000, section 4.1 and appendix D", partial(equal_features, "ifm-training"), presets=PRESETS,
    ),
)  # fmt: skip
