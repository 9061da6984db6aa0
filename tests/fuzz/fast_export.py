"""The graph of a small model without the constant cost of exporting, about four fifths of it.

Every call of `run_decompositions` collects some thousand composite ops, registers a dozen kernels on each and
takes them off again. Nothing of this depends on the model: `install` does it once, and afterwards the tables
are exchanged. `in_one_go` traces a functional graph once, with composite ops kept whole as an empty table of
decompositions keeps them, where torch traces three times; for the fuzzer `in_one_pass` has a shorter way.
`test_fuzz.py` holds both against torch's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import torch
from torch import fx, nn
from torch._decomp import decompositions_for_rng
from torch._subclasses import fake_impls
from torch.export import _trace, exported_program
from torch.export.exported_program import ExportedProgram

from .one_pass import copy_literals, trace_in_one_pass

_collect = exported_program._collect_all_valid_cia_ops
_override = exported_program._override_composite_implicit_decomp
_tables: dict[
    frozenset[tuple[Any, Any]], tuple[dict[Any, dict[Any, Any]], dict[Any, Callable[..., Any]]]
] = {}
_ops: list[set[Any]] = []
_kept: list[dict[Any, Callable[..., Any]]] = []


def _collect_once() -> set[Any]:
    if not _ops:
        _ops.append(_collect())
    return _ops[0]


@contextmanager
def _exchange(wanted: dict[Any, Callable[..., Any]]) -> Iterator[None]:
    """The same tables as `_override_composite_implicit_decomp`, put in place by assignment."""
    implementations = fake_impls.op_implementations_dict
    key = frozenset((op, id(function)) for op, function in wanted.items())
    if key not in _tables:
        before = set(implementations)
        with _override(wanted):
            kernels = {op: dict(op.py_kernels) for op in wanted}
            added = {op: f for op, f in implementations.items() if op not in before}
        _tables[key] = kernels, added
    kernels, added = _tables[key]
    saved = {op: op.py_kernels for op in wanted}
    for op, table in kernels.items():
        op.py_kernels = table
        op._dispatch_cache.clear()
    implementations.update(added)
    try:
        yield
    finally:
        for op, table in saved.items():
            op.py_kernels = table
            op._dispatch_cache.clear()
            implementations.pop(op, None)  # as the original does, whoever registered it


class _Decomposed:
    """What `torch.export.export` returns, of which only one thing is asked."""

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program

    def run_decompositions(self, table: Mapping[Any, Any]) -> ExportedProgram:
        """The program; it was traced with an empty table."""
        if table:
            raise ValueError("traced with an empty table of decompositions")
        return self.program


_whole = torch.export.export


def _composite() -> dict[Any, Callable[..., Any]]:
    """The composite ops that an empty table of decompositions keeps whole."""
    if not _kept:
        _kept.append(exported_program._split_decomp_table_to_cia_and_python_decomp({})[0])
    return _kept[0]


def _export_once(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, **more: Any
) -> Any:
    if more != {"strict": False}:  # asked for by someone else: an exporter, a test that saves a program
        return _whole(model, args, kwargs, **more)
    try:
        with _exchange(_composite()), _plainly():
            program = _trace._export(model, args, kwargs, strict=False, pre_dispatch=False)
            copy_literals(program.graph)
            return _Decomposed(program)
    except Exception:  # programs that were exported before trace no second time; and errors are torch's own
        return _whole(model, args, kwargs, **more)


def _export_in_one_pass(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, **more: Any
) -> Any:
    if not kwargs and more == {"strict": False}:
        with suppress(Exception), _exchange(_composite()), _plainly():  # torch's own way says what is wrong
            return trace_in_one_pass(model, args)
    return _export_once(model, args, kwargs, **more)


@contextmanager
def _plainly() -> Iterator[None]:
    """No stack is written down, and random ops stay whole. Programs that are saved need their stacks."""
    tracker = decompositions_for_rng.PhiloxStateTracker
    silent, reset = fx.config.do_not_emit_stack_traces, tracker.reset
    fx.config.do_not_emit_stack_traces, tracker.reset = True, lambda: None
    try:
        yield
    finally:
        fx.config.do_not_emit_stack_traces, tracker.reset = silent, reset


@contextmanager
def in_one_go(export: Callable[..., Any] = _export_once) -> Iterator[None]:
    """Every export of ours in here is traced once."""
    decompositions_for_rng.PhiloxStateTracker.reset()
    before, torch.export.export = torch.export.export, export
    try:
        yield
    finally:
        torch.export.export = before


def in_one_pass() -> AbstractContextManager[None]:
    """The same for the small models of the fuzzer, on real tensors; no node knows its layer."""
    return in_one_go(_export_in_one_pass)


def install() -> None:
    """Collect and register once in this process."""
    exported_program._collect_all_valid_cia_ops = _collect_once
    exported_program._override_composite_implicit_decomp = _exchange


@contextmanager
def in_all_passes() -> Iterator[None]:
    """Inside, torch traces as often as it likes; only its tables are those that were made once."""
    before, torch.export.export = torch.export.export, _whole
    try:
        yield
    finally:
        torch.export.export = before


@contextmanager
def torchs_own() -> Iterator[None]:
    """Inside, every export is torch's own, wherever this stands."""
    tables = exported_program._collect_all_valid_cia_ops, exported_program._override_composite_implicit_decomp
    remove()
    try:
        with in_all_passes():
            yield
    finally:
        exported_program._collect_all_valid_cia_ops = tables[0]
        exported_program._override_composite_implicit_decomp = tables[1]


def remove() -> None:
    """Back to torch's own tables."""
    exported_program._collect_all_valid_cia_ops = _collect
    exported_program._override_composite_implicit_decomp = _override


__all__ = ["in_all_passes", "in_one_go", "in_one_pass", "install", "torchs_own"]
