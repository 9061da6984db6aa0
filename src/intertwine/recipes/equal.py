"""Figures 2 and 7 of Iterative Feature Merging (source 000): equal features, and what swapping them costs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from intertwine.recipes import PRESETS, Outcome, Progress, Reproduction, Setting
from intertwine.recipes.claims import above, holds
from intertwine.recipes.ifm import DIFFERS, WHY, Subject, accuracy_facts, load_vggs
from intertwine.recipes.pages import write_outcome

if TYPE_CHECKING:
    from torch import nn

    from intertwine.comparing.statistics import Interval


def distances(name: str, every_layer: bool, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Fig. 2a: distances between the features of the last convolution; Fig. 7: of the first twelve."""
    from intertwine.merging.experiments import normalized_distances
    from intertwine.pages.merge_figures import distance_figure

    subjects = load_vggs(setting, folder, progress, one=True)
    ((label, subject),) = subjects.items()
    axes = [a.name for a in subject.symmetry.axes if a.mergeable]
    chosen = axes[:12] if every_layer else axes[-1:]
    tables = {axis: normalized_distances(subject.net, subject.symmetry, axis) for axis in chosen}
    rows = []
    for axis, table in tables.items():
        pairs = table[np.triu_indices(len(table), 1)]
        low, middle = float(pairs.min()), float(np.median(pairs))
        rows.append({"axis": axis, "features": len(table), "smallest": low, "median": middle})
    smallest = [float(str(r["smallest"])) for r in rows]
    medians = [float(str(r["median"])) for r in rows]
    claims = [
        holds("smallest normalised distance",
            "The minimum distance between two features is 2e-15" if not every_layer
              else "Similar results were observed for other layers", ", ".join(f"{v:.1e}" for v in smallest),
              "below 1e-6 (two features equal up to rounding)" + (" at most layers" if every_layer else ""),
              sum(v < 1e-6 for v in smallest) * 2 > len(smallest), why=WHY),
        holds("median distance, of the largest", "For most features, the distance between them is "
              "relatively low",
              ", ".join(f"{v:.2f}" for v in medians),
              "below 0.5" + (" at most layers" if every_layer else ""),
              sum(v < 0.5 for v in medians) * 2 > len(medians),
              why="In the middle of this net features are about equally far from each other; only the first "
                  "and the last layers have many that are near."),
    ]  # fmt: skip
    figures = {f"{label}, axis {axis}": distance_figure(table, axis) for axis, table in tables.items()}
    title = "distances between features" + (" of every layer" if every_layer else " of the last convolution")
    return write_outcome(
        folder, name, title, figures, setting=setting, tables={"Distances": rows}, claims=claims,
        differs=DIFFERS[setting.preset],
    )  # fmt: skip


STEPS = (0.0, 0.25, 0.5, 0.75, 1.0)


def _record(subject: Subject, into: list[np.ndarray], model: nn.Module) -> float:
    into.append(subject.hits(model))
    return float(into[-1].mean())


def _paired(high: np.ndarray, low: np.ndarray) -> Interval:
    """Points of accuracy between two nets on the same inputs."""
    from intertwine.comparing.statistics import Interval

    difference = high.astype(float) - low
    value, half = 100 * difference.mean(), 196 * difference.std(ddof=1) / len(difference) ** 0.5
    return Interval(float(value), float(value - half), float(value + half))


def swaps(name: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Fig. 2b: interpolate between a net and itself with equivalent, or with random, features swapped."""
    from intertwine.merging.experiments import swap_path
    from intertwine.pages.merge_figures import swap_figure

    subjects = load_vggs(setting, folder, progress, one=True)
    ((label, subject),) = subjects.items()
    # A net that is not trained for long has fewer equal features: the smallest beta that swaps some.
    betas = {"quick": (0.3, 0.5), "cifar": (0.05, 0.15)}.get(setting.preset, (0.05, 0.1, 0.15))
    paths, half_way = {}, {}
    for beta in betas:
        right: list[np.ndarray] = []
        paths[f"beta {beta:g}"] = swap_path(
            subject.net, subject.symmetry, partial(_record, subject, right), beta=beta, steps=STEPS
        )
        half_way[f"beta {beta:g}"] = right[2], right[len(STEPS) + 2]
    rows = [
        {"": beta, "swapped": p.swapped, "equivalent": p.equivalent[2], "random": p.random[2]}
        for beta, p in paths.items()
    ]
    lost = [100 * (p.equivalent[0] - min(p.equivalent)) for p in paths.values()]
    gaps = [_paired(*both) for both in half_way.values()]
    claims = [
        holds("accuracy lost along the line, equivalent features, at each beta", "interpolating between "
              "functionally equivalent features does not affect the performance",
              ", ".join(f"{beta}: {v:.1f}" for beta, v in zip(paths, lost, strict=True)) + " points",
              "at most 2 points at every beta", max(lost) <= 2, why=WHY),
        above(f"accuracy half-way at {list(paths)[-1]}, equivalent minus as many random swaps; paired",
              "dashed lines below solid ones (read off the picture)", gaps[-1:], unit=" points",
              why="So few features are swapped that random ones cost as little: "
                  + ", ".join(str(p.swapped) for p in paths.values()) + "."),
    ]  # fmt: skip
    return write_outcome(
        folder, name, "swapping equivalent features",
        {f"Accuracy of {label} along the line, {subject.tested:,} test inputs; 95 % intervals":
         swap_figure(paths, tested=subject.tested)},
        setting=setting, tables={"Half-way": rows}, facts=accuracy_facts(subjects), claims=claims,
        differs=DIFFERS[setting.preset],
    )  # fmt: skip


RECIPES = tuple(
    Reproduction(name, title, f"source 000, {where}", partial(make, name), presets=PRESETS)
    for name, title, where, make in (
        ("ifm-fig2a", "distances between features of the last convolution", "figure 2a",
         lambda name, *rest: distances(name, False, *rest)),
        ("ifm-fig2b", "swapping equivalent features", "figure 2b", swaps),
        ("ifm-fig7", "distances between features of every layer", "figure 7",
         lambda name, *rest: distances(name, True, *rest)),
    )
)  # fmt: skip
