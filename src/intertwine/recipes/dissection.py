"""Figures 3 and 18 to 25 of source 002: are units interpretable, and in which basis?

paper: ResNet50, ResNet50 without ReLU on its residual outputs and ConvNeXt, trained on ImageNet, with Broden.
quick: ResNet20, its open form and a small ConvNeXt, trained for a few epochs to name the thing in `shapes`,
and dissected with other pictures of `shapes`. A few dozen units and 31 concepts show whether rotating costs
detectors; they cannot show how many concepts of Broden a large net knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intertwine.recipes import Outcome, Progress, Reproduction, Setting
from intertwine.recipes.claims import Claim, Verdict, holds, mean_interval
from intertwine.recipes.nets import Net, train_net
from intertwine.recipes.pages import add_verdict, judge, write_outcome

if TYPE_CHECKING:
    from torch import nn

    from intertwine.comparing.statistics import Interval
    from intertwine.inside import ConceptSet, Dissection, Reading
    from intertwine.training import Splits

NETS = {
    "ResNet": Net("resnet20", "shapes", "digits", {"width": 8}, 5),
    "open ResNet": Net("resnet20-open", "shapes", "digits", {"width": 8}, 5),
    "ConvNeXt": Net("convnext-cifar", "shapes", "digits", {"width": 16}, 5, 0.02),
}
SEEDS, DRAWS, PICTURES, TRAINED_ON = 2, 2, 300, 800
POWERS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
THREE = (0.0, 0.4, 1.0)  # the powers of figures 20 to 25
BRODEN = ("data/broden1_224", "data/broden", "~/data/broden1_224")
OPEN_WEIGHTS = "data/checkpoints/resnet50-open-imagenet.safetensors"
QUICK = (
    "Three small nets trained for minutes on generated pictures, not ImageNet; 31 generated concepts, not "
    "the 1,197 of Broden. What can be compared is how the share of interpretable units moves with the "
    "rotation and which net it is; the shares themselves cannot."
)

PAPER = "The published nets of torchvision, not those that the source trained; two draws of the rotation."


@dataclass(frozen=True)
class Examined:
    """A net of some seed, the value to dissect, and what it scores on its own task."""

    model: nn.Module
    at: str
    accuracy: float | None


def load_shapes(size: int = 32) -> Splits:
    """`shapes` as a task: name the thing. Training pictures have other numbers than those dissected."""
    import torch

    from intertwine.data import Dataset
    from intertwine.data.shapes import THINGS, draw
    from intertwine.training import Splits

    def part(first: int, count: int) -> Dataset:
        made = [draw(first + i, size) for i in range(count)]
        images = torch.from_numpy(np.stack([image for image, _, _ in made])).float() / 255
        return Dataset("shapes", images, torch.tensor([thing for _, _, thing in made]), THINGS)

    return Splits("shapes", part(100_000, TRAINED_ON), part(200_000, 300))


def residual_output(model: nn.Module, shape: tuple[int, ...]) -> str:
    """The last value that is the output of a residual block."""
    import torch

    from intertwine.errors import NotFound
    from intertwine.inside.network import Network

    network = Network(model, torch.zeros(2, *shape))
    for value in reversed(network.values):
        if len(value.shape) == 4:
            try:
                network.branch(value.name)
            except NotFound:
                continue
            return value.name
    raise NotFound("the model has no residual block")


def load_subjects(folder: Path, progress: Progress) -> dict[str, list[Examined]]:
    """Train every net with every seed, or read it."""
    from intertwine.data import evaluate

    splits = load_shapes()
    found: dict[str, list[Examined]] = {}
    for label, net in NETS.items():
        for seed in range(SEEDS):
            model, _ = train_net(net, splits, folder, seed, progress)
            at = residual_output(model, splits.train.shape)
            found.setdefault(label, []).append(Examined(model, at, evaluate(model, splits.test).accuracy))
    return found


def load_published(progress: Progress) -> tuple[dict[str, list[Examined]], ConceptSet]:
    """The source's nets where their weights can be had, and Broden."""
    from intertwine import zoo
    from intertwine.data.concepts import load_concepts
    from intertwine.errors import DataError
    from intertwine.recipes.imagenet import pretrained

    place = next((p for p in (Path(f).expanduser() for f in BRODEN) if (p / "index.csv").is_file()), None)
    if place is None:
        raise DataError(
            "Broden is not here",
            where=", ".join(BRODEN),
            do="put it as data/broden1_224 (index.csv, label.csv, images/), or use --preset quick",
        )
    nets = {
        "ResNet": pretrained("resnet50", "IMAGENET1K_V1"),
        "ConvNeXt": pretrained("convnext_tiny", "IMAGENET1K_V1"),
    }
    if Path(OPEN_WEIGHTS).is_file():
        nets["open ResNet"] = zoo.load_weights(zoo.build("resnet50-open", classes=1000), OPEN_WEIGHTS)
    concepts = load_concepts(str(place), size=224, normalize="imagenet")
    return {
        name: [Examined(net.eval(), residual_output(net, concepts.shape), None)] for name, net in nets.items()
    }, concepts


