"""What `train`, `sweep` and `zoo train` share: options, and what is said while they run."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from intertwine.progress import Progress
from intertwine.terminal import types
from intertwine.terminal.declare import choice, json, value

if TYPE_CHECKING:
    from intertwine.training import Recipe
    from intertwine.training.journal import Listener


def add_training_data_arguments(parser: argparse.ArgumentParser) -> None:
    """--data, --train-data, --recipe and what belongs to them: what `train` and `zoo train` share."""
    value(parser, "--data", types.data_spec, "DATA", "the data set, see below", required=True)
    value(parser, "--train-data", types.data_spec, "DATA", "to train on (default: --data's train split)")
    value(parser, "--recipe", types.input_path, "RECIPE",
        "FILE.yml, or a name of the package (default: fast)", default="fast")  # fmt: skip
    value(parser, "--normalize", types.normalization, "HOW",
        "cifar10, imagenet, none, ... (default: what the recipe says, for colour images)")  # fmt: skip
    value(parser, "--train-limit", types.positive_int, "N", "train on the first N only")
    value(parser, "--classes", types.most(1_000_000), "N", "outputs (default: the data's)")


def add_backend_arguments(parser: argparse.ArgumentParser) -> None:
    """--backend, --jobs and --json: what `sweep` and `zoo train` share."""
    choice(parser, "--backend", ("joblib", "ray"),
        "processes of this machine, or a Ray cluster (default: joblib)", default="joblib")  # fmt: skip
    value(parser, "--jobs", types.processes, "N", "tasks at once (default: the cores)")
    json(parser, "print the report as JSON")


@contextmanager
def progress_notes() -> Iterator[Progress]:
    """One line on stderr for each task that ends."""
    from intertwine.terminal.output import log

    console = log()

    def note(done: int, total: int, what: str) -> None:
        console.print(f"{done} of {total}  {what}", markup=False, highlight=False, soft_wrap=True)

    yield note


@contextmanager
def progress_line(label: str, recipe: Recipe) -> Iterator[Listener]:
    """Accuracy, loss and learning rate: one live line on a terminal, one line an epoch elsewhere (stderr)."""
    from rich.live import Live
    from rich.text import Text

    from intertwine.terminal.output import log
    from intertwine.text import shown

    console = log()

    def text(row: dict[str, Any]) -> str:
        parts = [f"{label}  epoch {row['epoch']:.2f}/{recipe.epochs}", f"loss {row['loss']:.4f}"]
        parts += [f"accuracy {row['accuracy']:.2%}", f"lr {row['learning_rate']:.4g}"]
        if row.get("test_accuracy") is not None:
            parts.append(f"test {row['test_accuracy']:.2%}")
        if row.get("images_per_second"):
            parts.append(f"{row['images_per_second']:,.0f} images/s")
        return "  ".join(parts)

    if not console.is_terminal:

        def note(row: dict[str, Any]) -> None:
            if "images_per_second" in row:
                console.print(text(row), markup=False, highlight=False, soft_wrap=True)

        yield note
        return
    with Live(console=console, refresh_per_second=4) as live:
        yield lambda row: live.update(Text(shown(text(row))))
