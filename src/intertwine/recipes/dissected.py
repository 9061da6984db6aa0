"""The nets of figures 3 and 18 to 25 of source 002, and their dissections.

paper: ResNet50, ResNet50 without ReLU on its residual outputs and ConvNeXt, trained on ImageNet, with Broden.
quick: ResNet20, its open form and a small ConvNeXt, trained for a few epochs to name the thing in `shapes`,
and dissected with other pictures of `shapes`. A few dozen units and 31 concepts show whether rotating costs
detectors; they cannot show how many concepts of Broden a large net knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intertwine.recipes import Progress
from intertwine.recipes.nets import Net, train_net

if TYPE_CHECKING:
    from torch import nn

    from intertwine.inside import ConceptSet, Dissection
    from intertwine.training import Splits

NETS = {
    "ResNet": Net("resnet20", "shapes", "digits", {"width": 8}, 5),
    "open ResNet": Net("resnet20-open", "shapes", "digits", {"width": 8}, 5),
    "ConvNeXt": Net("convnext-cifar", "shapes", "digits", {"width": 16}, 5, 0.02),
}
SEEDS, DRAWS, PICTURES, TRAINED_ON = 3, 2, 150, 500
POWERS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
BRODEN = ("data/broden1_224", "data/broden", "~/data/broden1_224")
PUBLISHED = {"ResNet": ("resnet50", "IMAGENET1K_V1"), "ConvNeXt": ("convnext_tiny", "IMAGENET1K_V1")}
OPEN_WEIGHTS = "data/checkpoints/resnet50-open-imagenet.safetensors"


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

    return Splits("shapes", part(100_000, TRAINED_ON), part(200_000, 200))


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


def load_trained(folder: Path, label: str, progress: Progress) -> list[Examined]:
    """The small net of a label with every seed: trained, or read."""
    from intertwine.data import evaluate

    splits, at, found = load_shapes(), "", []
    for seed in range(SEEDS):
        model, _ = train_net(NETS[label], splits, folder, seed, progress)
        at = at or residual_output(model, splits.train.shape)
        found.append(Examined(model, at, evaluate(model, splits.test).accuracy))
    return found


def load_published(label: str, shape: tuple[int, ...]) -> list[Examined]:
    """The source's net; the open one is nowhere published and must be trained first."""
    from intertwine import zoo
    from intertwine.errors import DataError
    from intertwine.recipes.imagenet import pretrained

    if label in PUBLISHED:
        net = pretrained(*PUBLISHED[label])
    elif Path(OPEN_WEIGHTS).is_file():
        net = zoo.load_weights(zoo.build("resnet50-open", classes=1000), OPEN_WEIGHTS)
    else:
        raise DataError(
            "the ImageNet weights of resnet50-open are not here",
            where=OPEN_WEIGHTS,
            do="train zoo:resnet50-open on ImageNet as in appendix F.3, or use --preset quick",
        )
    return [Examined(net.eval(), residual_output(net, shape), None)]


def load_broden() -> ConceptSet:
    """Broden, from where it was put."""
    from intertwine.data.concepts import load_concepts
    from intertwine.errors import DataError

    place = next((p for p in (Path(f).expanduser() for f in BRODEN) if (p / "index.csv").is_file()), None)
    if place is None:
        raise DataError(
            "Broden is not here",
            where=", ".join(BRODEN),
            do="put it as data/broden1_224 (index.csv, label.csv, images/), or use --preset quick",
        )
    return load_concepts(str(place), size=224, normalize="imagenet")


# Nine figures show what one dissection of each net found: within a process it is made once.
_KEPT: dict[tuple[Path, bool, str, str], tuple[list[Dissection], list[float | None]]] = {}


def dissect_nets(
    folder: Path, quick: bool, labels: Iterable[str], progress: Progress, *, rotate: str = "orthogonal"
) -> tuple[dict[str, list[Dissection]], dict[str, Any]]:
    """Net -> one dissection a seed (of the first only, by elements of the group); and the accuracies."""
    found: dict[str, list[Dissection]] = {}
    facts: dict[str, Any] = {}
    for label in (label for label in labels if label in NETS):
        key = (folder.resolve(), quick, label, rotate)
        if key not in _KEPT:
            _KEPT[key] = _dissect(folder, quick, label, progress, rotate)
        found[label], accuracies = _KEPT[key]
        facts |= {f"accuracy of {label}": accuracies} if accuracies[0] is not None else {}
    return found, facts


def _dissect(
    folder: Path, quick: bool, label: str, progress: Progress, rotate: str
) -> tuple[list[Dissection], list[float | None]]:
    from intertwine.data.concepts import load_concepts
    from intertwine.inside import dissect

    concepts = load_concepts(f"shapes:{PICTURES}:32") if quick else load_broden()
    subjects = load_trained(folder, label, progress) if quick else load_published(label, concepts.shape)
    found = []
    for seed, subject in enumerate(subjects if rotate == "orthogonal" else subjects[:1]):
        progress(seed, len(subjects), f"dissecting {label}")
        found.append(dissect(
            subject.model, concepts, subject.at, rotate=rotate, powers=POWERS, draws=DRAWS, seed=100 * seed,
            inside=rotate == "orthogonal", examples=2,
        ))  # fmt: skip
    return found, [subject.accuracy for subject in subjects]
