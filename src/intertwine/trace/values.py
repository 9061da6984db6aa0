"""Every value that a model computes, by name, from its exported graph.

The graph is functional, so an in-place ReLU cannot overwrite what came before it, and a functional ReLU is a
value like that of a module. A value is named after its module (`layer1.0.conv1`); an op written in a
container's forward adds its own name (`layer1.0.add`, `relu`); a second use of a name is `relu_1`. Nothing
is attached to the caller's model.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_flatten

from intertwine.errors import ModelError
from intertwine.trace.export import Traced, export, where

# Ops that only carry a value on; what they carry is listed once, where it was computed.
CARRIES = frozenset(
    "view reshape _unsafe_view permute transpose clone alias contiguous expand squeeze unsqueeze "
    "select slice flatten unbind split chunk getitem to _to_copy detach unflatten dropout t pad "
    "constant_pad_nd roll".split()
)
# Ops that finish the value before them: conv, norm, activation is one layer, compared after the last.
_FINISHES = frozenset(
    "relu gelu silu tanh sigmoid hardswish hardsigmoid hardtanh relu6 elu selu celu softplus mish leaky_relu "
    "prelu rrelu softsign log_sigmoid threshold clamp clamp_min add "
    "_native_batch_norm_legit_no_training batch_norm group_norm instance_norm".split()
)
_CHANNELS_FIRST = frozenset(
    "conv1d conv2d conv3d convolution conv_transpose1d conv_transpose2d conv_transpose3d batch_norm "
    "group_norm _native_batch_norm_legit_no_training instance_norm max_pool1d max_pool2d max_pool3d "
    "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d "
    "adaptive_max_pool2d upsample_nearest2d upsample_bilinear2d".split()
)
_CHANNELS_LAST = frozenset("linear layer_norm rms_norm embedding scaled_dot_product_attention matmul".split())
_MOVES_DIMS = frozenset("permute transpose t view reshape _unsafe_view flatten unflatten movedim".split())


@dataclass(frozen=True)
class Value:
    """One value of the graph: its name, the op that made it, its shape, which dim holds the channels."""

    name: str
    op: str
    shape: tuple[int, ...]
    channel_dim: int
    is_layer: bool
    weight: str | None = None  # the nearest weight upstream, whose rows are this value's channels


class ValueGraph:
    """The graph of a model for one shape of input: `values` in order, `run` computes those wanted.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    >>> [value.name for value in ValueGraph(net, (torch.zeros(5, 3),)).values]
    ['0', '1', '2']
    """

    def __init__(
        self, model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
    ) -> None:
        self._traced = export(model, tuple(args), kwargs)
        batch = _batch(args, kwargs or {})
        state = {
            **dict(model.named_parameters(remove_duplicate=False)),
            **dict(model.named_buffers(remove_duplicate=False)),
        }
        self._fixed = {node: state[name].detach() for node, name in self._traced.weights.items()}
        self._fixed.update(self._traced.constants)
        self._nodes = _named_nodes(model, self._traced, batch)
        channels, weights = _channel_dims(self._traced.graph), _weights(self._traced)
        self.values = tuple(
            Value(
                name=name,
                op=op_name(node),
                shape=_shape(node),
                channel_dim=channels.get(node, _guess(_shape(node))),
                is_layer=_ends_layer(node),
                weight=weights.get(node),
            )
            for name, node in self._nodes.items()
        )

    def run(
        self, args: Sequence[Any], kwargs: Mapping[str, Any] | None, wanted: Collection[str]
    ) -> tuple[dict[str, Tensor], Any]:
        """The wanted values and the model's output, without gradients. The inputs' shapes must be those of
        the example."""
        names = {self._nodes[name]: name for name in wanted}
        inputs = iter(tree_flatten((tuple(args), dict(kwargs or {})))[0])
        placeholders = [node.name for node in self._traced.graph.nodes if node.op == "placeholder"]
        values = [self._fixed[name] if name in self._fixed else next(inputs) for name in placeholders]
        recorder = _Recorder(self._traced, names)
        with torch.no_grad():
            output = recorder.run(*values, enable_io_processing=False)
        return recorder.found, output[0] if isinstance(output, (tuple, list)) and output else output


class _Recorder(fx.Interpreter):
    def __init__(self, traced: Traced, names: Mapping[fx.Node, str]) -> None:
        super().__init__(traced.module, graph=traced.graph)
        self.names, self.found = names, dict[str, Tensor]()

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n in self.names:
            self.found[self.names[n]] = result
        return result


def _named_nodes(model: nn.Module, traced: Traced, batch: int) -> dict[str, fx.Node]:
    """Name -> node for every floating value that depends on the input and has one row for each input."""
    leaves = {path for path, module in model.named_modules() if not list(module.children())}
    moving = depends_on_input(traced)
    nodes = [n for n in traced.graph.nodes if n in moving and _is_value(n, batch)]
    paths = {n: "" if where(n) == "(top)" else where(n).split("@")[0] for n in nodes}
    ops: dict[str, set[str]] = {}
    for node, path in paths.items():
        ops.setdefault(path, set()).add(op_name(node))
    seen: Counter[str] = Counter()
    named: dict[str, fx.Node] = {}
    for node, path in paths.items():
        plain = path in leaves and len(ops[path]) == 1
        base = path if plain else f"{path}.{op_name(node)}".lstrip(".")
        name = base
        while name in named:
            seen[base] += 1
            name = f"{base}_{seen[base]}"
        named[name] = node
    return named


def _is_value(node: fx.Node, batch: int) -> bool:
    made_by = source_node(node)
    if node.op != "call_function" or (op_name(node) in CARRIES and made_by is node):
        return False
    value = node.meta.get("val")
    return (
        isinstance(value, Tensor)
        and value.is_floating_point()
        and value.ndim >= 2
        and value.shape[0] == batch
    )


def source_node(node: fx.Node) -> fx.Node:
    """The op itself, or the multi-output op (a batch norm) whose first result this `getitem` takes."""
    if node.target is operator.getitem and node.args[1] == 0 and isinstance(node.args[0], fx.Node):
        origin = node.args[0]
        if _raw_op(origin) not in CARRIES:
            return origin
    return node


def _raw_op(node: fx.Node) -> str:
    if node.target is operator.getitem:
        return "getitem"
    name = getattr(node.target, "overloadpacket", node.target)
    return str(getattr(name, "__name__", name)).split(".")[-1]


def op_name(node: fx.Node) -> str:
    """The name of the op that makes a node's value, without namespace and overload: "relu"."""
    return _raw_op(source_node(node))


