"""Figures 3.1 to 3.5 of source 003: do similarity metrics tell of function?

paper: ResNet18 trained on CIFAR-100 and ImageNet32, tested on these and Pascal VOC; seven architectures for
the relation; checkpoints of ResNet18 and VGG16 for the training path. quick: the same drawings on the digits
of scikit-learn, where the three data sets are digits, digits turned by 90 degrees, and digits with noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intertwine.recipes import Outcome, Progress, Reproduction, Setting
from intertwine.recipes.claims import above, holds, mean_interval, number, share_interval
from intertwine.recipes.nets import Net, load_checkpoints, load_net_data, make_net, train_net
from intertwine.recipes.pages import write_outcome

if TYPE_CHECKING:
    from torch import Tensor, nn

    from intertwine.agents.comparing import Against
    from intertwine.comparing.experiments import Network, PathPoint, Relation, Source
    from intertwine.comparing.statistics import Interval
    from intertwine.data import Dataset
    from intertwine.recipes import Claim
    from intertwine.training import Splits

PAPER = (
    "ResNet18 throughout, where the source has ResNet110 in figure 3.1; two seeds, where figure 3.3 has "
    "three."
)
QUICK = (
    "Two seeds, where figure 3.3 of the source has three. Digits of 8x8 pixels instead of CIFAR-100, "
    "ImageNet32 and Pascal VOC (turned by 90 degrees, with noise "
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


def bias(name: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Figure 3.1: a linear SVM tells which net and which data set a feature vector is from."""
    from intertwine.comparing.experiments import representation_bias
    from intertwine.pages.experiment_figures import confusion_figure

    found = representation_bias(_features(find_world(folder, setting.quick, progress)))
    model, data = (share_interval(s, found.tested) for s in (found.wrong_model, found.wrong_data))
    claims = [
        holds("vectors given to another net", "confused frequently over the test dataset used but never "
                                              "over the "
              "model", f"{model.value:.2%} [{model.low:.2%}, {model.high:.2%}] of {found.tested:,}",
              "at most 3 % (the source's own matrix has up to 2 %)", model.low <= 0.03),
        above("given to the right net and another data set, minus given to another net", "the model, and "
              "not the "
              "dataset, has a more significant role in the creation of clusters",
              [data.low - model.high]),
    ]  # fmt: skip
    return write_outcome(
        folder, name, "whose features are these?", {"Rows: true, columns: guessed": confusion_figure(found)},
        setting=setting, facts={"classes": len(found.classes), "accuracy": found.accuracy}, claims=claims,
        differs=QUICK if setting.quick else PAPER,
    )  # fmt: skip


