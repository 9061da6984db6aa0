"""What lies along the last dimensions of a value, entry by entry, and the ops that move entries about.

An entry is a number (equal numbers are equal tensors, at every position of all other dimensions, because the
same op made them of the same tensors; a sign in front counts) or what `rules.terms` makes of one value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import fx

ONE = 1


@dataclass(frozen=True)
class Tail:
    """What lies along the last dimensions of a value: an array of numbers, of terms, or of pairs of terms
    (real and imaginary part). `lead` other dimensions come before."""

    entries: np.ndarray
    lead: int
    form: bool = False
    complex: bool = False


class NotLinear(Exception):
    """This op is none that the reading here knows."""


class Numbers:
    """Numbers by what made them."""

    def __init__(self) -> None:
        self._known: dict[Any, int] = {}

    def of(self, *made: Any) -> int:
        return self._known.setdefault(made, len(self._known) + 2)

    def times(self, a: int, b: int) -> int:
        """The product of two signed numbers."""
        small, large = sorted((abs(a), abs(b)))
        whole = large if small == ONE else self.of("times", small, large)
        return whole if (a > 0) == (b > 0) else -whole


def op_of(node: fx.Node) -> str:
    return str(node.target).removeprefix("aten.") if node.op == "call_function" else ""


def shape_of(node: Any) -> tuple[int, ...] | None:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    if not isinstance(value, torch.Tensor) or not all(isinstance(s, int) for s in value.shape):
        return None
    return tuple(value.shape)


def of_rank(tail: Tail, rank: int, numbers: Numbers) -> np.ndarray:
    """Numbers over the last `rank` dimensions: one for all that lies along the others."""
    entries = tail.entries
    if entries.ndim < rank and tail.lead:
        raise NotLinear  # it may vary along dimensions that it has no numbers for
    if entries.ndim <= rank:
        return entries.reshape((1,) * (rank - entries.ndim) + entries.shape)
    shape = entries.shape[entries.ndim - rank :]
    rows, others = entries.reshape(-1, *shape), entries.shape[: entries.ndim - rank]
    out = np.empty(shape, object)
    for place in np.ndindex(shape):
        column = [int(c) for c in rows[(slice(None), *place)]]
        sign = 1 if column[0] > 0 else -1
        # Which dimensions they lie along belongs to the name: of 1 and of others on top of it, all shift.
        same = len(column) == 1 and not tail.lead
        made = abs(column[0]) if same else numbers.of("all", others, *(sign * c for c in column))
        out[place] = sign * made
    return out


class Call:
    """An op that moves entries: its tails, and how a dimension lies in them."""

    def __init__(self, node: fx.Node, tails: Sequence[Tail], numbers: Numbers) -> None:
        self.node, self.numbers, self.lead = node, numbers, tails[0].lead
        shape = shape_of(node)
        self.rank = len(shape) if shape is not None else 0
        self.shape = shape

    def renamed(self, tail: Tail, lead: int) -> Tail:
        """Numbers of a value whose other dimensions were moved or chosen from: alike for equal ones."""
        if tail.form:
            raise NotLinear
        plain = [a for a in self.node.args if not isinstance(a, fx.Node)]
        how = (op_of(self.node), repr(plain), repr(sorted(self.node.kwargs.items())))
        inputs = tuple((n, shape_of(n)) for n in self.node.all_input_nodes[1:])
        out = np.empty(tail.entries.shape, object)
        for place in np.ndindex(out.shape):
            number = int(tail.entries[place])
            made = self.numbers.of(*how, inputs, shape_of(self.node.all_input_nodes[0]), abs(number))
            out[place] = made if number > 0 else -made
        return Tail(out, lead, complex=tail.complex)


def like(tail: Tail, entries: np.ndarray) -> Tail:
    return Tail(entries, tail.lead, tail.form, tail.complex)


def _along(tail: Tail, dim: int, extra: int = 0) -> int:
    """The dimension of the entries that a dimension of the value is; negative if it is none of them."""
    rank = tail.lead + tail.entries.ndim + extra
    return dim % rank - tail.lead


def _slice(
    call: Call, x: Tail, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tail:
    along = _along(x, dim)
    if along < 0:
        return call.renamed(x, x.lead)
    index = [slice(None)] * x.entries.ndim
    index[along] = slice(start, end, step)
    return like(x, x.entries[tuple(index)])


def _select(call: Call, x: Tail, dim: int, index: int) -> Tail:
    along = _along(x, dim)
    if along < 0:
        return call.renamed(x, x.lead - 1)
    taken = x.entries.take(index, axis=along)
    return like(x, alone(taken))


def alone(entries: Any) -> np.ndarray:
    """An entry alone is an array without dimensions, not a list of its terms."""
    if isinstance(entries, np.ndarray):
        return entries
    out = np.empty((), object)
    out[()] = entries
    return out


def _unbind(call: Call, x: Tail, dim: int = 0) -> list[Tail]:
    along = _along(x, dim)
    if along < 0:
        raise NotLinear
    return [like(x, alone(x.entries.take(k, axis=along))) for k in range(x.entries.shape[along])]


def _split(call: Call, x: Tail, sizes: int | Sequence[int], dim: int = 0) -> list[Tail]:
    along = _along(x, dim)
    if along < 0:
        raise NotLinear
    size = x.entries.shape[along]
    steps = [sizes] * (-(-size // sizes)) if isinstance(sizes, int) else list(sizes)
    return [like(x, part) for part in np.split(x.entries, np.cumsum(steps)[:-1], axis=along)]


def _alike(parts: Sequence[Any]) -> Sequence[Tail]:
    if not all(isinstance(p, Tail) for p in parts) or len({(p.lead, p.form, p.complex) for p in parts}) != 1:
        raise NotLinear
    return parts


def _cat(call: Call, parts: Sequence[Any], dim: int = 0) -> Tail:
    parts = _alike(parts)
    along = _along(parts[0], dim)
    if along < 0:
        raise NotLinear
    return like(parts[0], np.concatenate([p.entries for p in parts], axis=along))


def _stack(call: Call, parts: Sequence[Any], dim: int = 0) -> Tail:
    parts = _alike(parts)
    along = _along(parts[0], dim, extra=1)
    if along < 0:
        raise NotLinear
    return like(parts[0], np.stack([p.entries for p in parts], axis=along))


def _view(call: Call, x: Tail, *_: Any) -> Tail:
    before, after = shape_of(call.node.all_input_nodes[0]), call.shape
    assert before is not None and after is not None
    if after[: x.lead] == before[: x.lead]:
        return like(x, x.entries.reshape(after[x.lead :]))
    tail = x.entries.ndim
    if not x.form and tail and after[len(after) - tail :] == before[x.lead :]:
        return call.renamed(x, len(after) - tail)
    raise NotLinear


def _unsqueeze(call: Call, x: Tail, dim: int) -> Tail:
    along = _along(x, dim, extra=1)
    return like(x, np.expand_dims(x.entries, along)) if along >= 0 else call.renamed(x, x.lead + 1)


def _expand(call: Call, x: Tail, *_: Any) -> Tail:
    assert call.shape is not None
    tail = x.entries.ndim
    entries = np.broadcast_to(x.entries, call.shape[len(call.shape) - tail :])
    return call.renamed(like(x, entries), len(call.shape) - tail)


def _transpose(call: Call, x: Tail, a: int, b: int) -> Tail:
    one, two = _along(x, a), _along(x, b)
    if one >= 0 and two >= 0:
        return like(x, x.entries.swapaxes(one, two))
    if one < 0 and two < 0:
        return call.renamed(x, x.lead)
    raise NotLinear


def _repeat_interleave(call: Call, x: Tail, repeats: int, dim: int | None = None, *_: Any) -> Tail:
    along = _along(x, dim) if dim is not None else -1
    if along < 0 or x.form:
        raise NotLinear
    return like(x, x.entries.repeat(repeats, axis=along))


def _repeat(call: Call, x: Tail, repeats: Sequence[int]) -> Tail:
    tail = x.entries.ndim
    if x.form or len(repeats) != x.lead + tail or not tail:
        raise NotLinear
    whole = like(x, np.tile(x.entries, list(repeats[x.lead :])))
    return whole if all(r == 1 for r in repeats[: x.lead]) else call.renamed(whole, x.lead)


def _index(call: Call, x: Tail, indices: Sequence[Any]) -> Tail:
    """Rows of a table by data: what lies in a row stays."""
    if not isinstance(x, Tail) or len(indices) > x.lead or x.form:
        raise NotLinear
    assert call.shape is not None
    return call.renamed(x, len(call.shape) - x.entries.ndim)


def _as_complex(call: Call, x: Tail) -> Tail:
    if not x.form or x.complex or not x.entries.ndim or x.entries.shape[-1] != 2:
        raise NotLinear
    out = np.empty(x.entries.shape[:-1], object)
    for place in np.ndindex(out.shape):
        out[place] = (x.entries[(*place, 0)], x.entries[(*place, 1)])
    return Tail(out, x.lead, form=True, complex=True)


def _as_real(call: Call, x: Tail) -> Tail:
    if not x.form or not x.complex:
        raise NotLinear
    out = np.empty((*x.entries.shape, 2), object)
    for place in np.ndindex(x.entries.shape):
        out[(*place, 0)], out[(*place, 1)] = x.entries[place]
    return Tail(out, x.lead, form=True)


LISTS = {"split.Tensor", "split_with_sizes.default", "unbind.int"}
STRUCTURE: dict[str, Callable[..., Any]] = {
    "slice.Tensor": _slice, "select.int": _select, "unbind.int": _unbind, "split.Tensor": _split,
    "split_with_sizes.default": _split, "cat.default": _cat, "stack.default": _stack, "view.default": _view,
    "_unsafe_view.default": _view, "reshape.default": _view, "unsqueeze.default": _unsqueeze,
    "expand.default": _expand, "transpose.int": _transpose, "repeat_interleave.self_int": _repeat_interleave,
    "index.Tensor": _index, "repeat.default": _repeat,
    "view_as_complex.default": _as_complex, "view_as_real.default": _as_real,
}  # fmt: skip
