"""The graph of a small model in one pass on real tensors, at a third of what `torch.export` costs.

torch runs a model twice, first to learn which buffers it writes, on tensors without entries, whose shapes
cost more than the entries of a small model would. Here every weight is wrapped once, what was written is
read off the wrappers afterwards, and the values are computed. Whatever is unusual (an argument that is
written, a shape that depends on entries, an attribute that is assigned) raises `Unusual`: torch's own way is
taken. `test_fuzz.py` compares both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._dispatch.python import enable_python_dispatcher
from torch._functorch._aot_autograd.functional_utils import from_fun, has_data_mutation, to_fun
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.export._trace import _compiling_state_context, _ignore_backend_decomps
from torch.export.graph_signature import OutputKind
from torch.fx.experimental import proxy_tensor
from torch.nn.utils import stateless
from torch.utils._pytree import tree_leaves

from intertwine.graph.functional import copy_literals

BY_ENTRIES = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}


class Unusual(Exception):
    """A model that this way of tracing is not for."""


@dataclass
class Program:
    """As much of an `ExportedProgram` as is asked for."""

    graph: fx.Graph
    graph_module: fx.GraphModule
    graph_signature: Any
    constants: dict[str, Tensor]


def trace_in_one_pass(model: nn.Module, args: tuple[Any, ...]) -> Program:
    """The functional graph of `model(*args)`: placeholders are parameters, buffers, constants, arguments."""
    if not all(isinstance(a, Tensor) for a in args):
        raise Unusual("arguments that are no tensors")
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    names, many = [*parameters, *buffers], len(parameters) + len(buffers)
    attributes = {id(m): set(vars(m)) for m in model.modules()}
    given = [t.detach().clone() for t in (*parameters.values(), *buffers.values(), *args)]
    written: list[int] = []

    def functional(*flat: Tensor) -> tuple[Any, ...]:
        above = torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize)
        with torch._C._ExcludeDispatchKeyGuard(above):
            wrapped = [to_fun(t) for t in flat]
            state = dict(zip(names, wrapped[:many], strict=True))
            with stateless._reparametrize_module(model, state, tie_weights=True, strict=False):
                outputs = [t for t in tree_leaves(model(*wrapped[many:])) if t is not None]
            if any(has_data_mutation(t) for t in wrapped[many:]):
                raise Unusual("an argument is written")
            written[:] = [k for k, t in enumerate(wrapped[:many]) if has_data_mutation(t)]
            return tuple(from_fun(t) for t in (*(wrapped[k] for k in written), *outputs))

    with (
        torch.no_grad(),
        _values_as_they_are(),
        _ignore_backend_decomps(),
        _compiling_state_context(),
        enable_python_dispatcher(),
        FunctionalTensorMode(pre_dispatch=False, export=True, _allow_token_discovery=True),
    ):
        module = proxy_tensor.make_fx(functional, decomposition_table={})(*given)
    if any(set(vars(m)) != attributes[id(m)] for m in model.modules()):
        raise Unusual("forward assigns an attribute")
    if any(BY_ENTRIES & set(getattr(node.target, "tags", ())) for node in module.graph.nodes):
        raise Unusual("a shape or a number that depends on entries")
    module.graph.eliminate_dead_code()
    places = [node for node in module.graph.nodes if node.op == "placeholder"]
    constants = _lift(module, places[many])
    named = dict(zip((node.name for node in places), names, strict=False))
    signature = SimpleNamespace(
        user_inputs=[place.name for place in places[many:]],
        inputs_to_parameters={place: name for place, name in named.items() if name in parameters},
        inputs_to_buffers={place: name for place, name in named.items() if name in buffers},
        inputs_to_lifted_tensor_constants={name: name for name in constants},
        output_specs=[SimpleNamespace(kind=OutputKind.BUFFER_MUTATION, target=names[k]) for k in written],
    )
    return Program(module.graph, module, signature, constants)


@contextmanager
def _values_as_they_are() -> Iterator[None]:
    """A node's `val` is its value; to make one without entries takes half of the time."""
    whole = proxy_tensor.set_meta

    def keep(proxy: Any, value: Any) -> Any:
        proxy.node.meta["val"] = value
        return proxy

    proxy_tensor.set_meta = keep
    try:
        yield
    finally:
        proxy_tensor.set_meta = whole


def _lift(module: fx.GraphModule, before: fx.Node) -> dict[str, Tensor]:
    """Tensors that stand in the code become placeholders before the arguments."""
    constants: dict[str, Tensor] = {}
    held: dict[Any, fx.Node] = {}
    for node in [n for n in module.graph.nodes if n.op == "get_attr"]:
        value = getattr(module, str(node.target))
        if not isinstance(value, Tensor):
            raise Unusual("an attribute that is no tensor")
        if node.target not in held:
            with module.graph.inserting_before(before):
                held[node.target] = module.graph.placeholder(f"c_lifted_tensor_{len(held)}")
            held[node.target].meta["val"] = value
            constants[held[node.target].name] = value
        node.replace_all_uses_with(held[node.target])
        module.graph.erase_node(node)
    copy_literals(module.graph)
    return constants
