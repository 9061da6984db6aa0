"""Solve for the layer that makes both: weights of a combined network, layer by layer, by least squares.

    W = argmin  sum |W h - t|^2 + lambda |W - W_0|^2

h is what the layer reads in the combined network (its layers before are solved already), W_0 the average of
the networks' weights, and t what the layer should make: the average over the networks of the value after
its norm and after the sum that it goes into, less what the combined network has there of its own. So an
error of earlier layers is made up for by the next one that writes to the same stream. Before a rectifier
the average is taken half before and half after it, where any network is active. Batch norms get the
statistics that follow from the same sums. No labels.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from intertwine.combining._lockstep import Leaves, Lockstep, cut, whole_batches
from intertwine.combining._rows import SolvableLayer, chosen_rows, find_layer
from intertwine.data.batches import arguments, count_rows
from intertwine.graph.export import Traced, export
from intertwine.rules import facts

RIDGE = 1e-2
ROWS = 120_000  # of a layer, drawn evenly from all batches
RECTIFIED = 0.5  # share of the average after a rectifier in what the layer before it should make


def solved(
    models: Sequence[nn.Module],
    start: nn.Module,
    shares: Sequence[float],
    inputs: Any,
    *,
    ridge: float = RIDGE,
    seed: int = 0,
    progress: Callable[[], None] | None = None,
) -> nn.Module:
    """The average `start` of aligned models, every layer of it solved for on the inputs."""
    batches = whole_batches(inputs)
    args, kwargs = arguments(cut(inputs, count_rows(inputs) // len(batches)))
    graph = export(models[0], args, kwargs)
    run = Layerwise(graph, models, start, shares, batches, ridge=ridge, seed=seed, progress=progress)
    return run.solve()


class Layerwise:
    """One walk over the graph. The last network of the lockstep is the combined one, which starts as the
    average `start` of the others."""

    def __init__(
        self,
        traced: Traced,
        models: Sequence[nn.Module],
        start: nn.Module,
        shares: Sequence[float],
        batches: Sequence[Leaves],
        *,
        ridge: float = RIDGE,
        rows: int = ROWS,
        seed: int = 0,
        progress: Callable[[], None] | None = None,
    ) -> None:
        self.model = copy.deepcopy(start).eval()
        self.run = Lockstep(traced, [*models, self.model], batches)
        self.ends, self.own = range(len(models)), len(models)
        self.shares, self.ridge, self.progress = shares, ridge, progress
        self.rows = max(1, rows // len(batches))
        self.generator = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def solve(self) -> nn.Module:
        """The combined network."""
        self.run.walk(self._stop)
        return self.model

    def _stop(self, node: fx.Node) -> None:
        layer = find_layer(node, self.run.traced.weights)
        if layer is not None:
            self._fit(layer, Chain(node, self.run.env))
            if self.progress is not None:
                self.progress()
        elif (
            facts(node).statistics is not None and find_layer(_source(node), self.run.traced.weights) is None
        ):
            self._measure(node)

    def _fit(self, layer: SolvableLayer, chain: Chain) -> None:
        run = self.run
        for net in self.ends:
            for node in chain.nodes:
                run.run(node, net)
        sums = Sums()
        for k in range(len(run.batches)):
            goal = layer.columns(self._goal(chain, k))
            rows = layer.rows(run.env[layer.source][self.own][k])
            pick = chosen_rows(len(goal), self.rows, self.generator)
            sums.add(rows if pick is None else rows[:, pick], goal if pick is None else goal[pick])
        free = chain.norm is not None or layer.bias is not None
        matrix, shift = sums.solve(self._average(layer, chain.norm), self.ridge, centred=free)
        weight = self._weight(layer.weight)
        weight.copy_(matrix.reshape(weight.shape))
        if layer.bias is not None:
            self._weight(layer.bias).copy_(shift if chain.norm is None else torch.zeros_like(shift))
        if chain.norm is not None:
            self._set_norm(chain, sums, matrix)

    def _goal(self, chain: Chain, batch: int) -> Tensor:
        """What the layer (and the norm after it) should make on one batch."""
        values = [self.run.env[chain.end][net][batch] for net in self.ends]
        goal = self._mean(values)
        if chain.rectified:
            after = self._mean([v.relu() for v in values])
            goal = torch.where(after > 0, (1 - RECTIFIED) * goal + RECTIFIED * after, goal)
        return goal if chain.beside is None else goal - self.run.env[chain.beside][self.own][batch]

    def _mean(self, values: Sequence[Tensor]) -> Tensor:
        return torch.stack([share * v for share, v in zip(self.shares, values, strict=True)]).sum(0)

    def _weight(self, node: Any) -> Tensor:
        found = self.run.weight(node, self.own)
        assert found is not None
        return found

    def _average(self, layer: SolvableLayer, norm: fx.Node | None) -> Tensor:
        """The average of the networks' matrices, with the slope of the norm that follows them."""
        found = []
        for net in self.ends:
            weight = self.run.weight(layer.weight, net)
            assert weight is not None
            weight = weight.double()
            if norm is not None:
                gain, _, _, variance = (self.run.weight(a, net) for a in norm.args[1:5])
                assert variance is not None
                slope = (variance.double() + _eps(norm)).rsqrt()
                slope = slope if gain is None else slope * gain.double()
                weight = weight * slope.reshape(-1, *[1] * (weight.dim() - 1))
            found.append(weight)
        return layer.matrix(self._mean(found))

    def _set_norm(self, chain: Chain, sums: Sums, matrix: Tensor) -> None:
        """Statistics of what the solved layer makes; gain and shift give back what was asked for.

        A fit is smaller than its goal. Before a sum that is right; elsewhere the deviation of the networks is
        put back, as averaging gains would.
        """
        assert chain.norm is not None
        gain, shift, mean, variance = (self.run.weight(a, self.own) for a in chain.norm.args[1:5])
        first, second = sums.output_moments(matrix)
        assert mean is not None and variance is not None
        mean.copy_(first)
        variance.copy_(second)
        wanted = (second + _eps(chain.norm)).sqrt() if chain.beside is not None else self._deviation(chain)
        if gain is not None:
            gain.copy_(wanted)
        if shift is not None:
            shift.copy_(sums.goal_mean())

    def _deviation(self, chain: Chain) -> Tensor:
        """The mean over networks of the deviation of every channel after the norm."""
        assert chain.made is not None
        found = []
        for net in self.ends:
            values = [v.movedim(1, -1).flatten(0, -2).double() for v in self.run.env[chain.made][net]]
            first = torch.stack([v.mean(0) for v in values]).mean(0)
            second = torch.stack([v.square().mean(0) for v in values]).mean(0)
            found.append((second - first.square()).clamp_min(0).sqrt())
        return self._mean(found)

    def _measure(self, norm: fx.Node) -> None:
        """Statistics of a norm that no solved layer stands before."""
        mean, variance = (self.run.weight(a, self.own) for a in norm.args[3:5])
        values = [v.movedim(1, -1).flatten(0, -2).double() for v in self.run.env[_source(norm)][self.own]]
        first = torch.stack([v.mean(0) for v in values]).mean(0)
        second = torch.stack([v.square().mean(0) for v in values]).mean(0)
        if mean is not None and variance is not None:
            mean.copy_(first)
            variance.copy_(second - first.square())


