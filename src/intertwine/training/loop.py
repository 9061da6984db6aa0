"""The training loop.

A step is a function of (weights, optimizer state, seed, epoch, step): the order of the images, their
augmentation and dropout are drawn from a generator that is seeded with those three numbers. So a state that
holds weights, optimizer and counters is enough to go on from, and a run that was killed at any moment ends
with the same bits as one that was not (on one CPU thread, where sums have one order).

Devices, mixed precision and processes are Lightning Fabric's.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from intertwine.data.evaluation import scores
from intertwine.errors import InputError, MissingExtra, ModelError
from intertwine.files import write_tensors
from intertwine.graph.copying import copy_model
from intertwine.graph.export import stored_tensors
from intertwine.interrupts import between_steps
from intertwine.plain import to_plain
from intertwine.results import Result, Table
from intertwine.training.data import Splits, batches_of, shrink
from intertwine.training.journal import Journal, Listener
from intertwine.training.objective import assert_fits, measure, objective_of, targets_in
from intertwine.training.processes import together
from intertwine.training.recipe import Recipe
from intertwine.training.schedule import make_optimizer, scale_at, set_learning_rate
from intertwine.training.state import (
    BEST,
    MODEL,
    Counters,
    claimed,
    load_state,
    locked,
    save_state,
)

SAVE_SECONDS = 300.0  # between states within an epoch; an epoch's end always saves


@dataclass(frozen=True, repr=False)
class Run(Result):
    """A finished run: where it is, how good it is, and what every epoch said."""

    folder: Path
    accuracy: float
    loss: float
    epoch: int  # whose weights were kept
    resumed: bool
    history: list[dict[str, Any]] = field(repr=False)

    @property
    def weights(self) -> Path:
        return self.folder / MODEL

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `intertwine train --json` prints it."""
        names = ("accuracy", "loss", "epoch", "resumed", "weights", "history")
        return {name: to_plain(getattr(self, name)) for name in names}

    def tables(self) -> Sequence[Table]:
        """A row an epoch."""
        columns = list(dict.fromkeys(key for row in self.history for key in row))
        return [Table("epochs", columns, [[row.get(key) for key in columns] for row in self.history])]

    def remarks(self) -> list[str]:
        """How it ended."""
        again = "resumed and " if self.resumed else ""
        end = f"{again}finished at epoch {self.epoch}: test accuracy {self.accuracy:.2%}"
        return [end, f"wrote {self.weights}"]


def run_loop(
    model: nn.Module,
    data: Splits,
    recipe: Recipe,
    folder: str | Path,
    *,
    seed: int = 0,
    name: str = "",
    device: str = "cpu",
    devices: int = 1,
    listener: Listener | None = None,
    save_seconds: float = SAVE_SECONDS,
) -> Run:
    """Train a copy of `model` and write RUN (see `train`)."""
    folder = Path(folder)
    train_data = data.train if recipe.limit is None else data.train.take(recipe.limit)
    identity = {"model": name, "data": data.name, "images": data.digest, "seed": seed}
    identity |= {"recipe": recipe.to_dict(), "weights": weights_digest(model)}
    fabric = make_fabric(recipe, device, devices)
    with together(devices), torch.random.fork_rng():
        fabric.launch()
        splits = Splits(data.name, train_data, data.test)
        # a model that does not fit the data is refused before anything is written
        loop = _Loop(copy_model(model), splits, recipe, folder, seed, fabric)
        loop.listener, loop.save_seconds = listener, save_seconds
        first = fabric.is_global_zero
        with (
            locked(folder) if first else nullcontext(),
            claimed(folder, identity) if first else nullcontext(False) as resumed,
        ):
            fabric.barrier()
            return loop.run(resumed)