def dissect_all(
    folder: Path, quick: bool, progress: Progress, *, inside: bool = False, rotate: str = "orthogonal",
    powers: tuple[float, ...] | None = None, only: str | None = None, examples: int = 0,
) -> tuple[dict[str, list[Dissection]], dict[str, Any]]:  # fmt: skip
    """Net -> one dissection a seed; and the accuracies."""
    from intertwine.data.concepts import load_concepts
    from intertwine.inside import dissect

    if quick:
        subjects, concepts = load_subjects(folder, progress), load_concepts(f"shapes:{PICTURES}:32")
    else:
        subjects, concepts = load_published(progress)
    found: dict[str, list[Dissection]] = {}
    for label, seeds in subjects.items():
        if only is not None and label != only:
            continue
        for seed, subject in enumerate(seeds):
            progress(seed, len(seeds), f"dissecting {label}")
            found.setdefault(label, []).append(dissect(
                subject.model, concepts, subject.at, rotate=rotate, powers=powers or POWERS, draws=DRAWS,
                inside=inside, seed=100 * seed, examples=examples,
            ))  # fmt: skip
    facts = {
        f"accuracy of {label}": [s.accuracy for s in seeds]
        for label, seeds in subjects.items()
        if seeds[0].accuracy
    }
    return found, facts


def shares(found: list[Dissection], layer: int = 0) -> dict[float, list[float]]:
    """alpha -> shares of interpretable units over seeds and draws; layer 1 is inside the block."""
    out: dict[float, list[float]] = {}
    for one in found:
        for reading in one.of(list(one.groups)[layer]):
            out.setdefault(reading.alpha, []).append(reading.share)
    return dict(sorted(out.items()))


# Net -> (what the source says, what the share does under a full rotation): on
# residual outputs, and inside blocks.
SENTENCES: tuple[dict[str, tuple[str, str]], ...] = (
    {"ResNet": ("interpretability decreases as we rotate away from the axis", "falls"),
     "open ResNet": ("the number of interpretable units remains constant", "stays"),
     "ConvNeXt": ("for the ConvNeXt model it actually increases", "rises")},
    {"ResNet": ("the percentage of interpretable units actually tends to increase", "rises"),
     "open ResNet": ("the percentage of interpretable units actually tends to increase", "rises")},
)  # fmt: skip


def change(points: Mapping[float, list[float]]) -> Interval:
    """What a full rotation does to the share of interpretable units, over seeds and draws."""
    own = float(np.mean(points[0.0]))
    return mean_interval([share - own for share in points[max(points)]])


def trend(points: Mapping[float, list[float]]) -> str:
    """The change in words."""
    found = change(points)
    if not found.low <= 0 <= found.high:
        return "falls" if found.value < 0 else "rises"
    return "stays"


def _trend_claim(label: str, points: Mapping[float, list[float]], sentence: str, expected: str) -> Claim:
    found, word = change(points), trend(points)
    here = f"{found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}] of {np.mean(points[0.0]):.2f}: {word}"
    why = "So small a net has few interpretable units, and a share moves by one unit at a time."
    passed = None if found.low != found.low else word == expected
    return holds(f"{label}: interpretable units under a full rotation", sentence, here,
                 f"{expected} (95 % over seeds and draws)", passed, why=why)  # fmt: skip