class Chain:
    """What follows a layer: its norm, and the sum that it goes into if the other side is known already.

    made: the layer's value after its norm. beside: the other side of the sum. end: the value that is asked
    for. rectified: whether a rectifier reads it.
    """

    def __init__(self, node: fx.Node, known: Mapping[fx.Node, Any]) -> None:
        self.nodes, self.made = [node], node
        self.norm: fx.Node | None = None
        self.beside: fx.Node | None = None
        user = _only(node)
        if user is not None and facts(user).statistics is not None and user.args[0] is node:
            first = [got for got in user.users if got.args[1:] == (0,)]
            self.norm, self.made = user, first[0] if first else user
            self.nodes += [user, *first]
        user = _only(self.made)
        if user is not None and facts(user).adds and not user.kwargs and _makes(user, (2.0, 3.0), 5.0):
            others = [a for a in user.args[:2] if isinstance(a, fx.Node) and a is not self.made]
            if others and others[0] in known:
                self.beside = others[0]
                self.nodes.append(user)
        self.end = self.nodes[-1]
        reader = _only(self.end)
        alone = reader is not None and reader.args == (self.end,) and not reader.kwargs
        self.rectified = alone and all(_makes(reader, (x,), max(x, 0.0)) for x in (-9.0, -0.5, 0.5, 9.0))


def _makes(node: fx.Node | None, numbers: tuple[float, ...], result: float) -> bool:
    """Whether the op of a node makes this of these numbers: what it does is tried, not read from its name."""
    if node is None or not callable(node.target) or len(node.args) != len(numbers):
        return False
    return bool(node.target(*(torch.tensor(x) for x in numbers)) == result)


class Sums:
    """The normal equations of one layer, in float64: moments of its rows and of what it should make."""

    def __init__(self) -> None:
        self.count = 0
        self.parts: list[Tensor] = []

    def add(self, rows: Tensor, goal: Tensor) -> None:
        """rows: (groups, n, inputs); goal: (n, outputs)."""
        split = goal.reshape(len(goal), len(rows), -1).movedim(1, 0)
        terms = [rows.mT @ rows, split.mT @ rows, rows.sum(1), split.sum(1)]
        new = [t.double() for t in terms]
        self.parts = [a + b for a, b in zip(self.parts, new, strict=True)] if self.parts else new
        self.count += len(goal)

    def solve(self, before: Tensor, ridge: float, *, centred: bool) -> tuple[Tensor, Tensor]:
        """(outputs, inputs of a group) and the constant; ridge: relative to the rows' mean square."""
        gram, cross, mean, goal = (part / self.count for part in self.parts)
        if centred:
            gram = gram - mean[:, :, None] * mean[:, None, :]
            cross = cross - goal[:, :, None] * mean[:, None, :]
        pull = (ridge * gram.diagonal(dim1=1, dim2=2).mean(1)).clamp_min(1e-12)[:, None, None]
        gram = gram + pull * torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        matrix = torch.linalg.solve(gram, (cross + pull * before.to(gram)).mT).mT
        shift = goal - (matrix @ mean[:, :, None]).squeeze(-1)
        return matrix.flatten(0, 1), shift.reshape(-1)

    def output_moments(self, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of what a matrix makes of the rows."""
        gram, _, mean, _ = (part / self.count for part in self.parts)
        grouped = matrix.reshape(len(gram), -1, matrix.shape[-1])
        covariance = gram - mean[:, :, None] * mean[:, None, :]
        first = (grouped @ mean[:, :, None]).reshape(-1)
        return first, torch.einsum("goi,gij,goj->go", grouped, covariance, grouped).clamp_min(0).reshape(-1)

    def goal_mean(self) -> Tensor:
        """The mean of what is asked for."""
        return (self.parts[3] / self.count).reshape(-1)


def _only(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _source(node: fx.Node) -> fx.Node:
    return node.args[0]  # type: ignore[return-value]


def _eps(norm: fx.Node) -> float:
    where = facts(norm).statistics
    return float(norm.args[where[2]]) if where is not None else 0.0  # type: ignore[arg-type]
