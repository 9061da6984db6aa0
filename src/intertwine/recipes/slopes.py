"""Figure 8 and Table 3 of source 002: nets from ReLU to the identity, where the group becomes GL(n)."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from intertwine.recipes import Outcome, Progress, Reproduction, Setting
from intertwine.recipes.claims import above, mean_interval, number
from intertwine.recipes.godfrey import IMAGES, NETS, SMALL, paper_net
from intertwine.recipes.nets import load_net_data, train_net
from intertwine.recipes.pages import write_outcome
from intertwine.recipes.stitchings import HOW
from intertwine.recipes.symmetries import recipe

if TYPE_CHECKING:
    from torch import nn

SLOPES = {"quick": (1e-2, 0.5, 1.0)}
TABLE3 = dict(
    zip((1e-4, 1e-3, 1e-2, 0.1, 0.5, 0.9, 1.0), (89.3, 89.4, 89.2, 89.4, 86.6, 73.0, 41.8), strict=True)
)


def slopes(name: str, title: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Fig. 8 and Table 3: LeakyReLU nets from slope 1e-4 to 1, where the group becomes GL(n)."""
    from intertwine.pages.similarity_figures import lines
    from intertwine.stitching import stitch_slopes

    model = "resnet20-pad"
    net = SMALL[model] if setting.quick else paper_net(model)
    splits = load_net_data(net)
    many, tested = IMAGES[setting.preset]
    train, test = splits.train.take(many), splits.test if tested is None else splits.test.take(tested)
    layers = [f"layer{stage}.2.leaky_relu_1" for stage in (1, 2, 3)]

    def trained(slope: float, seed: int) -> nn.Module:
        leaky = replace(net, options={**net.options, "slope": slope})
        return train_net(leaky, splits, folder, seed, progress)[0]

    chosen = SLOPES.get(setting.preset, tuple(TABLE3))
    accuracy: dict[float, list[float]] = {s: [] for s in chosen}
    penalty: dict[float, list[list[float]]] = {s: [] for s in chosen}
    groups: dict[float, str] = {}
    for first, second in combinations(range(NETS["quick"]), 2):
        found = stitch_slopes(
            trained, (train.images, train.labels), (test.images, test.labels), at=layers, slopes=chosen,
            kinds=("group",), seeds=(first, second),
        )  # fmt: skip
        for f in found:
            groups[f.slope] = f.group
            accuracy[f.slope].append(f.accuracy)
            penalty[f.slope].append([f.report[layer, "group"].trained for layer in layers])
    spread = {s: [float(np.ptp(p)) for p in penalty[s]] for s in chosen}
    low, high = min(chosen), max(chosen)
    fall = [100 * (a - b) for a, b in zip(accuracy[low], accuracy[high], strict=True)]
    claims = [
        above(f"accuracy at slope {low:g} minus at {high:g}", "the significant decrease in CIFAR-10 "
              "accuracy for "
              "larger s", [mean_interval(fall)], unit=" points",
              why="A linear net tells these digits apart almost as well."),
        above(f"range of penalties over layers at slope {low:g} minus at {high:g}", "unlike for s << 1 "
              "... the "
              "stitching penalties for s = 1 are mostly constant throughout the layers",
              [mean_interval([a - b for a, b in zip(spread[low], spread[high], strict=True)])],
              unit=" points", why="Three ends of stages, where the source has every layer."),
    ]  # fmt: skip
    if setting.own:
        claims += [
            number(f"accuracy at slope {s:g}, %", said, mean_interval(percent), factor=1.1)
            for s, said in TABLE3.items()
            if (percent := [100 * a for a in accuracy[s]])
        ]
    rows = [
        {"slope": s, "its group": groups[s], "accuracy, %": 100 * float(np.mean(accuracy[s]))}
        | {layer: float(np.mean([p[k] for p in penalty[s]])) for k, layer in enumerate(layers)}
        for s in chosen
    ]
    found_at = {
        layer: [mean_interval([p[k] for p in penalty[s]]) for s in chosen] for k, layer in enumerate(layers)
    }
    figure = lines(
        {layer: (list(chosen), [i.value for i in v]) for layer, v in found_at.items()},
        x_title="negative slope", y_title="penalty of the group's stitch, points", log=True,
        bands={layer: ([i.low for i in v], [i.high for i in v]) for layer, v in found_at.items()},
    )  # fmt: skip
    pairs = len(penalty[low])
    return write_outcome(
        folder, name, title,
        {f"Stitching at the end of each stage; 95 % intervals over {pairs} pairs of {NETS['quick']} networks":
         figure},
        setting=setting, tables={"Slopes": rows}, claims=claims, facts={"groups": groups},
        differs=f"{HOW}; {len(train):,} training images; three pairs of {net.model} of three seeds on "
                f"{net.data}, and "
        "the ends of the three stages, where the source shows every layer of ResNet20.",
    )  # fmt: skip


RECIPES: tuple[Reproduction, ...] = (
    recipe("fig8", "figure 8 and table 3", "stitching from ReLU to the identity", slopes),
)
