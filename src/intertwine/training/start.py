"""train: a model, data and a recipe, each as itself or by its name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from intertwine.checks import checked
from intertwine.errors import InputError, WrongKind
from intertwine.training.data import Splits, load_splits
from intertwine.training.journal import Listener
from intertwine.training.loop import SAVE_SECONDS, Run, run_loop
from intertwine.training.models import build_model
from intertwine.training.recipe import Recipe, read_recipe


@checked
def train(
    model: nn.Module | str,
    data: Splits | str,
    recipe: Recipe | str = "fast",
    out: str | Path = "run",
    *,
    train_data: str | None = None,
    train_limit: int | None = None,
    normalize: str | None = None,
    size: int | None = None,
    memory: float | None = None,
    classes: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    devices: int = 1,
    threads: int | None = None,
    name: str = "",
    listener: Listener | None = None,
    save_seconds: float = SAVE_SECONDS,
) -> Run:
    """Train a copy of `model` by a recipe and write the folder `out`; the same call resumes a run.

    data: what is measured, and what is trained on where it has a train split and no train_data is given.
    normalize: (default) what the recipe says, for colour images. memory: images that would take more bytes
    are read from their files. classes: outputs of a model given by name (default: the data's). threads: of
    the CPU; with 1, runs are equal to the bit. listener: called with every row of metrics.

    The result is out/model.safetensors. Raises InputError if `out` holds a run of other inputs, if the loss
    stops being finite, or if the disk is full (the last whole state stays).
    """
    recipe = read_recipe(recipe) if isinstance(recipe, str) else recipe
    for given, kind in ((recipe, Recipe), (data, Splits | str), (model, nn.Module | str)):
        if not isinstance(given, kind):
            raise WrongKind(f"the argument {given!r:.60} of train is neither a name nor a {kind}")
    with _threads(threads):
        if isinstance(data, str):
            data = _splits(data, train_data, recipe, train_limit, normalize, size, memory)
        elif train_data is not None:
            raise InputError(
                "Splits hold their training data", do="give data by name, or leave out train_data"
            )
        name = name or (model if isinstance(model, str) else "")
        built = build_model(model, data, seed=seed, classes=classes) if isinstance(model, str) else model
        return run_loop(
            built, data, recipe, out, seed=seed, name=name, device=device, devices=devices,
            listener=listener, save_seconds=save_seconds,
        )  # fmt: skip


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """So many threads of torch inside; the caller's number comes back, whatever happens."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


def _splits(
    data: str, train_data: str | None, recipe: Recipe, limit: int | None, normalize: str | None,
    size: int | None, memory: float | None,
) -> Splits:  # fmt: skip
    how = normalize or recipe.normalize or "none"
    if normalize is None and (train_data or data).partition(":")[0] in ("digits", "fashion-mnist"):
        how = "none"  # a recipe's normalisation is that of its colour images
    test = data if train_data else None
    return load_splits(train_data or data, test=test, normalize=how, limit=limit, size=size, memory=memory)
