"""Run a model over data and hand out its values, batch by batch or all at once.

The model runs in eval mode without gradients, on a graph of its own: the caller's model keeps its mode,
buffers, hooks and gradients. One trace serves all batches. What data may be: `data.batches`.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from intertwine.checks import checked
from intertwine.comparing.features import check_finite, pool
from intertwine.data.batches import Batches, arguments, count_rows, joined
from intertwine.errors import DataError, ModelError, NotFound, Unsupported
from intertwine.graph.alike import same_program
from intertwine.graph.export import export
from intertwine.graph.record import Recorder, key_of
from intertwine.symmetry import Symmetry
from intertwine.symmetry.values import GraphValue

At = Literal["layers", "all"] | str | Sequence[str]
WIDEST = 4096  # channels on several dimensions are read as one dimension up to here


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
        if not isinstance(name, str) or name not in self.layers:
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


@dataclass
class _Graph:
    """What serves the batches of one size of input; wanted: once it was asked for."""

    symmetry: Symmetry
    recorder: Recorder
    wanted: list[GraphValue] | None = None


class Runner:
    """One network and the values wanted of it; runs any batch on one trace (one for each size of image).

    `at`: "layers" (what a reader would call layers: the value after norm, activation or residual sum), "all"
    (every value but those that a mask was added to, which are `masked`), or names and patterns such as
    "layer1.*". symmetry: that of the model, if it is known.
    like: the runner of another model, whose graphs serve if both surely have the same.
    """

    def __init__(
        self,
        model: nn.Module,
        at: At = "layers",
        symmetry: Symmetry | None = None,
        like: Runner | None = None,
    ) -> None:
        self.model, self.at = model, at
        self.masked: tuple[str, ...] = ()
        self._like = like if like is not None and same_program(like.model, model) else None
        self._graphs: dict[tuple[Any, ...], _Graph] = {}
        if symmetry is not None:
            recorder = Recorder(symmetry.traced, model)
            self._graphs[key_of([n.meta["val"] for n in recorder.inputs])] = _Graph(symmetry, recorder)

    @property
    def device(self) -> torch.device | None:
        """Where the model lives."""
        first = next(self.model.parameters(), None)
        return None if first is None else first.device

    def wanted(self, inputs: Any) -> list[GraphValue]:
        """The values that `at` selects, in the order in which the network computes them."""
        graph = self._graph(inputs)
        if graph.wanted is None:
            graph.wanted = select(graph.symmetry.values.by_input, self.at)
            if self.at == "all":
                self.masked = self._masked(inputs, graph)
                graph.wanted = [v for v in graph.wanted if v.name not in self.masked]
        if not graph.wanted:
            raise Unsupported(
                f"{type(self.model).__name__} computes no value that has a row for each input",
                so="there are no layers to look at",
            )
        return graph.wanted

    def run(
        self, inputs: Any, only: Iterable[str] | None = None, *, pooled: bool = False
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Values as inputs x channels x pixels, and the output. pooled: of the pixels their mean, taken of a
        value when it is computed."""
        args, kwargs = arguments(inputs)
        chosen = {v.node: v for v in self._chosen(inputs, only)}

        def keep(node: str, value: Tensor) -> Tensor:
            features = _measurable(chosen[node].features(value, WIDEST))
            return pool(features) if pooled else features

        found, output = self._graph(inputs).recorder(args, kwargs, chosen, keep)
        if not output.dim():
            raise ModelError("the model's output is one number for all inputs", do="return one an input")
        return {v.name: found[node] for node, v in chosen.items()}, output

    def held(self, inputs: Any, only: Iterable[str] | None = None, *, pooled: bool = False) -> int:
        """The bytes that the values of one input take."""
        graph = self._graph(inputs)
        made = {n.name: n.meta.get("val") for n in graph.symmetry.traced.graph.nodes}
        total = 0
        for node, value in {v.node: v for v in self._chosen(inputs, only)}.items():
            size: int = made[node].numel() * made[node].element_size()
            total += size // max(math.prod(value.layout.pixels), 1) if pooled else size
        return total // max(graph.recorder.batch, 1)

    def at_most(self, rows: int) -> None:
        """No more inputs than these come at once from now on: graphs for more are made anew."""
        self._graphs = {key: made for key, made in self._graphs.items() if made.recorder.batch <= rows}

    def over(
        self, data: Any, *, limit: int | None = None, only: Iterable[str] | None = None
    ) -> Iterator[Batch]:
        """Run the network over every batch of `data`."""
        for inputs, labels in Batches(data, limit=limit, device=self.device):
            values, output = self.run(inputs, only)
            yield Batch(values, output, labels)

    def _chosen(self, inputs: Any, only: Iterable[str] | None) -> list[GraphValue]:
        names = None if only is None else set(only)
        return [v for v in self.wanted(inputs) if names is None or v.name in names]

    def _masked(self, inputs: Any, graph: _Graph) -> tuple[str, ...]:
        """Names of values to which a mask was added: some entries are infinite, or as good as, or what a row
        of infinities alone became; no sum of their squares is a number."""
        values = graph.wanted or ()

        def keep(node: str, value: Tensor) -> Tensor:
            value = _measurable(value)
            most = torch.finfo(value.dtype).max ** 0.5 if value.is_floating_point() else math.inf
            return ~(value.flatten(1).abs() <= most).all(1)

        found, _ = graph.recorder(*arguments(inputs), [v.node for v in values], keep)
        return tuple(v.name for v in values if found[v.node].any())

    def _graph(self, inputs: Any) -> _Graph:
        args, kwargs = arguments(inputs)
        key = key_of([*args, *kwargs.values()])
        if key not in self._graphs:
            if count_rows(inputs) == 1:  # with one row, what belongs to different inputs cannot be seen
                args, kwargs = tree_map(lambda x: torch.cat([x, x]), (args, kwargs))
            like = self._like
            same = None if like is None else like._graph(inputs).symmetry
            symmetry = Symmetry(export(self.model, args, kwargs)) if same is None else same
            self._graphs[key] = _Graph(symmetry, Recorder(symmetry.traced, self.model))
        return self._graphs[key]


def _measurable(value: Tensor) -> Tensor:
    """Half precision is measured in float32: sums would overflow, and some products have no kernel."""
    return value.float() if value.is_floating_point() and value.itemsize < 4 else value


@checked
def collect(model: nn.Module, data: Any, at: At = "layers", *, limit: int | None = None) -> Features:
    """Every wanted value of `model` on `data`, in memory; `limit` stops after that many inputs.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> collect(net, torch.zeros(6, 3))
    Features(1: 6x4, 2: 6x2)
    """
    kept: dict[str, list[Tensor]] = {}
    outputs, labels = [], []
    for batch in Runner(model, at).over(data, limit=limit):
        for name, value in batch.values.items():
            check_finite(value, name)
            kept.setdefault(name, []).append(value.cpu())
        outputs.append(batch.output.cpu())
        if batch.labels is not None:
            labels.append(batch.labels.cpu())
    if not outputs:
        raise DataError("there are no inputs", do="give at least one")
    layers = {name: joined(values, name) for name, values in kept.items()}
    return Features(layers, joined(outputs, "the outputs"), joined(labels, "the labels") if labels else None)


def select(values: Sequence[GraphValue], at: At) -> list[GraphValue]:
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
