"""The rotation penalty (section 3.3 of source 002): how much of a change of basis later layers can undo.

Multiply the channels of one value by a fixed A, freeze everything up to it, and fine-tune the rest. For A in
G_sigma of the activation that reads the value, W_(l+1) phi(A)^-1 undoes it exactly (Proposition 3.4); no
matrix undoes a random rotation before a ReLU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from intertwine.checks import checked
from intertwine.data.batches import take
from intertwine.data.evaluation import SIGMAS
from intertwine.errors import InputError
from intertwine.graph.export import check_values
from intertwine.ir.groups import Group
from intertwine.progress import Advance, Progress, counted
from intertwine.results import Result, Table
from intertwine.stitching.cache import MEMORY, TensorStore, record
from intertwine.stitching.fit import Held, evaluate, make_stitch, reset_statistics
from intertwine.stitching.junctions import Junction
from intertwine.stitching.maps import FixedMap
from intertwine.stitching.stitching import check_labels, checked_data, make_surgeon

BY = ("group", "orthogonal", "identity")


@dataclass(frozen=True, repr=False)
class Rotation(Result):
    """Accuracies in [0, 1] on the test inputs, and the penalty in points: accuracy before minus after.

    broken: right after the change of basis. tuned: after fine-tuning the later layers. inputs: those tested.
    """

    layer: str
    by: str
    group: str
    before: float
    broken: float
    tuned: float
    inputs: int = 0

    def error(self, accuracy: float) -> float:
        """Half the width of the 95 % interval of an accuracy on so many inputs."""
        return SIGMAS * math.sqrt(max(accuracy * (1 - accuracy), 0.0) / self.inputs) if self.inputs else 0.0

    @property
    def penalty(self) -> float:
        return 100 * (self.before - self.tuned)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `intertwine rotate --json` prints it."""
        return {**vars(self), "penalty": self.penalty}

    def tables(self) -> Sequence[Table]:
        """One row a number."""
        rows: list[list[Any]] = [
            ["group", self.group],
            ["accuracy before", f"{self.before:.2%}"],
            ["right after", f"{self.broken:.2%}"],
            ["after fine-tuning", f"{self.tuned:.2%}"],
            ["rotation penalty, points", round(self.penalty, 2)],
        ]
        return [Table(f"{self.layer} by {self.by}", ["", ""], rows)]


@checked
def rotate(
    model: nn.Module,
    train_data: Any,
    data: Any,
    *,
    at: str,
    by: str = "group",
    epochs: int = 5,
    learning_rate: float = 1e-3,
    batch: int = 100,
    spread: float = 1.0,
    seed: int = 0,
    memory: int = MEMORY,
    progress: Progress | None = None,
) -> Rotation:
    """Act on the channels of the value `at`, freeze up to it, fine-tune what comes after on `train_data`.

    by: "group" (a random permutation, and log-normal scales of deviation `spread`, where the group that acts
    at the value has them), "orthogonal" (uniform), or "identity" (fine-tuning alone, the
    control). Accuracies are on `data`. The caller's model is not touched.
    """
    check_values(model)
    if by not in BY:
        raise InputError(f"no change of basis named {by!r}", do=f"use {', '.join(BY)}")
    if epochs < 0 or not learning_rate > 0:
        raise InputError(
            f"{epochs} epochs at rate {learning_rate:g}", do="give 0 or more, and a positive rate"
        )
    given = checked_data(train_data, data)
    surgeon = make_surgeon(model, take(given[0][0], slice(min(batch, len(given[0][1])))), "the model")
    check_labels(given, {"the model": surgeon})
    cut = surgeon.cut(at)
    group = cut.value.group
    junction = Junction(cut, cut, "a")
    suffix = surgeon.suffix(cut)
    with TensorStore(memory) as store:
        kept = [record(surgeon, surgeon, [junction], x, y, store, moments=False) for x, y in given]
        like = next(iter(suffix.parameters()), None)
        if like is None:
            raise InputError(
                f"nothing after {at!r} has weights",
                so="there is nothing to fine-tune",
                do="name an earlier layer",
            )
        inside, outside = (Held(junction, suffix, r.values[0], r.labels, like.device) for r in kept)
        matrix = random_basis(by, cut.value.layout.width, group, spread=spread, seed=seed).to(like)
        before = kept[1].accuracy()[0]
        broken = evaluate(matrix, outside)[0]
        if epochs:
            advance = counted(progress, epochs * len(given[0][1]), "fine-tuning")
            _tune(inside, matrix, epochs, learning_rate, seed, advance)
        tuned = evaluate(matrix, outside)[0]
    return Rotation(at, by, group.name, before, broken, tuned, len(given[1][1]))


def random_basis(by: str, size: int, group: Group, *, spread: float = 1.0, seed: int = 0) -> Tensor:
    """A random n x n member of the group (P with log-normal D), or of O(n), or the identity, in float64.

    >>> q = random_basis("orthogonal", 5, Group())
    >>> torch.allclose(q @ q.T, torch.eye(5, dtype=torch.float64))
    True
    """
    random = torch.Generator().manual_seed(seed)
    if by == "identity":
        return torch.eye(size, dtype=torch.float64)
    normal = torch.randn(size, size, generator=random, dtype=torch.float64)
    if by == "orthogonal" or group.linear:
        q, r = torch.linalg.qr(normal)
        result: Tensor = q * r.diagonal().sign()  # the sign makes it uniform over O(n)
        return result
    order = torch.randperm(size, generator=random) if group.permutation else torch.arange(size)
    scale = torch.ones(size, dtype=torch.float64)
    if group.positive:
        scale = (spread * torch.randn(size, generator=random, dtype=torch.float64)).exp()
    if group.sign:
        scale = scale * torch.where(torch.rand(size, generator=random) < 0.5, -1.0, 1.0)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    matrix[torch.arange(size), order] = scale
    return matrix


def _tune(held: Held, matrix: Tensor, epochs: int, rate: float, seed: int, progress: Advance | None) -> None:
    """Fine-tune the suffix on the values of the frozen part; batch norms see the batch, then are measured."""
    stitch = make_stitch(held.junction, FixedMap(matrix))
    suffix = held.suffix
    weights = [p.requires_grad_(True) for p in suffix.parameters()]
    optimizer = torch.optim.Adam(weights, lr=rate)
    random = torch.Generator().manual_seed(seed)
    suffix.train()
    try:
        for _ in range(epochs):
            for values, chosen in held.batches(torch.randperm(len(held.labels), generator=random)):
                optimizer.zero_grad()
                held.loss(suffix(stitch(values[0]), *values[1:]), chosen, "labels").backward()
                optimizer.step()
                if progress is not None:
                    progress(len(chosen))
    finally:
        suffix.eval()
        for weight in weights:
            weight.requires_grad_(False)
    reset_statistics(matrix, held)