def rotations(name: str, layer: int, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Figs. 3 and 19: the share of interpretable units along Q^alpha, and under the layer's own group."""
    from intertwine.report.dissect_page import share_figure

    quick = setting.quick
    found, facts = dissect_all(folder, quick, progress, inside=layer == 1)
    curves, claims, rows = {}, [], []
    for label, one in found.items():
        points = shares(one, layer)
        curves[label] = [(a, float(np.mean(s)), float(np.std(s))) for a, s in points.items()]
        if label in SENTENCES[layer]:
            claims.append(_trend_claim(label, points, *SENTENCES[layer][label]))
        rows += [{"net": label, "alpha": a, "share": m, "deviation": d} for a, m, d in curves[label]]
    groups = {label: one[0].groups for label, one in found.items()}
    if layer == 0:
        moved, _ = dissect_all(folder, quick, progress, rotate="group")
        for label, one in moved.items():
            readings = [d.of() for d in one]
            equal = all(sorted(r.iou) == sorted(of[0].iou) for of in readings for r in of[1:])
            group = next(iter(groups[label].values()))
            facts[f"{label}: elements of its own group ({group})"] = (
                "every IoU is equal" if equal else trend(shares(one))
            )
    return write_outcome(
        folder, name, "interpretable units under rotations",
        {"Deviations over seeds and draws": share_figure(curves)}, tables={"Shares": rows},
        setting=setting, facts={**facts, "groups": groups}, claims=claims, differs=QUICK if quick else PAPER,
    )  # fmt: skip


def categories(name: str, only: str | None, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Fig. 18 (all nets) and Figs. 20, 22, 24 (one): distinct concepts by category at three powers."""
    from intertwine.report.dissect_page import category_figure, concept_figure

    quick = setting.quick
    found, facts = dissect_all(folder, quick, progress, powers=THREE, only=only)
    readings: dict[str, Reading] = {
        f"{label}, Q^{r.alpha:g}": r for label, one in found.items() for r in one[0].of() if r.draw == 0
    }
    figures = {"Distinct concepts by category": category_figure(readings)}
    if only is None:
        figures["Interpretable units by category"] = category_figure(readings, unique=False)
    else:
        figures |= {f"Units of every concept, {basis}": concept_figure(r) for basis, r in readings.items()}
    rows = [{"": basis, "units": r.units, "interpretable": len(r.detectors), **r.concepts_by_category()}
            for basis, r in readings.items()]  # fmt: skip
    most = {basis: max(r.units_by_category(), key=r.units_by_category().__getitem__, default="none")
            for basis, r in readings.items()}  # fmt: skip
    counts = {label: sum(len(r.detectors) for r in one[0].of()) for label, one in found.items()}
    if only is None:
        passed = (
            counts["ResNet"] > counts["open ResNet"] if {"ResNet", "open ResNet"} <= set(counts) else None
        )
        claims = [
            holds("interpretable units of the nets, over all bases", "the models without residual activation "
                  "functions also have far fewer concept covering units", ", ".join(f"{k}: {v}" for k, v in
                  counts.items()), "more of the ResNet than of the open one", passed)
        ]  # fmt: skip
    else:
        objects = [k in ("object", "scene", "part") for b, k in most.items() if k != "none"]
        claims = [
            holds("the category with most interpretable units", "the number of interpretable units tends "
                  "to be "
                  "dominated by the object and scene concept detectors",
                  "; ".join(f"{b}: {k}" for b, k in most.items()), "object or scene in most bases",
                  None if quick or only == "open ResNet" or not objects else sum(objects) * 2 > len(objects))
        ]  # fmt: skip
    return write_outcome(
        folder, name, "concepts by category", figures, setting=setting, tables={"Concepts": rows},
        facts=facts,
        claims=claims, differs=QUICK + " The pictures have no scenes." if quick else PAPER,
    )  # fmt: skip


def best_units(name: str, only: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Figs. 21, 23, 25: the two best units at three powers, with the images they like most."""
    from intertwine.report.dissect_page import basis_name, example_cells
    from intertwine.report.page import Html, Page

    found, facts = dissect_all(folder, setting.quick, progress, powers=THREE, only=only, examples=2)
    differs = QUICK if setting.quick else PAPER
    claim = Claim(
        "what the best units look at", "a picture", "drawn below", "left to the eye", Verdict.NOT_RUN
    )
    readings = [r for r in found[only][0].of() if r.examples and r.draw == 0]
    page = Page(f"{name}: the best units of {only}")
    claims = judge([claim], setting, differs)
    add_verdict(page, claims, differs)
    for reading in readings:
        page.section(f"Basis: {basis_name(reading)}")
        page.text(Html(example_cells(reading)))
    facts["best"] = [{"basis": basis_name(r), **b} for r in readings for b in r.to_dict()["best"][:2]]
    return Outcome((page.write(folder / f"{name}.html"),), facts, claims, differs)


_MAKERS: tuple[tuple[str, str, Any], ...] = (
    ("3", "interpretable units under rotations", lambda name, *rest: rotations(name, 0, *rest)),
    ("18", "categories of interpretable units", lambda name, *rest: categories(name, None, *rest)),
    ("19", "interpretable units inside residual blocks", lambda name, *rest: rotations(name, 1, *rest)),
    ("20", "concepts of a ResNet", lambda name, *rest: categories(name, "ResNet", *rest)),
    ("21", "best units of a ResNet", lambda name, *rest: best_units(name, "ResNet", *rest)),
    ("22", "concepts of an open ResNet", lambda name, *rest: categories(name, "open ResNet", *rest)),
    ("23", "best units of an open ResNet", lambda name, *rest: best_units(name, "open ResNet", *rest)),
    ("24", "concepts of a ConvNeXt", lambda name, *rest: categories(name, "ConvNeXt", *rest)),
    ("25", "best units of a ConvNeXt", lambda name, *rest: best_units(name, "ConvNeXt", *rest)),
)
RECIPES = tuple(
    Reproduction(f"symmetry-fig{n}", title, f"source 002, figure {n}", partial(make, f"symmetry-fig{n}"))
    for n, title, make in _MAKERS
)
