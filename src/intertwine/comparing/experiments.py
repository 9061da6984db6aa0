"""Experiments of Yellapragada 2020 on features and outputs that the caller collected.

Sections 3.1 to 3.4 and chapter 4: bias, relation, training path, existence. Each function takes plain
tensors and returns plain data; the figures are in `report.experiment_figures`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from intertwine.comparing.features import as_features
from intertwine.comparing.function import Outputs
from intertwine.comparing.measures import similarity
from intertwine.errors import InputError

Source = tuple[str, str]  # (data set, model)


@dataclass(frozen=True)
class RepresentationBias:
    """A linear SVM guesses the (data set, model) of a feature vector; rows of `confusion` sum to 1."""

    classes: tuple[Source, ...]
    confusion: np.ndarray
    accuracy: float
    wrong_model: float  # share of test vectors given to another model
    wrong_data: float  # share given to the right model and another data set
    tested: int = 0  # vectors that were classified


def representation_bias(features: Mapping[Source, Tensor], *, seed: int = 0) -> RepresentationBias:
    """Section 3.1: standardised features, one-vs-rest linear SVM, half to train, half to test."""
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import LinearSVC

    classes = tuple(features)
    if len(classes) < 2:
        raise InputError("representation bias needs at least two (data set, model) classes")
    x = np.concatenate([as_features(v).flatten(1).cpu().numpy() for v in features.values()])
    y = np.concatenate([np.full(len(v), i) for i, v in enumerate(features.values())])
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[: len(y) // 2], order[len(y) // 2 :]
    scaler = StandardScaler().fit(x[train])
    svm = LinearSVC(random_state=seed, dual="auto", max_iter=5000, tol=1e-3).fit(
        scaler.transform(x[train]), y[train]
    )
    guess = svm.predict(scaler.transform(x[test]))
    counts = np.zeros((len(classes), len(classes)))
    np.add.at(counts, (y[test], guess), 1)
    models, data = (np.array([c[k] for c in classes]) for k in (1, 0))
    other_model = models[guess] != models[y[test]]
    return RepresentationBias(
        classes=classes,
        confusion=counts / np.maximum(counts.sum(1, keepdims=True), 1),
        accuracy=float((guess == y[test]).mean()),
        wrong_model=float(other_model.mean()),
        wrong_data=float((~other_model & (data[guess] != data[y[test]])).mean()),
        tested=len(test),
    )


def embed(
    features: Mapping[Source, Tensor], *, perplexity: float = 30, seed: int = 0
) -> dict[Source, np.ndarray]:
    """t-SNE of all features together, to two dimensions (Figure 3.2)."""
    from sklearn.manifold import TSNE

    x = np.concatenate([as_features(v).flatten(1).cpu().numpy() for v in features.values()])
    x = (x - x.mean(0)) / np.maximum(x.std(0), 1e-12)
    points = TSNE(perplexity=min(perplexity, (len(x) - 1) / 3), random_state=seed, init="pca").fit_transform(
        x
    )
    ends = np.cumsum([len(v) for v in features.values()])
    return dict(zip(features, np.split(points, ends[:-1]), strict=True))


def similarity_matrix(features: Mapping[str, Tensor], measure: str = "cka") -> np.ndarray:
    """Similarity of every model with every other on the same inputs (Figure 3.3); 1 on the diagonal."""
    names = list(features)
    matrix = np.eye(len(names))
    for i, j in itertools.combinations(range(len(names)), 2):
        matrix[i, j] = matrix[j, i] = similarity(features[names[i]], features[names[j]], measure)
    return matrix


@dataclass(frozen=True)
class ObservedNetwork:
    """What the relation between representation and function needs to know of one network on common inputs."""

    name: str
    features: Tensor
    outputs: Tensor
    trained: bool = True


@dataclass(frozen=True)
class Pair:
    """One point of Figure 3.4."""

    a: str
    b: str
    similarity: float
    jsd: float
    spearman: float | None
    trained: bool


@dataclass(frozen=True)
class Relation:
    """Similarity of features against similarity of outputs over many pairs.

    rho_jsd, rho_spearman: Spearman correlation over trained pairs (Table 3.1); None below three pairs.
    """

    measure: str
    pairs: tuple[Pair, ...]
    rho_jsd: float | None
    rho_spearman: float | None


def relate(networks: Sequence[ObservedNetwork], measure: str = "cka") -> Relation:
    """Section 3.3: every pair of networks of one kind, trained with trained and untrained with untrained."""
    pairs = []
    for a, b in itertools.combinations(networks, 2):
        if a.trained != b.trained:
            continue
        outputs = Outputs()
        outputs.update(a.outputs, b.outputs)
        function = outputs.result(resamples=1)
        spearman = None if function.spearman is None else function.spearman.value
        alike = similarity(a.features, b.features, measure)
        pairs.append(Pair(a.name, b.name, alike, function.jsd.value, spearman, a.trained))
    kept = [p for p in pairs if p.trained]
    return Relation(
        measure,
        tuple(pairs),
        _rank_correlation([(p.similarity, p.jsd) for p in kept]),
        _rank_correlation([(p.similarity, p.spearman) for p in kept if p.spearman is not None]),
    )


def _rank_correlation(points: Sequence[tuple[float, float]]) -> float | None:
    from scipy.stats import spearmanr

    xs, ys = [p[0] for p in points], [p[1] for p in points]
    if len(points) < 3 or len(set(xs)) < 2 or len(set(ys)) < 2:
        return None
    return float(spearmanr(xs, ys).statistic)


@dataclass(frozen=True)
class PathPoint:
    """A checkpoint against the last one of its run (Figure 3.5)."""

    run: str
    epoch: int
    similarity: float
    jsd: float


def training_path(
    run: str, checkpoints: Mapping[int, ObservedNetwork], measure: str = "cka"
) -> list[PathPoint]:
    """Section 3.4: every checkpoint (by epoch) against the last one, in features and in outputs."""
    if len(checkpoints) < 2:
        raise InputError("a training path needs at least two checkpoints")
    last = checkpoints[max(checkpoints)]
    points = []
    for epoch in sorted(checkpoints):
        network = checkpoints[epoch]
        outputs = Outputs()
        outputs.update(network.outputs, last.outputs)
        alike = similarity(network.features, last.features, measure)
        points.append(PathPoint(run, epoch, alike, outputs.result(resamples=1).jsd.value))
    return points


@dataclass(frozen=True)
class Existence:
    """One row of Table 4.1: heads on opposite masks of one frozen base, the second on flipped labels.

    cka, cca: before the mask, where the thesis measures. cka_masked: after it, where the two networks part.
    """

    masked: float
    cka: float
    cca: float
    cka_masked: float
    jsd: float
    rank_coefficient: float | None
    accuracy_true: float  # first head against the labels
    accuracy_flipped: float  # second head against the flipped labels


def existence_proof(
    train: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
    masked: Sequence[float] = (0.0, 0.25, 0.5, 0.8, 0.9),
    *,
    steps: int = 300,
) -> list[Existence]:
    """Chapter 4: two networks with the same representation and opposite functions.

    `train` and `test`: N x D features of the frozen base, and labels 0 or 1. The text calls d_ratio the
    unmasked share, but its table behaves as the masked one (0 is the most accurate): `masked` is the share of
    features set to zero. The first head keeps the first (1 - masked) D features, the second the last ones.
    """
    (x, y), (x_test, y_test) = train, test
    if set(y.unique().tolist()) != {0, 1}:
        raise InputError("the existence proof needs labels 0 and 1", do="pick two classes and number them")
    mean, scale = x.mean(0), x.std(0).clamp(min=1e-6)
    x, x_test = (x - mean) / scale, (x_test - mean) / scale
    cka, cca = similarity(x_test, x_test, "cka"), similarity(x_test, x_test, "cca")
    rows = []
    for share in masked:
        masks = _masks(x, share)
        heads = [_head(x * mask, labels, steps) for mask, labels in zip(masks, (y, 1 - y), strict=True)]
        first, second = (
            (x_test * mask) @ weight + bias for mask, (weight, bias) in zip(masks, heads, strict=True)
        )
        outputs = Outputs()
        outputs.update(first, second, y_test)
        result = outputs.result(resamples=1)
        rows.append(
            Existence(
                masked=share,
                cka=cka,
                cca=cca,
                cka_masked=similarity(x_test * masks[0], x_test * masks[1], "cka"),
                jsd=result.jsd.value,
                rank_coefficient=None if result.spearman is None else result.spearman.value,
                accuracy_true=float((first.argmax(1) == y_test).double().mean()),
                accuracy_flipped=float((second.argmax(1) == 1 - y_test).double().mean()),
            )
        )
    return rows


def _masks(x: Tensor, share: float) -> tuple[Tensor, Tensor]:
    width = x.shape[1]
    keep = max(1, round((1 - share) * width))
    position = torch.arange(width, device=x.device)
    return (position < keep).to(x.dtype), (position >= width - keep).to(x.dtype)


def _head(x: Tensor, labels: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Logistic regression by full-batch L-BFGS with a little weight decay."""
    weight = torch.zeros(x.shape[1], 2, dtype=x.dtype, requires_grad=True)
    bias = torch.zeros(2, dtype=x.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=steps, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = functional.cross_entropy(x @ weight + bias, labels) + 1e-4 * weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return weight.detach(), bias.detach()
