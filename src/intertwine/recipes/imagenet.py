"""Figure 4 of Iterative Feature Merging (source 000): a harder task leaves fewer features to merge.

paper: torchvision's checkpoints for ImageNet, which it downloads, and the validation images in a folder.
quick: one architecture on digits, told two of them apart, or five, or all ten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from intertwine.recipes import Outcome, Progress, Reproduction, Setting
from intertwine.recipes.claims import holds
from intertwine.recipes.ifm import Subject, accuracy_facts, curve_rows, merge_curves, share_text, shares_left
from intertwine.recipes.nets import Net, load_net_data, train_net
from intertwine.recipes.pages import write_outcome

if TYPE_CHECKING:
    from torch import nn

    from intertwine.data import Dataset

FOLDERS = ("data/imagenet/val", "data/imagenet", "~/data/imagenet/val", "~/data/imagenet")
CHECKPOINTS = {
    "VGG13": ("vgg13_bn", "IMAGENET1K_V1"),
    "VGG16": ("vgg16_bn", "IMAGENET1K_V1"),
    "VGG19": ("vgg19_bn", "IMAGENET1K_V1"),
    "ResNet50_v1": ("resnet50", "IMAGENET1K_V1"),
    "ResNet50_v2": ("resnet50", "IMAGENET1K_V2"),
}
TASKS = {"2 digits": 2, "5 digits": 5, "10 digits": 10}
QUICK = (
    "Three tasks on digits of 8x8 pixels stand for an easy and a hard data set, one small VGG for all nets, "
    "and beta goes up to 0.6, because small nets have fewer equal features."
)


def find_imagenet() -> Dataset:
    """The validation images, streamed where they do not fit memory; DataError says where it looked."""
    from intertwine.data import load_data
    from intertwine.errors import DataError

    places = [Path(folder).expanduser() for folder in FOLDERS]
    for place in places:
        if place.is_dir():
            return load_data(f"imagefolder:{place}", normalize="imagenet", size=224, batch=64)
    raise DataError(
        "the validation images of ImageNet are not here",
        where=", ".join(str(place.absolute()) for place in places),
        do="put them as data/imagenet/val/CLASS/image.JPEG (1,000 class folders), or use --preset quick",
    )


def pretrained(name: str, weights: str) -> nn.Module:
    """A net of torchvision with its published weights, read as tensors only."""
    from intertwine.vision_shim import import_vision

    models = import_vision("torchvision.models")
    net: nn.Module = models.get_model(name)
    state = models.get_model_weights(name)[weights].get_state_dict(check_hash=True, weights_only=True)
    net.load_state_dict(state)
    return net.eval()


def _published(progress: Progress) -> dict[str, Subject]:
    data, found = find_imagenet(), {}
    for number, (label, checkpoint) in enumerate(CHECKPOINTS.items()):
        progress(number, len(CHECKPOINTS), label)
        found[label] = Subject.of(pretrained(*checkpoint), data)
    return found


def _digits(folder: Path, progress: Progress) -> dict[str, Subject]:
    """One architecture, trained to tell the first 2, 5 and 10 digits apart."""
    found: dict[str, Subject] = {}
    for label, classes in TASKS.items():
        net = Net("digits-vgg", "digits", "digits", {"width": 16, "classes": classes}, 15)
        splits = load_net_data(net)
        parts = [_first_classes(part, classes) for part in (splits.train, splits.test)]
        splits = replace(splits, train=parts[0], test=parts[1])
        model, _ = train_net(net, splits, folder, 0, progress)
        found[label] = Subject.of(model, splits.test)
    return found


def _first_classes(data: Dataset, classes: int) -> Dataset:
    chosen = data.labels < classes
    return replace(
        data, images=data.images[chosen], labels=data.labels[chosen], classes=data.classes[:classes]
    )


def harder_tasks(name: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Fig. 4: accuracy against the share of parameters left, over beta; of ResNets the last two stages."""
    from intertwine.pages.merge_figures import curve_figure

    quick = setting.quick
    subjects = _digits(folder, progress) if quick else _published(progress)
    stages: Mapping[str, list[str] | None] = {
        label: ["layer3.*", "layer4.*"] if label.startswith("ResNet") else None for label in subjects
    }
    curves = {
        label: merge_curves({label: subject}, quick, stages[label])[label]
        for label, subject in subjects.items()
    }
    left, tested = shares_left(curves, subjects), min(s.tested for s in subjects.values())
    shares = list(left.values())
    if quick:
        claims = [
            holds("parameters left within 95 % of the accuracy, easiest task first", "neural networks "
                  "learn more "
                  "complex features to solve the more difficult task", share_text(left),
                  "more are left the harder the task", shares == sorted(shares) and shares[0] < shares[-1],
                  why="One seed a task, on digits that are all easy.")
        ]  # fmt: skip
    else:
        vggs = [s for n, s in left.items() if n.startswith("VGG")]
        resnets = [s for n, s in left.items() if n.startswith("ResNet")]
        claims = [
            holds("parameters left within 95 % of the accuracy", "only reduce approximately 5% parameters "
                  "for VGG and "
                  "approximately 10% parameters for ResNet50", share_text(left), "VGG at least 90 %, "
                      "ResNet50 at "
                  "least 85 %", min(vggs, default=1) >= 0.9 and min(resnets, default=1) >= 0.85),
        ]  # fmt: skip
    return write_outcome(
        folder, name, "merging on a harder task",
        {f"Each dot is a beta; 95 % intervals, {tested:,} test inputs or more":
         curve_figure(curves, tested=tested)},
        setting=setting,
        tables={"Points": curve_rows(curves)}, facts=accuracy_facts(subjects), claims=claims,
        differs=QUICK if quick else "The validation images in the folder, whichever they are.",
    )  # fmt: skip


RECIPES = (
    Reproduction(
        "ifm-fig4", "merging on a harder task", "source 000, figure 4", partial(harder_tasks, "ifm-fig4")
    ),
)
