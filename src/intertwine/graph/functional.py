"""The functional ATen graph of a model, no op decomposed: traced once.

`in_several_passes` is the public way of torch: it traces a model as it is written, and what it wrote twice
more. `in_one_go` asks the same machinery for the functional graph at once, with the composite ops kept whole
that an empty table of decompositions keeps. That call is not public: where it fails, or is gone, the public
way does. `tests/fuzz/test_fuzz.py` holds the graphs of both against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram

# An op that one go leaves -> the op that several passes write in its place; `rules` fills it.
WRITTEN_AS: dict[Any, Any] = {}


def in_several_passes(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ExportedProgram:
    """Whatever can be exported, or an error that says why it cannot."""
    program: ExportedProgram = torch.export.export(model, args, kwargs, strict=False).run_decompositions({})
    return program


def in_one_go(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ExportedProgram:
    """The same at half the cost, or any error."""
    from torch.export import _trace, exported_program  # late: they load much

    registered = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
    kept = _composite_ops((*registered, *torch.ops._dir))
    with exported_program._override_composite_implicit_decomp(kept), _without_stacks():
        program: ExportedProgram = _trace._export(model, args, kwargs, strict=False, pre_dispatch=False)
    copy_literals(program.graph)
    return program


@lru_cache(maxsize=1)
def _composite_ops(registered: tuple[str, ...]) -> dict[Any, Callable[..., Any]]:
    """The composite ops that stay whole; collected anew when a library has registered more of them."""
    from torch.export import exported_program

    kept: dict[Any, Callable[..., Any]] = exported_program._split_decomp_table_to_cia_and_python_decomp({})[0]
    return kept


@contextmanager
def _without_stacks() -> Iterator[None]:
    """No line of source is looked up for each node: nothing here reads them."""
    before = fx.config.do_not_emit_stack_traces
    fx.config.do_not_emit_stack_traces = True
    try:
        yield
    finally:
        fx.config.do_not_emit_stack_traces = before


def copy_literals(graph: fx.Graph) -> None:
    """A tensor that stands in the code is copied by the op that `run_decompositions` writes."""
    for node in graph.nodes:
        node.target = WRITTEN_AS.get(node.target, node.target) if node.op == "call_function" else node.target
