"""Ops of two names: torch.multiply is torch.mul. A graph has the name that the rules know.

A name is exchanged only where both ops have the same arguments, so that a call means the same under either.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import fx

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


def _signature(op: Any) -> list[tuple[str, str, bool]]:
    return [(str(a.type), repr(a.default_value), a.kwarg_only) for a in op._schema.arguments]


@cache
def known_name(target: Any) -> Any:
    """The op that another one is a name of, or itself.

    >>> known_name(torch.ops.aten.multiply.Tensor), known_name(torch.ops.aten.tanh.default)
    (<OpOverload(op='aten.mul', overload='Tensor')>, <OpOverload(op='aten.tanh', overload='default')>)
    """
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return target
    packet = getattr(torch.ops.aten, NAMES.get(target._opname, ""), None)
    if packet is None or target._overloadname not in packet.overloads():
        return target
    known = getattr(packet, target._overloadname)
    named = [a.name for a in target._schema.arguments] == [a.name for a in known._schema.arguments]
    return known if named and _signature(target) == _signature(known) else target


def rename(module: fx.GraphModule) -> None:
    """Exchange the other names in a graph."""
    renamed = [n for n in module.graph.nodes if known_name(n.target) is not n.target]
    for node in renamed:
        node.target = known_name(node.target)
    if renamed:
        module.recompile()
