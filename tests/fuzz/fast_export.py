"""`run_decompositions` without its constant cost: about four fifths of the export of a small model.

Every call collects some thousand composite ops, registers a dozen kernels on each and takes them off again.
Nothing of this depends on the model, so here it is done once, and afterwards the tables are exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch._subclasses import fake_impls
from torch.export import exported_program

_collect = exported_program._collect_all_valid_cia_ops
_override = exported_program._override_composite_implicit_decomp
_tables: dict[
    frozenset[tuple[Any, Any]], tuple[dict[Any, dict[Any, Any]], dict[Any, Callable[..., Any]]]
] = {}
_ops: list[set[Any]] = []


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


def install() -> None:
    """Make every export in this process fast."""
    exported_program._collect_all_valid_cia_ops = _collect_once
    exported_program._override_composite_implicit_decomp = _exchange


def remove() -> None:
    """Back to torch's own."""
    exported_program._collect_all_valid_cia_ops = _collect
    exported_program._override_composite_implicit_decomp = _override


__all__ = ["install", "remove"]