def _shape(node: fx.Node) -> tuple[int, ...]:
    return tuple(int(size) for size in node.meta["val"].shape)


def depends_on_input(traced: Traced) -> set[fx.Node]:
    """The nodes whose values change with the inputs; all others are functions of the weights alone."""
    moving: set[fx.Node] = set()
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            if node.name not in traced.weights and node.name not in traced.constants:
                moving.add(node)
        elif any(used in moving for used in node.all_input_nodes):
            moving.add(node)
    return moving


def _ends_layer(node: fx.Node) -> bool:
    """False when the only reader of this value is the norm, activation or sum that finishes the layer."""
    readers = [node]
    while len(readers) == 1 and readers[0].users:
        readers = list(readers[0].users)
        if len(readers) == 1 and op_name(readers[0]) in _FINISHES:
            return False
        if len(readers) != 1 or _raw_op(readers[0]) not in CARRIES:
            break
    return True


def _channel_dims(graph: fx.Graph) -> dict[fx.Node, int]:
    """Which dim holds channels: 1 after a convolution, the last after a linear layer; elementwise ops
    inherit it."""
    dims: dict[fx.Node, int] = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(value, Tensor):
            continue
        op = op_name(node)
        if op in _CHANNELS_FIRST:
            dims[node] = 1
        elif op in _CHANNELS_LAST:
            dims[node] = value.ndim - 1
        else:
            inherited = [
                dims[n] for n in node.all_input_nodes if n in dims and n.meta["val"].ndim == value.ndim
            ]
            if inherited and op not in _MOVES_DIMS:
                dims[node] = inherited[0]
    return dims


def _guess(shape: tuple[int, ...]) -> int:
    return 1 if len(shape) >= 4 else len(shape) - 1


def _weights(traced: Traced) -> dict[fx.Node, str]:
    """For each value the weight that made its channels: that of the op, or of what it was computed from."""
    made: dict[fx.Node, str] = {}
    for node in traced.graph.nodes:
        own = [traced.weights[n.name] for n in node.all_input_nodes if n.name in traced.weights]
        matrix = [name for name in own if name.split(".")[-1] == "weight"]
        inherited = [made[n] for n in node.all_input_nodes if n in made]
        if matrix or inherited:
            made[node] = matrix[0] if matrix else inherited[0]
    return made


def _batch(args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    for leaf in tree_flatten((tuple(args), dict(kwargs)))[0]:
        if isinstance(leaf, Tensor) and leaf.ndim:
            return int(leaf.shape[0])
    raise ModelError(
        "the example holds no tensor with a batch dim", do="give an example input such as 1x3x32x32"
    )
