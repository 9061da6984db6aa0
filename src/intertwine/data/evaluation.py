"""Accuracy and cross entropy of a classifier on a data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from intertwine.data.batches import Batches, arguments
from intertwine.errors import DataError, IntertwineError, ModelError
from intertwine.text import first_line


class Evaluation(NamedTuple):
    """accuracy in [0, 1]; loss = mean cross entropy in nats."""

    accuracy: float
    loss: float


def evaluate(
    model: nn.Module,
    dataset: Any,
    *,
    batch: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Evaluation:
    """accuracy = mean [argmax f(x) = y], loss = mean -log softmax f(x)_y, in eval mode and without gradients.

    dataset: labelled data of any form (`data.batches`). Device and dtype are the model's; the training flag
    of every module is put back. `progress` is called with the number of images of each batch.

    >>> from intertwine.data import load_data
    >>> constant = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    >>> _ = [nn.init.zeros_(p) for p in constant.parameters()]
    >>> round(evaluate(constant, load_data("digits")).loss, 4)  # ln 10
    2.3026
    """
    like = next(
        (t for t in chain(model.parameters(), model.buffers()) if t.is_floating_point()), torch.empty(0)
    )
    training = {module: module.training for module in model.modules()}
    correct, total, count = 0, 0.0, 0
    model.eval()
    try:
        with torch.no_grad():
            for inputs, given in Batches(dataset, batch=batch, device=like.device):
                if given is None:
                    raise DataError("the data has no labels", do="pass (inputs, labels), or batches of them")
                logits = scores(model, inputs, like.dtype)
                labels = given.to(logits.device)
                _assert_fits(logits, labels, dataset)
                count += len(labels)
                correct += int((logits.argmax(1) == labels).sum())
                total += float(F.cross_entropy(logits.double(), labels, reduction="sum"))
                if progress is not None:
                    progress(len(labels))
    finally:
        for module, mode in training.items():
            module.training = mode
    if not count:
        raise DataError("there are no inputs")
    return Evaluation(correct / count, total / count)


def scores(model: nn.Module, inputs: Any, dtype: torch.dtype | None = None) -> Tensor:
    """The class scores of a model, N x classes; ModelError whatever its forward raises, sys.exit included.

    >>> tuple(scores(nn.Linear(3, 2), torch.zeros(4, 3)).shape)
    (4, 2)
    """
    args, kwargs = arguments(inputs)
    if dtype is not None:  # tokens stay numbers
        args = tuple(x if x.dtype == torch.int64 else x.to(dtype) for x in args)
    shape = tuple(args[0].shape) if args else tuple(kwargs)
    try:
        output = model(*args, **kwargs)
    except IntertwineError:
        raise
    except (Exception, SystemExit) as error:
        raise ModelError(
            f"the model fails on images of shape {shape}: {first_line(error)}",
            do="check that model and data belong together (channels, image size, batches of one)",
        ) from error
    logits = logits_of(output)
    if logits.ndim != 2 or (args and len(logits) != len(args[0])):
        raise ModelError(
            f"class scores of shape {tuple(logits.shape)} for inputs of {shape}",
            do="return a tensor of N x classes",
        )
    return logits


def logits_of(output: Any) -> Tensor:
    """The class scores in an output: the tensor, its entry "logits" or "out", or the first of a tuple."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        output = output.get("logits", output.get("out"))
    elif isinstance(output, tuple | list) and output:
        output = output[0]
    if not isinstance(output, Tensor):
        raise ModelError("the model's output holds no class scores", do="return a tensor of N x classes")
    return output


def _assert_fits(logits: Tensor, labels: Tensor, dataset: Any) -> None:
    if len(logits) != len(labels):
        raise ModelError(f"class scores of shape {tuple(logits.shape)} for {len(labels)} images")
    if int(labels.max()) >= logits.shape[1]:
        raise DataError(
            f"{getattr(dataset, 'name', 'the data')} has the label {int(labels.max())}, "
            f"the model only {logits.shape[1]} classes"
        )
