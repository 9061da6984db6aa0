"""The graph of a small model without the constant cost of exporting, about four fifths of it.

Every export collects some thousand composite ops, registers a dozen kernels on each and takes them off again.
Nothing of this depends on the model: `install` does it once, and afterwards the tables are exchanged.
`in_one_go` is the way of `intertwine` itself; for the fuzzer `in_one_pass` has a shorter one. `test_fuzz.py`
holds both against torch's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from torch import fx, nn
from torch._decomp import decompositions_for_rng
from torch._subclasses import fake_impls
from torch.export import exported_program
from torch.export.exported_program import ExportedProgram

from intertwine.graph import functional

from .one_pass import trace_in_one_pass

_collect = exported_program._collect_all_valid_cia_ops
_override = exported_program._override_composite_implicit_decomp
_split = exported_program._split_decomp_table_to_cia_and_python_decomp
_TABLES = {
    "_collect_all_valid_cia_ops": _collect,
    "_override_composite_implicit_decomp": _override,
    "_split_decomp_table_to_cia_and_python_decomp": _split,
}
_one_go = functional.in_one_go
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


def _export_in_one_go(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ExportedProgram:
    with _plainly():
        return _one_go(model, args, kwargs)


def _export_in_one_pass(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not kwargs:
        with suppress(Exception), _exchange(_composite()), _plainly():  # torch's own way says what is wrong
            return trace_in_one_pass(model, args)
    return _export_in_one_go(model, args, kwargs)


def _refuse(*given: Any) -> ExportedProgram:
    raise NotImplementedError("torch's own way is wanted")


def _composite() -> dict[Any, Callable[..., Any]]:
    """The composite ops that an empty table of decompositions keeps whole."""
    if not _kept:
        _kept.append(_split({})[0])
    return _kept[0]


def _split_once(table: dict[Any, Any]) -> Any:
    return (dict(_composite()), {}) if not table else _split(table)


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
def exporting(way: Callable[..., Any]) -> Iterator[None]:
    """In here the first way that `intertwine` exports a model is this one."""
    decompositions_for_rng.PhiloxStateTracker.reset()
    before, functional.in_one_go = functional.in_one_go, way
    try:
        yield
    finally:
        functional.in_one_go = before


def in_one_go() -> AbstractContextManager[None]:
    """The way of users, with tables that were made once."""
    return exporting(_export_in_one_go)


def in_one_pass() -> AbstractContextManager[None]:
    """The same for the small models of the fuzzer, on real tensors; no node knows its layer."""
    return exporting(_export_in_one_pass)


def install() -> None:
    """Collect and register once in this process."""
    exported_program._collect_all_valid_cia_ops = _collect_once
    exported_program._override_composite_implicit_decomp = _exchange
    exported_program._split_decomp_table_to_cia_and_python_decomp = _split_once


@contextmanager
def torchs_own() -> Iterator[None]:
    """Inside, every export is torch's own, wherever this stands."""
    tables = {name: getattr(exported_program, name) for name in _TABLES}
    try:
        for name, original in _TABLES.items():
            setattr(exported_program, name, original)
        with exporting(_refuse):
            yield
    finally:
        for name, table in tables.items():
            setattr(exported_program, name, table)


__all__ = ["exporting", "in_one_go", "in_one_pass", "install", "torchs_own"]
