"""Learn the combined network on the outputs of those it was made of, without labels.

    minimise over theta   E over inputs of  KL(p || f(x, theta)),    p = softmax(sum_k s_k f(x, theta_k))

from the combined weights, with Adam; its rate is a share of each tensor's root mean square (so that no scale
of a layer counts), rises for a pass and then falls to zero. Hidden values may be learned beside the outputs
(`_hidden`). Every tenth
input is left out; the weights of the pass that errs least there are kept, the first among them. Networks
know their training images by heart and are less sure of others: images may be mirrored, shifted and mixed
with each other at random, those that are left out too, and p is what the networks say to what comes of it.
Batch norms keep their statistics: those of mixed images are not those of images.
Networks that keep heads of their own are learned each on its own outputs. The divergences are added as parts
of what each network tells about the inputs (the divergence of its outputs from their mean): a head of a
hundred classes does not drown one of ten.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from intertwine.combining._hidden import HiddenValues
from intertwine.data.batches import Batches, count_rows, take
from intertwine.data.evaluation import call, like_inputs, logits_of
from intertwine.errors import DataError, InputError
from intertwine.graph.copying import copy_model
from intertwine.progress import Progress

BATCH = 100
VARIED = 50  # images of a batch that are new in every pass: more steps are worth more than larger ones
LEFT_OUT = 10
RATE = 1e-2  # of the size of a tensor
SMALL = 1e-3  # least size of one
SHIFT = 8  # images are shifted by at most an eighth of their sides


@dataclass(frozen=True)
class Teachers:
    """outputs: what is asked for at every input. widths: how many of them belong to each head. weights: how
    much the divergence of each head counts. ask: what is asked for at other inputs."""

    outputs: Tensor
    widths: tuple[int, ...]
    weights: tuple[float, ...]
    ask: Callable[[Any], Tensor]

    def divergence(self, chosen: Tensor, scores: Tensor) -> Tensor:
        """KL of the chosen inputs, a weighted sum over heads."""
        return self.apart(self.outputs[chosen], scores)

    def apart(self, wanted: Tensor, scores: Tensor) -> Tensor:
        """KL of some outputs, a weighted sum over heads."""
        goals = wanted.to(scores.device).split(self.widths, -1)
        parts = zip(self.weights, goals, scores.split(self.widths, -1), strict=True)
        return torch.stack([weight * _divergence(goal, found) for weight, goal, found in parts]).sum()


def teachers(
    models: Sequence[nn.Module], shares: Sequence[float], inputs: Any, heads: str = "one"
) -> Teachers:
    """sum_k s_k f(x, theta_k) for all inputs, or the outputs side by side where each keeps its head."""
    widths = list[int]()

    @torch.no_grad()
    def ask(batch: Any) -> Tensor:
        outputs = [scores_of(m, batch) for m in models]
        widths[:] = [y.shape[-1] for y in outputs] if heads == "each" else [outputs[0].shape[-1]]
        if heads == "each":
            return torch.cat(outputs, -1).cpu()
        return torch.stack([s * y for s, y in zip(shares, outputs, strict=True)]).sum(0).cpu()

    outputs = torch.cat([ask(batch) for batch, _ in Batches(inputs)])
    if min(widths) < 2:
        raise DataError(
            "the networks have a single output, which is no class score",
            so="how far two of them differ cannot be told by their softmax",
            do="leave out calibrate, epochs and align by loss",
        )
    counts = shares if heads == "each" else [1.0]
    return Teachers(outputs, tuple(widths), _weights(outputs.split(widths, -1), counts), ask)


def _weights(heads: Sequence[Tensor], shares: Sequence[float]) -> tuple[float, ...]:
    """s / E KL(p || E p) of every head, with sum the number of heads.

    >>> sure = 9 * torch.eye(4)
    >>> [round(w, 2) for w in _weights([sure[:, :2], sure], [0.5, 0.5])]
    [1.6, 0.4]
    """
    told = list[float]()
    for scores in heads:
        logs = scores.double().log_softmax(-1).flatten(0, -2)
        mean = logs.exp().mean(0)
        told.append(
            float((torch.xlogy(logs.exp(), logs.exp()).sum(-1)).mean() - torch.xlogy(mean, mean).sum())
        )
    floor = 1e-6 * max(*told, 1e-6)  # a network that says the same to everything tells nothing
    parts = [share / max(each, floor) for share, each in zip(shares, told, strict=True)]
    return tuple(len(parts) * part / sum(parts) for part in parts)


@torch.enable_grad()  # also under the no_grad of a caller
def distilled(
    model: nn.Module,
    taught: Teachers,
    inputs: Any,
    *,
    epochs: int,
    learning_rate: float = RATE,
    augment: bool = False,
    hidden: tuple[float, HiddenValues] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> nn.Module:
    """A copy of `model` that was trained for `epochs` passes over the inputs.

    augment: they are images, which are varied. hidden: how much hidden values count, and those.
    """
    student = copy_model(model).eval()
    for parameter in student.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    generator = torch.Generator().manual_seed(seed)
    count, size = count_rows(inputs), VARIED if augment else BATCH
    share, compared = 0.0, None
    if hidden is not None:
        share, compared = hidden[0], hidden[1].beside(student)

    def varied(chosen: Tensor) -> Any:
        batch = take(inputs, chosen)
        if augment:
            batch = jittered(batch, generator)
        return mixed(batch, generator) if augment and compared is None else batch

    def asked(chosen: Tensor) -> tuple[Any, Tensor]:
        """Some inputs, and what the networks say to them."""
        batch = varied(chosen)
        return batch, taught.ask(batch) if augment else taught.outputs[chosen]

    def loss(chosen: Tensor) -> Tensor:
        if compared is None:
            batch, wanted = asked(chosen)
            return taught.apart(wanted, scores_of(student, batch))
        off, scores, wanted = compared(varied(chosen))
        return taught.apart(wanted, scores) + share * off

    # Neighbours stay together: where mirror images serve too, each lies beside its image.
    pairs = 2 * torch.randperm((count + 1) // 2, generator=generator)
    order = torch.stack([pairs, pairs + 1], 1).flatten()
    held, learned = order[order < count].tensor_split([count // (2 * LEFT_OUT) * 2])
    trials = [asked(chosen) for chosen in held.split(BATCH) if len(chosen)]
    optimizer = torch.optim.Adam(
        [{"params": [p], "lr": learning_rate * _size(p)} for p in student.parameters() if p.requires_grad]
    )
    once = math.ceil(len(learned) / size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, partial(_rate, once, max(1, epochs * once)))
    best, kept = _error(student, taught, trials), copy.deepcopy(student.state_dict())
    for epoch in range(epochs):
        for chosen in learned[torch.randperm(len(learned), generator=generator)].split(size):
            optimizer.zero_grad()
            loss(chosen).backward()
            optimizer.step()
            schedule.step()
        if not all(bool(torch.isfinite(p).all()) for p in student.parameters()):
            raise InputError(
                f"epoch {epoch + 1} of learning makes weights that are not finite",
                so="nothing was learned",
                do="lower the learning rate, or look at the largest inputs",
            )
        if (now := _error(student, taught, trials)) <= best:
            best, kept = now, copy.deepcopy(student.state_dict())
        if progress is not None:
            progress(
                epoch + 1, epochs, f"epochs, off by {now:.3g} on what is left out" if trials else "epochs"
            )
    student.load_state_dict(kept)
    student.zero_grad()
    for old, new in zip(model.parameters(), student.parameters(), strict=True):
        new.requires_grad_(old.requires_grad)
    return student


@torch.no_grad()
def _error(model: nn.Module, taught: Teachers, trials: Sequence[tuple[Any, Tensor]]) -> float:
    """Mean divergence over the inputs that were left out; too few to leave any out: the last pass is best."""
    parts = [(len(goal), float(taught.apart(goal, scores_of(model, batch)))) for batch, goal in trials]
    found = sum(n * each for n, each in parts) / sum(n for n, _ in parts) if parts else -math.inf
    return math.inf if math.isnan(found) else found


def _size(parameter: Tensor) -> float:
    """Its root mean square; of a bias that is 0 a little more, so that it moves."""
    return max(float(parameter.detach().square().mean().sqrt()), SMALL) if parameter.numel() else SMALL


def _rate(warm: int, steps: int, step: int) -> float:
    """Rises over the first steps, then half a cosine."""
    if step < warm:
        return (step + 1) / warm
    return 0.5 + 0.5 * math.cos(math.pi * (step - warm) / max(1, steps - warm))


def jittered(images: Tensor, generator: torch.Generator) -> Tensor:
    """Half of the images mirrored, each shifted by up to an eighth of its sides; zeros come in.

    >>> x = torch.arange(4.0).reshape(1, 1, 2, 2)  # too small to be shifted
    >>> sorted(jittered(x, torch.Generator().manual_seed(0)).flatten().tolist())
    [0.0, 1.0, 2.0, 3.0]
    """
    n, _, high, wide = images.shape
    down, across = high // SHIFT, wide // SHIFT
    padded = F.pad(images, (across, across, down, down))
    top = torch.randint(2 * down + 1, (n, 1), generator=generator) + torch.arange(high)
    left = torch.randint(2 * across + 1, (n, 1), generator=generator) + torch.arange(wide)
    mirrored = torch.rand(n, 1, generator=generator) < 0.5
    left = torch.where(mirrored, left.flip(1), left)
    rows, columns = top.to(images.device), left.to(images.device)
    each = torch.arange(n, device=images.device)
    return padded.movedim(1, -1)[each[:, None, None], rows[:, :, None], columns[:, None, :]].movedim(-1, 1)


def mixed(images: Tensor, generator: torch.Generator) -> Tensor:
    """s x + (1 - s) x' for every image x, with another one x' of them and a share s drawn evenly.

    >>> x = torch.eye(2).reshape(2, 1, 1, 2)
    >>> mixed(x, torch.Generator().manual_seed(0)).sum((1, 2, 3)).tolist()
    [1.0, 1.0]
    """
    share = torch.rand(len(images), 1, 1, 1, generator=generator).to(images)
    other = torch.randperm(len(images), generator=generator).to(images.device)
    return images.lerp(images[other], share).contiguous(memory_format=torch.channels_last)


def scores_of(model: nn.Module, inputs: Any) -> Tensor:
    """The class scores that a model gives for inputs of any form."""
    return logits_of(call(model, inputs, like_inputs(model).dtype))


def _divergence(wanted: Tensor, scores: Tensor) -> Tensor:
    classes = scores.shape[-1]
    target = wanted.log_softmax(-1).reshape(-1, classes)
    found = scores.log_softmax(-1).reshape(-1, classes)
    return F.kl_div(found, target, reduction="batchmean", log_target=True)
