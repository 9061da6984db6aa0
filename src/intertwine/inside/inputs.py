"""Whatever holds inputs, as rows by number: ours are read when they are asked for, others at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from intertwine.data.batches import Batches
from intertwine.errors import DataError, NotFound

_DIGITS = 18  # of a label: more do not fit a whole number of torch


@dataclass(frozen=True, eq=False)
class Inputs:
    """`rows(numbers)` are inputs; labels and their names where there are any."""

    rows: Callable[[Tensor], Tensor]
    count: int
    labels: Tensor | None
    names: tuple[str, ...]

    def __len__(self) -> int:
        return self.count

    def of_label(self, label: int | str) -> Tensor:
        """The numbers of the inputs with a label, given by its name or number."""
        if self.labels is None:
            raise DataError("the inputs have no labels", do="give (inputs, labels), or a data set")
        text = str(label)
        number = self.names.index(text) if text in self.names else -1
        if number < 0 and text.isascii() and text.isdecimal() and len(text) < _DIGITS:
            number = int(text)
        found = torch.nonzero(self.labels == number)[:, 0] if number >= 0 else torch.empty(0)
        if not len(found):
            known = ", ".join(self.names) or ", ".join(map(str, self.labels.unique().tolist()))
            raise NotFound(f"no input has the label {label!r}", do=f"the labels are {known}")
        return found

    def label_name(self, number: int) -> str:
        """The name of an input's label, or nothing."""
        if self.labels is None:
            return ""
        label = int(self.labels[number])
        return self.names[label] if label < len(self.names) else str(label)


def as_inputs(data: Any) -> Inputs:
    """A tensor, (inputs, labels), an object with `rows`, `labels` and `classes`, or what `Batches` reads.

    >>> inputs = as_inputs((torch.zeros(3, 2), torch.tensor([0, 1, 0])))
    >>> len(inputs), inputs.of_label(0).tolist()
    (3, [0, 2])
    """
    if isinstance(data, Tensor) and data.dim() and not (data.is_meta or data.layout != torch.strided):
        found = Inputs(lambda numbers: data[numbers], len(data), None, ())
    elif hasattr(data, "rows") and hasattr(data, "labels"):
        names = tuple(map(str, getattr(data, "classes", ())))
        found = Inputs(data.rows, len(data), data.labels, names)
    elif isinstance(data, Sequence) and len(data) == 2 and isinstance(data[0], Tensor):
        try:
            images, labels = data[0], torch.as_tensor(data[1])
        except (RuntimeError, TypeError, ValueError) as error:
            raise DataError(f"the labels are a {type(data[1]).__name__}, not numbers") from error
        if images.is_meta or images.layout != torch.strided or not images.dim() or labels.dim() != 1:
            raise DataError("inputs and labels are not plain tensors", do="give (N, ...) inputs and N labels")
        if len(images) != len(labels):
            raise DataError(f"{len(images)} inputs but {len(labels)} labels")
        found = Inputs(lambda numbers: images[numbers], len(images), labels, ())
    else:
        inputs, given = Batches(data).whole()
        if not isinstance(inputs, Tensor):
            raise DataError("inputs with named arguments are not attributed", do="give one tensor of inputs")
        found = Inputs(lambda numbers: inputs[numbers], len(inputs), given, ())
    if not found.count:
        raise DataError("there are no inputs", do="give at least one image or sequence")
    return found
