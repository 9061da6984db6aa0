"""Run a model over data and hand out its values, batch by batch or all at once.

Data may be a tensor of inputs, a pair (inputs, labels), an object with `.batches()`, or any iterable of
batches; a batch is inputs or (inputs, labels), and inputs are a tensor, or a dict of keyword arguments. The
model runs in eval mode without gradients, on a graph of its own: the caller's model keeps its mode, buffers,
hooks and gradients.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from intertwine.errors import DataError, NotFound
from intertwine.similarity.features import check_finite
from intertwine.trace.values import Value, ValueGraph

At = Literal["layers", "all"] | str | Sequence[str]
BATCH = 256


@dataclass(frozen=True)
class Batch:
    """What one network computed on one batch: layer -> N x C x (pixels), the output, and the labels if there
    are any."""

    values: dict[str, Tensor]
    output: Tensor
    labels: Tensor | None


@dataclass(frozen=True)
class Features(Mapping[str, Tensor]):
    """Features of a network on a data set: a mapping layer name -> N x C x (pixels), on the CPU.

    `outputs` are the model's outputs and `labels` the data's, in the same order as the features.
    """

    layers: dict[str, Tensor]
    outputs: Tensor
    labels: Tensor | None = field(default=None)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.layers:
            raise NotFound(f"no layer named {name!r}", do=f"the layers are {', '.join(self.layers)}")
        return self.layers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __repr__(self) -> str:
        shapes = ", ".join(
            f"{name}: {'x'.join(map(str, value.shape))}" for name, value in self.layers.items()
        )
        return f"Features({shapes})"


class Runner:
    """One network and the values wanted of it; runs any batch, tracing once for each size of batch.

    `at`: "layers" (what a reader would call layers: the value after norm, activation or residual sum), "all"
    (every value), or names and patterns such as "layer1.*".
    """

    def __init__(self, model: nn.Module, at: At = "layers") -> None:
        self.model, self.at = model, at
        self._graphs: dict[tuple[Any, ...], ValueGraph] = {}

    def wanted(self, inputs: Any) -> list[Value]:
        """The values that `at` selects, in the order in which the network computes them."""
        return select(self._graph(inputs).values, self.at)

    def run(self, inputs: Any, only: Iterable[str] | None = None) -> tuple[dict[str, Tensor], Tensor]:
        """Values with channels moved to dim 1, and the output."""
        graph, (args, kwargs) = self._graph(inputs), _arguments(inputs)
        chosen = [v for v in select(graph.values, self.at) if only is None or v.name in set(only)]
        found, output = graph.run(args, kwargs, [v.name for v in chosen])
        return {v.name: found[v.name].movedim(v.channel_dim, 1) for v in chosen}, output

    def _graph(self, inputs: Any) -> ValueGraph:
        args, kwargs = _arguments(inputs)
        leaves = [*args, *kwargs.values()]
        key = tuple((tuple(leaf.shape), leaf.dtype) if isinstance(leaf, Tensor) else leaf for leaf in leaves)
        if key not in self._graphs:
            self._graphs[key] = ValueGraph(self.model, args, kwargs)
        return self._graphs[key]


def collect(model: nn.Module, data: Any, at: At = "layers", *, limit: int | None = None) -> Features:
    """Every wanted value of `model` on `data`, in memory; `limit` stops after that many inputs.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> collect(net, torch.zeros(6, 3))
    Features(1: 6x4, 2: 6x2)
    """
    kept: dict[str, list[Tensor]] = {}
    outputs, labels = [], []
    for batch in run_batches(Runner(model, at), data, limit=limit):
        for name, value in batch.values.items():
            check_finite(value, name)
            kept.setdefault(name, []).append(value.cpu())
        outputs.append(batch.output.cpu())
        if batch.labels is not None:
            labels.append(batch.labels.cpu())
    layers = {name: torch.cat(values) for name, values in kept.items()}
    return Features(layers, torch.cat(outputs), torch.cat(labels) if labels else None)


def run_batches(
    runner: Runner, data: Any, *, limit: int | None = None, only: Iterable[str] | None = None
) -> Iterator[Batch]:
    """Run the network over every batch of `data`."""
    for inputs, labels in iterate(data, limit=limit, device=_device(runner.model)):
        values, output = runner.run(inputs, only)
        yield Batch(values, output, labels)


def select(values: Sequence[Value], at: At) -> list[Value]:
    """The values that `at` names; NotFound, with the nearest names, when a name or pattern matches
    nothing."""
    if at == "all":
        return list(values)
    if at == "layers":
        return [v for v in values if v.is_layer]
    patterns = [at] if isinstance(at, str) else list(at)
    if not patterns:
        raise NotFound("no layer is named", do=f"the layers are {', '.join(v.name for v in values)}")
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(v.name, pattern) for v in values):
            raise NotFound(
                f"no layer named {pattern!r}", do=f"the layers are {', '.join(v.name for v in values)}"
            )
    return [v for v in values if any(fnmatch.fnmatchcase(v.name, pattern) for pattern in patterns)]


def iterate(
    data: Any, *, limit: int | None = None, device: torch.device | None = None, batch: int = BATCH
) -> Iterator[tuple[Any, Tensor | None]]:
    """(inputs, labels or None) for each batch, cut off after `limit` inputs and moved to `device`."""
    left = limit
    for inputs, labels in _batches(data, batch):
        count = _count(inputs)
        if left is not None and left < count:
            inputs, labels, count = _head(inputs, left), None if labels is None else labels[:left], left
        if count:
            yield _move(inputs, device), labels
        if left is not None:
            left -= count
            if left <= 0:
                return


def _batches(data: Any, batch: int) -> Iterator[tuple[Any, Tensor | None]]:
    if hasattr(data, "batches"):
        yield from data.batches()
    elif isinstance(data, (Tensor, dict)):
        yield from ((part, None) for part in _cut(data, batch))
    elif _is_pair(data):
        if len(data[0]) != len(data[1]):
            raise DataError(f"{len(data[0])} inputs but {len(data[1])} labels")
        yield from zip(_cut(data[0], batch), data[1].split(batch), strict=True)
    elif isinstance(data, Iterable):
        for item in data:
            yield item if _is_pair(item) else (item[0] if isinstance(item, (tuple, list)) else item, None)
    else:
        raise DataError(
            f"cannot read data of type {type(data).__name__}",
            do="pass a tensor, (inputs, labels), or batches",
        )


def _is_pair(item: Any) -> bool:
    """(inputs, labels): labels are a vector of integers, one for each input."""
    return (
        isinstance(item, (tuple, list))
        and len(item) == 2
        and isinstance(item[0], (Tensor, dict))
        and isinstance(item[1], Tensor)
        and item[1].ndim == 1
    )


def _cut(inputs: Any, batch: int) -> Iterator[Any]:
    if isinstance(inputs, dict):
        for start in range(0, _count(inputs), batch):
            yield {name: value[start : start + batch] for name, value in inputs.items()}
    else:
        yield from inputs.split(batch)


def _head(inputs: Any, count: int) -> Any:
    return {k: v[:count] for k, v in inputs.items()} if isinstance(inputs, dict) else inputs[:count]


def _count(inputs: Any) -> int:
    return len(next(iter(inputs.values()))) if isinstance(inputs, dict) else len(inputs)


def _move(inputs: Any, device: torch.device | None) -> Any:
    if device is None:
        return inputs
    return {k: v.to(device) for k, v in inputs.items()} if isinstance(inputs, dict) else inputs.to(device)


def _device(model: nn.Module) -> torch.device | None:
    first = next(model.parameters(), None)
    return None if first is None else first.device


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return ((), dict(inputs)) if isinstance(inputs, dict) else ((inputs,), {})
