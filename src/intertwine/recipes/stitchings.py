"""Figures 1, 6, 7 and 13 to 15 of source 002: what stitches cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intertwine.recipes import Claim, Outcome, Progress, Reproduction, Setting
from intertwine.recipes.claims import above, holds
from intertwine.recipes.godfrey import (
    Pairs,
    Seeds,
    load_seeds,
    measured_once,
)
from intertwine.recipes.pages import write_outcome
from intertwine.recipes.symmetries import recipe

if TYPE_CHECKING:
    from torch import nn

KINDS = {
    "quick": ("full", "rank:1", "rank:4", "group"),
    "paper": ("full", "rank:1", "rank:2", "rank:4", "group"),
}
# lambda of the lasso; the source has 0.001, 0.01 and 0.1, more of them say what a lasso costs at a sparsity
LASSOS = {
    "quick": ("0.3", "0.1", "0.03", "0.01", "0.001"),
    # at 0.3 no lasso is as sparse as the group there, at 1 nothing is left: the step between must be small
    "cifar": ("1", "0.7", "0.5", "0.4", "0.3", "0.1", "0.01", "0.001"),
    "paper": ("0.3", "0.1", "0.03", "0.01", "0.001"),
}
# Of the nets there, three pairs, cut at every second activation, or in the second block of each stage.
STITCHED, CUT_AT = {"cifar": 3}, {"tiny10": r"relu_[1357]$", "resnet20": r"\.1\."}
NARROW = (
    "A guess: narrow layers (16 and 32 channels here, 64 to 512 in the source) have few features that "
    "all seeds share, so that no permutation of them fits; the stitch is trained on few images."
)
LITTLE = (
    "A guess: stitches of low rank are trained here for two epochs on few images, from their closed form; in "
    "the source they have 20 epochs on 50,000."
)
RESIDUAL = (
    "A guess: nets of few channels, and stitches that start from their closed form, which costs little where "
    "the late layers of both nets tell the classes apart alike."
)
HOW = (
    "Stitches are trained in two epochs on the outputs of B from their closed form, where the source "
    "trains on "
    "labels by SGD for 20 epochs from elsewhere (`intertwine stitch --as source`)"
)


def _some(seeds: Seeds, setting: Setting) -> Seeds:
    """What a stitch, which is trained, can be afforded for in minutes."""
    if setting.preset not in STITCHED:
        return seeds
    pattern = CUT_AT[seeds.kind.split()[0]]
    return replace(seeds, nets=seeds.nets[: STITCHED[setting.preset]], pattern=pattern)


def _differs(seeds: Seeds, model: str, pairs: int) -> str:
    count = len(seeds.nets) * (len(seeds.nets) - 1) // 2
    return (
        f"{HOW}; {len(seeds.train):,} training images (the source: 50,000); {seeds.what}, {count} pairs "
        f"of them "
        f"with intervals over nets (the source: {pairs} pairs of {model} on CIFAR-10)."
        + (" Not every activation is cut at." if seeds.pattern else "")
    )


def stitching(
    name: str, title: str, model: str, pairs: int, folder: Path, setting: Setting, progress: Progress
) -> Outcome:
    """Fig. 1, 6 and 7: penalties of full, low-rank and group stitches at every layer."""
    from intertwine.stitching import stitch

    seeds = _some(load_seeds(model, 2 * pairs, folder, setting, progress), setting)
    kinds, cuts = KINDS.get(setting.preset, KINDS["quick"]), seeds.layers
    accuracies: list[float] = []

    def measure(a: nn.Module, b: nn.Module) -> Mapping[str, list[float]]:
        progress(len(accuracies), len(seeds.nets) * (len(seeds.nets) - 1) // 2, f"stitching pairs of {model}")
        report = stitch(a, b, seeds.train, seeds.test, at=cuts, kinds=kinds)
        accuracies.append((report.accuracy_a + report.accuracy_b) / 2)
        return {kind: [report[layer, kind].trained for layer in cuts] for kind in kinds}

    found = Pairs.measured(seeds, measure)
    claims = _plain_claims(found) if model == "myrtle" else _residual_claims(found, model, accuracies)
    marks = "; *: inside a residual block" if any(found.inside.values()) else ""
    return write_outcome(
        folder, name, f"stitching penalties of {seeds.what}",
        {f"Penalty after training; 95 % intervals over {len(seeds.nets)} networks{marks}":
         found.figure("cut after", "penalty, points of accuracy")},
        setting=setting, tables={"Penalties": found.rows()}, claims=claims,
        facts={"networks": len(seeds.nets), "pairs": len(accuracies), "accuracy": float(np.mean(accuracies))},
        differs=_differs(seeds, model, pairs),
    )  # fmt: skip


def _plain_claims(found: Pairs) -> list[Claim]:
    group, by_layer = found.values["group"], found.by_layer("group")
    below = sum(i.high < 10 for i in by_layer)
    ranks = [kind for kind in found.values if kind.startswith("rank")]
    return [
        above("group minus full, mean over layers", "when we only optimize over G_ReLU there is an "
              "appreciable "
              "increase in test error difference",
              [found.interval(found.mean("group") - found.mean("full"))], unit=" points"),
        holds("layers where the group's penalty is below 10 points", "within less than 10% of the "
              "accuracy of f and "
              "f~ in all but one layer", f"{below} of {len(by_layer)}: "
              + ", ".join(f"{i.value:.1f}" for i in by_layer),
              "the upper end is below 10 at all but one layer", below >= len(by_layer) - 1, why=NARROW),
        above("rank r minus group, mean over layers", "reduced rank transformations ... incur "
              "significantly higher "
              "stitching penalties", [found.interval(found.mean(k) - found.mean("group")) for k in ranks],
              names=ranks, unit=" points"),
        above("group: the last but one layer minus the first, and minus the last", "they increase up to "
              "the third "
              "activation layer, then decrease at the final activation layer",
              [found.interval(group[:, :, -2] - group[:, :, k]) for k in (0, -1)], unit=" points",
              names=("first", "last"), why=NARROW),
    ]  # fmt: skip


def _residual_claims(found: Pairs, model: str, accuracies: list[float]) -> list[Claim]:
    gaps = {k: found.interval(found.mean(k, "inside") - found.mean(k, "outside")) for k in found.values}
    why = LITTLE if model.startswith("resnet20") else RESIDUAL
    claims = [
        above("inside minus outside of residual blocks, mean", "layers inside residual blocks incur "
              "higher penalties "
              "... This holds even in the full 1-by-1 convolution case",
              [gaps["group"], gaps["full"]], names=("group", "full"), unit=" points", why=why)
    ]  # fmt: skip
    if model.startswith("resnet20"):
        versus = {c: found.mean("rank:1", c) - found.mean("group", c) for c in ("outside", "inside")}
        rivals = [k for k in found.values if k != "group"]
        claims += [
            above("rank 1 minus group outside of blocks", "G_ReLU stitching consistently outperforms rank "
                  "1 ... "
                  "stitching outside residual blocks", [found.interval(versus["outside"])], unit=" points",
                  why=why),
            above("group minus every other inside of blocks", "it consistently underperforms all "
                  "strategies inside "
                  "residual blocks",
                  [found.interval(found.mean("group", "inside") - found.mean(k, "inside")) for k in rivals],
                  names=rivals, unit=" points", why=why),
        ]  # fmt: skip
    else:
        inner = [k for k, layer in enumerate(found.layers) if found.inside[layer]]
        worst = found.by_layer("group")[inner[-2]]
        chance = 100 * float(np.mean(accuracies)) - 10
        claims.append(
            holds("group's penalty at the last but one layer inside a block", "random chance performance "
                  "at that "
                  "layer", f"{worst.value:.1f} points; chance is {chance:.1f}", "within 5 points of chance",
                  worst.value > chance - 5, why=why)
        )  # fmt: skip
    return claims


def _choose_alphas(seeds: Seeds, progress: Progress) -> list[dict[str, Any]]:
    """Of every pair: penalties at each layer with alpha 0.1 and with the one chosen, and which it is."""
    from intertwine.stitching import Training, stitch

    found: list[dict[str, Any]] = []
    cuts = seeds.layers
    for a, b in combinations(seeds.nets, 2):
        progress(len(found), len(seeds.nets) * (len(seeds.nets) - 1) // 2, "choosing alpha for pairs")
        reports = [
            stitch(a, b, seeds.train, seeds.test, at=cuts, kinds=["group"], training=plan, enough=-100)
            for plan in (Training(alpha=0.1), Training(alpha="cv"))
        ]
        of = [[report[layer, "group"] for layer in cuts] for report in reports]
        penalties = [[one.trained for one in found_at] for found_at in of]
        found.append({
            "penalties": dict(zip(("alpha 0.1", "alpha chosen"), penalties, strict=True)),
            "alphas": [one.alpha for one in of[1]],
        })  # fmt: skip
    return found


def chosen_alpha(
    name: str, title: str, show: str, folder: Path, setting: Setting, progress: Progress
) -> Outcome:
    """Fig. 13 and 14: alpha by cross-validation, what it costs or gains, and which it is."""
    from intertwine.pages.similarity_figures import bars

    seeds = _some(load_seeds("myrtle", 64, folder, setting, progress), setting)
    cuts = seeds.layers
    kept = measured_once(folder, "alphas", seeds, partial(_choose_alphas, seeds, progress))
    alphas: dict[str, list[float]] = {layer: [p["alphas"][k] for p in kept] for k, layer in enumerate(cuts)}
    penalties = iter(kept)
    found = Pairs.measured(seeds, lambda a, b: next(penalties)["penalties"])
    change = found.interval(found.mean("alpha chosen") - found.mean("alpha 0.1"))
    several = [layer for layer in cuts if len(set(alphas[layer])) > 1]
    claims = {
        "13": [holds("penalty with alpha chosen minus with 0.1, mean over layers", "we obtain very "
            "similar results to "
                     "those in fig. 1", f"{change.value:.2f} [{change.low:.2f}, {change.high:.2f}] points",
                     "the interval lies within 2 points of 0",
                     None if change.low != change.low else max(abs(change.low), abs(change.high)) < 2,
                     why="Each alpha is tried on few images, so that the choice is a noisy one.")],
        "14": [holds("layers at which different pairs choose different alphas", "there is substantial "
            "variance in the "
                     "alpha selected by cross-validation, at all layers", f"{len(several)} of {len(cuts)}",
                     "at all layers", len(several) == len(cuts), why="Few pairs of nets, and few images to "
                     "choose on: at a layer all of them may choose alike.")],
    }[show]  # fmt: skip
    grid = sorted({a for found_here in alphas.values() for a in found_here})
    counts = {layer: [alphas[layer].count(a) for a in grid] for layer in cuts}
    figures: dict[str, Any] = {
        "13": {f"Penalty of group stitches; 95 % intervals over {len(seeds.nets)} networks":
               found.figure("cut after", "penalty, points of accuracy")},
        "14": {f"How often each alpha was chosen, by layer; {len(alphas[cuts[0]])} pairs of networks":
               bars(counts, [f"{a:g}" for a in grid], x_title="alpha", y_title="pairs of networks")},
    }[show]  # fmt: skip
    return write_outcome(
        folder, name, f"{title}, {seeds.what}", figures, setting=setting,
        tables={"Penalties": found.rows()}, claims=claims,
        facts={"alphas": alphas, "networks": len(seeds.nets)},
        differs=_differs(seeds, "myrtle", 32) + " The stitch of the chosen alpha is trained again on all "
        "training images; the source keeps the one that was trained on four fifths. A permutation that "
        "training finds is kept only where it does better than that of the closed form, so that alpha "
        "matters less than in the source.",
    )  # fmt: skip


def sparse_stitching(name: str, title: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Fig. 15: what a lasso stitch costs that is as sparse as a group stitch, against what that costs."""
    from intertwine.pages.similarity_figures import scatter
    from intertwine.stitching import stitch

    seeds = _some(load_seeds("myrtle", 64, folder, setting, progress), setting)
    kinds = ["full", "group", *(f"lasso:{w}" for w in LASSOS[setting.preset])]
    cuts = seeds.layers
    points: dict[str, dict[tuple[str, str], list[tuple[float, float]]]] = {}

    def measure(a: nn.Module, b: nn.Module) -> Mapping[str, list[float]]:
        progress(0, 1, "stitching a pair")
        report = stitch(a, b, seeds.train, seeds.test, at=cuts, kinds=kinds)
        for one in report.stitchings:
            points.setdefault(one.kind, {}).setdefault((one.layer, one.kind), []).append(
                (one.sparsity, one.trained)
            )
        lasso = []
        for layer in cuts:
            mine = sorted(
                (report[layer, k].sparsity, report[layer, k].trained) for k in kinds if k != "group"
            )
            lasso.append(at_sparsity(mine, report[layer, "group"].sparsity))
        return {"group": [report[layer, "group"].trained for layer in cuts], "lasso as sparse": lasso}

    found = Pairs.measured(seeds, measure)
    gap = found.values["lasso as sparse"] - found.values["group"]
    off = ~np.eye(len(gap), dtype=bool)
    reached = ~np.isnan(gap[off]).any(0)  # layers where some lasso of every pair is as sparse as the group
    gaps = [found.interval(gap[:, :, reached].mean(2))] if reached.any() else []
    last = {
        k: np.mean(v, axis=0)
        for k, v in (
            ("group", points["group"][cuts[-1], "group"]),
            ("lasso", points["lasso:0.01"][cuts[-1], "lasso:0.01"]),
        )
    }
    near = np.abs(last["group"] - last["lasso"])
    claims = [
        above("penalty of a lasso stitch as sparse as the group's, minus the group's; mean over the "
              f"{reached.sum()} of {len(cuts)} layers where one is",
              "G_ReLU layers achieve low stitching penalties for their sparsity levels",
              gaps, unit=" points", why="A lasso map here is trained from its closed form by proximal "
              "steps, and may be the better one at the same sparsity."),
        holds("last layer: group and lambda = 0.01 apart", "in the final layer the scatter points "
              "corresponding to "
              "G_ReLU and lambda = 0.01 nearly overlap", f"{near[0]:.2f} in sparsity, {near[1]:.1f} points",
              "at most 0.05 and 5 points", bool(near[0] <= 0.05 and near[1] <= 5),
              why="What lambda does depends on the scale of the loss and of the features, which are ours."),
    ]  # fmt: skip
    groups = {
        label: [(float(np.mean([s for s, _ in v])), float(np.mean([p for _, p in v])), f"{layer}, {kind}")
                for (layer, kind), v in of.items()]
        for label, of in points.items()
    }  # fmt: skip
    pairs = len(next(iter(points["group"].values())))
    spread = {label: [float(np.std([p for _, p in v])) for v in of.values()] for label, of in points.items()}
    figure = scatter(
        groups, x_title="sparsity (eq. D.1)", y_title="penalty, points of accuracy", halves=spread
    )
    return write_outcome(
        folder, name, f"{title}, {seeds.what}",
        {f"One point a layer and a kind (lasso: its lambda), mean and deviation of {pairs} pairs": figure},
        setting=setting, claims=claims, tables={"At the sparsity of the group": found.rows()},
        facts={"pairs": pairs}, differs=_differs(seeds, "myrtle", 32) + " Lasso maps are trained by "
            "proximal steps, "
        "so that entries are exactly 0; the penalty at a sparsity is read between two lambdas.",
    )  # fmt: skip


