"""Figures 3, 5a and 6 and Table 2 of Iterative Feature Merging (source 000).

paper: VGG and ResNet on CIFAR-10, 150 epochs of SGD as in its appendix D. quick: the same drawings for VGGs
of three widths on scikit-learn's digits, trained in seconds. Merging is that of the released code
(interleaved, sums of batch-norm parameters) unless a line says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import pairwise, permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intertwine.recipes import Outcome, Progress, Reproduction, Setting
from intertwine.recipes.cifar import load_checkpoint, load_images
from intertwine.recipes.claims import holds, share_interval
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
# The released code's way of merging.
RELEASED: dict[str, Any] = {"method": "ifm", "order": "interleaved", "norm": "sum", "repair": "none"}
QUICK_BETAS = (0.1, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6)
QUICK = (
    "Digits of 8x8 pixels and nets of 9 to 140 thousand parameters, not CIFAR-10 and millions; beta goes "
    "up to 0.6, because small nets have fewer equal features."
)


CIFAR = (
    "One VGG16 that others trained (91.00 % of all test images, the source's 93.51 %), and the first 300 "
    "test images; the source trains VGG11 to VGG19 for 150 epochs and tests on 10,000."
)
PAPER = "One seed of each net, trained here by the source's recipe."
DIFFERS = {"quick": QUICK, "cifar": CIFAR, "paper": PAPER}
IMAGES = 300  # test images of the preset cifar
WHY = (
    "A guess, which `ifm-training` does not confirm on digits: long training with weight decay makes "
    "features equal, as unused channels shrink to 0 together; this net has fewer of them."
)


@dataclass(frozen=True)
class Subject:
    """A trained net, its symmetry, and how a net is scored on the test split, of `tested` inputs."""

    net: nn.Module
    symmetry: Symmetry
    score: Callable[[nn.Module], float]
    data: Dataset

    @property
    def tested(self) -> int:
        """Test inputs."""
        return len(self.data)

    def hits(self, model: nn.Module) -> np.ndarray:
        """Which test inputs a net gets right: nets are compared on the same inputs."""
        import torch

        with torch.no_grad():
            guesses = torch.cat([model.eval()(part).argmax(1) for part in self.data.images.split(100)])
        found: np.ndarray = (guesses == self.data.labels).numpy()
        return found

    @classmethod
    def of(cls, net: nn.Module, data: Dataset) -> Subject:
        """A net judged on `data`."""
        from intertwine import trace

        return cls(net, trace(net, data.head(1)), partial(_accuracy_on, data), data)

    @cached_property
    def accuracy(self) -> float:
        """On the test split; measured where a figure asks for it."""
        return self.score(self.net)


def load_vggs(setting: Setting, folder: Path, progress: Progress, *, one: bool = False) -> dict[str, Subject]:
    """The VGGs of a setting, by name; `one`: only the one that the source looks into."""
    if setting.preset == "cifar":
        data = load_images(setting, "cifar10", IMAGES)
        return {"VGG16": Subject.of(load_checkpoint(setting, "vgg16-cifar10"), data)}
    nets, single = (QUICK_VGGS, list(QUICK_VGGS)[-1]) if setting.quick else (PAPER_VGGS, "VGG16")
    return load_subjects({single: nets[single]} if one else nets, folder, progress)


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


def merge_curves(
    subjects: Mapping[str, Subject], quick: bool, axes: list[str] | None = None
) -> dict[str, list[CurvePoint]]:
    """The released code's merging over the source's grid of beta; small nets need larger ones."""
    from intertwine.merging import Options, Planner
    from intertwine.merging.decide import PAPER_BETAS
    from intertwine.merging.experiments import merge_curve

    options = Options(**RELEASED)
    betas = QUICK_BETAS if quick else PAPER_BETAS
    return {
        name: merge_curve(Planner(s.net, s.symmetry, options, axes), s.score, betas=betas)
        for name, s in subjects.items()
    }


def curve_rows(curves: Mapping[str, list[CurvePoint]]) -> list[dict[str, Any]]:
    """The points of all curves as a table."""
    return [{"net": name, **asdict(point)} for name, points in curves.items() for point in points]


def accuracy_curves(name: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Fig. 3a: accuracy against the share of parameters left, over beta."""
    from intertwine.pages.merge_figures import curve_figure

    subjects = load_vggs(setting, folder, progress)
    curves = merge_curves(subjects, setting.quick)
    left, tested = shares_left(curves, subjects), min(s.tested for s in subjects.values())
    sizes = [sum(p.numel() for p in s.net.parameters()) for s in subjects.values()]
    shares = [left[n] for _, n in sorted(zip(sizes, subjects, strict=True))]
    claims = [
        holds("parameters left within 95 % of the accuracy, smallest net first", "the larger the network "
              "is, the more "
              "equivalent features could be merged", share_text(left), "they do not rise with the size, "
                  "and the "
              "largest net keeps fewer than the smallest", None if len(shares) < 2 else
              all(a >= b - 0.02 for a, b in pairwise(shares)) and shares[-1] < shares[0], why=WHY),
    ]  # fmt: skip
    if not setting.quick:
        near = min(curves["VGG16"], key=lambda p: abs(p.kept - 0.2303))
        claims.append(
            holds("accuracy of VGG16 at the size nearest to 23.03 % of the parameters", "reduce the "
                  "number of "
                  "parameters to 23.03% while keeping the testing accuracy at 91.78% ... original 93.51%",
                  f"{near.kept:.1%} of the parameters: {near.score:.2%} from "
                  f"{subjects['VGG16'].accuracy:.2%}",
                  "at most 30 % of the parameters for at most 3 points", near.kept <= 0.3
                  and subjects["VGG16"].accuracy - near.score <= 0.03, why=WHY)
        )  # fmt: skip
    return write_outcome(
        folder, name, "accuracy against parameters left",
        {f"{', '.join(subjects)}: each dot is a beta; 95 % intervals, {tested:,} test inputs":
         curve_figure(curves, tested=tested)},
        setting=setting, tables={"Points": curve_rows(curves)}, facts=accuracy_facts(subjects), claims=claims,
        differs=DIFFERS[setting.preset],
    )  # fmt: skip


