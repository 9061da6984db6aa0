"""Train a stitch: only the suffix of B runs, on the cached values of A (appendix D.2 of source 002).

Full, rank and lasso maps by Adam from their closed form. Members of the group: D alone at the permutation of
the start; projected gradient steps on the Birkhoff polytope, P alone for the head start, then P and D;
Hungarian rounding; D alone again. What training gains over the start without moving P is most of it, and the
better of the two is kept. Batch norms of the suffix use the statistics of the batch while the stitch is
trained, and are measured again afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from intertwine.errors import InputError
from intertwine.stitching.junctions import Junction
from intertwine.stitching.kinds import Kind
from intertwine.stitching.maps import BirkhoffMap, FixedMap, FullMap, Map, ScaleMap, SoftSortMap, Stitch
from intertwine.symmetry.surgery import Part

TEMPERATURE = 4.0
JUDGED = 500  # training inputs that decide whether a stitch is good enough, and which of two is better
ALPHAS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
ALPHA_EPOCHS = 5  # for each alpha that is tried (D.5)
SOURCE_BATCH = 32
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Training:
    """How a stitch is trained.

    learning_rate: None for the default of its kind. alpha: a number, or "cv" (D.5). polish: epochs for D
    alone, before and after the epochs for P. loss: the outputs of B at temperature 4, or the labels as in the
    source; few labels overfit, because both networks already know them. blur: the share of the uniform matrix
    that P starts with, off its vertex. optimizer: Adam where it gets along with the map, or SGD with momentum
    for all. drops: whether the rate falls to a twentieth. start: where training starts.
    """

    epochs: int = 2
    learning_rate: float | None = None
    alpha: float | Literal["cv"] = 0.1
    method: Literal["birkhoff", "softsort"] = "birkhoff"
    head_start: float = 0.5
    blur: float = 0.2
    rounds: int = 16
    polish: int = 2
    loss: Literal["distill", "labels"] = "distill"
    optimizer: Literal["adam", "sgd"] = "adam"
    drops: bool = True
    start: Literal["closed form", "random"] = "closed form"
    seed: int = 0

    @classmethod
    def as_source(cls, seed: int = 0) -> Training:
        """D.2 of source 002: labels, SGD of rate 1e-3 with momentum and no drops, 20 epochs, P alone for 10.

        Its text says both "vanilla SGD with no momentum" and "SGD with momentum 0.9"; here it is 0.9. What it
        starts from is not said; here a random member of the class, half-way to the middle of the polytope.

        >>> Training.as_source().epochs, Training.as_source().optimizer
        (20, 'sgd')
        """
        return cls(
            epochs=20, learning_rate=1e-3, blur=0.5, polish=0, loss="labels", optimizer="sgd", drops=False,
            start="random", seed=seed,
        )  # fmt: skip

    def __post_init__(self) -> None:
        if self.epochs < 0 or self.polish < 0:
            raise InputError(f"{self.epochs} epochs", do="give 0 (closed form only) or more")
        if self.method not in ("birkhoff", "softsort"):
            raise InputError(f"no method named {self.method!r}", do="use birkhoff or softsort")
        if self.loss not in ("distill", "labels"):
            raise InputError(f"no loss named {self.loss!r}", do="use distill or labels")
        if self.optimizer not in ("adam", "sgd"):
            raise InputError(f"no optimizer named {self.optimizer!r}", do="use adam or sgd")
        if self.start not in ("closed form", "random"):
            raise InputError(f"no start named {self.start!r}", do="use 'closed form' or 'random'")


@dataclass(frozen=True)
class Held:
    """One junction with everything that training and evaluation of a stitch read."""

    junction: Junction
    suffix: Part
    values: Sequence[Tensor]
    labels: Tensor
    device: torch.device
    targets: Tensor | None = None  # the outputs of B

    def batches(self, order: Tensor) -> Iterator[tuple[list[Tensor], Tensor]]:
        """Values and rows of whole batches; what is left over is used only where it is all there is."""
        size = self.suffix.batch
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            if len(chosen) < size and start:
                return
            yield [v[chosen].to(self.device) for v in self.values], chosen

    def loss(self, scores: Tensor, chosen: Tensor, kind: str) -> Tensor:
        """Cross entropy with the labels, or with B's softened outputs."""
        if kind == "labels" or self.targets is None:
            return functional.cross_entropy(scores, self.labels[chosen].to(self.device))
        soft = torch.softmax(self.targets[chosen].to(self.device) / TEMPERATURE, 1)
        return TEMPERATURE * functional.cross_entropy(scores / TEMPERATURE, soft)

    def only(self, chosen: Tensor | slice) -> Held:
        """Some of the inputs."""
        targets = None if self.targets is None else self.targets[chosen]
        values = [v[chosen] for v in self.values]
        return replace(self, values=values, labels=self.labels[chosen], targets=targets)


