"""Figure 3.5 of source 003: nets in training against their final selves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from intertwine.recipes import PRESETS, Claim, Outcome, Progress, Reproduction, Setting, longer
from intertwine.recipes.claims import above, holds, mean_interval
from intertwine.recipes.functional import QUICK, last_features
from intertwine.recipes.nets import Net, load_checkpoints, load_net_data, train_net
from intertwine.recipes.pages import write_outcome
from intertwine.recipes.worlds import CIFAR100, IMAGES, SEEDS

if TYPE_CHECKING:
    from torch import Tensor, nn

    from intertwine.comparing.experiments import ObservedNetwork, PathPoint

PAPER_EPOCHS = (*range(11), *range(15, 41, 5), *range(50, 101, 10))
QUICK_EPOCHS = tuple(range(9))
PATHS = {
    "quick": f"The learning rate ends at zero; the source does not say. {QUICK}",
    "cifar": "The six runs of `ifm-training` (VGG11 of an eighth of the width on 2,000 images of CIFAR-10, "
    "three weight decays, with and without batch norm, one learning rate each), where the source has "
    f"ResNet18 and VGG16 on CIFAR-100 at three learning rates; {IMAGES} test images.",
    "paper": "The learning rate falls to a tenth at epoch 80; the source does not say.",
}


def _on_the_way(
    folder: Path, setting: Setting, progress: Progress
) -> Iterator[tuple[str, dict[int, ObservedNetwork]]]:
    """Runs, each with its net at several epochs."""
    if setting.preset == "cifar":
        for norm, decay in longer.SETTINGS:
            nets, splits = longer.trained_nets(setting, norm, decay, folder, progress)
            label = longer.label(norm, decay)
            yield label, dict(_seen(label, nets, splits.test.images[:IMAGES]))
        return
    quick = setting.quick
    kinds = (
        (Net("digits-vgg", "digits", "digits", epochs=QUICK_EPOCHS[-1]),)
        if quick
        else tuple(Net(model, CIFAR100, "ifm", epochs=PAPER_EPOCHS[-1]) for model in ("resnet18", "vgg16"))
    )
    epochs = QUICK_EPOCHS if quick else PAPER_EPOCHS
    for kind, rate in product(kinds, (0.1, 0.01, 0.001) if quick else (0.01, 0.001, 0.0001)):
        net, splits = replace(kind, rate=rate), load_net_data(kind)
        for seed in SEEDS[:1] if quick else SEEDS:
            _, run = train_net(net, splits, folder, seed, progress, epochs)
            label, nets = f"{net.model}, lr {rate:g}, seed {seed}", load_checkpoints(net, splits, run, seed)
            yield label, dict(_seen(label, nets, splits.test.images[: 500 if quick else 5800]))


def _seen(
    label: str, nets: Iterable[tuple[int, nn.Module]], images: Tensor
) -> Iterator[tuple[int, ObservedNetwork]]:
    """(epoch, features after the last convolution and outputs) of the nets of a run."""
    from intertwine import collect
    from intertwine.comparing.experiments import ObservedNetwork

    for epoch, model in nets:
        layer = last_features(model, images[:1])
        kept = collect(model, images, at=layer)
        yield epoch, ObservedNetwork(f"{label}, epoch {epoch}", kept[layer].flatten(1), kept.outputs)


def paths(name: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Figure 3.5: nets in training against their final selves, at several learning rates."""
    from intertwine.comparing.experiments import training_path
    from intertwine.pages.experiment_figures import path_figures

    runs = _on_the_way(folder, setting, progress)
    points = [point for label, found in runs for point in training_path(label, found)]
    many = f"{len({p.run for p in points})} runs, {len(points)} nets"
    captions = [f"{what}; {many}" for what in ("CKA over epochs", "Divergence over epochs", "Both")]
    figures = dict(zip(captions, path_figures(points), strict=True))
    claims = path_claims(points)
    differs = PATHS[setting.preset]
    return write_outcome(
        folder, name, "nets in training against their final selves", figures, setting=setting, claims=claims,
        facts={"points": len(points)}, differs=differs,
    )  # fmt: skip


def path_claims(points: Sequence[PathPoint]) -> list[Claim]:
    """Figure 3.5: the last checkpoint is left out, where both measures are what they are by construction."""
    from scipy.stats import spearmanr

    runs: dict[str, list[PathPoint]] = {}
    for point in sorted(points, key=lambda p: p.epoch):
        runs.setdefault(point.run, []).append(point)
    paths = {run: of[:-1] for run, of in runs.items() if len(of) > 3}
    rises = [float(spearmanr([p.epoch for p in of], [p.similarity for p in of])[0]) for of in paths.values()]
    falls = [float(spearmanr([p.epoch for p in of], [p.jsd for p in of])[0]) for of in paths.values()]
    both = [
        float(np.corrcoef([p.similarity for p in of], [p.jsd for p in of])[0, 1]) for of in paths.values()
    ]
    return [
        holds("rank correlation of epoch and CKA, and of epoch and JSD, before the last epoch", "models "
              "during "
              "training converge to the fully trained version in both representation space and outputs",
              f"CKA {np.mean(rises):.2f}, JSD {np.mean(falls):.2f}, {len(paths)} runs",
              "above 0.5 and below -0.5 in every run", min(rises) > 0.5 and max(falls) < -0.5),
        above("minus the correlation of CKA and JSD along a run", "there is a linear relationship between "
              "similarity "
              "and JSD", [mean_interval([-c for c in both])], margin=0.5),
    ]  # fmt: skip


RECIPES = (
    Reproduction(
        "functional-fig3.5",
        "nets in training against their final selves",
        "source 003, figure 3.5",
        partial(paths, "functional-fig3.5"),
        presets=PRESETS,
    ),
)
