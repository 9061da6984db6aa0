"""Cut a network at any named value: f = f_{>l} o f_{<=l}, both halves as modules (section 3 of source 002).

What depends on the value is the suffix; everything else stays with the prefix. Inside a residual block the
suffix also reads the skip, so a cut is a set of live values there (eq. E.54): the value itself, and what
`Cut.live` names. Weights keep their state-dict names; the caller's model is never touched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from intertwine.errors import DataError, ModelError, Unsupported
from intertwine.graph.export import export
from intertwine.graph.kernels import ANY_STRIDES
from intertwine.graph.record import Recorder
from intertwine.rules import facts
from intertwine.symmetry.naming import depends_on_input
from intertwine.symmetry.symmetry import Symmetry
from intertwine.symmetry.values import GraphValue

_LAST = torch.channels_last


@dataclass(frozen=True)
class Cut:
    """A value to cut at, and the other values that the rest of the network still needs."""

    value: GraphValue
    live: tuple[str, ...]  # nodes of the graph, in its order
    labels: tuple[str, ...]  # the same by the names of values, where they have one

    @property
    def name(self) -> str:
        return self.value.name

    @property
    def inside(self) -> bool:
        """Whether a skip passes the cut (Remark 3.6)."""
        return bool(self.live)


class BatchNorm(nn.Module):
    """A batch norm of the graph: its stored statistics in eval mode, those of the batch in train mode."""

    def __init__(self, mean: str, var: str, eps: float) -> None:
        super().__init__()
        self.mean, self.var, self.eps = mean, var, eps
        self.collected: list[tuple[int, Tensor, Tensor]] | None = None

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> Any:
        if self.collected is not None:
            dims = [d for d in range(x.ndim) if d != 1]
            of_batch, variance = x.mean(dims), x.var(dims, unbiased=False)
            self.collected.append((x.numel() // x.shape[1], of_batch, variance + of_batch.square()))
        if self.training:
            out = functional.batch_norm(x, None, None, weight, bias, training=True, eps=self.eps)
        else:
            out = functional.batch_norm(x, mean, var, weight, bias, eps=self.eps)
        return (out,)  # the op has more results, which nothing reads in eval mode


class Part(nn.Module):
    """A piece of a network; takes any number of rows, though its graph was made for `batch` of them.

    The last chunk is filled up with copies of its rows, whose results are dropped. Images go channels-last
    through convolutions, which are faster that way on a CPU (benchmarks/stitch.py).
    """

    def __init__(self, body: fx.GraphModule, batch: int, single: bool) -> None:
        super().__init__()
        self.body, self.batch, self.single = body, batch, single
        self.convolves = any(facts(n).channels_last for n in body.graph.nodes)
        for parameter in self.parameters():
            parameter.requires_grad_(False)
        self._stored = {name: self.get_buffer(f"body.{name}").clone() for name in self._statistics()}
        self.eval()

    def forward(self, *values: Tensor) -> Any:
        rows = len(values[0])
        if self.convolves:
            values = tuple(v.contiguous(memory_format=_LAST) if v.ndim == 4 else v for v in values)
        if rows == self.batch:
            out = self.body(*values)
            return out[0] if self.single else out
        parts = []
        for start in range(0, rows, self.batch):
            index = torch.arange(start, min(start + self.batch, rows))
            fill = index[torch.arange(self.batch) % len(index)]
            out = self.body(*(v[fill.to(v.device)] for v in values))
            parts.append([o[: len(index)] for o in out])
        joined = tuple(torch.cat(column) for column in zip(*parts, strict=True))
        return joined[0] if self.single else joined

    def norms(self) -> list[BatchNorm]:
        """The batch norms of this part, in the order of the graph."""
        return [module for module in self.modules() if isinstance(module, BatchNorm)]

    def reset_statistics(self, batches: Iterable[Sequence[Tensor]]) -> None:
        """Measure the mean and variance of every batch norm again, in one pass without gradients.

        Each norm normalises by its batch on the way, as in training; the stored statistics become those of
        all rows together (the no-gradient epoch of appendix D.2.1).
        """
        norms, training = self.norms(), self.training
        if not norms:
            return
        for norm in norms:
            norm.collected = []
        self.train()
        try:
            with torch.no_grad():
                for values in batches:
                    self(*values)
            for norm in norms:
                self._store(norm)
        finally:
            for norm in norms:
                norm.collected = None
            self.train(training)

    def restore_statistics(self) -> None:
        """Put back the statistics that the network came with."""
        for name, tensor in self._stored.items():
            self.get_buffer(f"body.{name}").copy_(tensor)

    def _store(self, norm: BatchNorm) -> None:
        collected = norm.collected or []
        counts = torch.tensor([n for n, _, _ in collected], dtype=torch.float64)
        if not len(counts):
            raise DataError("no batch to measure batch-norm statistics on", do="give some training inputs")
        share = counts / counts.sum()
        means = torch.stack([m for _, m, _ in collected]).double()
        squares = torch.stack([s for _, _, s in collected]).double()
        mean, square = (torch.einsum("b,bc->c", share.to(m.device), m) for m in (means, squares))
        count = float(counts.sum())
        self.get_buffer(f"body.{norm.mean}").copy_(mean)
        unbiased = (square - mean.square()).clamp_min(0) * count / max(count - 1, 1)
        self.get_buffer(f"body.{norm.var}").copy_(unbiased)

    def _statistics(self) -> Iterator[str]:
        for norm in self.norms():
            yield from (norm.mean, norm.var)


class Surgeon:
    """The graph of a model, ready to be cut.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> x = torch.randn(5, 3)
    >>> surgeon = Surgeon(net, (x,))
    >>> value, *live, output = surgeon.record([surgeon.cut("1")])(x)
    >>> torch.allclose(surgeon.suffix(surgeon.cut("1"))(value, *live), net(x))
    True
    """

    def __init__(
        self,
        model: nn.Module,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None = None,
        symmetry: Symmetry | None = None,
    ) -> None:
        self.symmetry = Symmetry(export(model, args, kwargs)) if symmetry is None else symmetry
        self._traced = self.symmetry.traced
        recorder = Recorder(self._traced, model)
        self._fixed, self.batch = recorder.fixed, recorder.batch
        # numbers and words among the arguments are part of the graph: what reads them was traced with them
        self._inputs = [n for n in recorder.inputs if isinstance(n.meta.get("val"), Tensor)]
        self._parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
        self._moving = depends_on_input(self._traced)
        self._nodes = self.symmetry.values.nodes
        self._by_name = {n.name: n for n in self._traced.graph.nodes}
        self._output = _output_node(self._traced.graph)

    @property
    def values(self) -> tuple[GraphValue, ...]:
        """What can be cut at: the values with a row for each input."""
        return self.symmetry.values.by_input

    def value(self, name: str) -> GraphValue:
        """The value of that name; NotFound, with the nearest names, if there is none."""
        return self.symmetry.values[name]

    def node(self, name: str) -> fx.Node:
        """The node of the exported graph that computes a value."""
        return self._nodes[self.value(name).name]

    def is_output(self, name: str) -> bool:
        """Whether the value is what the model returns."""
        return self._nodes[name] is self._output

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of what the model returns for one input."""
        return self.shapes([self._output.name])[0]

    def shapes(self, nodes: Sequence[str]) -> list[tuple[int, ...]]:
        """Shapes of nodes of the graph, without the number of rows."""
        return [tuple(self._by_name[n].meta["val"].shape[1:]) for n in nodes]

    def cut(self, name: str) -> Cut:
        """The cut at a value: what the network needs, beside it, to go on."""
        value, node = self.value(name), self._nodes[name]
        after = _descendants(node)
        if self._output not in after:
            raise Unsupported(f"the output does not depend on {name!r}", so="there is nothing to stitch onto")
        found: dict[fx.Node, None] = {}
        stack, seen = [self._output], {node}
        while stack:
            current = stack.pop()
            if current in seen:
                continue
            seen.add(current)
            if current not in after and current in self._moving:
                found[current] = None
            else:
                stack += current.all_input_nodes
        live = [n for n in self._traced.graph.nodes if n in found]
        for other in live:
            held = other.meta.get("val")
            if not isinstance(held, Tensor) or held.ndim == 0 or held.shape[0] != self.batch:
                raise Unsupported(
                    f"a cut at {name!r} needs {other.name}, which has no row for each input",
                    do="cut at another layer",
                )
        known = {n: label for label, n in self._nodes.items()}
        return Cut(value, tuple(n.name for n in live), tuple(known.get(n, n.name) for n in live))

    def record(self, cuts: Sequence[Cut]) -> Part:
        """inputs -> (value and live values of every cut, ..., output): one pass for all cuts."""
        wanted = [node for c in cuts for node in (self._nodes[c.name], *(self._by_name[n] for n in c.live))]
        return Part(self._extract(self._inputs, [*wanted, self._output]), self.batch, single=False)

    def prefix(self, cut: Cut) -> Part:
        """inputs -> (value, live values): nothing after the cut runs."""
        wanted = [self._nodes[cut.name], *(self._by_name[n] for n in cut.live)]
        return Part(self._extract(self._inputs, wanted), self.batch, single=False)

    def upto(self, names: Sequence[str]) -> Part:
        """inputs -> the values of these names: nothing that they do not need runs."""
        return Part(self._extract(self._inputs, [self.node(n) for n in names]), self.batch, single=False)

    def suffix(self, cut: Cut) -> Part:
        """(value, live values) -> output: nothing before the cut runs."""
        given = [self._nodes[cut.name], *(self._by_name[n] for n in cut.live)]
        return Part(self._extract(given, [self._output]), self.batch, single=True)

    def _extract(self, inputs: Sequence[fx.Node], outputs: Sequence[fx.Node]) -> fx.GraphModule:
        graph, root, new = fx.Graph(), nn.Module(), dict[fx.Node, fx.Node]()
        for node in inputs:
            new[node] = graph.placeholder(f"given_{node.name}")
            new[node].meta = dict(node.meta)
        needed = _needed(outputs, set(inputs))
        for node in self._traced.graph.nodes:
            if node not in needed or node in new or facts(node).checks:
                continue
            if node.op == "placeholder":
                new[node] = graph.get_attr(self._put(root, node))
            elif node.op == "get_attr":
                _attach(root, f"graph.{node.target}", getattr(self._traced.module, str(node.target)))
                new[node] = graph.get_attr(f"graph.{node.target}")
            elif self._is_norm(node):
                path = f"norms.{node.name}"
                _attach(root, path, self._norm(node))
                new[node] = graph.call_module(path, tuple(new[a] for a in node.args[:5]))
            else:
                new[node] = graph.node_copy(node, lambda n: new[n])
                new[node].target = ANY_STRIDES.get(node.target, node.target)
        graph.output(tuple(new[n] for n in outputs))
        with torch.no_grad():
            return fx.GraphModule(root, graph)

    def _put(self, root: nn.Module, node: fx.Node) -> str:
        if node.name not in self._fixed:
            raise Unsupported(f"the cut leaves the input {node.name!r} open")
        name = self._traced.weights.get(node.name, f"constants.{node.name}")
        tensor = self._fixed[node.name].detach().clone()
        _attach(root, name, nn.Parameter(tensor) if name in self._parameters else tensor)
        return name

    def _is_norm(self, node: fx.Node) -> bool:
        """A batch norm with an affine part and stored statistics that belong to the state dict."""
        stored = facts(node).statistics is not None
        return stored and all(
            isinstance(a, fx.Node) and a.name in self._traced.weights for a in node.args[1:5]
        )

    def _norm(self, node: fx.Node) -> BatchNorm:
        mean, var, eps = (node.args[k] for k in facts(node).statistics or ())
        weights = self._traced.weights
        return BatchNorm(weights[str(mean)], weights[str(var)], float(str(eps)))  # a node prints as its name


