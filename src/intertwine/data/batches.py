"""Any data as batches: what every function of this package that reads data accepts.

    a tensor of inputs; a dict of keyword arguments; (inputs, labels);
    a torch Dataset (of inputs, or of (input, label)); a DataLoader or any other iterable of batches;
    one of our own data sets (an object with `.batches()`)

A batch is inputs or (inputs, labels), and inputs are a tensor, or a dict of keyword arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from intertwine.errors import DataError

BATCH = 256


class Batches:
    """`data` as (inputs, labels or None), cut off after `limit` inputs and moved to `device`.

    >>> [(x.shape[0], y) for x, y in Batches(torch.zeros(5, 3), batch=2)]
    [(2, None), (2, None), (1, None)]
    >>> inputs, labels = Batches([(torch.zeros(2, 3), torch.ones(2))] * 2).whole()
    >>> inputs.shape, labels.shape
    (torch.Size([4, 3]), torch.Size([4]))
    """

    def __init__(
        self,
        data: Any,
        *,
        batch: int | None = None,
        limit: int | None = None,
        device: torch.device | None = None,
    ) -> None:
        self.data, self.limit, self.device = data, limit, device
        self.batch, self._given = batch or BATCH, batch

    def __iter__(self) -> Iterator[tuple[Any, Tensor | None]]:
        left, form = self.limit, None
        for inputs, labels in self._all():
            _assert_rows(inputs)
            form, first = _form(inputs, labels), form
            if first not in (None, form):
                raise DataError(
                    f"one batch is {first}, another {form}",
                    do="give batches of one form, all labelled or none",
                )
            count = count_rows(inputs)
            if left is not None and left < count:
                inputs, count = take(inputs, slice(left)), left
                labels = None if labels is None else labels[:left]
            if count:
                yield to_device(inputs, self.device), labels
            if left is not None:
                left -= count
                if left <= 0:
                    return

    def whole(self, *, labelled: bool = False, name: str = "the data") -> tuple[Any, Tensor | None]:
        """All inputs and labels at once; `labelled` asks for one integer label an input."""
        found = self._pair()
        if found is None:
            parts = list(self)
            if not parts:
                raise DataError("there are no inputs", where=name)
            labels = [y for _, y in parts if y is not None]
            whole = len(labels) == len(parts)
            found = joined([x for x, _ in parts], name), joined(labels, name) if whole else None
        inputs, given = found
        if labelled:
            if given is None:
                raise DataError(f"{name} has no labels", do="pass (inputs, labels), or batches of them")
            if given.ndim != 1 or len(given) != count_rows(inputs) or not len(given):
                shape = list(given.shape)
                raise DataError(f"{count_rows(inputs)} inputs with labels of shape {shape}", where=name)
            if given.is_floating_point() or given.is_complex():
                raise DataError(f"labels are {given.dtype}, not whole numbers", where=name)
        return inputs, given

    def _pair(self) -> tuple[Any, Tensor | None] | None:
        """Inputs and labels that lie in memory already, uncut."""
        if self.limit is not None or self.device is not None:
            return None
        if hasattr(self.data, "images"):  # one of ours
            return self.data.images, self.data.labels
        return (self.data[0], self.data[1]) if _two_tensors(self.data) else None

    def _all(self) -> Iterator[tuple[Any, Tensor | None]]:
        data = self.data
        if isinstance(data, (Tensor, dict)) or _is_pair(data):
            _assert_rows(data[0] if _is_pair(data) else data)
        if hasattr(data, "batches"):
            yield from data.batches() if self._given is None else data.batches(self._given)
        elif isinstance(data, (Tensor, dict)):
            yield from ((part, None) for part in _cut(data, self.batch))
        elif _is_pair(data):
            if count_rows(data[0]) != len(data[1]):
                raise DataError(f"{count_rows(data[0])} inputs but {len(data[1])} labels")
            yield from zip(_cut(data[0], self.batch), _cut(data[1], self.batch), strict=True)
        elif isinstance(data, Dataset):
            yield from (_split(item) for item in DataLoader(data, batch_size=self.batch))
        elif isinstance(data, Iterable) and not isinstance(data, str | bytes):
            yield from (_split(item) for item in data)
        else:
            raise DataError(
                f"cannot read data of type {type(data).__name__}",
                do="pass a tensor, (inputs, labels), a Dataset, a DataLoader, or batches",
            )


def _assert_rows(inputs: Any) -> None:
    """Inputs are a tensor of rows, or named ones, all of as many rows."""
    tensors = list(inputs.values()) if isinstance(inputs, dict) else [inputs]
    for tensor in tensors:
        if not isinstance(tensor, Tensor) or not tensor.dim():
            what = "a tensor without rows" if isinstance(tensor, Tensor) else type(tensor).__name__
            raise DataError(f"inputs are tensors, not {what}", do="pass a tensor, or (inputs, labels)")
        if tensor.is_meta or tensor.layout != torch.strided:
            raise DataError("inputs that are sparse, or on the device meta", do="pass tensors with values")
    if len({len(tensor) for tensor in tensors}) != 1:
        raise DataError(f"inputs of {', '.join(str(len(t)) for t in tensors) or 'no'} rows")


def _form(inputs: Any, labels: Tensor | None) -> str:
    """What all batches have in common, in words."""
    named = f"the inputs {', '.join(map(str, inputs))}" if isinstance(inputs, dict) else "a tensor"
    return named if labels is None else f"{named} with labels"


def _split(item: Any) -> tuple[Any, Tensor | None]:
    if _is_pair(item):
        return item[0], item[1]
    return (item[0] if isinstance(item, (tuple, list)) else item), None


def _is_pair(item: Any) -> bool:
    """(inputs, labels): labels are a vector, one for each input."""
    return (
        isinstance(item, (tuple, list))
        and len(item) == 2
        and isinstance(item[0], (Tensor, dict))
        and isinstance(item[1], Tensor)
        and item[1].ndim == 1
    )


def _two_tensors(data: Any) -> bool:
    return isinstance(data, (tuple, list)) and len(data) == 2 and all(isinstance(t, Tensor) for t in data)


def _cut(inputs: Any, batch: int) -> Iterator[Any]:
    for start in range(0, count_rows(inputs), batch):
        yield take(inputs, slice(start, start + batch))


def take(inputs: Any, which: slice | Tensor) -> Any:
    """Some of the inputs: a slice of them, or those of these numbers.

    >>> take({"x": torch.arange(4), "y": torch.zeros(4, 2)}, torch.tensor([2, 0]))["x"].tolist()
    [2, 0]
    """
    if isinstance(inputs, dict):
        return {name: take(value, which) for name, value in inputs.items()}
    return inputs[which if isinstance(which, slice) else which.to(inputs.device)]


def tensors_of(inputs: Any, like: Tensor) -> tuple[Tensor, ...]:
    """The tensors that inputs hold, in their order, on the device of `like`; real numbers in its precision.

    >>> held = {"tokens": torch.tensor([3]), "weight": torch.zeros(1)}
    >>> [t.dtype for t in tensors_of(held, torch.zeros(1).double())]
    [torch.int64, torch.float64]
    """
    found = inputs.values() if isinstance(inputs, dict) else [inputs]
    return tuple(t.to(like.device, like.dtype if t.is_floating_point() else t.dtype) for t in found)


def joined(parts: list[Any], where: str = "the data") -> Any:
    """Batches one after the other.

    >>> joined([torch.zeros(2, 3), torch.zeros(1, 4)])
    Traceback (most recent call last):
    intertwine.errors.DataError: the batches cannot be joined: they have rows of 3 and of 4 numbers
    ...
    """
    first = parts[0]
    if isinstance(first, dict) and all(
        isinstance(part, dict) and part.keys() == first.keys() for part in parts
    ):
        return {name: joined([part[name] for part in parts], where) for name in first}
    if not all(isinstance(part, Tensor) and part.dim() for part in parts):
        found = " and ".join(sorted({type(part).__name__ for part in parts}))
        raise _apart(f"they are of the kind {found}", where)
    rows = sorted({tuple(part.shape[1:]) for part in parts})
    if len(rows) > 1:
        raise _apart(
            f"they have rows of {' and of '.join('x'.join(map(str, row)) for row in rows[:3])} numbers", where
        )
    return torch.cat(parts)


def _apart(why: str, where: str) -> DataError:
    do = "give batches of one form: tensors with rows of one shape, or the same names"
    return DataError(f"the batches cannot be joined: {why}", where=where, do=do)


def count_rows(inputs: Any) -> int:
    """How many inputs there are."""
    return len(next(iter(inputs.values()))) if isinstance(inputs, dict) else len(inputs)


def to_device(inputs: Any, device: torch.device | None) -> Any:
    """Inputs on another device; None leaves them where they are."""
    if device is None:
        return inputs
    return {k: v.to(device) for k, v in inputs.items()} if isinstance(inputs, dict) else inputs.to(device)


def arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Inputs as positional and keyword arguments of a model."""
    return ((), dict(inputs)) if isinstance(inputs, dict) else ((inputs,), {})
