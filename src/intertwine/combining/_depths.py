"""Networks of unequal depths: blocks that do nothing are put into the shallower ones, exactly.

    x + branch(x) = x    where the last weights of the branch are zero

The deepest network says what a block is. Where its blocks stand against those of a shallower one follows from
what comes out of them on the inputs: with K_j and L_i the kernels of the outputs of block j and block i,

    maximise over stairs s, s(0) = 0, s(j + 1) - s(j) in {0, 1}    sum over j of CKA(K_j, L_s(j))

A block that stays on its stair is one that does nothing. What such a block reads is free, and is later taken
from the deepest network (`Deepened.filled`): so both read the same there, and only one of them writes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, fx, nn

from intertwine.combining._lockstep import cut
from intertwine.combining._rows import find_layer
from intertwine.comparing.kernels import kernel_cka
from intertwine.data.batches import Batches, arguments
from intertwine.errors import InputError
from intertwine.graph.copying import copy_model
from intertwine.graph.eager import run_module
from intertwine.graph.example import Example
from intertwine.graph.export import Traced, eval_copy, export, named_tensors
from intertwine.rules import facts

SEEN, BATCH = 300, 50  # inputs on which blocks are compared
TOLERANCE = 1e-9  # of the largest output: what putting blocks in may change, in float64

_WHERE = {
    "so": "networks of unequal depths have a mean where blocks that do nothing can be put into them",
    "do": "combine networks of equal depths, or use `intertwine compare` or `intertwine stitch`",
}


@dataclass(frozen=True)
class Deepened:
    """networks of equal depth. deepest: the one that says what a block is. idle: of every network the blocks
    that do nothing; zero: the tensors that are zero for it."""

    models: list[nn.Module]
    deepest: int
    idle: list[list[str]]
    zero: set[str]

    @torch.no_grad()
    def filled(self, moved: Sequence[nn.Module]) -> list[nn.Module]:
        """What blocks that do nothing read, as the deepest network reads it; all are aligned by now.

        Norms may have been folded since: a block's tensors are those under its path.
        """
        given, out = named_tensors(moved[self.deepest]), list(moved)
        for k, blocks in enumerate(self.idle):
            if blocks:
                out[k] = copy_model(moved[k])
                for name, tensor in named_tensors(out[k]).items():
                    if name not in self.zero and name.startswith(tuple(blocks)):
                        tensor.copy_(given[name])
        return out


def differ_in_depth(models: Sequence[nn.Module]) -> bool:
    """Whether some list of blocks is longer in one network than in another.

    >>> differ_in_depth([nn.Sequential(*(nn.Linear(2, 2) for _ in range(n))) for n in (2, 3)])
    True
    """
    return any(len({len(b) for b in each}) > 1 for each in _lists(models).values())


def equal_depths(models: Sequence[nn.Module], inputs: Any, names: Sequence[str]) -> Deepened:
    """The same functions with as many blocks as the deepest has.

    >>> class Block(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 4)
    ...     def forward(self, x):
    ...         return x + self.down(self.up(x).relu())
    >>> a, b = (nn.Sequential(*(Block() for _ in range(n))) for n in (1, 2))
    >>> x = torch.randn(9, 4)
    >>> deep = equal_depths([a, b], x, ["a", "b"]).models[0]
    >>> len(deep), torch.allclose(deep(x), a(x), atol=1e-6)
    (2, True)
    """
    lists = {path: each for path, each in _lists(models).items() if len({len(b) for b in each}) > 1}
    most = {path: max(len(blocks) for blocks in each) for path, each in lists.items()}
    deepest = next(
        (k for k in range(len(models)) if all(len(lists[p][k]) == n for p, n in most.items())), None
    )
    if deepest is None:
        raise InputError(f"no network is the deepest at all of {', '.join(lists)}", **_WHERE)
    traced = export(models[deepest], *arguments(cut(inputs, 2)))
    seen = [_seen(model, [blocks[k] for blocks in lists.values()], inputs) for k, model in enumerate(models)]
    out, idle, zero = list(models), [list[str]() for _ in models], _last_of_branches(traced)
    for k, model in enumerate(models):
        if all(len(each[k]) == most[path] for path, each in lists.items()):
            continue
        places = {
            path: _stairs(seen[deepest][n], seen[k][n], each[deepest], each[k], f"{path} of {names[k]}")
            for n, (path, each) in enumerate(lists.items())
        }
        idle[k] = [
            f"{p}.{j}." if p else f"{j}."
            for p, found in places.items()
            for j, i in enumerate(found)
            if i is None
        ]
        out[k] = _deepened(model, models[deepest], places, zero)
        _assert_same(out[k], model, inputs, f"{names[k]} with the blocks of {names[deepest]}")
    return Deepened(out, deepest, idle, zero)


def _lists(models: Sequence[nn.Module]) -> Mapping[str, list[list[nn.Module]]]:
    """The lists of blocks that all networks have: path -> the blocks of each."""
    every = [{p: list(m.children()) for p, m in model.named_modules() if _is_list(m)} for model in models]
    return {p: [blocks[p] for blocks in every] for p in every[0] if all(p in blocks for blocks in every)}


def _is_list(module: nn.Module) -> bool:
    names = [name for name, _ in module.named_children()]
    return bool(names) and names == [str(k) for k in range(len(names))]


def _shapes(block: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(t.shape) for name, t in block.state_dict().items()}


@torch.no_grad()
def _seen(model: nn.Module, lists: Sequence[Sequence[nn.Module]], inputs: Any) -> list[list[Tensor]]:
    """Of every block of every list the kernel of what comes out of it on some of the inputs."""
    rows: dict[nn.Module, list[Tensor]] = {}

    def note(block: nn.Module, _: Any, made: Any) -> None:
        first = next((t for t in _tensors(made)), None)
        if first is not None:
            rows.setdefault(block, []).append(first.flatten(1).double())

    every = [block for blocks in lists for block in blocks]
    hooks = [block.register_forward_hook(note) for block in every]
    try:
        for batch, _ in Batches(cut(inputs, SEEN), batch=BATCH):
            args, kwargs = arguments(batch)
            model(*args, **kwargs)
    finally:
        for hook in hooks:
            hook.remove()
    if missing := [block for block in every if block not in rows]:
        raise InputError(f"a block of the networks ({type(missing[0]).__name__}) makes no tensor", **_WHERE)
    whole = {block: torch.cat(parts) for block, parts in rows.items()}
    return [[whole[block] @ whole[block].mT for block in blocks] for blocks in lists]


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors(part)


def _stairs(
    deep: Sequence[Tensor],
    shallow: Sequence[Tensor],
    blocks: Sequence[nn.Module],
    own: Sequence[nn.Module],
    where: str,
) -> list[int | None]:
    """For every block of the deepest network that of the shallower one, or None where nothing is done."""
    fits = [[_shapes(block) == _shapes(mine) for mine in own] for block in blocks]
    best: dict[int, tuple[float, list[int]]] = {}
    if fits[0][0]:
        best[0] = kernel_cka(deep[0], shallow[0]), [0]
    for j, kernel in enumerate(deep[1:], 1):
        before, best = best, {}
        for i, mine in enumerate(shallow):
            # What a block of the same kind made passes through: a rectifier has been there already.
            ways = [before[i]] if i in before and type(blocks[j]) is type(blocks[j - 1]) else []
            if i - 1 in before and fits[j][i]:
                ways.append(before[i - 1])
            if ways:
                value, path = max(ways)
                best[i] = value + kernel_cka(kernel, mine), [*path, i]
    if len(own) - 1 not in best:
        raise InputError(f"the blocks in {where} do not fit those of the deepest network", **_WHERE)
    path = best[len(own) - 1][1]
    return [0, *(i if i > last else None for last, i in pairwise(path))]


@torch.no_grad()
def _deepened(
    model: nn.Module, deepest: nn.Module, places: Mapping[str, list[int | None]], zero: set[str]
) -> nn.Module:
    """The model with the blocks of the deepest one."""
    out, given = copy_model(deepest).eval(), named_tensors(model)
    for name, tensor in named_tensors(out).items():
        source: str | None = name
        for path, found in places.items():
            start = f"{path}." if path else ""
            if source is not None and name.startswith(start):
                at, _, rest = name[len(start) :].partition(".")
                block = found[int(at)]
                source = None if block is None else f"{start}{block}.{rest}"
        if source is None:
            if name in zero:
                tensor.zero_()
        elif source in given and given[source].shape == tensor.shape:
            tensor.copy_(given[source])
        else:
            raise InputError(f"the networks differ in more than their depths: {name}", **_WHERE)
    return out


def _last_of_branches(traced: Traced) -> set[str]:
    """What must be zero for a branch to add nothing: the weights of layers that go into a sum."""
    found = set[str]()
    for node in traced.graph.nodes:
        layer = find_layer(node, traced.weights) if node.op == "call_function" else None
        if layer is None:
            continue
        names: list[Any] = [layer.weight, layer.bias]
        at: fx.Node | None = node
        while at is not None and not facts(at).adds:
            if at is not node and find_layer(at, traced.weights) is not None:
                at = None
                break
            if facts(at).statistics is not None:
                names += [at.args[2], at.args[3]]  # shift and mean
            readers = [user for user in at.users if user.args[1:] == (0,)] or list(at.users)
            at = readers[0] if len(readers) == 1 and readers[0].op == "call_function" else None
        if at is not None:
            found |= {traced.weights[n.name] for n in names if isinstance(n, fx.Node)}
    return found


def _assert_same(deep: nn.Module, model: nn.Module, inputs: Any, what: str) -> None:
    """Raise unless both compute the same, in float64."""
    example = Example.of(*arguments(cut(inputs, 8)))
    made = (run_module(eval_copy(each).double(), example).outputs for each in (deep, model))
    apart = max(
        float((a - b).abs().max()) / max(float(b.abs().max()), 1e-30) for a, b in zip(*made, strict=True)
    )
    if not apart <= TOLERANCE or not math.isfinite(apart):
        raise InputError(
            f"{what} does not compute what it did: outputs change by {apart:.2g} of the largest", **_WHERE
        )
