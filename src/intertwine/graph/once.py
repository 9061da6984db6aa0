"""A graph in which equal ops on equal values stand once, however often forward runs them."""

from __future__ import annotations

from typing import Any

from torch import Tag, fx
from torch.utils._pytree import tree_leaves

from intertwine.graph.export import Traced


def run_once(traced: Traced) -> Traced:
    """The given graph, rewritten: what several networks compute alike of weights that they share is computed
    once. Ops that draw random numbers or write into what they read stay as they are."""
    first: dict[Any, fx.Node] = {}
    for node in list(traced.graph.nodes):
        key = _key(node, traced)
        before = node if key is None else first.setdefault(key, node)
        if before is not node:
            node.replace_all_uses_with(before)
            if node.op != "placeholder":
                traced.graph.erase_node(node)
    traced.module.recompile()
    return traced


def _key(node: fx.Node, traced: Traced) -> Any:
    """What two nodes have in common that give the same; None where that is not known."""
    if node.op == "placeholder":
        return traced.weights.get(node.name)
    schema, tags = getattr(node.target, "_schema", None), getattr(node.target, "tags", ())
    if node.op != "call_function" or (schema is not None and schema.is_mutable):
        return None
    if Tag.nondeterministic_seeded in tags:
        return None
    kinds = tuple(type(leaf) for leaf in tree_leaves((node.args, node.kwargs)))  # 1 and True are equal
    key = node.target, node.args, tuple(node.kwargs.items()), kinds
    try:
        hash(key)
    except TypeError:  # a slice, say
        return None
    return key
