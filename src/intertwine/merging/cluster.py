"""Other data-free ways to choose what to merge: Ward, k-means (model folding) and magnitude.

A channel is described by what makes it, with its batch norm folded in (a_k w_k and the offset), and by what
reads it; merged channels are means in, sums out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from intertwine.merging.combine import find_norms, norm_line
from intertwine.merging.pairs import distances
from intertwine.merging.places import Place, has_scaling
from intertwine.merging.plan import Merge
from intertwine.symmetry import Axis, Symmetry


def norm_gauge(
    symmetry: Symmetry, axis: Axis, places: Sequence[Place], weights: Mapping[str, Tensor]
) -> list[np.ndarray] | None:
    """Factors that fold the one batch norm of an axis into what makes it: its slope becomes 1.

    None where the axis has no or several batch norms, or cannot be rescaled before its batch norm.
    """
    norms = find_norms(places)
    before = {"out": 1.0, "bias": 1.0, "mean": 1.0, "var": 2.0, "gain": 0.0, "shift": 0.0, "in": 0.0}
    if len(norms) != 1 or not has_scaling(symmetry, places, before):
        return None
    (roles,) = norms.values()
    line = norm_line(roles, {r.param: weights[r.param].to(torch.float64) for r in roles.values()})
    slope = line[0].cpu().numpy()[roles["var"].where[:, 0]]
    slope = np.where(np.abs(slope) < 1e-12, 1e-12, slope)
    if not axis.group.sign or "gain" not in roles:
        slope = np.abs(slope)
    factors = {"out": slope, "bias": slope, "mean": slope, "var": slope**2, "gain": np.sign(slope)}
    return [factors.get(p.role, np.ones(len(slope))) for p in places]


def folded_gram(places: Sequence[Place], weights: Mapping[str, Tensor], readers: bool = True) -> np.ndarray:
    """Inner products of the channels' descriptions: making slices, offsets and (readers) reading slices."""
    size = len(places[0].where)
    total = torch.zeros(size, size, dtype=torch.float64)
    for place in places:
        if weights[place.param].dim() > 1 and (readers or not place.consumes):
            rows = place.rows(weights[place.param]).to("cpu", torch.float64)
            total += rows @ rows.T
    for roles in find_norms(places).values():
        line = norm_line(roles, {r.param: weights[r.param].to(torch.float64) for r in roles.values()})
        offset = line[1].cpu()[torch.from_numpy(roles["var"].where[:, 0])]
        total += torch.outer(offset, offset)
    return total.numpy()


def ward_merges(gram: np.ndarray) -> tuple[Merge, ...]:
    """Ward's tree: always merge the two clusters whose union adds least to the variance within clusters."""
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import squareform

    size = len(gram)
    if size < 2:
        return ()
    table = distances([gram])
    np.fill_diagonal(table, 0.0)
    tree = linkage(squareform(np.sqrt((table + table.T) / 2), checks=False), "ward")
    first = list(range(size))
    merges = []
    largest = float(tree[:, 2].max()) ** 2
    for left, right, height, _ in tree:
        a, b = sorted((first[int(left)], first[int(right)]))
        merges.append(Merge(a, b, float(height) ** 2, max(largest, float(height) ** 2)))
        first.append(a)
    return tuple(merges)


def kmeans_merges(rows: np.ndarray, clusters: int, seed: int = 0) -> tuple[Merge, ...]:
    """Model folding: k-means on the channels (Wang et al., ICLR 2025), as merges into each first member."""
    from sklearn.cluster import KMeans

    labels = KMeans(clusters, n_init=1, random_state=seed).fit(rows).labels_
    merges: list[Merge] = []
    first: dict[int, int] = {}
    for channel, label in enumerate(labels.tolist()):
        keep = first.setdefault(label, channel)
        if keep != channel:
            merges.append(Merge(keep, channel, 0.0, 1.0))
    return tuple(merges)


def mean_variances(rows: np.ndarray, classes: Sequence[Sequence[int]]) -> tuple[float, ...]:
    """For each class, var(mean) / mean(var) if features correlate as the weights that make them do.

    (N + (N^2 - N) c) / N^2 with c the mean cosine: model folding's repair of batch norms without data.
    At least 1 / N, that of uncorrelated features.
    """
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    return tuple(
        max(float(np.square(unit[list(members)].mean(0)).sum()), 1.0 / len(members)) for members in classes
    )


def magnitude_merges(places: Sequence[Place], weights: Mapping[str, Tensor]) -> tuple[Merge, ...]:
    """Drop the channels with the smallest |in|^2 |out|^2 first; no other channel takes over what they did."""
    size = len(places[0].where)
    making, reading = np.zeros(size), np.zeros(size)
    for place in places:
        if weights[place.param].dim() > 1:
            squares = place.rows(weights[place.param]).to("cpu", torch.float64).square().sum(1).numpy()
            if place.consumes:
                reading += squares
            else:
                making += squares
    score = making * reading
    order = np.argsort(score, kind="stable")
    last = int(order[-1])
    largest = float(score.max())
    return tuple(Merge(last, int(c), float(score[c]), largest) for c in order[:-1])
