"""Ops of two names: torch.multiply is torch.mul. A graph gets the name that the rules know (`graph.export`).

A name is exchanged only where both ops have the same arguments, so that a call means the same under either.
"""

from __future__ import annotations

from typing import Any

import torch

from intertwine.graph.export import RENAMED

# another name -> the name with a rule (the documentation of torch says of each: "alias for")
NAMES = dict(
    pair.split(":")
    for pair in """
    multiply:mul subtract:sub divide:div negative:neg absolute:abs clip:clamp fix:trunc
    arccos:acos arcsin:asin arctan:atan arctan2:atan2 arccosh:acosh arcsinh:asinh arctanh:atanh
    greater:gt greater_equal:ge less:lt less_equal:le not_equal:ne
    special_expit:sigmoid special_logit:logit special_erf:erf special_erfc:erfc special_exp2:exp2
    special_expm1:expm1 special_log1p:log1p special_logsumexp:logsumexp concatenate:cat concat:cat
    """.split()
)


def _arguments(op: Any) -> list[tuple[str, str, str, bool]]:
    return [(a.name, str(a.type), repr(a.default_value), a.kwarg_only) for a in op._schema.arguments]


def _overloads(name: str) -> dict[str, Any]:
    packet = getattr(torch.ops.aten, name)
    return {overload: getattr(packet, overload) for overload in packet.overloads()}


for _other, _known in NAMES.items():
    _ops = _overloads(_known)
    for _overload, _op in _overloads(_other).items():
        if _overload in _ops and _arguments(_op) == _arguments(_ops[_overload]):
            RENAMED[_op] = _ops[_overload]