class _Loop:
    """One run in progress."""

    def __init__(
        self, model: nn.Module, data: Splits, recipe: Recipe, folder: Path, seed: int, fabric: Any
    ) -> None:
        self.data, self.recipe, self.folder, self.seed, self.fabric = data, recipe, folder, seed, fabric
        self.objective = objective_of(recipe)
        self.net = model.to(fabric.device).train()
        self.channels_may_lie_last = _channels_may_lie_last(self.net)
        if recipe.channels_last and self.channels_may_lie_last:
            self.net = self.net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimizer = make_optimizer(self.net, recipe.optimizer)
        self.gather, self.labels = batches_of(data.train, recipe.augment), data.train.labels
        tokens = self.labels.dim() == 2
        self.steps = math.ceil(len(data.train) / recipe.batch)
        example = data.train.head(2).to(fabric.device)
        self.scales = find_scales(self.net, example, recipe, tokens=tokens)
        self.listener: Listener | None = None
        self.save_seconds = SAVE_SECONDS
        assert_fits(self.net.eval(), (data.train, data.test), recipe, example)
        self.net.train()

    def run(self, resumed: bool) -> Run:
        found = load_state(self.folder, self.net, self.optimizer)
        self.counters = found or Counters()
        self.wrapped, self.stepper = self.fabric.setup(self.net, self.optimizer)
        self.fabric.barrier()  # nobody writes before all have read
        first = self.fabric.is_global_zero
        with (
            Journal(self.folder, self.counters.epoch, writes=first) as journal,
            between_steps() as interrupted,
        ):
            self.interrupted = interrupted
            if found is None and 0 in self.recipe.checkpoints and first:
                self._checkpoint(0)
            while self.counters.epoch < self.recipe.epochs:
                self._epoch(journal)
            return self._finish(journal, resumed and found is not None)

    def _epoch(self, journal: Journal) -> None:
        counters, started, seen = self.counters, time.monotonic(), self.counters.seen
        saved = started
        order = torch.randperm(len(self.data.train), generator=generator(self.seed, counters.epoch))
        while counters.step < self.steps:
            self._end_if_interrupted()
            rate = self._step(order)
            now = time.monotonic()
            if now - saved > self.save_seconds and counters.step < self.steps:
                self._save()
                saved = now
            if self.listener is not None and self.fabric.is_global_zero:
                self.listener(self._row(rate, counters.epoch + counters.step / self.steps))
        counters.epoch, counters.step = counters.epoch + 1, 0
        row = self._row(rate, counters.epoch)
        row |= self._look()
        row["images_per_second"] = round((counters.seen - seen) / max(time.monotonic() - started, 1e-9), 1)
        counters.loss, counters.correct, counters.seen = 0.0, 0, 0
        journal.add(row)
        if self.fabric.is_global_zero:
            if counters.epoch in self.recipe.checkpoints:
                self._checkpoint(counters.epoch)
            self._save()
            if self.listener is not None:
                self.listener(row)

    def _end_if_interrupted(self) -> None:
        """Ctrl-C, SIGTERM and SIGHUP come through between two steps, where the state is whole."""
        kind = self.interrupted()
        if kind is not None:
            self._save()
            raise kind

    def _step(self, order: Tensor) -> float:
        """One optimizer step; returns the learning rate."""
        counters, recipe = self.counters, self.recipe
        at = counters.epoch + counters.step / self.steps
        rate = set_learning_rate(self.stepper, recipe, at)
        source = generator(self.seed, counters.epoch, counters.step)
        torch.manual_seed(source.initial_seed())  # for dropout and the like
        mine = self._chosen(order, counters.step)
        images = self.gather.batch(mine, source, at / recipe.epochs).to(self.fabric.device)
        self.gather.expect(self._chosen(order, counters.step + 1))
        labels = self.labels[mine].to(self.fabric.device)
        images = shrink(images, self.scales[scale_at(recipe.resolution, at / recipe.epochs)])
        if not self.channels_may_lie_last:
            images = images.clone(memory_format=torch.contiguous_format)  # one channel lies both ways
        output = scores(self.wrapped, images, tokens=labels.dim() == 2)
        loss = self.objective.value(output, labels)
        self.stepper.zero_grad()
        self.fabric.backward(loss)
        self.stepper.step()
        value = _finite(
            float(loss.detach()), f"the loss in epoch {counters.epoch + 1}, step {counters.step + 1}"
        )
        asked = targets_in(labels)
        counters.loss += value * asked
        counters.correct += int(self.objective.correct(output.detach(), labels))
        counters.seen += asked
        counters.step += 1
        return rate

    def _chosen(self, order: Tensor, step: int) -> Tensor:
        """The images of this process in a step of the epoch."""
        batch = order[step * self.recipe.batch : (step + 1) * self.recipe.batch]
        return batch[self.fabric.global_rank :: self.fabric.world_size]

    def _row(self, rate: float, epoch: float) -> dict[str, Any]:
        seen = max(self.counters.seen, 1)
        return {
            "epoch": epoch,
            "loss": self.counters.loss / seen,
            "accuracy": self.counters.correct / seen,
            "learning_rate": rate,
        }

    def _look(self) -> dict[str, Any]:
        """Accuracy and loss on the test split, where this epoch is one to look at."""
        counters, recipe = self.counters, self.recipe
        if counters.epoch % recipe.evaluate_every and counters.epoch != recipe.epochs:
            return {"test_accuracy": None, "test_loss": None}
        accuracy, loss = measure(self.net, self.data.test, self.objective)
        _finite(loss, f"on test data after epoch {counters.epoch}")  # its last step broke it
        if accuracy > counters.best:
            counters.best, counters.best_epoch = accuracy, counters.epoch
            if recipe.keep == "best" and self.fabric.is_global_zero:
                write_tensors(self.folder / BEST, self.net.state_dict())
        return {"test_accuracy": accuracy, "test_loss": loss}

    def _checkpoint(self, epoch: int) -> None:
        path = self.folder / "checkpoints" / f"epoch-{epoch:04d}.safetensors"
        write_tensors(path, self.net.state_dict(), parents=True)

    def _save(self) -> None:
        if self.fabric.is_global_zero:
            save_state(self.folder, self.net, self.optimizer, self.counters)

    def _finish(self, journal: Journal, resumed: bool) -> Run:
        last = journal.rows[-1]
        kept = last
        if self.recipe.keep == "best" and self.fabric.is_global_zero:
            from intertwine.zoo import load_weights

            load_weights(self.net, self.folder / BEST)
            kept = journal.rows[self.counters.best_epoch - 1]
        if self.fabric.is_global_zero:  # in a finished run, too: what is there may have been emptied since
            write_tensors(self.folder / MODEL, self.net.state_dict(), keep_equal=True)
        return Run(
            self.folder, kept["test_accuracy"], kept["test_loss"], kept["epoch"], resumed, journal.rows
        )


