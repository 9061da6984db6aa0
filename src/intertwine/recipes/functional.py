"""Figures 3.1 to 3.4 of source 003: do similarity metrics tell of function?

paper: ResNet18 trained on CIFAR-100 and ImageNet32, tested on these and Pascal VOC; seven architectures for
the relation. cifar: ResNets that others trained on CIFAR-10 and CIFAR-100, tested on these and Tiny ImageNet;
sixteen nets of CIFAR-10 for the relation. quick: the same drawings on the digits of scikit-learn, where the
three data sets are digits, digits turned by 90 degrees, and digits with noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intertwine.recipes import PRESETS, Outcome, Progress, Reproduction, Setting
from intertwine.recipes.cifar import (
    CHECKPOINTS,
    RESNET20,
    TINY10,
    build_untrained,
    load_checkpoint,
    load_images,
)  # fmt: skip
from intertwine.recipes.claims import above, holds, number, share_interval
from intertwine.recipes.nets import Net, load_net_data, make_net, train_net
from intertwine.recipes.pages import write_outcome
from intertwine.recipes.worlds import CIFAR100, IMAGES, SEEDS, find_features

if TYPE_CHECKING:
    from torch import Tensor, nn

    from intertwine.agents.comparing import Against
    from intertwine.comparing.experiments import ObservedNetwork, Relation, Source
    from intertwine.comparing.statistics import Interval

PAPER = (
    "ResNet18 throughout, where the source has ResNet110 in figure 3.1; two seeds, where figure 3.3 has "
    "three."
)
QUICK = (
    "Two seeds, where figure 3.3 of the source has three. Digits of 8x8 pixels instead of CIFAR-100, "
    "ImageNet32 and Pascal VOC (turned by 90 degrees, with noise "
    "in place of the other two), five convolutions instead of ResNet18."
)
CIFAR = (
    "ResNets of 20 and 32 layers that others trained on CIFAR-10 and on CIFAR-100, one of each, where the "
    "source has seeds of ResNet18 on CIFAR-100 and ImageNet32; Tiny ImageNet at 32x32 pixels for Pascal VOC; "
    "the mean over pixels of the last features; every net gets images normalised as in its training."
)
DIFFERS = {"quick": QUICK, "cifar": CIFAR, "paper": PAPER}
POOLED = (
    "A guess: fewer features a vector (the mean over pixels of 64 channels in the preset cifar) tell less of "
    "their net than all pixels do."
)
QUICK_NETS = tuple(Net("digits-vgg", "digits", "digits", {"width": w}, 8) for w in (4, 8, 16))
# The nets of CIFAR-10 whose features and outputs are related: three families and several depths.
RELATED = (*TINY10, *RESNET20, "resnet32-cifar10-c", "resnet56-cifar10-c", "vgg16-cifar10")


def bias(name: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Figure 3.1: a linear SVM tells which net and which data set a feature vector is from."""
    from intertwine.comparing.experiments import representation_bias
    from intertwine.pages.experiment_figures import confusion_figure

    found = representation_bias(find_features(folder, setting, progress))
    model, data = (share_interval(s, found.tested) for s in (found.wrong_model, found.wrong_data))
    claims = [
        holds("vectors given to another net", "confused frequently over the test dataset used but never "
                                              "over the "
              "model", f"{model.value:.2%} [{model.low:.2%}, {model.high:.2%}] of {found.tested:,}",
              "at most 3 % (the source's own matrix has up to 2 %)", model.low <= 0.03, why=POOLED),
        above("given to the right net and another data set, minus given to another net", "the model, and "
              "not the "
              "dataset, has a more significant role in the creation of clusters",
              [data.low - model.high]),
    ]  # fmt: skip
    return write_outcome(
        folder, name, "whose features are these?", {"Rows: true, columns: guessed": confusion_figure(found)},
        setting=setting, facts={"classes": len(found.classes), "accuracy": found.accuracy}, claims=claims,
        differs=DIFFERS[setting.preset],
    )  # fmt: skip