def _output_node(graph: fx.Graph) -> fx.Node:
    leaves: list[fx.Node] = []
    for node in graph.nodes:
        if node.op == "output":
            fx.map_arg(node.args, leaves.append)
    for leaf in leaves:
        value = leaf.meta.get("val")
        if isinstance(value, Tensor) and value.is_floating_point():
            return leaf
    raise ModelError("the model returns no floating-point tensor", do="return the class scores")


def _descendants(node: fx.Node) -> set[fx.Node]:
    found: set[fx.Node] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        if current not in found:
            found.add(current)
            stack += current.users
    return found


def _needed(outputs: Sequence[fx.Node], given: Collection[fx.Node]) -> set[fx.Node]:
    found: set[fx.Node] = set()
    stack = list(outputs)
    while stack:
        current = stack.pop()
        if current not in found:
            found.add(current)
            if current not in given:
                stack += current.all_input_nodes
    return found


def _attach(root: nn.Module, path: str, value: Any) -> None:
    """Set `root.a.b.c`, making the modules on the way."""
    *parents, last = path.split(".")
    for name in parents:
        if name not in root._modules:
            root.add_module(name, nn.Module())
        root = root.get_submodule(name)
    if isinstance(value, nn.Module):
        root.add_module(last, value)
    elif isinstance(value, nn.Parameter):
        root.register_parameter(last, value)
    else:
        root.register_buffer(last, value)