def smallest_within(points: list[CurvePoint], accuracy: float) -> CurvePoint | None:
    """The smallest net whose accuracy is at least 95 % of that before, if there is one.

    By what is kept, not by the setting: a beta merges more where it is larger, a share where it is smaller.
    """
    return min((p for p in points if p.score >= 0.95 * accuracy), key=lambda p: p.kept, default=None)


def shares_left(curves: Mapping[str, list[CurvePoint]], subjects: Mapping[str, Subject]) -> dict[str, float]:
    """What is left of every net within 95 % of its accuracy: all of it where no beta of the grid is."""
    best = {n: smallest_within(points, subjects[n].accuracy) for n, points in curves.items()}
    return {n: 1.0 if point is None else point.kept for n, point in best.items()}


def share_text(left: Mapping[str, float]) -> str:
    """Shares in words, none hidden: 100 % is a net of which nothing could be merged."""
    return ", ".join(f"{name}: {share:.0%}" for name, share in left.items())


def sizes(name: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Fig. 3b: accuracy against the number of parameters, before and after the largest good beta."""
    from intertwine.merging.experiments import CurvePoint
    from intertwine.pages.similarity_figures import scatter

    subjects = load_vggs(setting, folder, progress)
    rows: list[dict[str, Any]] = []
    for net, points in merge_curves(subjects, setting.quick).items():
        full = sum(p.numel() for p in subjects[net].net.parameters())
        best = smallest_within(points, subjects[net].accuracy) or CurvePoint(0.0, 1.0, subjects[net].accuracy)
        row = {"net": net, "parameters": full, "accuracy": subjects[net].accuracy, "beta": best.setting}
        rows.append({**row, "merged parameters": round(full * best.kept), "merged accuracy": best.score})
    groups = {
        "before": [(float(r["parameters"]), float(r["accuracy"]), str(r["net"])) for r in rows],
        "after": [(float(r["merged parameters"]), r["merged accuracy"], r["net"]) for r in rows],
    }
    ordered = sorted(rows, key=lambda r: r["parameters"])
    cut = [1 - r["merged parameters"] / r["parameters"] for r in ordered]
    claims = [
        holds("share of parameters merged, smallest net first", "larger models (e.g. VGG16 and ResNet50) "
              "could reduce "
              "more parameter with a smaller decrease on testing accuracy",
              ", ".join(f"{r['net']}: {c:.0%}" for r, c in zip(ordered, cut, strict=True)),
              "largest for the largest net",
              None if len(cut) < 2 else cut[-1] == max(cut) and cut[-1] > cut[0], why=WHY)
    ]  # fmt: skip
    tested = min(s.tested for s in subjects.values())
    halves = {
        label: [(found.high - found.low) / 2 for _, share, _ in points
                if (found := share_interval(share, tested))]
        for label, points in groups.items()
    }  # fmt: skip
    figure = scatter(groups, x_title="parameters", y_title="accuracy", halves=halves)
    return write_outcome(
        folder, name, "accuracy against the number of parameters",
        {f"Before and after merging at the largest beta within 95 % of the accuracy; 95 % intervals, "
         f"{tested:,} test inputs": figure},
        setting=setting, tables={"Nets": rows}, facts=accuracy_facts(subjects), claims=claims,
        differs=f"VGGs only; the source shows ResNets too. {DIFFERS[setting.preset]}",
    )  # fmt: skip


def find_peaks(values: list[int]) -> list[int]:
    """Every place, from 1, where the largest value is reached: a plateau is not in the middle for its start.

    >>> find_peaks([41, 64, 512, 512, 391])
    [3, 4]
    """
    return [place for place, value in enumerate(values, 1) if value == max(values)]


def complexity(name: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Fig. 5a: feature complexity against depth."""
    from intertwine.merging import PAPER_BETAS, Options, Planner, apply_merge
    from intertwine.pages.merge_figures import complexity_figure

    subjects = load_vggs(setting, folder, progress)
    betas = QUICK_BETAS if setting.quick else PAPER_BETAS
    found: dict[str, dict[str, int]] = {}
    for net, subject in subjects.items():
        planner = Planner(subject.net, subject.symmetry, Options(**RELEASED))
        plans = (planner.at_beta(beta) for beta in sorted(betas, reverse=True))
        within = (p for p in plans if subject.score(apply_merge(subject.net, p)) >= 0.95 * subject.accuracy)
        found[net] = next(within, planner.at_beta(0.0)).complexity
    largest = list(subjects)[-1]
    widths = {a.name: a.size for a in subjects[largest].symmetry.axes if a.mergeable}
    peaks, layers = find_peaks(list(found[largest].values())), len(found[largest])
    ends = [list(found[largest].values())[k] for k in (0, -1)]
    claims = [
        holds(f"where the complexity of {largest} is largest", "increasing at the first several layers "
              "and decreasing "
              "at the last several layers while the maximum feature complexity is reached in the middle",
              f"at {'numbers' if len(peaks) > 1 else 'number'} {', '.join(map(str, peaks))} of {layers}: "
              + ", ".join(map(str, found[largest].values())),
              "only in the middle half, and above both ends", layers / 4 < peaks[0]
              and peaks[-1] <= 3 * layers / 4 and max(found[largest].values()) > max(ends),
              why="Widths are part of complexity: where few features merge, it is largest where the net "
                  "is widest.")
    ]  # fmt: skip
    rows = [{"net": n, **c} for n, c in found.items()]
    return write_outcome(
        folder, name, "feature complexity against depth",
        {f"Channels left at the largest beta within 95 % of the accuracy, "
         f"{min(s.tested for s in subjects.values()):,} test inputs": complexity_figure(found, widths)},
        setting=setting, tables={"Complexity": rows}, facts=accuracy_facts(subjects), claims=claims,
        differs=DIFFERS[setting.preset],
    )  # fmt: skip


def pruning(name: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Fig. 6: a ResNet merged without data; the source's method and this package's default."""
    from intertwine.merging import Options, Planner
    from intertwine.merging.experiments import merge_curve
    from intertwine.pages.merge_figures import curve_figure

    quick = setting.quick
    subjects = load_subjects(QUICK_RESNET if quick else PAPER_RESNET, folder, progress)
    ((label, subject),) = subjects.items()
    # The released code merges the last two stages of a ResNet; ours is given the same axes, and then all.
    stages = ["layer2.*", "layer3.*"] if quick else ["layer3.*", "layer4.*"]
    curves = {f"{label}, IFM, {' and '.join(stages)}": merge_curves(subjects, quick, stages)[label],
              f"{label}, IFM, all axes": merge_curves(subjects, quick)[label]}  # fmt: skip
    shares = (0.95, 0.9, 0.8, 0.7, 0.6, 0.5)
    for what, axes in ((" and ".join(stages), stages), ("all axes", None)):
        planner = Planner(subject.net, subject.symmetry, Options("moments", repair="weights"), axes)
        curves[f"{label}, default of this package, {what}"] = merge_curve(
            planner, subject.score, shares=shares
        )
    left = shares_left(curves, dict.fromkeys(curves, subject))
    own = left[next(iter(left))]
    claims = [
        holds("parameters left by IFM within 95 % of the accuracy", "we could reduce up to 60% of the "
              "parameters of "
              "ResNet-18 without significantly affecting the testing accuracy", share_text(left),
              "at most 50 %", own <= 0.5, why=WHY),
        holds("IFM against INN", "a curve of INN in the picture", "-", "INN is not part of this package",
            None),
    ]  # fmt: skip
    differs = "INN, the other method of the source's figure, is not part of this package."
    return write_outcome(
        folder, name, "a ResNet merged without data",
        {f"Accuracy against parameters left, {subject.tested:,} test inputs; 95 % intervals":
         curve_figure(curves, tested=subject.tested)},
        setting=setting, tables={"Points": curve_rows(curves)}, facts=accuracy_facts(subjects), claims=claims,
        differs=f"{differs} {QUICK if quick else PAPER}",
    )  # fmt: skip


QUICK_TIMED = ("vgg13", "vgg16", "resnet18")


def iteration_times(name: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Table 2: seconds of one round of merging. Weights are random: the time does not depend on them."""
    import torch

    from intertwine import trace, zoo
    from intertwine.merging.experiments import iteration_seconds
    from intertwine.pages.merge_figures import time_rows

    # model -> mean and deviation, CIFAR-10
    reported = {"vgg13": (0.018, 0.003), "vgg16": (0.027, 0.005), "resnet18": (0.015, 0.003),
                "resnet50": (0.127, 0.012)}  # fmt: skip
    seconds: dict[str, list[float]] = {}
    rounds = 10 if setting.quick else 100
    for model in QUICK_TIMED if setting.quick else reported:
        progress(len(seconds), len(reported), model)
        net = zoo.build(model)
        seconds[model] = iteration_seconds(net, trace(net, torch.zeros(1, 3, 32, 32)), rounds=rounds)
    rows = dict(time_rows(seconds))
    claims = [
        holds(f"{model}, seconds of a round", "{:g} ± {:g}".format(*reported[model]), text,
              "not a test: another machine", None)
        for model, text in rows.items()
    ]  # fmt: skip
    apart = [
        (fast, slow)
        for fast, slow in permutations(rows, 2)
        if reported[fast][0] + reported[fast][1] < reported[slow][0] - reported[slow][1]
    ]
    kept = [pair for pair in apart if np.mean(seconds[pair[0]]) < np.mean(seconds[pair[1]])]
    claims.append(
        holds("pairs of nets in the source's order of time", ", ".join(f"{a} < {b}" for a, b in apart),
              f"{len(kept)} of {len(apart)}: " + ", ".join(f"{a} < {b}" for a, b in kept),
              "all pairs whose times in the source are further apart than their deviations",
              kept == apart if apart else None,
              why="Distances are updated and not computed again, so that a round costs what the axes' widths "
                  "say and not what the source's did.")
    )  # fmt: skip
    return write_outcome(
        folder, name, "seconds of one round of merging", {}, setting=setting, claims=claims, facts=rows,
        differs="The source used an RTX 2080 Ti and computes all distances again in every round; here it is "
        f"a CPU, distances are updated, and every axis is merged. CPU seconds of {rounds} rounds.",
    )  # fmt: skip


# What a single VGG16 can show: where the source compares nets of several sizes, one says nothing.
_OF_ONE_VGG = ("ifm-fig3a", "ifm-fig5a")
RECIPES = tuple(
    Reproduction(
        name, title, f"source 000, {where}", partial(make, name),
        presets=("quick", "cifar", "paper") if name in _OF_ONE_VGG else ("quick", "paper"),
    )
    for name, title, where, make in (
        ("ifm-fig3a", "accuracy against parameters left", "figure 3a", accuracy_curves),
        ("ifm-fig3b", "accuracy against the number of parameters", "figure 3b", sizes),
        ("ifm-fig5a", "feature complexity against depth", "figure 5a", complexity),
        ("ifm-fig6", "a ResNet merged without data", "figure 6", pruning),
        ("ifm-table2", "seconds of one round of merging", "table 2", iteration_times),
    )
)  # fmt: skip
