"""Figure 4 of source 002: what a change of basis costs the layers after it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from intertwine.recipes import Outcome, Progress, Reproduction, Setting
from intertwine.recipes.claims import above, mean_interval
from intertwine.recipes.godfrey import load_seeds
from intertwine.recipes.pages import write_outcome
from intertwine.recipes.symmetries import recipe

TUNED = {"quick": 15}


def rotations(name: str, title: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Fig. 4: what later layers lose when a layer is acted on by the group, or by a rotation."""
    from intertwine import trace
    from intertwine.pages.similarity_figures import curves
    from intertwine.stitching import rotate

    seeds = load_seeds("myrtle-plain", 10, folder, setting, progress)
    values = trace(seeds.nets[0], seeds.test.images[:2]).values
    layers = [v.name for v in values.by_input if any(values[r].family == "pointwise" for r in v.readers)]
    epochs = TUNED.get(setting.preset, 50)
    found: dict[str, np.ndarray] = {}
    for by in ("group", "orthogonal", "identity"):
        progress(len(found), 3, by)
        found[by] = np.array([
            [rotate(net, seeds.train, seeds.test, at=layer, by=by, epochs=epochs, seed=seed).penalty
             for layer in layers]
            for seed, net in enumerate(seeds.nets)
        ])  # fmt: skip
    gap = mean_interval((found["orthogonal"] - found["group"]).mean(1).tolist())
    claims = [
        above("penalty of a rotation minus that of a group element, mean over layers", "transforming by A "
              "in G_ReLU "
              "rather a random orthogonal matrix results in significantly smaller rotation penalties", [gap],
              unit=" points", why=f"At {layers[-1]}, after which only the classifier is trained, {epochs} "
              f"epochs undo neither: {found['group'][:, -1].mean():.0f} points lost by the group, "
              f"{found['orthogonal'][:, -1].mean():.0f} by a rotation, and that is most of the mean. Before "
              f"it: {found['group'][:, :-1].mean():.1f} and {found['orthogonal'][:, :-1].mean():.1f}.")
    ]  # fmt: skip
    intervals = {by: [mean_interval(v[:, k].tolist()) for k in range(len(layers))] for by, v in found.items()}
    series = {by: [i.value for i in v] for by, v in intervals.items()}
    bands = {by: ([i.low for i in v], [i.high for i in v]) for by, v in intervals.items()}
    figure = curves(series, layers, bands=bands, x_title="acted on", y_title="penalty, points of accuracy")
    rows = [{"layer": c, **{k: v[i] for k, v in series.items()}} for i, c in enumerate(layers)]
    small = " The small net has batch norms." if setting.quick else ""
    return write_outcome(
        folder, name, title,
        {f"Accuracy lost after fine-tuning; {len(seeds.nets)} trials, 95 % intervals": figure},
        setting=setting, claims=claims, tables={"Penalties": rows},
        differs=f"{seeds.what}, {epochs} epochs of fine-tuning on {len(seeds.train):,} images; `identity` "
                f"(nothing "
        f"moved) is ours.{small}",
    )  # fmt: skip


RECIPES: tuple[Reproduction, ...] = (recipe("fig4", "figure 4", "rotation penalties", rotations),)