def at_sparsity(points: list[tuple[float, float]], sparsity: float) -> float:
    """The penalty at a sparsity, between the points around it; NaN beyond the sparsest.

    >>> at_sparsity([(0.0, 1.0), (0.5, 3.0)], 0.25), at_sparsity([(0.0, 1.0)], 0.5)
    (2.0, nan)
    """
    xs, ys = zip(*sorted(points), strict=True)
    return float(np.interp(sparsity, xs, ys, right=np.nan))


_STITCHINGS: tuple[tuple[str, str, str, int], ...] = (
    ("fig1", "figure 1", "myrtle", 32),
    ("fig6", "figure 6", "resnet20-pad", 16),
    ("fig7", "figure 7", "resnet18", 16),
)
RECIPES: tuple[Reproduction, ...] = (
    *(
        recipe(s, w, f"stitching penalties of {m}", stitching, m, n, cifar=m != "resnet18")
        for s, w, m, n in _STITCHINGS
    ),
    recipe("fig13", "figure 13", "stitching penalties with alpha chosen", chosen_alpha, "13", cifar=True),
    recipe("fig14", "figure 14", "which alpha is chosen", chosen_alpha, "14", cifar=True),
    recipe("fig15", "figure 15", "penalty against sparsity of a stitch", sparse_stitching, cifar=True),
)