def make_stitch(junction: Junction, channels: Map) -> Stitch:
    """The stitching layer of a junction around a map of channels."""
    return Stitch(channels, junction.a.value.layout, junction.b.value.layout)


def make_map(kind: Kind, start: Tensor, junction: Junction, training: Training) -> Map:
    """The parameterisation that a kind is trained in."""
    if kind.of.trained is None:
        return FixedMap(start)
    return kind.of.trained(start, junction.group, kind.number, training)


def fit(
    kind: Kind, start: Tensor, held: Held, training: Training, progress: Progress | None = None
) -> Tensor:
    """The matrix of the stitch after training, a member of its class."""
    if kind.of.trained is None or not training.epochs:
        return start
    training = settle_alpha(kind, start, held, training)
    if training.start == "random":
        start = random_start(kind, start, held.junction, training)
    channels = make_map(kind, start, held.junction, training)
    if isinstance(channels, (BirkhoffMap, SoftSortMap)):
        return _fit_group(kind, start, held, training, progress)
    _descend(channels, held, training.epochs, training, progress)
    return channels.rounded()


def settle_alpha(kind: Kind, start: Tensor, held: Held, training: Training) -> Training:
    """The training with a number for alpha; None of it where the kind has no alpha."""
    if training.alpha != "cv" or not isinstance(make_map(kind, start, held.junction, training), BirkhoffMap):
        return training
    return replace(training, alpha=choose_alpha(kind, start, held, training))


def random_start(kind: Kind, like: Tensor, junction: Junction, training: Training) -> Tensor:
    """A random permutation for a group of permutations, else entries as torch starts a 1x1 convolution."""
    random = torch.Generator().manual_seed(training.seed)
    if isinstance(make_map(kind, like, junction, training), (BirkhoffMap, SoftSortMap)):
        order = torch.randperm(len(like), generator=random)
        return torch.eye(len(like), dtype=like.dtype)[order].to(like)
    bound = like.shape[1] ** -0.5
    result: Tensor = ((2 * torch.rand(like.shape, generator=random) - 1) * bound).to(like)
    return result


def _fit_group(
    kind: Kind, start: Tensor, held: Held, training: Training, progress: Progress | None
) -> Tensor:
    """Scales at the permutation of the start; then P and D; then scales again; the better of the two."""
    near = polish_scales(start, held, training, progress)
    channels = make_map(kind, near, held.junction, training)
    head = training.epochs
    if isinstance(channels, BirkhoffMap):
        head = round(training.epochs * training.head_start)
        channels.scale.requires_grad_(False)
    _descend(channels, held, head, training, progress)
    if isinstance(channels, BirkhoffMap):
        channels.scale.requires_grad_(bool(held.junction.group.positive or held.junction.group.sign))
        _descend(channels, held, training.epochs - head, training, progress)
    far = polish_scales(channels.rounded(), held, training, progress)
    if training.start == "random" or torch.equal(near, far):
        return far
    ranks = []
    for matrix in (near, far):
        reset_statistics(matrix, held)
        ranks.append(rank(evaluate(matrix, held.only(slice(0, JUDGED)))))
        held.suffix.restore_statistics()
    return near if ranks[0] <= ranks[1] else far


