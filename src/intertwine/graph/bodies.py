"""Ops that hold graphs of their own (branches, loops) are replaced by what these compute, in one graph.

`INLINED` says how: node and bodies -> its results, written before the node; None: it stays as it is. `rules`
fills it. What is held by an op that stays is written out inside it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

INLINED: dict[Any, Callable[[fx.Node, Sequence[fx.Graph]], Sequence[Any] | None]] = {}


def body_of(node: fx.Node) -> fx.GraphModule | None:
    """The body that a node names; None where it names a tensor."""
    owner = node.graph.owning_module
    assert owner is not None and isinstance(node.target, str)  # the name of an attribute
    held = operator.attrgetter(node.target)(owner)
    return held if isinstance(held, fx.GraphModule) else None


def write_out(module: fx.GraphModule) -> None:
    """Inline the bodies of all ops of `INLINED`, those inside them first."""
    changed = False
    for node in [n for n in module.graph.nodes if n.op == "call_function"]:
        named = [a for a in node.args if isinstance(a, fx.Node) and a.op == "get_attr"]
        bodies = [body for held in named if (body := body_of(held)) is not None]
        for body in bodies:
            write_out(body)
        if node.target not in INLINED:
            continue
        graphs = [body.graph for body in bodies]
        if any(n.op == "get_attr" for graph in graphs for n in graph.nodes):
            continue  # what is held inside has no name out here
        if any(user.target is not operator.getitem for user in node.users):
            continue
        with module.graph.inserting_before(node):
            results = INLINED[node.target](node, graphs)
        if results is None:
            continue
        for user in list(node.users):
            user.replace_all_uses_with(results[user.args[1]])
            module.graph.erase_node(user)
        module.graph.erase_node(node)
        changed = True
    if changed:
        module.graph.eliminate_dead_code()  # the names of the bodies
        module.recompile()