def clusters(name: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Figure 3.2: t-SNE of the features, a picture for each data set."""
    from intertwine.comparing.experiments import embed
    from intertwine.pages.experiment_figures import embedding_figure

    features = _features(find_world(folder, setting.quick, progress))
    figures: dict[str, Any] = {}
    shares = {}
    for data in dict.fromkeys(data for data, _ in features):
        progress(len(figures), 3, f"t-SNE of {data}")
        chosen = {key: value[:150] for key, value in features.items() if key[0] == data}
        points = embed(chosen)
        shares[data] = same_neighbour(points)
        figures[f"Tested on {data}: one colour a net, {len(points)} nets"] = embedding_figure(points)
    claims = [
        holds("points of the picture whose nearest other point is of the same net", "there are clusters "
              "based on "
              "the model", ", ".join(f"{d}: {s:.0%}" for d, s in shares.items()), "at least 90 % on every "
                  "data set",
              min(shares.values()) >= 0.9),
        holds("places of the clusters", "across datasets, the cluster positions remain same", "-",
              "not tested: t-SNE places clusters anew in every picture", None),
    ]  # fmt: skip
    return write_outcome(
        folder, name, "clusters of features", figures, setting=setting, claims=claims,
        differs=QUICK if setting.quick else PAPER,
    )  # fmt: skip


def same_neighbour(points: Mapping[Source, np.ndarray]) -> float:
    """The share of points whose nearest other point has the same key.

    >>> same_neighbour({("d", "a"): np.array([[0.0], [1.0]]), ("d", "b"): np.array([[9.0], [8.0]])})
    1.0
    """
    from scipy.spatial import KDTree

    places = np.concatenate(list(points.values()))
    owner = np.repeat(np.arange(len(points)), [len(found) for found in points.values()])
    _, near = KDTree(places).query(places, k=2)
    return float((owner[near[:, 1]] == owner).mean())


def matrices(name: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Figure 3.3: CKA of every net with every other, on each data set."""
    from intertwine.comparing.experiments import similarity_matrix
    from intertwine.pages.similarity_figures import heat_map

    world = find_world(folder, setting.quick, progress)
    features, names = _features(world), list(world.nets)
    figures, same, other = {}, [], []
    for data in world.images:
        grid = similarity_matrix({n: features[data, n] for n in names})
        figures[f"CKA, tested on {data}"] = heat_map(grid, names, names, row_title="net", column_title="net")
        task = np.array([n.split("_")[0] for n in names])
        trained = np.outer(task != "random", task != "random") & ~np.eye(len(names), dtype=bool)
        together = task[:, None] == task[None, :]
        same.append(float(grid[trained & together].mean()))
        other.append(float(grid[trained & ~together].mean()))
    claims = [
        holds("CKA of nets trained on the same data, on every test set", "models trained on the same "
              "dataset have a "
              "high CKA similarity, even when tested on different datasets",
              ", ".join(f"{d}: {s:.2f} against {o:.2f} for other data"
                        for d, s, o in zip(world.images, same, other, strict=True)),
              "above that of nets trained on other data, on every test set",
              all(s > o for s, o in zip(same, other, strict=True)))
    ]  # fmt: skip
    return write_outcome(
        folder, name, "CKA of nets on several data sets", figures, setting=setting, claims=claims,
        differs=QUICK if setting.quick else PAPER,
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


def relation(name: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Figure 3.4, and the first row of Table 3.1."""
    from intertwine.pages.experiment_figures import relation_figure

    found = find_relation(folder, setting.quick, progress)
    rho = trends(found)
    untrained = [p.jsd for p in found.pairs if not p.trained]
    trained = [p.jsd for p in found.pairs if p.trained]
    claims = [
        number("Spearman correlation of CKA and JSD, trained pairs", -0.75, rho["jsd"]),
        number("of CKA and Spearman of outputs", 0.703, rho["spearman"]),
        holds("JSD of untrained pairs", "all of them have a JSD close to 0", f"at most "
              f"{max(untrained):.3f} nats",
              "the largest is below half of the mean of trained pairs",
              max(untrained) < 0.5 * float(np.mean(trained))),
    ]  # fmt: skip
    figures = {
        "CKA against JSD": relation_figure(found, "jsd"),
        "CKA against Spearman of outputs": relation_figure(found, "spearman"),
    }
    facts = {"pairs": len(found.pairs), "rho JSD": found.rho_jsd, "rho Spearman": found.rho_spearman}
    return write_outcome(
        folder, name, "similarity of features against similarity of outputs", figures, setting=setting,
        facts=facts, claims=claims, differs=QUICK if setting.quick else "Two seeds of each architecture.",
    )  # fmt: skip


def trends(found: Relation) -> dict[Against, Interval | None]:
    """Correlations over trained pairs, with intervals over networks."""
    from intertwine.comparing.trend import fit_trend

    def rho(against: Against) -> Interval | None:
        known = [p for p in found.pairs if p.trained and getattr(p, against) is not None]
        trend = fit_trend(
            [p.similarity for p in known],
            [float(getattr(p, against)) for p in known],
            [(p.a, p.b) for p in known],
        )
        return None if trend is None else trend.rho

    return {"jsd": rho("jsd"), "spearman": rho("spearman")}


def paths(name: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Figure 3.5: nets in training against their final selves, at several learning rates."""
    from intertwine import collect
    from intertwine.comparing.experiments import Network, training_path
    from intertwine.pages.experiment_figures import path_figures

    quick = setting.quick
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
    claims = path_claims(points)
    recipe = "The learning rate ends at zero" if quick else "The learning rate falls to a tenth at epoch 80"
    differs = f"{recipe}; the source does not say. " + (QUICK if quick else "")
    return write_outcome(
        folder, name, "nets in training against their final selves", figures, setting=setting, claims=claims,
        facts={"points": len(points)}, differs=differs,
    )  # fmt: skip


def path_claims(points: Sequence[PathPoint]) -> list[Claim]:
    """Figure 3.5: the last checkpoint is left out, where both measures are what they are by construction."""
    from scipy.stats import spearmanr

    runs: dict[str, list[PathPoint]] = {}
    for point in sorted(points, key=lambda p: p.epoch):
        runs.setdefault(point.run, []).append(point)
    paths = {run: of[:-1] for run, of in runs.items() if len(of) > 3}
    rises = [float(spearmanr([p.epoch for p in of], [p.similarity for p in of])[0]) for of in paths.values()]
    falls = [float(spearmanr([p.epoch for p in of], [p.jsd for p in of])[0]) for of in paths.values()]
    both = [
        float(np.corrcoef([p.similarity for p in of], [p.jsd for p in of])[0, 1]) for of in paths.values()
    ]
    return [
        holds("rank correlation of epoch and CKA, and of epoch and JSD, before the last epoch", "models "
              "during "
              "training converge to the fully trained version in both representation space and outputs",
              f"CKA {np.mean(rises):.2f}, JSD {np.mean(falls):.2f}, {len(paths)} runs",
              "above 0.5 and below -0.5 in every run", min(rises) > 0.5 and max(falls) < -0.5),
        above("minus the correlation of CKA and JSD along a run", "there is a linear relationship between "
              "similarity "
              "and JSD", [mean_interval([-c for c in both])], margin=0.5),
    ]  # fmt: skip


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
