"""The model to train: a MODEL string, with channels and classes made to fit the data where the zoo allows."""

from __future__ import annotations

import inspect
import math
from typing import Any

import torch
from torch import nn

from intertwine import zoo
from intertwine.data.evaluation import scores
from intertwine.errors import ModelError
from intertwine.graph.copying import copy_model
from intertwine.training.data import Splits


def build_model(spec: str, data: Splits, *, seed: int = 0, classes: int | None = None) -> nn.Module:
    """A fresh model for the data; a bare NAME is one of the zoo. The seed decides the initial weights.

    >>> from intertwine.training import load_splits
    >>> build_model("digits-vgg", load_splits("digits")).classifier.out_features
    10
    """
    kind, _, name = spec.rpartition(":")
    if kind not in ("", "zoo"):
        if classes is not None:
            raise ModelError(f"--classes fits models of the zoo only, not {spec}")
        model = zoo.resolve(spec, seed=seed).model
        _assert_runs(model, data, spec)
        return model
    shape = data.train.shape
    wanted: dict[str, Any] = {"classes": classes or len(data.train.classes), "in_channels": shape[0]}
    if "widths" in _options(name) and "in_channels" not in _options(name):  # a perceptron
        entry = zoo.entry(name)
        widths = inspect.signature(entry.factory).parameters["widths"].default
        wanted["widths"] = (math.prod(shape), *widths[1:])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = zoo.build(name, **{key: value for key, value in wanted.items() if key in _options(name)})
    _assert_runs(model, data, spec)
    return model


def _options(name: str) -> set[str]:
    return set(inspect.signature(zoo.entry(name).factory).parameters)


def _assert_runs(model: nn.Module, data: Splits, spec: str) -> None:
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ModelError(f"{spec} has no weights to train")
    example = data.train.head(2)
    try:
        with torch.no_grad():
            scores(copy_model(model).eval(), example)
    except ModelError as error:
        raise ModelError(
            f"{spec} cannot take images of {data.train.shape}",
            where=error.what,
            do="intertwine zoo list shows which images each net was made for",
        ) from error
