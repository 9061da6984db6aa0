"""Run an exported graph on any number of inputs and keep some of its values.

A graph is made for one number of rows. More rows go through it in pieces, and the last piece is filled up
with copies of its rows, whose results are dropped: one export serves all batches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_flatten

from intertwine.errors import DataError
from intertwine.graph.export import Traced, named_tensors
from intertwine.graph.kernels import ANY_STRIDES

Keep = Callable[[str, Tensor], Tensor]  # a node and its value -> what is kept of it, a row for each input


class Recorder:
    """The graph of `traced` with the weights of one model; live: gradients reach them. loose: the graph runs
    on any number of rows (`runs_on`)."""

    def __init__(self, traced: Traced, model: nn.Module, *, live: bool = False, loose: bool = False) -> None:
        self.traced, self.live, self.loose = traced, live, loose
        state = named_tensors(model)
        named = traced.weights.items()
        self.fixed: dict[str, Tensor] = {n: state[w] if live else state[w].detach() for n, w in named}
        self.fixed.update(traced.constants)
        self.inputs = [n for n in traced.graph.nodes if n.op == "placeholder" and n.name not in self.fixed]
        self.batch = rows_of([n.meta.get("val") for n in self.inputs])

    def __call__(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None,
        wanted: Collection[str],
        keep: Keep | None = None,
    ) -> tuple[dict[str, Tensor], Any]:
        """The values of the wanted nodes and the model's (first) output. keep: what is kept of a value, asked
        when it is computed: to hold all of every value takes memory, and what that costs."""
        leaves = tree_flatten((tuple(args), self._in_order(kwargs or {})))[0]
        rows = rows_of(leaves)
        if rows == self.batch or self.loose:
            return self._run(leaves, wanted, keep)
        parts = []
        for start in range(0, rows, self.batch):
            index = torch.arange(start, min(start + self.batch, rows))
            fill = index[torch.arange(self.batch) % len(index)]
            chosen = [x[fill.to(x.device)] if _has_rows(x, rows) else x for x in leaves]
            found, output = self._run(chosen, wanted, keep)
            parts.append(({n: v[: len(index)] for n, v in found.items()}, output[: len(index)]))
        values = {name: torch.cat([found[name] for found, _ in parts]) for name in wanted}
        return values, torch.cat([output for _, output in parts])

    @torch.no_grad()
    def runs_on(self, rows: int) -> bool:
        """Whether the graph makes of so many rows alone what it makes of them among others: then no op of it
        holds the number of rows that it was made for."""
        example = self.traced.example
        given = tree_flatten((tuple(example.args), dict(example.kwargs)))[0]
        few = [x[:rows] if _has_rows(x, self.batch) else x for x in given]
        try:
            alone = self._run(few, ())[1]
        except RuntimeError:
            return False
        among = self._run(given, ())[1][:rows]
        return alone.shape == among.shape and torch.allclose(alone, among, rtol=1e-3, atol=1e-4)

    def _in_order(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Named arguments as the graph takes them, whose inputs have places: masks and tokens look alike."""
        order = self.traced.example.kwargs
        if not order or not kwargs:
            return dict(kwargs)
        if kwargs.keys() != order.keys():
            raise DataError(
                f"inputs named {', '.join(kwargs)}, and the model was traced with {', '.join(order)}",
                do="trace it on inputs of the same names",
            )
        return {name: kwargs[name] for name in order}

    def _run(
        self, leaves: Sequence[Any], wanted: Collection[str], keep: Keep | None = None
    ) -> tuple[dict[str, Tensor], Any]:
        given = iter(leaves)
        placeholders = [n.name for n in self.traced.graph.nodes if n.op == "placeholder"]
        values = [self.fixed[name] if name in self.fixed else next(given) for name in placeholders]
        keeper = _Keeper(self.traced, set(wanted), keep)
        with torch.set_grad_enabled(self.live and torch.is_grad_enabled()):
            output = keeper.run(*values, enable_io_processing=False)
        return keeper.found, output[0] if isinstance(output, (tuple, list)) and output else output


class _Keeper(fx.Interpreter):
    def __init__(self, traced: Traced, wanted: set[str], keep: Keep | None) -> None:
        super().__init__(traced.module, graph=traced.graph)
        self.wanted, self.keep, self.found = wanted, keep, dict[str, Tensor]()

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return super().call_function(ANY_STRIDES.get(target, target), args, kwargs)

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.name in self.wanted:
            self.found[n.name] = result if self.keep is None else self.keep(n.name, result)
        return result


def key_of(leaves: Sequence[Any]) -> tuple[Any, ...]:
    """What a graph depends on: everything about the inputs but their number."""
    return tuple((tuple(x.shape[1:]), x.dtype) if isinstance(x, Tensor) else x for x in leaves)


def rows_of(leaves: Sequence[Any]) -> int:
    """The number of inputs in flattened arguments: the first size of the first tensor."""
    return next((int(x.shape[0]) for x in leaves if isinstance(x, Tensor) and x.ndim), 0)


def _has_rows(x: Any, rows: int) -> bool:
    return isinstance(x, Tensor) and x.ndim > 0 and x.shape[0] == rows
