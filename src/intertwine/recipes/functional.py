"""Figures 3.1 to 3.5 of source 003: do similarity metrics tell of function?

paper: ResNet18 trained on CIFAR-100 and ImageNet32, tested on these and Pascal VOC; seven architectures for
the relation; checkpoints of ResNet18 and VGG16 for the training path. quick: the same drawings on the digits
of scikit-learn, where the three data sets are digits, digits turned by 90 degrees, and digits with noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intertwine.recipes import Claim, Outcome, Progress, Reproduction
from intertwine.recipes.nets import Net, load_checkpoints, load_net_data, make_net, train_net
from intertwine.recipes.pages import write_outcome

if TYPE_CHECKING:
    from torch import Tensor, nn

    from intertwine.comparing.experiments import Network, Relation, Source
    from intertwine.data import Dataset
    from intertwine.training import Splits

QUICK = (
    "Digits of 8x8 pixels instead of CIFAR-100, ImageNet32 and Pascal VOC (turned by 90 degrees, with noise "
    "in place of the other two), five convolutions instead of ResNet18."
)
SEEDS = (1, 2)
PAPER_EPOCHS = (*range(11), *range(15, 41, 5), *range(50, 101, 10))
QUICK_EPOCHS = tuple(range(9))
CIFAR100, IMAGENET32, VOC = "torchvision:CIFAR100:data", "parquet:data/imagenet32", "imagefolder:data/voc"


@dataclass(frozen=True)
class World:
    """Nets by name (None: untrained) and test images by name of the data set."""

    nets: dict[str, nn.Module]
    images: dict[str, Tensor]
    layer: str


def digits_world(folder: Path, progress: Progress) -> World:
    """Nets of two seeds trained on digits and on turned digits, untrained ones, and three test sets."""
    import torch

    net = Net("digits-vgg", "digits", "digits", {}, 15)
    splits = load_net_data(net)
    noise = torch.Generator().manual_seed(0)
    images = {
        "digits": splits.test.images,
        "turned": splits.test.images.rot90(1, (2, 3)),
        "noisy": splits.test.images + 0.3 * torch.randn(splits.test.images.shape, generator=noise),
    }
    turned = _turned(splits)
    nets: dict[str, nn.Module] = {}
    for seed in SEEDS:
        nets[f"digits_s{seed}"] = train_net(net, splits, folder, seed, progress)[0]
        other = replace(net, data="digits-turned")
        nets[f"turned_s{seed}"] = train_net(other, turned, folder, seed, progress)[0]
        nets[f"random_s{seed}"] = make_net(net, splits, 100 + seed)
    return World(nets, images, "features.17")


def _turned(splits: Splits) -> Splits:
    from intertwine.training import Splits as Parts

    def turn(part: Dataset) -> Dataset:
        return replace(part, images=part.images.rot90(1, (2, 3)).contiguous())

    return Parts("digits-turned", turn(splits.train), turn(splits.test))


def paper_world(folder: Path, progress: Progress) -> World:
    """ResNet18 of two seeds on CIFAR-100 and on ImageNet32, untrained ones, 5,800 test images of each set."""
    from intertwine.data import load_data

    tasks = {"Cifar": Net("resnet18", CIFAR100, "ifm"), "Imagenet": Net("resnet18", IMAGENET32, "ifm")}
    nets: dict[str, nn.Module] = {}
    images: dict[str, Tensor] = {}
    for name, net in tasks.items():
        splits = load_net_data(net)
        images[name] = splits.test.images[:5800]
        for seed in SEEDS:
            nets[f"{name}_s{seed}"] = train_net(net, splits, folder, seed, progress)[0]
            nets.setdefault(f"random_s{seed}", make_net(net, splits, 100 + seed))
    images["VOC"] = load_data(VOC, normalize="cifar10", size=32).images
    return World(nets, images, "layer4.1.relu_1")


def find_world(folder: Path, quick: bool, progress: Progress) -> World:
    """The nets and images of Figures 3.1 to 3.3."""
    return (digits_world if quick else paper_world)(folder, progress)


def _features(world: World) -> dict[Source, Tensor]:
    from intertwine import collect

    return {
        (data, name): collect(net, images, at=world.layer)[world.layer].flatten(1)
        for data, images in world.images.items()
        for name, net in world.nets.items()
    }


def bias(name: str, folder: Path, quick: bool, progress: Progress) -> Outcome:
    """Figure 3.1: a linear SVM tells which net and which data set a feature vector is from."""
    from intertwine.comparing.experiments import representation_bias
    from intertwine.report.experiment_figures import confusion_figure

    found = representation_bias(_features(find_world(folder, quick, progress)))
    claims = (
        Claim("given to another net", "never", f"{found.wrong_model:.2%} of the vectors"),
        Claim("right net, another data set", "frequently", f"{found.wrong_data:.2%} of the vectors"),
    )
    return write_outcome(
        folder, name, "whose features are these?", {"Rows: true, columns: guessed": confusion_figure(found)},
        facts={"classes": len(found.classes), "accuracy": found.accuracy}, claims=claims,
        differs=QUICK if quick else "",
    )  # fmt: skip


def clusters(name: str, folder: Path, quick: bool, progress: Progress) -> Outcome:
    """Figure 3.2: t-SNE of the features, a picture for each data set."""
    from intertwine.comparing.experiments import embed
    from intertwine.report.experiment_figures import embedding_figure

    features = _features(find_world(folder, quick, progress))
    figures: dict[str, Any] = {}
    for data in dict.fromkeys(data for data, _ in features):
        progress(len(figures), 3, f"t-SNE of {data}")
        chosen = {key: value[:150] for key, value in features.items() if key[0] == data}
        figures[f"Tested on {data}: one colour a net"] = embedding_figure(embed(chosen))
    claim = Claim("clusters", "one for each net, at the same place for every data set", "see the figures")
    return write_outcome(
        folder, name, "clusters of features", figures, claims=(claim,), differs=QUICK if quick else ""
    )


def matrices(name: str, folder: Path, quick: bool, progress: Progress) -> Outcome:
    """Figure 3.3: CKA of every net with every other, on each data set."""
    import numpy as np

    from intertwine.comparing.experiments import similarity_matrix
    from intertwine.report.similarity_figures import heat_map

    world = find_world(folder, quick, progress)
    features, names = _features(world), list(world.nets)
    figures, same, other = {}, [], []
    for data in world.images:
        grid = similarity_matrix({n: features[data, n] for n in names})
        figures[f"CKA, tested on {data}"] = heat_map(grid, names, names)
        task = np.array([n.split("_")[0] for n in names])
        trained = np.outer(task != "random", task != "random") & ~np.eye(len(names), dtype=bool)
        together = task[:, None] == task[None, :]
        same.append(float(grid[trained & together].mean()))
        other.append(float(grid[trained & ~together].mean()))
    claim = Claim(
        "nets trained on the same data, on every test set", "high CKA",
        ", ".join(f"{d}: {s:.2f} against {o:.2f} for other data"
                  for d, s, o in zip(world.images, same, other, strict=True)),
    )  # fmt: skip
    return write_outcome(
        folder, name, "CKA of nets on several data sets", figures, claims=(claim,),
        differs=QUICK if quick else "",
    )  # fmt: skip


def _networks(folder: Path, quick: bool, progress: Progress) -> Iterator[Network]:
    """Trained and untrained nets of several architectures and seeds on one data set, with their outputs."""
    from intertwine import collect
    from intertwine.comparing.experiments import Network

    if quick:
        kinds = {f"width {w}": Net("digits-vgg", "digits", "digits", {"width": w}, 8) for w in (4, 8, 16)}
    else:
        models = ("vgg11", "vgg13", "vgg16", "resnet18", "resnet34", "mobilenet", "mobilenetv2")
        kinds = {model: Net(model, CIFAR100, "ifm") for model in models}
    for label, net in kinds.items():
        splits = load_net_data(net)
        images = splits.test.images[: 500 if quick else 5800]
        for seed in SEEDS:
            for trained in (True, False):
                model = make_net(net, splits, seed)
                if trained:
                    model, _ = train_net(net, splits, folder, seed, progress)
                layer = "features.17" if quick else _last(model, images[:1])
                found = collect(model, images, at=layer)
                kind = "trained" if trained else "untrained"
                yield Network(f"{label} s{seed} {kind}", found[layer].flatten(1), found.outputs, trained)


def _last(model: nn.Module, example: Tensor) -> str:
    """The last layer that has pixels: the features after the last convolution."""
    from intertwine import collect

    found = collect(model, example)
    return [name for name in found if found[name].dim() > 2][-1]


def find_relation(folder: Path, quick: bool, progress: Progress) -> Relation:
    """CKA of features against JSD and Spearman of outputs, over pairs of classifiers."""
    from intertwine.comparing.experiments import relate

    return relate(list(_networks(folder, quick, progress)))


def relation(name: str, folder: Path, quick: bool, progress: Progress) -> Outcome:
    """Figure 3.4, and the first row of Table 3.1."""
    from intertwine.report.experiment_figures import relation_figure

    found = find_relation(folder, quick, progress)
    untrained = [p.jsd for p in found.pairs if not p.trained]
    claims = (
        Claim("Spearman correlation of CKA and JSD, trained pairs", "-0.75", _number(found.rho_jsd)),
        Claim("of CKA and Spearman of outputs", "0.703", _number(found.rho_spearman)),
        Claim("JSD of untrained pairs", "close to 0", f"at most {max(untrained):.3f}"),
    )
    figures = {
        "CKA against JSD": relation_figure(found, "jsd"),
        "CKA against Spearman of outputs": relation_figure(found, "spearman"),
    }
    facts = {"pairs": len(found.pairs), "rho JSD": found.rho_jsd, "rho Spearman": found.rho_spearman}
    return write_outcome(
        folder, name, "similarity of features against similarity of outputs", figures, facts=facts,
        claims=claims, differs=QUICK if quick else "",
    )  # fmt: skip


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def paths(name: str, folder: Path, quick: bool, progress: Progress) -> Outcome:
    """Figure 3.5: nets in training against their final selves, at several learning rates."""
    from intertwine import collect
    from intertwine.comparing.experiments import Network, PathPoint, training_path
    from intertwine.report.experiment_figures import path_figures

    nets = (
        (Net("digits-vgg", "digits", "digits", epochs=QUICK_EPOCHS[-1]),)
        if quick
        else tuple(Net(model, CIFAR100, "ifm", epochs=PAPER_EPOCHS[-1]) for model in ("resnet18", "vgg16"))
    )
    points: list[PathPoint] = []
    for net, rate in product(nets, (0.1, 0.01, 0.001) if quick else (0.01, 0.001, 0.0001)):
        net, splits = replace(net, rate=rate), load_net_data(net)
        images = splits.test.images[: 500 if quick else 5800]
        layer = "features.17" if quick else _last(make_net(net, splits, 0), images[:1])
        for seed in SEEDS[:1] if quick else SEEDS:
            epochs = QUICK_EPOCHS if quick else PAPER_EPOCHS
            _, run = train_net(net, splits, folder, seed, progress, epochs)
            label, found = f"{net.model}, lr {rate:g}, seed {seed}", {}
            for epoch, model in load_checkpoints(net, splits, run, seed):
                kept = collect(model, images, at=layer)
                found[epoch] = Network(f"{label}, epoch {epoch}", kept[layer].flatten(1), kept.outputs)
            points += training_path(label, found)
    figures = dict(
        zip(("Similarity over epochs", "Divergence over epochs", "Both"), path_figures(points), strict=True)
    )
    ends = [(p.similarity, p.jsd) for p in points if p.epoch == 0]
    claims = (
        Claim("during training", "both converge to the final form",
              f"from CKA {min(e[0] for e in ends):.2f} and JSD {max(e[1] for e in ends):.2f} to 1 and 0"),
    )  # fmt: skip
    recipe = "The learning rate ends at zero" if quick else "The learning rate falls to a tenth at epoch 80"
    differs = f"{recipe}; the source does not say. " + (QUICK if quick else "")
    return write_outcome(
        folder, name, "nets in training against their final selves", figures, claims=claims,
        facts={"points": len(points)}, differs=differs,
    )  # fmt: skip


RECIPES = tuple(
    Reproduction(name, title, f"source 003, {where}", partial(make, name))
    for name, title, where, make in (
        ("functional-fig3.1", "whose features are these?", "figure 3.1", bias),
        ("functional-fig3.2", "clusters of features", "figure 3.2", clusters),
        ("functional-fig3.3", "CKA of nets on several data sets", "figure 3.3", matrices),
        ("functional-fig3.4", "similarity of features and of outputs", "figure 3.4", relation),
        ("functional-fig3.5", "nets in training against their final selves", "figure 3.5", paths),
    )
)
