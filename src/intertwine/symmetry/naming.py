"""Names for what a graph computes, and who makes and reads it.

A value is named after its module (`layer1.0.conv1`); an op written in a container's forward adds its own name
(`layer1.0.add`, `relu`); a second use of a name is `relu_1`. What only hands a value on (a view, a slice) is
not listed: the value is, where it was computed.
"""

from __future__ import annotations

import operator
from collections import Counter, deque
from collections.abc import Collection, Iterable

from torch import Tensor, fx

from intertwine.graph.export import Traced, where
from intertwine.rules import facts


def origin(node: fx.Node) -> fx.Node:
    """The op itself, or the op of several results (a batch norm) whose first one this `getitem` takes."""
    if node.target is operator.getitem and node.args[1] == 0 and isinstance(node.args[0], fx.Node):
        return node if carries(node.args[0]) else node.args[0]
    return node


def carries(node: fx.Node) -> bool:
    """Whether a node only hands a value on."""
    return facts(node).carries or (node.target is operator.getitem and origin(node) is node)


def op_name(node: fx.Node) -> str:
    """The name of the op that makes a node's value, without namespace and overload: "relu"."""
    made = origin(node)
    if made.target is operator.getitem:
        return "getitem"
    name = getattr(made.target, "overloadpacket", made.target)
    return str(getattr(name, "__name__", name)).split(".")[-1]


def shape_of(node: fx.Node) -> tuple[int, ...]:
    """The shape of a node's value in the example."""
    return tuple(int(size) for size in node.meta["val"].shape)


def depends_on_input(traced: Traced, entries: bool = False) -> set[fx.Node]:
    """The nodes whose values change with the inputs; all others are functions of the weights alone.

    entries: only with the inputs' entries; what is made from their sizes alone (a mask of zeros) is left out.
    """
    moving: set[fx.Node] = set()
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            if node.name not in traced.weights and node.name not in traced.constants:
                moving.add(node)
        elif any(used in moving for used in node.all_input_nodes) and not (
            entries and facts(node).sizes_only
        ):
            moving.add(node)
    return moving


def _half_written(traced: Traced) -> set[fx.Node]:
    """What is made of a size alone and filled part by part, up to its last part: it may hold anything."""
    found: set[fx.Node] = set()
    for node in traced.graph.nodes:
        begun = facts(node).sizes_only or (_writes(node) and node.args[0] in found)
        if begun and any(_writes(user) and user.args[0] is node for user in node.users):
            found.add(node)
    return found


def _writes(node: fx.Node) -> bool:
    return facts(node).writes and bool(node.args)


def name_nodes(traced: Traced, batch: int) -> dict[str, fx.Node]:
    """Name -> node, in the graph's order, for every floating value that depends on the input.

    Values with a row for each input are named first, so that a window's name never takes one of theirs.
    """
    moving = depends_on_input(traced, entries=True) - _half_written(traced)
    nodes = [n for n in traced.graph.nodes if n in moving and _is_value(n)]
    paths = {n: "" if where(n) == "(top)" else where(n).split("@")[0] for n in nodes}
    rows = [n for n in nodes if len(shape_of(n)) > 1 and shape_of(n)[0] == batch]
    named: dict[str, fx.Node] = {}
    seen: Counter[str] = Counter()
    for group in (rows, [n for n in nodes if n not in set(rows)]):
        ops: dict[str, set[str]] = {}
        for node in group:
            ops.setdefault(paths[node], set()).add(op_name(node))
        for node in group:
            path = paths[node]
            plain = path and path not in traced.containers and len(ops[path]) == 1
            base = path if plain else f"{path}.{op_name(node)}".lstrip(".")
            name = base
            while name in named:
                seen[base] += 1
                name = f"{base}_{seen[base]}"
            named[name] = node
    place = {node: i for i, node in enumerate(nodes)}
    return dict(sorted(named.items(), key=lambda item: place[item[1]]))


def _is_value(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return (
        node.op == "call_function"
        and not carries(node)
        and isinstance(value, Tensor)
        and value.is_floating_point()
        and value.ndim >= 1
        and all(isinstance(size, int) for size in value.shape)  # else it depends on the data
    )


def ends_layer(node: fx.Node) -> bool:
    """False when the only reader of this value is the norm, activation or sum that finishes the layer."""
    readers = [node]
    while len(readers) == 1 and readers[0].users:
        readers = list(readers[0].users)
        if len(readers) == 1 and facts(origin(readers[0])).finishes:
            return False
        if len(readers) != 1 or not carries(readers[0]):
            break
    return True


def find_makers(traced: Traced) -> dict[fx.Node, tuple[str, ...]]:
    """For each value the weights that its op reads, or those of what it is computed from."""
    made: dict[fx.Node, tuple[str, ...]] = {}
    moving = depends_on_input(traced)
    for node in traced.graph.nodes:
        if node.name in traced.weights:
            made[node] = (traced.weights[node.name],)
            continue
        own = [n for n in node.all_input_nodes if n not in moving]
        made[node] = _union(made.get(n, ()) for n in own) or _union(
            made.get(n, ()) for n in node.all_input_nodes
        )
    return made


def find_readers(node: fx.Node, named: Collection[fx.Node]) -> list[fx.Node]:
    """The named values that are computed from this one directly."""
    found, seen = dict[fx.Node, None](), set[fx.Node]()
    queue = deque(node.users)
    while queue:
        user = queue.popleft()
        if user in named:
            found[user] = None
        elif user.op == "call_function" and user not in seen:
            seen.add(user)  # several paths lead to one node, and their number doubles from sum to sum
            queue.extend(user.users)
    return list(found)


def _union(parts: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in parts for name in part))
