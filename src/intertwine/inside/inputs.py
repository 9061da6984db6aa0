"""Whatever holds inputs, as rows by number: ours are read when they are asked for, others at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from intertwine.data.batches import Batches, tensors_of
from intertwine.errors import DataError, NotFound

_DIGITS = 18  # of a label: more do not fit a whole number of torch


@dataclass(frozen=True, eq=False)
class Rows:
    """Some inputs: what is attributed to, and what the network reads beside it (masks), row by row.

    >>> rows = Rows(torch.arange(3), (torch.arange(3) * 2,))
    >>> rows[torch.tensor([2, 0])].beside[0].tolist(), len(rows.repeat(2))
    ([4, 0], 6)
    """

    first: Tensor
    beside: tuple[Tensor, ...] = ()

    @classmethod
    def of(cls, rows: Rows | Tensor) -> Rows:
        """A tensor as rows with nothing beside."""
        return rows if isinstance(rows, Rows) else cls(rows)

    def __len__(self) -> int:
        return len(self.first)

    def __getitem__(self, numbers: Tensor) -> Rows:
        return self._each(lambda t: t[numbers.to(t.device)])

    def repeat(self, times: int) -> Rows:
        """All of them, so many times one after the other."""
        return self._each(lambda t: t.repeat(times, *[1] * (t.ndim - 1)))

    def to(self, like: Tensor) -> Rows:
        """On the device of `like`, real numbers in its precision."""
        return Rows(*_split(tensors_of(dict(enumerate((self.first, *self.beside))), like)))

    def _each(self, change: Callable[[Tensor], Tensor]) -> Rows:
        return Rows(change(self.first), tuple(change(t) for t in self.beside))


def _split(tensors: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
    return tensors[0], tensors[1:]


@dataclass(frozen=True, eq=False)
class Inputs:
    """`rows(numbers)` are inputs; labels and their names where there are any. arguments: the names of the
    model's arguments, where the inputs are named."""

    rows: Callable[[Tensor], Rows]
    count: int
    labels: Tensor | None
    names: tuple[str, ...]
    arguments: tuple[str, ...] = ()

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
        found = Inputs(lambda numbers: Rows(data[numbers]), len(data), None, ())
    elif hasattr(data, "rows") and hasattr(data, "labels"):
        names = tuple(map(str, getattr(data, "classes", ())))
        found = Inputs(lambda numbers: Rows(data.rows(numbers)), len(data), data.labels, names)
    elif isinstance(data, Sequence) and len(data) == 2 and isinstance(data[0], Tensor):
        try:
            images, labels = data[0], torch.as_tensor(data[1])
        except (RuntimeError, TypeError, ValueError) as error:
            raise DataError(f"the labels are a {type(data[1]).__name__}, not numbers") from error
        if images.is_meta or images.layout != torch.strided or not images.dim() or labels.dim() != 1:
            raise DataError("inputs and labels are not plain tensors", do="give (N, ...) inputs and N labels")
        if len(images) != len(labels):
            raise DataError(f"{len(images)} inputs but {len(labels)} labels")
        found = Inputs(lambda numbers: Rows(images[numbers]), len(images), labels, ())
    else:
        inputs, given = Batches(data).whole()
        named = inputs if isinstance(inputs, dict) else {"": inputs}
        whole = Rows(*_split(tuple(named.values())))
        found = Inputs(whole.__getitem__, len(whole), given, (), tuple(named) if named is inputs else ())
    if not found.count:
        raise DataError("there are no inputs", do="give at least one image or sequence")
    return found