def _finite(value: float, where: str) -> float:
    if not math.isfinite(value):
        raise InputError(
            f"the loss is {value} {where}",
            so="training stopped; the last saved state is whole",
            do="lower learning_rate, or train in float32",
        )
    return value


def generator(seed: int, *place: int) -> torch.Generator:
    """A generator that belongs to one place of one run, and to no other.

    >>> generator(0, 3).initial_seed() == generator(0, 3).initial_seed() != generator(0, 4).initial_seed()
    True
    """
    digest = hashlib.sha256(repr((seed, *place)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def weights_digest(model: nn.Module) -> str:
    """A name for the initial weights."""
    total = hashlib.sha256()
    for name, value in stored_tensors(model).items():
        total.update(f"{name}{tuple(value.shape)}{value.dtype}".encode())
        total.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()[:16]


def find_scales(
    model: nn.Module, example: Tensor, recipe: Recipe, *, tokens: bool = False
) -> dict[float, float]:
    """For each image scale of the recipe, the smallest one not below it that the model can take."""
    wanted = sorted({1.0, *(step.scale for step in recipe.resolution)})
    model.eval()
    working = []
    with torch.no_grad():
        for scale in wanted:
            try:
                scores(model, shrink(example, scale), tokens=tokens)
                working.append(scale)
            except ModelError:
                if scale == 1:
                    raise
    model.train()
    return {scale: min(w for w in working if w >= scale) for scale in wanted}


def bf16_is_fast(device: torch.device) -> bool:
    """Whether the device multiplies in bfloat16; where it only emulates it, float32 is faster."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        have = torch.cpu.get_capabilities()
        return bool(have.get("avx512_bf16") or have.get("amx_bf16") or have.get("bf16"))
    return False


def make_fabric(recipe: Recipe, device: str, devices: int) -> Any:
    """Fabric for `devices` processes on a device string such as cpu, cuda or cuda:1."""
    try:
        from lightning_fabric import Fabric
    except ModuleNotFoundError as error:
        raise MissingExtra("training needs Lightning Fabric", do='pip install "intertwine[train]"') from error
    place = torch.device(device)
    fast = recipe.precision == "bf16-where-fast" and bf16_is_fast(place)
    return Fabric(
        accelerator=place.type,
        devices=[place.index] if place.index is not None and place.type != "cpu" else devices,
        strategy="ddp" if devices > 1 else "auto",
        precision="bf16-mixed" if fast else "32-true",
    )


def _channels_may_lie_last(net: nn.Module) -> bool:
    """False where torch's CPU kernel may write beyond its buffer.

    The backward pass of a strided 1x1 convolution of fewer than 8 channels that lie last, on one thread,
    corrupts the heap (torch 2.13; under glibc's checks every width below 8 and none above): the process
    aborts later, anywhere. By the weights, since a forward may call the convolution as a function.
    """
    return not any(p.dim() == 4 and p.shape[2:] == (1, 1) and p.shape[1] < 8 for p in net.parameters())