def choose_alpha(
    kind: Kind,
    start: Tensor,
    held: Held,
    training: Training,
    alphas: Sequence[float] | None = None,
) -> float:
    """The alpha with the highest accuracy on a fifth of the training inputs, without head start (D.5)."""
    order = torch.randperm(len(held.labels), generator=torch.Generator().manual_seed(training.seed))
    part = max(1, len(order) // 5)
    inside, outside = held.only(order[part:]), held.only(order[:part])
    scores = []
    tried = ALPHAS if alphas is None else alphas
    for alpha in tried:
        plan = replace(training, alpha=alpha, head_start=0.0, polish=0, epochs=ALPHA_EPOCHS)
        matrix = fit(kind, start, inside, plan)
        reset_statistics(matrix, inside)
        scores.append(evaluate(matrix, outside)[0])
        held.suffix.restore_statistics()
    return tried[max(range(len(tried)), key=lambda i: scores[i])]


def polish_scales(matrix: Tensor, held: Held, training: Training, progress: Progress | None = None) -> Tensor:
    """D alone, by Adam on log |D|, with P fixed at the permutation that it is rounded to."""
    if not held.junction.group.positive or not training.polish:
        return matrix
    scaled = ScaleMap(matrix)
    _descend(scaled, held, training.polish, replace(training, learning_rate=None), progress)
    return scaled.rounded()


def _descend(channels: Map, held: Held, epochs: int, training: Training, progress: Progress | None) -> None:
    """Epochs of gradient steps on the cross entropy of the stitched network, projected after each step."""
    free = [p for p in channels.parameters() if p.requires_grad]
    if epochs < 1 or not free:
        return
    stitch = make_stitch(held.junction, channels)
    optimizer = _optimizer(channels, free, training)
    random = torch.Generator().manual_seed(training.seed)
    steps = epochs * max(1, len(held.labels) // held.suffix.batch)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05 if training.drops else 1.0, steps)
    held.suffix.train()
    try:
        for _ in range(epochs):
            order = torch.randperm(len(held.labels), generator=random)
            for values, chosen in held.batches(order):
                optimizer.zero_grad()
                scores = held.suffix(stitch(values[0]), *values[1:])
                loss = held.loss(scores, chosen, training.loss)
                (loss + channels.regulariser()).backward()
                optimizer.step()
                with torch.no_grad():
                    channels.project(float(decay.get_last_lr()[0]))
                decay.step()
                if progress is not None:
                    progress(len(chosen))
    finally:
        held.suffix.eval()


def _optimizer(channels: Map, free: list[nn.Parameter], training: Training) -> torch.optim.Optimizer:
    """Adam, but plain SGD with momentum under projections, with which Adam does not get along (D.2)."""
    rate = training.learning_rate or channels.rate
    if isinstance(channels, BirkhoffMap) or training.optimizer == "sgd":
        return torch.optim.SGD(free, lr=rate, momentum=0.9)
    if isinstance(channels, FullMap) and channels.penalty:
        # Adam's steps do not shrink with the gradient and would undo every zero of the proximal step.
        return torch.optim.SGD(free, lr=rate)
    return torch.optim.Adam(free, lr=rate)


def reset_statistics(matrix: Tensor, held: Held) -> None:
    """Measure the batch norms of the suffix again, with this stitch before it."""
    stitch = make_stitch(held.junction, FixedMap(matrix))
    order = torch.arange(len(held.labels))
    batches = ([stitch(v[0]), *v[1:]] for v, _ in held.batches(order))
    held.suffix.reset_statistics(batches)


def rank(found: tuple[float, float]) -> tuple[float, float]:
    """Smaller is better: by accuracy, then by loss, which B's softened outputs alone would not order."""
    return -found[0], found[1]


@torch.no_grad()
def evaluate(matrix: Tensor, held: Held) -> tuple[float, float]:
    """Accuracy and mean cross entropy of the stitched network on the inputs held."""
    stitch = make_stitch(held.junction, FixedMap(matrix))
    correct, total, size = 0, 0.0, held.suffix.batch
    for start in range(0, len(held.labels), size):
        rows = slice(start, start + size)
        values = [v[rows].to(held.device) for v in held.values]
        labels = held.labels[rows].to(held.device)
        scores = held.suffix(stitch(values[0]), *values[1:])
        correct += int((scores.argmax(1) == labels).sum())
        total += float(functional.cross_entropy(scores.double(), labels, reduction="sum"))
    return correct / len(held.labels), total / len(held.labels)
