"""Figures 2 to 7 and Table 2 of Iterative Feature Merging (source 000).

paper: VGG and ResNet on CIFAR-10, 150 epochs of SGD as in its appendix D. quick: the same drawings for VGGs
of three widths on scikit-learn's digits, trained in seconds. Merging is that of the released code
(interleaved, sums of batch-norm parameters) unless a line says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intertwine.recipes import Claim, Outcome, Progress, Reproduction
from intertwine.recipes.nets import Net, load_net_data, train_net
from intertwine.recipes.pages import write_outcome

if TYPE_CHECKING:
    from torch import nn

    from intertwine import Symmetry
    from intertwine.data import Dataset
    from intertwine.merging.experiments import CurvePoint

PAPER_VGGS = {f"VGG{d}": Net(f"vgg{d}", "cifar10", "ifm") for d in (11, 13, 16, 19)}
PAPER_RESNET = {"ResNet18": Net("resnet18", "cifar10", "ifm")}
QUICK_VGGS = {f"width {w}": Net("digits-vgg", "digits", "digits", {"width": w}, 15) for w in (8, 16, 32)}
QUICK_RESNET = {"ResNet20": Net("resnet20", "digits", "digits", {}, 8)}
QUICK_BETAS = (0.1, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6)
QUICK = (
    "Digits of 8x8 pixels and nets of 9 to 140 thousand parameters, not CIFAR-10 and millions; beta goes "
    "up to 0.6, because small nets have fewer equal features."
)


@dataclass(frozen=True)
class Subject:
    """A trained net, its symmetry, and its accuracy on the test split."""

    net: nn.Module
    symmetry: Symmetry
    score: Callable[[nn.Module], float]
    accuracy: float

    @classmethod
    def of(cls, net: nn.Module, data: Dataset) -> Subject:
        """A net judged on `data`."""
        from intertwine import trace

        score = partial(_accuracy_on, data)
        return cls(net, trace(net, data.head(1)), score, score(net))


def load_subjects(nets: Mapping[str, Net], folder: Path, progress: Progress) -> dict[str, Subject]:
    """Train (or read) every net and infer its symmetry."""
    found: dict[str, Subject] = {}
    for name, net in nets.items():
        splits = load_net_data(net)
        model, _ = train_net(net, splits, folder, 0, progress)
        found[name] = Subject.of(model, splits.test)
    return found


def _accuracy_on(data: Dataset, model: nn.Module) -> float:
    from intertwine.data import evaluate

    return float(evaluate(model, data).accuracy)


def accuracy_facts(subjects: Mapping[str, Subject]) -> dict[str, Any]:
    """The accuracy of every net before merging."""
    return {f"accuracy of {name}": round(s.accuracy, 4) for name, s in subjects.items()}


def distances(name: str, every_layer: bool, folder: Path, quick: bool, progress: Progress) -> Outcome:
    """Fig. 2a: distances between the features of the last convolution; Fig. 7: of the first twelve."""
    from intertwine.merging.experiments import normalized_distances
    from intertwine.report.merge_figures import distance_figure

    label = "width 32" if quick else "VGG16"
    nets = QUICK_VGGS if quick else PAPER_VGGS
    subjects = load_subjects({label: nets[label]}, folder, progress)
    subject = subjects[label]
    axes = [a.name for a in subject.symmetry.axes if a.mergeable]
    chosen = axes[:12] if every_layer else axes[-1:]
    tables = {axis: normalized_distances(subject.net, subject.symmetry, axis) for axis in chosen}
    rows = []
    for axis, table in tables.items():
        pairs = table[np.triu_indices(len(table), 1)]
        low, middle = float(pairs.min()), float(np.median(pairs))
        rows.append({"axis": axis, "features": len(table), "smallest": low, "median": middle})
    claims = () if every_layer else (
        Claim("smallest normalised distance", "2e-15", f"{rows[0]['smallest']:.1e}"),
        Claim("most distances", "relatively low", f"median {rows[0]['median']:.2f} of the largest"),
    )  # fmt: skip
    figures = {f"{label}, axis {axis}": distance_figure(table, axis) for axis, table in tables.items()}
    title = "distances between features" + (" of every layer" if every_layer else " of the last convolution")
    return write_outcome(
        folder, name, title, figures, tables={"Distances": rows}, facts=accuracy_facts(subjects),
        claims=claims,
        differs=QUICK if quick else "",
    )  # fmt: skip


def swaps(name: str, folder: Path, quick: bool, progress: Progress) -> Outcome:
    """Fig. 2b: interpolate between a net and itself with equivalent, or with random, features swapped."""
    from intertwine.merging.experiments import swap_path
    from intertwine.report.merge_figures import swap_figure

    label = "width 32" if quick else "VGG16"
    subjects = load_subjects({label: (QUICK_VGGS if quick else PAPER_VGGS)[label]}, folder, progress)
    subject = subjects[label]
    # A net that is not trained for long has fewer equal features: the smallest beta that swaps some.
    betas = (0.3, 0.5) if quick else (0.05, 0.1, 0.15)
    paths = {f"beta {b:g}": swap_path(subject.net, subject.symmetry, subject.score, beta=b) for b in betas}
    rows = [
        {"": beta, "swapped": p.swapped, "equivalent": p.equivalent[2], "random": p.random[2]}
        for beta, p in paths.items()
    ]
    worst = min(p.equivalent[2] - p.random[2] for p in paths.values())
    claims = (
        Claim("accuracy half-way, equivalent features against random ones",
              "no barrier for equivalent features, a large one for random ones",
              f"equivalent ones are better by {100 * worst:.1f} points or more"),
    )  # fmt: skip
    return write_outcome(
        folder, name, "swapping equivalent features", {"Accuracy along the line": swap_figure(paths)},
        tables={"Half-way": rows}, facts=accuracy_facts(subjects), claims=claims,
        differs=QUICK if quick else "",
    )  # fmt: skip


def merge_curves(
    subjects: Mapping[str, Subject], quick: bool, axes: list[str] | None = None
) -> dict[str, list[CurvePoint]]:
    """The released code's merging over the source's grid of beta; small nets need larger ones."""
    from intertwine.merging import Options, Planner
    from intertwine.merging.decide import PAPER_BETAS
    from intertwine.merging.experiments import merge_curve

    options = Options("ifm", order="interleaved", norm="sum", repair="none")
    betas = QUICK_BETAS if quick else PAPER_BETAS
    return {
        name: merge_curve(Planner(s.net, s.symmetry, options, axes), s.score, betas=betas)
        for name, s in subjects.items()
    }


def curve_rows(curves: Mapping[str, list[CurvePoint]]) -> list[dict[str, Any]]:
    """The points of all curves as a table."""
    return [{"net": name, **asdict(point)} for name, points in curves.items() for point in points]


def accuracy_curves(name: str, folder: Path, quick: bool, progress: Progress) -> Outcome:
    """Fig. 3a: accuracy against the share of parameters left, over beta."""
    from intertwine.report.merge_figures import curve_figure

    subjects = load_subjects(QUICK_VGGS if quick else PAPER_VGGS, folder, progress)
    curves = merge_curves(subjects, quick)
    left = {n: smallest_within(points, subjects[n].accuracy).kept for n, points in curves.items()}
    claims = (
        Claim("parameters left within 95 % of the accuracy", "the larger the net, the fewer",
              ", ".join(f"{n}: {share:.0%}" for n, share in left.items())),
    )  # fmt: skip
    return write_outcome(
        folder, name, "accuracy against parameters left", {"Each dot is a beta": curve_figure(curves)},
        tables={"Points": curve_rows(curves)}, facts=accuracy_facts(subjects), claims=claims,
        differs=QUICK if quick else "",
    )  # fmt: skip


def smallest_within(points: list[CurvePoint], accuracy: float) -> CurvePoint:
    """The point of the largest beta whose accuracy is at least 95 % of that before merging."""
    return max((p for p in points if p.score >= 0.95 * accuracy), key=lambda p: p.setting, default=points[0])


def sizes(name: str, folder: Path, quick: bool, progress: Progress) -> Outcome:
    """Fig. 3b: accuracy against the number of parameters, before and after the largest good beta."""
    from intertwine.report.similarity_figures import scatter

    subjects = load_subjects(QUICK_VGGS if quick else PAPER_VGGS, folder, progress)
    rows: list[dict[str, Any]] = []
    for net, points in merge_curves(subjects, quick).items():
        full = sum(p.numel() for p in subjects[net].net.parameters())
        best = smallest_within(points, subjects[net].accuracy)
        row = {"net": net, "parameters": full, "accuracy": subjects[net].accuracy, "beta": best.setting}
        rows.append({**row, "merged parameters": round(full * best.kept), "merged accuracy": best.score})
    groups = {
        "before": [(float(r["parameters"]), float(r["accuracy"]), str(r["net"])) for r in rows],
        "after": [(float(r["merged parameters"]), r["merged accuracy"], r["net"]) for r in rows],
    }
    claims = (
        Claim("parameters after merging", "nearly the same for nets of all sizes",
              ", ".join(f"{r['net']}: {r['merged parameters']:,} of {r['parameters']:,}" for r in rows)),
    )  # fmt: skip
    figure = scatter(groups, x_title="parameters", y_title="accuracy")
    return write_outcome(
        folder, name, "accuracy against the number of parameters", {"Before and after merging": figure},
        tables={"Nets": rows}, facts=accuracy_facts(subjects), claims=claims, differs=QUICK if quick else "",
    )  # fmt: skip


def complexity(name: str, folder: Path, quick: bool, progress: Progress) -> Outcome:
    """Fig. 5a: feature complexity against depth."""
    from intertwine.merging import Options, Planner
    from intertwine.report.merge_figures import complexity_figure

    subjects = load_subjects(QUICK_VGGS if quick else PAPER_VGGS, folder, progress)
    curves = merge_curves(subjects, quick)
    found: dict[str, dict[str, int]] = {}
    for net, subject in subjects.items():
        beta = smallest_within(curves[net], subject.accuracy).setting
        options = Options("ifm", order="interleaved", norm="sum", repair="none")
        found[net] = Planner(subject.net, subject.symmetry, options).at_beta(beta).complexity
    largest = list(subjects)[-1]
    widths = {a.name: a.size for a in subjects[largest].symmetry.axes if a.mergeable}
    peak = max(found[largest], key=lambda axis: found[largest][axis])
    claims = (
        Claim("where complexity is largest", "in the middle: it rises, then falls",
              f"at {peak}, number {list(found[largest]).index(peak) + 1} of {len(found[largest])}"),
    )  # fmt: skip
    rows = [{"net": n, **c} for n, c in found.items()]
    return write_outcome(
        folder, name, "feature complexity against depth",
        {"Channels left at the largest beta within 95 % of the accuracy": complexity_figure(found, widths)},
        tables={"Complexity": rows}, facts=accuracy_facts(subjects), claims=claims,
        differs=QUICK if quick else "",
    )  # fmt: skip


def pruning(name: str, folder: Path, quick: bool, progress: Progress) -> Outcome:
    """Fig. 6: a ResNet merged without data; the source's method and this package's default."""
    from intertwine.merging import Options, Planner
    from intertwine.merging.experiments import merge_curve
    from intertwine.report.merge_figures import curve_figure

    subjects = load_subjects(QUICK_RESNET if quick else PAPER_RESNET, folder, progress)
    ((label, subject),) = subjects.items()
    stages = ["layer2.*", "layer3.*"] if quick else ["layer3.*", "layer4.*"]
    curves = {f"{label}, IFM": merge_curves(subjects, quick, stages)[label]}
    planner = Planner(subject.net, subject.symmetry, Options("moments", repair="weights"))
    curves[f"{label}, default of this package"] = merge_curve(
        planner, subject.score, shares=(0.95, 0.9, 0.8, 0.7, 0.6, 0.5)
    )
    differs = "INN, the other method of the source's figure, is not part of this package."
    return write_outcome(
        folder, name, "a ResNet merged without data",
        {"Accuracy against parameters left": curve_figure(curves)},
        tables={"Points": curve_rows(curves)}, facts=accuracy_facts(subjects),
        differs=f"{differs} {QUICK}" if quick else differs,
    )  # fmt: skip


def iteration_times(name: str, folder: Path, quick: bool, progress: Progress) -> Outcome:
    """Table 2: seconds of one round of merging. Weights are random: the time does not depend on them."""
    import torch

    from intertwine import trace, zoo
    from intertwine.merging.experiments import iteration_seconds
    from intertwine.report.merge_figures import time_rows

    reported = {"vgg13": "0.018 ± 0.003", "vgg16": "0.027 ± 0.005", "resnet18": "0.015 ± 0.003",
                "resnet50": "0.127 ± 0.012"}  # fmt: skip
    seconds: dict[str, list[float]] = {}
    rounds = 10 if quick else 100
    for model in ("vgg13", "resnet18") if quick else reported:
        progress(len(seconds), len(reported), model)
        net = zoo.build(model)
        seconds[model] = iteration_seconds(net, trace(net, torch.zeros(1, 3, 32, 32)), rounds=rounds)
    rows = dict(time_rows(seconds))
    claims = tuple(Claim(f"{model}, seconds", reported[model], text) for model, text in rows.items())
    return write_outcome(
        folder, name, "seconds of one round of merging", {}, claims=claims, facts=rows,
        differs="The source used an RTX 2080 Ti and computes all distances again in every round; here it is "
        f"a CPU and distances are updated. {rounds} rounds.",
    )  # fmt: skip


RECIPES = tuple(
    Reproduction(name, title, f"source 000, {where}", partial(make, name))
    for name, title, where, make in (
        ("ifm-fig2a", "distances between features of the last convolution", "figure 2a",
         lambda name, *rest: distances(name, False, *rest)),
        ("ifm-fig2b", "swapping equivalent features", "figure 2b", swaps),
        ("ifm-fig3a", "accuracy against parameters left", "figure 3a", accuracy_curves),
        ("ifm-fig3b", "accuracy against the number of parameters", "figure 3b", sizes),
        ("ifm-fig5a", "feature complexity against depth", "figure 5a", complexity),
        ("ifm-fig6", "a ResNet merged without data", "figure 6", pruning),
        ("ifm-fig7", "distances between features of every layer", "figure 7",
         lambda name, *rest: distances(name, True, *rest)),
        ("ifm-table2", "seconds of one round of merging", "table 2", iteration_times),
    )
)  # fmt: skip
