"""Figures of the experiments of Yellapragada 2020 and Godfrey et al. 2022."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from intertwine.comparing.experiments import PathPoint, Relation, RepresentationBias, Source
from intertwine.pages.similarity_figures import heat_map, lines, scatter, title_of

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def confusion_figure(bias: RepresentationBias) -> Figure:
    """Figure 3.1: true class down, guessed class across."""
    names = [f"{data} / {model}" for data, model in bias.classes]
    return heat_map(bias.confusion, names, names, row_title="true", column_title="guessed")


def embedding_figure(points: Mapping[Source, np.ndarray]) -> Figure:
    """Figure 3.2: t-SNE, one colour a (data set, model)."""
    groups = {
        f"{data} / {model}": [(float(x), float(y), f"{data} / {model}") for x, y in found]
        for (data, model), found in points.items()
    }
    return scatter(groups, x_title="first t-SNE coordinate", y_title="second t-SNE coordinate")


def relation_figure(relation: Relation, against: str = "jsd") -> Figure:
    """Figure 3.4: similarity of features against that of outputs; untrained pairs have their own colour."""
    groups: dict[str, list[tuple[float, float, str]]] = {}
    for pair in relation.pairs:
        value = pair.jsd if against == "jsd" else pair.spearman
        if value is not None:
            kind = "trained pairs" if pair.trained else "untrained pairs"
            groups.setdefault(kind, []).append((pair.similarity, value, f"{pair.a} with {pair.b}"))
    y_title = "Jensen-Shannon divergence, nats" if against == "jsd" else "Spearman of outputs"
    return scatter(groups, x_title=title_of(relation.measure), y_title=y_title, fit="trained pairs")


def path_figures(points: Sequence[PathPoint]) -> tuple[Figure, Figure, Figure]:
    """Figure 3.5: similarity over epochs, divergence over epochs, one against the other."""
    runs = list(dict.fromkeys(p.run for p in points))

    def series(field: str) -> dict[str, tuple[list[float], list[float]]]:
        found: dict[str, tuple[list[float], list[float]]] = {run: ([], []) for run in runs}
        for point in sorted(points, key=lambda p: p.epoch):
            found[point.run][0].append(point.epoch)
            found[point.run][1].append(getattr(point, field))
        return found

    together = {
        run: [(p.similarity, p.jsd, f"epoch {p.epoch}") for p in points if p.run == run] for run in runs
    }
    return (
        lines(series("similarity"), x_title="epoch", y_title="similarity to the last epoch"),
        lines(series("jsd"), x_title="epoch", y_title="divergence from the last epoch, nats"),
        scatter(
            together, x_title="similarity to the last epoch", y_title="divergence from the last epoch, nats"
        ),
    )
