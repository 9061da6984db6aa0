"""Reading a node of a graph: its shape, its operands and its arguments, as `rules.laws` asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map


def shape(node: Any) -> tuple[Any, ...]:
    """The shape of a tensor; () for all else."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    if not isinstance(value, torch.Tensor):
        return ()
    return tuple(s if isinstance(s, int) else s.node.expr for s in value.shape)


def encoded(tree: Any, numbers: Mapping[fx.Node, int]) -> Any:
    """Arguments as a key: operands by their numbers, all else as it prints."""

    def leaf(x: Any) -> Any:
        return ("node", numbers[x]) if isinstance(x, fx.Node) else x

    return repr(tree_map(leaf, tree))


def operands_in_order(node: fx.Node) -> dict[fx.Node, int]:
    """Which operand stands where: one that is given twice (a gain that is the shift too) is one."""
    return {n: -1 - k for k, n in enumerate(node.all_input_nodes)}


def is_drawn(node: fx.Node) -> bool:
    """Whether the results of an op are random numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def nodes_in(tree: Any) -> list[fx.Node]:
    """The operands among arguments, in their order."""
    found = list[fx.Node]()
    tree_map(lambda x: found.append(x) if isinstance(x, fx.Node) else None, tree)
    return found


def dim_of(node: fx.Node, k: int, default: int, of: Any = None) -> int:
    """The dimension among the arguments of a node, counted from the first."""
    given = args_of(node)[k] if len(args_of(node)) > k else node.kwargs.get("dim", default)
    rank = len(shape(node if of is None else of))
    return given % max(rank, 1) if isinstance(given, int) else -1


def dims_of(node: fx.Node) -> list[int]:
    """The dimensions that a node reduces."""
    given: Any = args_of(node)[1] if len(args_of(node)) > 1 else node.kwargs.get("dim")
    rank = len(shape(args_of(node)[0]))
    listed = [given] if isinstance(given, int) else list(given or range(rank))
    return sorted({d % max(rank, 1) for d in listed})


def args_of(node: fx.Node) -> tuple[Any, ...]:
    """The arguments of a node, of which a law knows the kinds."""
    return tuple(node.args)


def three_of(node: fx.Node) -> tuple[fx.Node, fx.Node, fx.Node | None]:
    """What is read, the weight, and the bias if there is one."""
    x, weight, bias = (*args_of(node)[:3], None)[:3]
    return x, weight, bias


def groups_of(node: fx.Node) -> Any:
    """How many groups a convolution has."""
    return args_of(node)[6] if len(args_of(node)) > 6 else node.kwargs.get("groups", 1)