def clusters(name: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Figure 3.2: t-SNE of the features, a picture for each data set."""
    from intertwine.comparing.experiments import embed
    from intertwine.pages.experiment_figures import embedding_figure

    known = find_features(folder, setting, progress)
    figures: dict[str, Any] = {}
    shares: dict[str, Interval] = {}
    for data in dict.fromkeys(data for data, _ in known):
        progress(len(figures), 3, f"t-SNE of {data}")
        chosen = {key: value[:150] for key, value in known.items() if key[0] == data}
        points = embed(chosen)
        many = sum(map(len, points.values()))
        shares[data] = share_interval(same_neighbour(points), many)
        shown = f"Tested on {data}: one colour a net, {len(points)} nets, {many:,} points"
        figures[shown] = embedding_figure(points)
    claims = [
        holds("points of the picture whose nearest other point is of the same net", "there are clusters "
              "based on "
              "the model", ", ".join(f"{d}: {s.value:.0%} [{s.low:.0%}, {s.high:.0%}]"
                                      for d, s in shares.items()),
              "at least 90 % on every data set", min(s.value for s in shares.values()) >= 0.9, why=POOLED),
        holds("places of the clusters", "across datasets, the cluster positions remain same", "-",
              "not tested: t-SNE places clusters anew in every picture", None),
    ]  # fmt: skip
    return write_outcome(
        folder, name, "clusters of features", figures, setting=setting, claims=claims,
        differs=DIFFERS[setting.preset],
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

    known = find_features(folder, setting, progress)
    sets, names = (list(dict.fromkeys(part)) for part in zip(*known, strict=True))
    figures, same, other = {}, [], []
    for data in sets:
        grid = similarity_matrix({n: known[data, n] for n in names})
        shown = f"CKA, tested on {data}, {len(known[data, names[0]]):,} inputs"
        figures[shown] = heat_map(grid, names, names, row_title="net", column_title="net", value_title="CKA")
        task = np.array([n.split("_")[0] for n in names])
        trained = np.outer(task != "random", task != "random") & ~np.eye(len(names), dtype=bool)
        together = task[:, None] == task[None, :]
        same.append(grid[trained & together])
        other.append(grid[trained & ~together])
    claims = [
        holds("CKA of pairs of nets trained on the same data, mean and range", "models trained on the same "
              "dataset have a high CKA similarity, even when tested on different datasets",
              ", ".join(f"{d}: {_range(s)} against {_range(o)} for other data"
                        for d, s, o in zip(sets, same, other, strict=True)),
              "the mean is above that of nets trained on other data, on every test set",
              all(s.mean() > o.mean() for s, o in zip(same, other, strict=True)))
    ]  # fmt: skip
    return write_outcome(
        folder, name, "CKA of nets on several data sets", figures, setting=setting, claims=claims,
        differs=DIFFERS[setting.preset],
    )  # fmt: skip


def _range(values: np.ndarray) -> str:
    return f"{values.mean():.2f} ({values.min():.2f} to {values.max():.2f})"


def _networks(folder: Path, setting: Setting, progress: Progress) -> Iterator[ObservedNetwork]:
    """Trained and untrained nets of several architectures and seeds on one data set, with their outputs."""
    from intertwine import collect
    from intertwine.comparing.experiments import ObservedNetwork

    if setting.preset == "cifar":
        yield from _published(setting, progress)
        return
    quick = setting.quick
    if quick:
        kinds = {f"width {net.options['width']}": net for net in QUICK_NETS}
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
                layer = "features.17" if quick else last_features(model, images[:1])
                found = collect(model, images, at=layer)
                kind = "trained" if trained else "untrained"
                yield ObservedNetwork(
                    f"{label} s{seed} {kind}", found[layer].flatten(1), found.outputs, trained
                )


def _published(setting: Setting, progress: Progress) -> Iterator[ObservedNetwork]:
    """The nets of CIFAR-10 that others trained, and an untrained one of every architecture."""
    from intertwine import collect
    from intertwine.comparing.experiments import ObservedNetwork

    fresh: set[str] = set()
    for done, name in enumerate(RELATED):
        progress(done, len(RELATED), name)
        how = CHECKPOINTS[name]
        images = load_images(setting, how.normalize, IMAGES).images
        nets = [load_checkpoint(setting, name)]
        if how.model not in fresh:
            nets.append(build_untrained(name).eval())
            fresh.add(how.model)
        layer = last_features(nets[0], images[:1])
        for model, kind in zip(nets, ("trained", "untrained"), strict=False):
            found = collect(model, images, at=layer)
            label = f"{name if kind == 'trained' else how.model} {kind}"
            yield ObservedNetwork(label, found[layer].flatten(1), found.outputs, kind == "trained")


def last_features(model: nn.Module, example: Tensor) -> str:
    """The last layer that has pixels: the features after the last convolution."""
    from intertwine import collect

    found = collect(model, example)
    return [name for name in found if found[name].dim() > 2][-1]


def find_relation(folder: Path, setting: Setting, progress: Progress) -> Relation:
    """CKA of features against JSD and Spearman of outputs, over pairs of classifiers."""
    from intertwine.comparing.experiments import relate

    return relate(list(_networks(folder, setting, progress)))


RELATION = {
    "quick": QUICK,
    "cifar": f"{len(RELATED)} nets of CIFAR-10 that others trained (tiny10, ResNet20, 32 and 56, VGG16) and "
    f"an untrained one of each, {IMAGES} test images; the source has seven architectures of two seeds on "
    "CIFAR-100 and 5,800 images.",
    "paper": "Two seeds of each architecture.",
}


def relation(name: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Figure 3.4, and the first row of Table 3.1."""
    from intertwine.pages.experiment_figures import relation_figure

    found = find_relation(folder, setting, progress)
    rho = trends(found)
    untrained = [p.jsd for p in found.pairs if not p.trained]
    trained = [p.jsd for p in found.pairs if p.trained]
    claims = [
        number("Spearman correlation of CKA and JSD, trained pairs", -0.75, rho["jsd"]),
        number("of CKA and Spearman of outputs", 0.703, rho["spearman"]),
        holds("JSD of untrained pairs", "all of them have a JSD close to 0", f"at most "
              f"{max(untrained):.3f} nats, of trained ones {np.mean(trained):.3f} in the mean",
              "the largest is below half of the mean of trained pairs",
              max(untrained) < 0.5 * float(np.mean(trained))),
    ]  # fmt: skip
    many = f"{len(trained)} pairs of trained and {len(untrained)} of untrained nets"
    figures = {
        f"CKA against JSD, {many}": relation_figure(found, "jsd"),
        f"CKA against Spearman of outputs, {many}": relation_figure(found, "spearman"),
    }
    facts = {"pairs": len(found.pairs), "rho JSD": found.rho_jsd, "rho Spearman": found.rho_spearman}
    return write_outcome(
        folder, name, "similarity of features against similarity of outputs", figures, setting=setting,
        facts=facts, claims=claims, differs=RELATION[setting.preset],
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


RECIPES = tuple(
    Reproduction(name, title, f"source 003, {where}", partial(make, name), presets=PRESETS)
    for name, title, where, make in (
        ("functional-fig3.1", "whose features are these?", "figure 3.1", bias),
        ("functional-fig3.2", "clusters of features", "figure 3.2", clusters),
        ("functional-fig3.3", "CKA of nets on several data sets", "figure 3.3", matrices),
        ("functional-fig3.4", "similarity of features and of outputs", "figure 3.4", relation),
    )
)
