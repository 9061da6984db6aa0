"""Figures 5b, 8 and 9 of Iterative Feature Merging (source 000): what classes of equivalent features see.

paper: a VGG16 trained here on CIFAR-10. cifar: one that others trained. quick: the shipped VGG of the digits.
The classes are those of Ward's merging: on the trained VGG16 the source's distance lumps small features into
one class, whose members agree no better than random ones (a row of the table).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intertwine.recipes import PRESETS, Outcome, Progress, Reproduction, Setting
from intertwine.recipes.cifar import load_checkpoint, load_images
from intertwine.recipes.claims import Claim, holds
from intertwine.recipes.pages import add_verdict, judge

if TYPE_CHECKING:
    from torch import nn

    from intertwine.data import Dataset
    from intertwine.inside import Attribution

IMAGES = {"cifar": 300, "paper": 1000}


@dataclass(frozen=True)
class Scene:
    """Which axis is read, up to which beta features are merged, and which labels are shown."""

    axis: str
    beta: float
    labels: tuple[str, ...]


PAPER = {"5b": ("truck",), "9": ("ship",), "8": ("horse", "cat", "dog")}
QUICK = {"5b": ("3",), "9": ("6",), "8": ("6", "8", "0")}


def load_subject(folder: Path, setting: Setting, progress: Progress) -> tuple[nn.Module, Dataset, str, str]:
    """The net, its test images, how they are normalised, and where its weights come from."""
    from intertwine import zoo
    from intertwine.data import load_data
    from intertwine.recipes.nets import Net, load_net_data, train_net

    if setting.quick:
        net = zoo.load_weights(zoo.build("digits-vgg"), zoo.checkpoint("digits-vgg", 0))
        return net.eval(), load_data("digits"), "none", "shipped with the package"
    if setting.preset == "cifar":
        data = load_images(setting, "cifar10", IMAGES["cifar"])
        return load_checkpoint(setting, "vgg16-cifar10"), data, "cifar10", "vgg16-cifar10, trained by others"
    source = Net("vgg16", "cifar10", "ifm")
    splits = load_net_data(source)
    model, run = train_net(source, splits, folder, 0, progress)
    return model, splits.test.take(IMAGES["paper"]), "cifar10", f"trained here ({run.name})"


def _selective(result: Attribution, labels: tuple[str, ...]) -> list[int]:
    """Classes by how much more these labels excite them than all labels do; the weakest label counts."""

    def gain(k: int) -> float:
        scores = result.classes[k].by_label
        mean = sum(scores.values()) / len(scores)
        return min(scores[label] for label in labels) / mean if mean > 0 else 0.0

    agreeing = [k for k, view in enumerate(result.classes) if view.heat.members == view.heat.members]
    return sorted(agreeing, key=lambda k: -gain(k))


def see(name: str, figure: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Three classes on three inputs of one label (5b, 9), or one class on inputs of three labels (8)."""
    from intertwine.data import parse_normalize
    from intertwine.files import replacing
    from intertwine.inside import attribute
    from intertwine.pages.attribute_page import attribute_page, class_grid
    from intertwine.pages.pixels import png

    quick = setting.quick
    net, data, normalize, origin = load_subject(folder, setting, progress)
    labels = (QUICK if quick else PAPER)[figure]
    scene = Scene("features.7", 0.5, labels) if quick else Scene("features.20", 0.3, labels)
    progress(0, 3, "finding classes")
    everything = attribute(
        net, data, scene.axis, by="ward", beta=scene.beta, classes=1000, inputs=1, controls=0
    )
    count = 1 if figure == "8" else 3
    best = _selective(everything, labels)[:count]
    members = [everything.classes[k].members for k in best]
    progress(1, 3, "attributing")
    look = partial(attribute, net, data, scene.axis, controls=10)
    first = look(channel=members[0], labels=labels, inputs=3 // len(labels))
    # the others on the same inputs: the cabin and the wheels of one truck
    result = _joined([first, *(look(channel=c, show=first.classes[0].inputs) for c in members[1:])])
    progress(2, 3, "the source's own classes")
    lump = _source_class(net, data, scene.axis)
    statistics = parse_normalize(normalize)
    page = attribute_page(result, statistics=statistics, facts={"weights": origin, "data": data.name})
    differs = _differs(setting, scene)
    claims = judge(_claims(result, labels, lump, figure), setting, differs)
    add_verdict(page, claims, differs)
    page.lead()
    picture = folder / f"{name}.png"
    with replacing(picture) as beside:
        beside.write_bytes(png(class_grid(result, statistics=statistics, enlarge=8 if quick else 4)))
    facts = {
        "classes found": everything.found, "weights": origin, "classes shown": result.tables()[0].rows,
        "the source's class": lump, "summary": result.to_dict(),
    }  # fmt: skip
    return Outcome((page.write(folder / f"{name}.html"), picture), facts, claims, differs)


def _joined(parts: list[Attribution]) -> Attribution:
    """Several attributions of one axis as one."""
    from dataclasses import replace

    rows = {n: row for part in parts for n, row in part.rows.items()}
    labels = {n: label for part in parts for n, label in part.labels.items()}
    views = tuple(part.classes[0] for part in parts)
    return replace(parts[0], classes=views, rows=rows, labels=labels, found=len(views), by="ward")


def _source_class(net: nn.Module, data: Dataset, axis: str) -> dict[str, Any]:
    """The largest class of the source's own criterion at the smallest beta of its grid that merges some."""
    from intertwine.errors import NotFound
    from intertwine.inside import attribute
    from intertwine.merging import PAPER_BETAS

    for beta in (*PAPER_BETAS, 0.3, 0.4):
        try:
            found = attribute(net, data, axis, beta=beta, classes=1, controls=5)
        except NotFound:
            continue
        view = found.classes[0]
        return {"beta": beta, "classes": found.found, "features": len(view.members),
                "maps": vars(view.maps), "attributions": vars(view.heat)}  # fmt: skip
    return {}


def _claims(
    result: Attribution, labels: tuple[str, ...], lump: dict[str, Any], figure: str
) -> tuple[Claim, ...]:
    seen = "; ".join(
        f"{len(v.members)} features: {v.heat.members:.2f}, random {v.heat.random:.2f} ± {v.heat.spread:.2f}"
        for v in result.classes
    )
    found = [
        holds("correlation of attributions of the members of a class", "a group of functionally "
              "equivalent features "
              "capture the similar features on different images", seen, "two deviations above random, "
                  "every class",
              all(v.heat.members > v.heat.random + 2 * v.heat.spread for v in result.classes))
    ]  # fmt: skip
    ratios = [[view.by_label[label] / (sum(view.by_label.values()) / len(view.by_label)) for label in labels]
              for view in result.classes]  # fmt: skip
    gains = "; ".join(
        ", ".join(f"{label} {gain:.2f}" for label, gain in zip(labels, row, strict=True)) for row in ratios
    )
    source = (
        "a group of functionally equivalent features may corresponds to a semantic across several classes"
        if figure == "8" else "three different groups ... capture the cabin, wheel and container of trucks"
        if figure == "5b" else "a semantic regarding boats"
    )  # fmt: skip
    found.append(
        holds("mean score on these labels over that on all; what it means in words is left to the eye",
            source, gains,
              "above 1.2 for every class (the classes were chosen by this number)", min(map(min,
              ratios)) > 1.2)
    )  # fmt: skip
    if lump:
        heat, maps = lump["attributions"], lump["maps"]
        found.append(holds(
            f"the largest class of the source's own distance, at beta {lump['beta']:g}", "equivalent "
                "features",
            f"{lump['features']} features; maps {maps['members']:.2f} (random {maps['random']:.2f}), "
            f"attributions {heat['members']:.2f} (random {heat['random']:.2f} ± {heat['spread']:.2f})",
            "its attributions agree two deviations better than random", heat["members"] > heat["random"]
            + 2 * heat["spread"], why="The distance is small for features of small weights, whatever they "
                                      "see.",
        ))  # fmt: skip
    return tuple(found)


def _differs(setting: Setting, scene: Scene) -> str:
    common = (
        f"Classes are found by Ward's merging up to beta {scene.beta:g} on {scene.axis}; those shown are "
        "the ones that the labels excite most against all labels, picked by that number and not by eye. "
        "What a class stands for in words is left to the reader."
    )
    other = {"quick": " Digits of 8x8 pixels and the shipped VGG, not CIFAR-10 and VGG16.",
             "cifar": f" A VGG16 that others trained, {IMAGES['cifar']} test images."}  # fmt: skip
    return common + other.get(setting.preset, "")


RECIPES = tuple(
    Reproduction(name, title, f"source 000, figure {name[7:]}", partial(see, name, name[7:]), presets=PRESETS)
    for name, title in (
        ("ifm-fig5b", "what three classes of features see in inputs of one label"),
        ("ifm-fig8", "what one class of features sees across labels"),
        ("ifm-fig9", "what three classes of features see in inputs of another label"),
    )
)
