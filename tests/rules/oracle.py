"""Run the example of every rule against the real op: what the rule claims, and what it leaves out.

Examples do not touch each other, so a few dozen are exported and acted on at once, and judged one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from intertwine import Symmetry, trace
from intertwine.graph.run import run
from intertwine.rules import RULES
from intertwine.rules.examples import CHANNELS, EXAMPLES, Sandwich
from intertwine.symmetry.transform import apply_element

TOGETHER = 30
FACTOR = 1.75
# The power of the channel's scale at W2, and at the op's own parameters, that an op may imply.
POWERS = (-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0)
OWN_POWERS = (0.0, 1.0, -1.0)

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Verdict:
    """What happened to one example. error: of the claimed symmetry; control: of one that leaves W2 behind."""

    ops: frozenset[str]
    error: float
    control: float
    moved: float
    frozen: tuple[str, ...]
    missing: tuple[str, ...]


class Together(nn.Module):
    """Several examples side by side, each with its own input and output."""

    def __init__(self, ops: Sequence[str]) -> None:
        super().__init__()
        self.nets = nn.ModuleList(EXAMPLES[op].model() for op in ops)

    def forward(self, xs: list[Tensor]) -> list[Tensor]:
        """The outputs in order."""
        return [net(x) for net, x in zip(self.nets, xs, strict=True)]


def _alike(op: str) -> tuple[str, str]:
    """Ops of one family stand together: sizes that one of them takes the others take too."""
    rule = RULES.get(op)
    return (rule.family if rule else "", op)


@cache
def judge(op: str) -> Verdict:
    """The verdict on the example of one op."""
    ops = sorted(EXAMPLES, key=_alike)
    place = ops.index(op) // TOGETHER
    found = judge_together(tuple(ops[place * TOGETHER : (place + 1) * TOGETHER]))[op]
    if isinstance(found, Exception):
        raise found
    return found


@cache
def judge_together(ops: tuple[str, ...]) -> dict[str, Verdict | Exception]:
    """Judge several examples in one go, or in halves where that fails, so that none spoils the others."""
    try:
        return dict(_judge(ops))
    except Exception as error:
        if len(ops) == 1:
            return {ops[0]: error}
    half = len(ops) // 2
    return judge_together(ops[:half]) | judge_together(ops[half:])


def _judge(ops: tuple[str, ...]) -> dict[str, Verdict]:
    model = Together(ops).eval()
    inputs = ([EXAMPLES[op].inputs() for op in ops],)
    symmetry = trace(model, inputs)
    weights = {name: t.detach() for name, t in symmetry.weights(model).items()}

    def outputs(changed: Weights) -> list[Tensor]:
        return run(symmetry.traced, changed, inputs)

    reference = outputs(weights)
    errors = [0.0] * len(ops)
    for seed in range(3):
        moved = apply_element(symmetry.sample(seed), weights)
        errors = [max(e, d) for e, d in zip(errors, distances(reference, outputs(moved)), strict=True)]
    behind = {n: (weights[n] if ".outer" in n or ".inner_bias" in n else t) for n, t in moved.items()}
    controls = distances(reference, outputs(behind))
    missing = find_missing(model, symmetry, weights, outputs, reference)
    found: dict[str, Verdict] = {}
    for i, op in enumerate(ops):
        own = [n for n in weights if n.startswith(f"nets.{i}.")]
        changed = sum(int((weights[n] != moved[n]).sum()) for n in own)
        found[op] = Verdict(
            ops=ops_of(symmetry, f"nets.{i}"),
            error=errors[i],
            control=controls[i],
            moved=changed / sum(weights[n].numel() for n in own),
            frozen=tuple(
                a.frozen_because for a in symmetry.axes if a.frozen_because and a.members[0].param in own
            ),
            missing=missing[i],
        )
    return found


def distances(left: Sequence[Tensor], right: Sequence[Tensor]) -> list[float]:
    """The largest difference of each output, relative to its largest entry."""
    return [
        float((a - b).abs().max() / a.abs().max()) if torch.isfinite(b).all() else float("inf")
        for a, b in zip(left, right, strict=True)
    ]


def ops_of(symmetry: Symmetry, path: str) -> frozenset[str]:
    """The ops of the graph that one submodule runs."""
    found = set()
    for node in symmetry.traced.graph.nodes:
        stack = [entry[0] for entry in (node.meta.get("nn_module_stack") or {}).values()]
        inside = [p.removeprefix("L['self'].").split("@")[0] for p in stack]
        if node.op == "call_function" and path in inside:
            found.add(str(node.target).removeprefix("aten."))
    return frozenset(found)


# -- the search for symmetries that hold and are not claimed -------------------------------------------------


def find_missing(
    model: Together,
    symmetry: Symmetry,
    weights: Weights,
    outputs: Callable[[Weights], list[Tensor]],
    reference: list[Tensor],
) -> list[tuple[str, ...]]:
    """For every example: which of swap, scale and sign of hidden channels hold although no axis has them.

    Only examples that keep the number of channels are searched: elsewhere it is not known where a channel
    comes out.
    """
    claims = [claimed(symmetry, f"nets.{i}.inner") for i in range(len(model.nets))]
    holds: list[set[str]] = [set() for _ in model.nets]
    for name, candidate in candidates(model, weights):
        for i, error in enumerate(distances(reference, outputs(candidate))):
            if error < 1e-11 and model.nets[i].example.out == CHANNELS:  # type: ignore[union-attr]
                holds[i].add(name)
    return [tuple(sorted(h - c)) for h, c in zip(holds, claims, strict=True)]


def claimed(symmetry: Symmetry, param: str) -> set[str]:
    """What the axes on dimension 0 of a weight allow for channels 1 and 2."""
    found: set[str] = set()
    for axis in symmetry.axes:
        for member in axis.members:
            if (member.param, member.dim) != (param, 0):
                continue
            places = symmetry.positions(axis, member)
            if not {1, 2} & set(places.reshape(-1).tolist()):
                continue
            if axis.group.positive or axis.group.linear == "general linear":
                found.add("scale")
            if axis.group.sign or axis.group.linear:
                found.add("sign")
            if axis.group.permutation or axis.group.linear:
                found.add("swap")
    return found


def candidates(model: Together, weights: Weights) -> Iterable[tuple[str, Weights]]:
    """(kind, weights) for every wild guess: exchange channels 1 and 2, rescale or negate channel 1."""
    order = list(range(CHANNELS))
    order[1], order[2] = 2, 1
    yield "swap", {n: _swapped(n, t, order) for n, t in weights.items()}
    for kind, factor, powers in (("scale", FACTOR, POWERS), ("sign", -1.0, (0.0, 1.0))):
        for outer in powers:
            for own in OWN_POWERS if kind == "scale" else (0.0, 1.0):
                yield kind, {n: _scaled(n, t, factor, outer, own) for n, t in weights.items()}


def _swapped(name: str, tensor: Tensor, order: list[int]) -> Tensor:
    if name.endswith("outer"):
        return tensor[:, order] if tensor.shape[1] == CHANNELS else tensor
    for dim in range(tensor.dim()):
        if tensor.shape[dim] == CHANNELS:
            tensor = tensor.index_select(dim, torch.tensor(order))
    return tensor


def _scaled(name: str, tensor: Tensor, factor: float, outer: float, own: float) -> Tensor:
    tensor = tensor.clone()
    if name.endswith(("inner", "inner_bias")):
        tensor[1] *= factor
    elif name.endswith("outer") and tensor.shape[1] == CHANNELS:
        tensor[:, 1] *= factor**outer
    elif ".extra." in name:
        for dim in range(tensor.dim()):
            if tensor.shape[dim] == CHANNELS:
                tensor.select(dim, 1).mul_(factor**own)
    return tensor


__all__ = ["Sandwich", "Verdict", "judge", "judge_together"]
