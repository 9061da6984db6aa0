"""Proposition 2.2 of source 000: is a pair of nets with a flat line between them isomorphic, layer by layer?

The source derives from linear mode connectivity that a layer of one net makes of the other's features what
the other's own layer does (eq. 4). A pair with a flat line is one net that is trained on twice, in two
orders: the longer ago the two parted, the further apart they are. Pairs that were trained apart and aligned
stand beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from intertwine.recipes import Claim, Outcome, Progress, Reproduction, Setting
from intertwine.recipes.cifar import CHECKPOINTS, TINY10, load_images
from intertwine.recipes.claims import above, holds, mean_interval
from intertwine.recipes.godfrey import load_seeds
from intertwine.recipes.pages import write_outcome

if TYPE_CHECKING:
    from torch import nn

    from intertwine.data import Dataset

NETS = 3
PARTED = {"quick": (1, 2, 4, 8), "cifar": (1, 2, 4, 8)}  # epochs after which a pair is looked at
TRAINED_ON = {"cifar": 1000}  # images
RATE, BATCH = 0.02, 50
FLAT = 2.0  # points of accuracy: a line that falls by no more is called flat
NATURAL = 0.1  # of a layer's features: an isomorphism has 0, nets of random weights about 1


@dataclass(frozen=True)
class ConnectedPair:
    """Two nets: how far the line between them falls, and by layer how far they are from natural."""

    epochs: int | None  # since they parted; None for nets that were trained apart and aligned
    net: int
    barrier: float  # points of accuracy
    defect: dict[str, float]

    @property
    def mean(self) -> float:
        """Over the layers."""
        return float(np.mean(list(self.defect.values())))


def measure(a: nn.Module, b: nn.Module, test: Dataset, train: Dataset) -> tuple[float, dict[str, float]]:
    """The barrier with statistics measured again, and the defect of every layer."""
    from intertwine.aligning import interpolation_curve, naturality_defect

    labelled = [(part.images, part.labels) for part in (test, train)]
    line = interpolation_curve([a, b], labelled[0], (0.5,), repair="reset", train_data=labelled[1])
    return 100 * line.accuracy_barrier, naturality_defect(a, b, test.images)


def part(
    net: nn.Module, train: Dataset, test: Dataset, epochs: Sequence[int], folder: Path, progress: Progress
) -> dict[int, list[nn.Module]]:
    """Epochs since they parted -> the two nets that `net` becomes in two orders of the same images."""
    import copy

    from intertwine import zoo
    from intertwine.training import Recipe, Splits, read_recipe
    from intertwine.training import train as train_on

    optimizer = replace(read_recipe("ifm").optimizer, learning_rate=RATE)
    recipe = Recipe(epochs[-1], BATCH, optimizer, checkpoints=tuple(epochs), evaluate_every=epochs[-1])
    found: dict[int, list[nn.Module]] = {epoch: [] for epoch in epochs}
    for order in (1, 2):
        progress(order, 2, f"training on, {folder.name}")
        run = train_on(net, Splits("images", train, test), recipe, folder / f"order{order}", seed=order)
        for path in sorted((run.folder / "checkpoints").glob("epoch-*.safetensors")):
            epoch = int(path.stem.rpartition("-")[2])
            found[epoch].append(zoo.load_weights(copy.deepcopy(net), path).eval())
    return found


def connected(name: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """The defect of naturality of pairs that parted, and of pairs that never were one."""
    from intertwine import act, trace
    from intertwine.aligning import align
    from intertwine.pages.similarity_figures import curves, lines

    seeds = load_seeds("myrtle", NETS, folder, setting, progress)
    nets, train = seeds.nets[:NETS], seeds.train
    if setting.preset in TRAINED_ON:
        how = CHECKPOINTS[TINY10[0]].normalize
        train = load_images(setting, how, TRAINED_ON[setting.preset], split="train")
    after = PARTED[setting.preset]
    pairs: list[ConnectedPair] = []
    for k, net in enumerate(nets):
        for epochs, both in part(
            net, train, seeds.test, after, folder / "runs" / f"parted{k}", progress
        ).items():
            pairs.append(ConnectedPair(epochs, k, *measure(both[0], both[1], seeds.test, train)))
    symmetry = trace(nets[0], seeds.test.images[:2])
    for i, j in combinations(range(len(nets)), 2):
        moved = act(nets[j], align(nets[i], nets[j], symmetry).element)
        pairs.append(ConnectedPair(None, i, *measure(nets[i], moved, seeds.test, train)))
    kinds: tuple[int | None, ...] = (*after, None)
    of = {kind: [pair for pair in pairs if pair.epochs == kind] for kind in kinds}
    layers = list(pairs[0].defect)
    by_layer = {
        kind: [mean_interval([pair.defect[layer] for pair in of[kind]]) for layer in layers] for kind in kinds
    }
    names = {
        kind: "trained apart, aligned" if kind is None else f"parted {kind} epoch{'s' * (kind > 1)} ago"
        for kind in kinds
    }
    shown = {names[k]: by_layer[k] for k in kinds}
    means = {kind: mean_interval([pair.mean for pair in of[kind]]) for kind in kinds}
    barriers = {kind: mean_interval([pair.barrier for pair in of[kind]]) for kind in kinds}
    figures = {
        f"Defect of naturality by layer; 95 % intervals over {len(nets)} nets or pairs": curves(
            {k: [i.value for i in v] for k, v in shown.items()}, layers, x_title="layer",
            y_title="defect, share of the layer's features",
            bands={k: ([i.low for i in v], [i.high for i in v]) for k, v in shown.items()},
        ),
        f"Mean defect over epochs since the two parted; 95 % intervals over {len(nets)} nets": lines(
            {"defect": (after, [means[k].value for k in after])}, x_title="epochs since they parted",
            y_title="defect, share of the layer's features",
            bands={"defect": ([means[k].low for k in after], [means[k].high for k in after])},
        ),
    }  # fmt: skip
    rows = [
        {"pair": names[k], "barrier, points": barriers[k].value, "defect, mean of layers": means[k].value,
         "largest defect": max(i.value for i in by_layer[k])}
        for k in kinds
    ]  # fmt: skip
    return write_outcome(
        folder, name, "nets with a flat line between them, and how far from isomorphic they are", figures,
        setting=setting, claims=claims_of(of, layers), tables={"Pairs": rows}, facts={"rows": rows},
        differs=f"The source proves and does not measure. {len(nets)} {seeds.kind}, each trained on twice on "
        f"{len(train):,} images at rate {RATE:g}; {len(seeds.test):,} test images; pairs that were trained "
        "apart are aligned by weights. The test (a tenth of a layer's features) is ours.",
    )  # fmt: skip


def claims_of(of: dict[int | None, list[ConnectedPair]], layers: Sequence[str]) -> list[Claim]:
    """The proposition for pairs with a flat line; that it is no matter of the measure."""
    flat = [k for k, pairs in of.items() if k is not None and max(p.barrier for p in pairs) <= FLAT]
    if not flat:
        text = ", ".join(f"{k}: {max(p.barrier for p in v):.1f}" for k, v in of.items() if k is not None)
        return [
            holds("pairs with a flat line", "linear mode connectivity", f"points lost half-way: {text}",
                  f"at most {FLAT:g} points", None)
        ]  # fmt: skip
    last = max(flat)
    defects = {layer: mean_interval([pair.defect[layer] for pair in of[last]]) for layer in layers}
    worst = max(defects, key=lambda layer: defects[layer].value)
    lost = max(p.barrier for p in of[last])
    gaps = [apart.mean - near.mean for apart, near in zip(of[None], of[last], strict=True)]
    return [
        holds(f"defect of naturality of nets that parted {last} epochs ago (the line between them loses at "
              f"most {lost:.1f} points), the largest of {len(layers)} layers",
              "linear mode connectivity implies that the features are isomorphic at every layer",
              f"{defects[worst].value:.3f} [{defects[worst].low:.3f}, {defects[worst].high:.3f}] at {worst}",
              f"at every layer the interval lies below {NATURAL:g}; an isomorphism has 0",
              all(i.high < NATURAL for i in defects.values()),
              why="A flat line needs the loss to be flat, not the features to be equal: what a layer "
                  "changes, the next ones may undo or not read."),
        above("mean defect of nets that were trained apart and aligned, minus that", "(ours: the measure "
              "tells connected pairs from others)", [mean_interval(gaps)]),
    ]  # fmt: skip


RECIPES = (
    Reproduction(
        "ifm-connected", "are nets with a flat line between them isomorphic?", "source 000, proposition 2.2",
        partial(connected, "ifm-connected"), presets=("quick", "cifar"),
    ),
)  # fmt: skip
