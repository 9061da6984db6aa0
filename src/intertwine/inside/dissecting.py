"""intertwine.dissect: which units detect a concept, in the own basis and in others (source 002, s. 6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from intertwine.checks import checked
from intertwine.data.concept_set import ConceptSet
from intertwine.data.evaluation import like_inputs
from intertwine.errors import InputError
from intertwine.inside.dissection import Dissection, LayerReading, UnitExample
from intertwine.inside.network import Basis, Network, open_network
from intertwine.inside.overlap import Overlap, concept_area, unit_masks
from intertwine.inside.quantile import Quantile
from intertwine.inside.rotations import Geodesic, group_matrix, random_rotation
from intertwine.inside.store import MEMORY, ActivationStore
from intertwine.progress import Progress, counted

QUANTILE, DETECTOR = 0.995, 0.04
ROTATE = ("none", "orthogonal", "group")


@dataclass(frozen=True, eq=False)
class _Turn:
    """A basis to read a layer in; no matrix is the basis of the network itself."""

    by: str
    alpha: float
    draw: int
    matrix: Tensor | None


@checked
def dissect(
    model: nn.Module,
    concepts: ConceptSet,
    at: str,
    *,
    rotate: str = "none",
    powers: Sequence[float] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
    draws: int = 1,
    inside: bool = False,
    quantile: float = QUANTILE,
    threshold: float = DETECTOR,
    examples: int = 2,
    batch: int = 32,
    seed: int = 0,
    memory: int = MEMORY,
    example: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Dissection:
    """Network dissection of the units of the value `at`, and of their rotations.

    T_k is the exact `quantile` of unit k over all images and positions; a unit detects the concept with the
    largest IoU of its mask if that exceeds `threshold`. rotate: "orthogonal" reads the layer along Q^alpha
    for every alpha of `powers` and `draws` uniform Q; "group" by random elements of the layer's own inferred
    group. inside: also the last value inside the residual block that `at` ends. One forward pass serves all
    bases: activations are kept in memory, or in a temporary file where they exceed `memory` bytes. examples:
    how many of the best units are shown with their images, in the first, middle and last basis of a draw.
    Where the example has one channel, the images are made grey.

    >>> from intertwine.data.concepts import load_concepts
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 2)).eval()
    >>> found = dissect(net, load_concepts("shapes:12:16"), "1", rotate="group")
    >>> own, moved = found.readings
    >>> found.groups["1"], sorted(own.iou.tolist()) == sorted(moved.iou.tolist())
    ('permutation, positive scales', True)
    """
    if rotate not in ROTATE:
        raise InputError(f"no rotation named {rotate!r}", do=f"use {', '.join(ROTATE)}")
    if not 0 < quantile < 1 or not 0 <= threshold < 1 or draws < 1:
        raise InputError(f"quantile {quantile}, threshold {threshold}, {draws} draws")
    concepts = concepts.checked()
    if _takes_grey(example) and concepts.shape[0] > 1:
        concepts = concepts.grey()
    first = concepts.rows(range(min(batch, len(concepts))))
    network = open_network(model, first, example, kwargs)
    layers = [network.value(at).name] + ([network.branch(at)] if inside else [])
    stores = _run(network, concepts, layers, memory, progress)
    groups, readings = {}, []
    try:
        for layer, store in zip(layers, stores, strict=True):
            basis = network.basis(layer)
            groups[layer] = basis.name
            turns = list(_turns(rotate, powers, draws, seed, store.units, basis))
            readings += _read(concepts, layer, store, turns, quantile, threshold, examples, progress)
    finally:
        for store in stores:
            store.close()
    return Dissection(concepts.name, len(concepts), quantile, threshold, groups, tuple(readings))


def _takes_grey(example: Any) -> bool:
    """Whether the first tensor of an example is a batch of images with one channel."""
    first = example[0] if isinstance(example, tuple | list) and example else example
    return isinstance(first, Tensor) and first.ndim == 4 and first.shape[1] == 1


def _run(
    network: Network, concepts: ConceptSet, layers: Sequence[str], memory: int,
    progress: Progress | None,
) -> list[ActivationStore]:  # fmt: skip
    """One forward pass; the last batch is filled up."""
    part = network.upto_all(layers)
    room = memory // len(layers)
    stores = [ActivationStore(len(concepts), network.value(n), network.channel_dim(n), room) for n in layers]
    like = like_inputs(network.model)
    advance = counted(progress, len(concepts), "images")
    for start in range(0, len(concepts), network.batch):
        numbers = list(range(start, min(start + network.batch, len(concepts))))
        fill = [numbers[i % len(numbers)] for i in range(network.batch)]
        with torch.no_grad():
            found = part(concepts.rows(fill).to(like.device, like.dtype), *network.others)
        for store, value in zip(stores, found, strict=True):
            store.put(start, value[: len(numbers)])
        if advance is not None:
            advance(len(numbers))
    return stores


def _turns(
    rotate: str, powers: Sequence[float], draws: int, seed: int, units: int, basis: Basis
) -> Iterator[_Turn]:
    if rotate != "orthogonal" or 0.0 in powers:
        yield _Turn("none", 0.0, 0, None)
    if rotate == "none":
        return
    for draw in range(draws):
        if rotate == "group":
            yield _Turn("group", 1.0, draw, torch.from_numpy(group_matrix(basis, units, seed + draw)).float())
            continue
        path = Geodesic(random_rotation(units, seed + draw))
        for alpha in powers:
            if alpha:
                yield _Turn("orthogonal", float(alpha), draw, torch.from_numpy(path.power(alpha)).float())


def _read(
    concepts: ConceptSet, layer: str, store: ActivationStore, turns: Sequence[_Turn], quantile: float,
    threshold: float, examples: int, progress: Progress | None,
) -> list[LayerReading]:  # fmt: skip
    images, positions, units = store.array.shape
    levels = []
    for turn in turns:
        running = Quantile(quantile, images * positions)
        for _, rows in store.rotated(turn.matrix):
            running.add(rows.reshape(-1, units))
        levels.append(running.value())
    size = concepts.shape[1:]
    counts = [Overlap(units, concepts.categories) for _ in turns]
    area = torch.zeros(len(concepts.names), dtype=torch.int64)
    advance = counted(progress, images, f"{layer}, images in {len(turns)} bases")
    for start, rows in store.rotated(None):
        found = [concepts.annotation(start + k) for k in range(len(rows))]
        area += sum(concept_area(one, len(concepts.names), size) for one in found)
        for turn, level, count in zip(turns, levels, counts, strict=True):
            turned = rows if turn.matrix is None else rows @ turn.matrix
            for one, marked in zip(turned, found, strict=True):
                count.add(store.maps(one), level, marked, size)
        if advance is not None:
            advance(len(rows))
    once = [k for k, turn in enumerate(turns) if turn.draw == 0]
    shown = {once[0], once[(len(once) - 1) // 2], once[-1]} if examples else set()
    readings = []
    for k, (turn, level, count) in enumerate(zip(turns, levels, counts, strict=True)):
        best = count.iou(area).max(1)
        iou, concept = best.values.numpy(), best.indices.numpy()
        best_units = np.argsort(-iou, kind="stable")[: examples if k in shown else 0]
        readings.append(LayerReading(
            layer, turn.by, turn.alpha, turn.draw, iou, concept, concepts.names, concepts.categories,
            threshold,
            tuple(_example(concepts, store, turn, level, int(u), iou, concept) for u in best_units),
        ))  # fmt: skip
    return readings


def _example(
    concepts: ConceptSet, store: ActivationStore, turn: _Turn, level: Tensor, unit: int, iou: np.ndarray,
    concept: np.ndarray, count: int = 4,
) -> UnitExample:  # fmt: skip
    """A unit with the images in which it is largest."""
    column = torch.eye(store.units)[:, unit] if turn.matrix is None else turn.matrix[:, unit]
    peaks = torch.cat([(rows @ column).amax(1) for _, rows in store.rotated(None)])
    images, masks = [], []
    for number in peaks.argsort(descending=True, stable=True)[:count].tolist():
        rows = torch.from_numpy(np.ascontiguousarray(store.array[number])) @ column
        maps = rows.reshape(1, store.height, store.width)
        _, found = unit_masks(maps, level[unit : unit + 1], concepts.shape[1:])
        images.append(concepts.image(number))
        masks.append(found[0].numpy() if len(found) else np.zeros(concepts.shape[1:], bool))
    name, kind = concepts.names[concept[unit]], concepts.categories[concept[unit]]
    return UnitExample(unit, name, kind, float(iou[unit]), tuple(images), tuple(masks))
