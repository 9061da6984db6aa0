"""Solve for the layer that makes both: weights of a combined network, layer by layer, by least squares.

    W = argmin  E |W h - t|^2 + r m |W - W_0|^2        (m and the choice of r: `_normal`)

h is what the layer reads in the combined network (its layers before are solved already), W_0 the average of
the networks' weights, and t what the layer should make: the average over the networks of the value after
its norm and after the sum that it goes into, less what the combined network has there of its own. So an
error of earlier layers is made up for by the next one that writes to the same stream. Before a rectifier
the average is taken half before and half after it, where any network is active; where none is, W h may be
anything that the rectifier takes away (`_one_sided`). Batch norms get the
statistics that follow from the same sums. Where a norm and no sum follows, most of the covariance that
least squares takes away is given back: what is lost in one layer is lost for all later ones. No labels.

The layers of a residual branch may then move together, towards what the sum should be (`_residual`).

Channels that only one layer reads may follow one network each where the networks have little in common
(`_follow`): the averages above are then those with the shares of the channel.

In a further sweep W_0 is what the last sweep made, and rows are drawn anew: the average pulls less
(iterated Tikhonov regularisation).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn

from intertwine.combining._follow import channel_shares
from intertwine.combining._lockstep import Leaves, Lockstep, cut, whole_batches
from intertwine.combining._normal import LEFT_OUT, Spread, Sums, best_pull
from intertwine.combining._one_sided import LayerRows, one_sided
from intertwine.combining._residual import ResidualBranch, find_branch, refine
from intertwine.combining._rows import SolvableLayer, chosen_rows, find_layer
from intertwine.data.batches import arguments, count_rows
from intertwine.graph.copying import copy_model
from intertwine.graph.export import Traced, export
from intertwine.graph.once import run_once
from intertwine.merging.branches import Branches
from intertwine.progress import Progress, counted
from intertwine.rules import facts

RIDGE = 1e-2  # where there are too few inputs to leave some out
SPREAD = 0.7  # of the covariance that least squares takes away, how much is given back
ROWS = 60_000  # of a layer, drawn evenly from all batches
KEPT = 50_000_000  # numbers of a layer's rows up to which they are kept and not taken again for every round
TOGETHER = 12  # steps for the layers of a residual branch
RECTIFIED = 0.5  # share of the average after a rectifier in what the layer before it should make


def solved(
    traced: Traced,
    models: Sequence[nn.Module],
    start: nn.Module,
    shares: Sequence[float],
    inputs: Any,
    *,
    ridge: float | None = None,
    sweeps: int = 1,
    follow: float = 0.0,
    together: int = TOGETHER,
    seed: int = 0,
    progress: Progress | None = None,
    narrow: Narrow | None = None,
) -> nn.Module:
    """The average `start` of aligned models, every layer of it solved for on the inputs, `sweeps` times.

    traced: `batch_graph` of one of the models and the inputs. follow: correlation below which a channel of
    the models is not averaged. together: steps in which the layers of a residual branch are solved for
    together, once the last one is; 0: not at all.
    """
    batches = whole_batches(inputs)
    for sweep in range(sweeps):
        start = Layerwise(
            traced, models, start, shares, batches, ridge=ridge, follow=follow, seed=seed + sweep,
            progress=progress, narrow=narrow, again=sweep > 0, together=together,
        ).solve()  # fmt: skip
    return start


def batch_graph(model: nn.Module, inputs: Any) -> Traced:
    """The graph of one of the batches that layers are solved on; a trunk stands in it once."""
    traced = export(model, *arguments(cut(inputs, count_rows(inputs) // len(whole_batches(inputs)))))
    return run_once(traced) if isinstance(model, Branches) else traced


Kept = Mapping[tuple[str, int], Tensor]  # weight and dimension -> the positions that are left


@dataclass(frozen=True)
class Narrow:
    """The combined network is narrower than the networks: its graph, and which of their channels it has."""

    traced: Traced
    kept: Kept

    def made_by(self, layer: SolvableLayer, wide: Traced) -> Tensor | None:
        """Of the channels that a layer makes in the networks, those that are left; None: all."""
        return self.kept.get((wide.weights[layer.weight.name], int(layer.transposed)))


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
        ridge: float | None = None,
        rows: int = ROWS,
        follow: float = 0.0,
        seed: int = 0,
        progress: Progress | None = None,
        narrow: Narrow | None = None,
        again: bool = False,
        together: int = 0,
    ) -> None:
        self.model = copy_model(start).eval()
        self.narrow = narrow
        self.pulled_to_start = again or narrow is not None
        self.run = Lockstep(traced, [*models, self.model], batches, narrow.traced if narrow else None)
        self.together = together
        self.branches = self._branches() if together else {}
        self.ends, self.own = range(len(models)), len(models)
        self.shares, self.ridge, self.follow = shares, ridge, follow
        self.shared = dict[fx.Node, Tensor]()  # what a layer reads -> shares of its channels
        layers = sum(find_layer(node, traced.weights) is not None for node in traced.graph.nodes)
        self.advance = counted(progress, layers, "layers")
        self.rows = max(1, rows // len(batches))
        self.generator = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def solve(self) -> nn.Module:
        """The combined network."""
        self.run.walk(self._stop)
        return self.model

    def _stop(self, node: fx.Node) -> None:
        layer = find_layer(node, self.run.traced.weights)
        own = self.run.programs[self.own]
        narrow = find_layer(own.mine[node], own.own.weights)
        if layer is not None and narrow is not None:
            self._fit(replace(layer, groups=narrow.groups), Chain(node, self.run.env))
            if self.advance is not None:
                self.advance(1)
        elif (
            facts(node).statistics is not None and find_layer(_source(node), self.run.traced.weights) is None
        ):
            self._measure(node)

    def _fit(self, layer: SolvableLayer, chain: Chain) -> None:
        for net in self.ends:
            for node in chain.nodes:
                self.run.run(node, net)
        shares = self._channel_shares(layer, chain)
        parts, deviation = self._parts(layer, chain, shares)
        fit, left_out = Sums(), Sums()
        for k, part in enumerate(parts):
            (left_out if k % LEFT_OUT == LEFT_OUT - 1 else fit).add(part.rows(), part.goal)
        before = self._average(layer, chain.norm, shares)
        free = chain.norm is not None or layer.bias is not None
        ridge = self.ridge
        if ridge is None:
            ridge = best_pull(fit, left_out, before, centred=free) if left_out.count else RIDGE
        matrix, sums = one_sided(fit + left_out, parts, before, ridge, centred=free)
        if chain.norm is not None and chain.beside is None:
            matrix = (1 - SPREAD) * matrix + SPREAD * sums.spread_out(matrix)
        layer.put(matrix, self._weight(layer.weight))
        if layer.bias is not None:
            shift = sums.shift(matrix)  # which a norm takes away again
            self._weight(layer.bias).copy_(shift if chain.norm is None else torch.zeros_like(shift))
        if chain.norm is not None:
            self._set_norm(chain, sums, matrix, deviation)
        branch = self.branches.pop(layer.node, None)
        if branch is not None:
            if chain.beside is not None:
                refine(
                    self.run,
                    self.own,
                    branch,
                    chain.nodes,
                    partial(self._whole_goal, layer, chain),
                    self.together,
                )
            self.run.release(branch.reads)

    def _branches(self) -> dict[fx.Node, ResidualBranch]:
        """The residual branches by their last layers; what they read is kept until those are solved for."""
        known, found = set[fx.Node](), dict[fx.Node, ResidualBranch]()
        for node in self.run.nodes:
            layer = find_layer(node, self.run.traced.weights) if node.op == "call_function" else None
            if layer is not None and Chain(node, known).beside is not None:
                branch = find_branch(layer, self.run.nodes, self.run.traced.weights)
                if branch is not None:
                    found[node] = branch
                    self.run.hold(branch.reads)
            known.add(node)
        return found

    def _whole_goal(self, layer: SolvableLayer, chain: Chain, k: int) -> tuple[Tensor, Tensor | None]:
        """What a sum should be in all places of a batch, as rows."""
        kept = self.narrow.made_by(layer, self.run.traced) if self.narrow is not None else None
        values = [layer.columns(self.run.env[chain.end][net][k]) for net in self.ends]
        return self._goal([v if kept is None else v[:, kept] for v in values], chain, None)

    def _channel_shares(self, layer: SolvableLayer, chain: Chain) -> Tensor | None:
        """Those of a value that only one layer reads, all channels of it together; None: as everywhere."""
        rectifier = _only(chain.end) if chain.rectified else None
        reader = _only(rectifier) if rectifier is not None else None
        reading = find_layer(reader, self.run.traced.weights) if reader is not None else None
        if not self.follow or len(self.ends) < 2 or chain.beside is not None or reading is None:
            return None
        if reading.source is not rectifier or reading.groups > 1 or reading.spatial != layer.spatial:
            return None
        values = [self.run.env[chain.end][net] for net in self.ends]
        step = -(-layer.count(values[0][0]) // self.rows)
        parts = ([layer.columns(v).relu()[::step] for v in each] for each in zip(*values, strict=True))
        matrices = [reading.matrix(self.run.known(reading.weight, net))[0] for net in self.ends]
        channels = layer.columns(values[0][0][:1]).shape[-1]
        read = torch.stack([m.reshape(len(m), channels, -1).square().sum((0, 2)).sqrt() for m in matrices])
        found = self.shared[reading.source] = channel_shares(parts, read.cpu(), self.shares, self.follow)
        return found

    def _parts(
        self, layer: SolvableLayer, chain: Chain, shares: Tensor | None
    ) -> tuple[list[LayerRows], Tensor]:
        """What the layer reads and should make, batch by batch, and the deviation of every channel in the
        networks."""
        run, parts, spread = self.run, list[LayerRows](), [Spread() for _ in self.ends]
        kept = self.narrow.made_by(layer, run.traced) if self.narrow is not None else None
        for k in range(len(run.batches)):
            pick = chosen_rows(layer.count(run.env[chain.made][0][k]), self.rows, self.generator)

            def columns(node: fx.Node, net: int, k: int = k, pick: Tensor | None = pick) -> Tensor:
                found = layer.columns(run.env[node][net][k], pick)
                return found if kept is None or net == self.own else found[:, kept]

            source = run.env[layer.source][self.own][k]
            beside = None if chain.beside is None else columns(chain.beside, self.own)
            goal, off = self._goal([columns(chain.end, net) for net in self.ends], chain, shares)
            rows = partial(layer.rows, source, pick)
            parts.append(LayerRows(rows, goal if beside is None else goal - beside, off, beside))
            for net in self.ends:
                spread[net].add(columns(chain.made, net))
        wide = layer.rows(run.env[layer.source][self.own][0], torch.zeros(1, dtype=torch.long)).numel()
        if wide * sum(len(part.goal) for part in parts) <= KEPT:
            parts = [replace(part, rows=partial(_same, part.rows())) for part in parts]
        return parts, self._mean([each.deviation() for each in spread], shares)

    def _goal(
        self, values: Sequence[Tensor], chain: Chain, shares: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """What should come out at the end of the chain, and where nothing should, as rows."""
        goal = self._mean(values, shares)
        if not chain.rectified:
            return goal, None
        after = self._mean([v.relu() for v in values], shares)
        off = after <= 0
        return torch.where(off, goal, (1 - RECTIFIED) * goal + RECTIFIED * after), off

    def _mean(self, values: Sequence[Tensor], shares: Tensor | None) -> Tensor:
        """Over the networks; shares: those of every channel, which come last."""
        each = self.shares if shares is None else shares.to(values[0])
        return torch.stack([share * v for share, v in zip(each, values, strict=True)]).sum(0)

    def _weight(self, node: Any) -> Tensor:
        return self.run.known(node, self.own)

    def _average(self, layer: SolvableLayer, norm: fx.Node | None, shares: Tensor | None) -> Tensor:
        """The average of the networks' matrices, or the start's, with the slope of the norm that follows."""
        if self.pulled_to_start:
            return self._matrix(layer, norm, self.own)
        found = [self._matrix(layer, norm, net) for net in self.ends]
        if (read := self.shared.get(layer.source)) is not None:  # of a channel that follows others: nothing
            wide = found[0].shape[-1] // read.shape[-1]
            found = [m * (s > 0).to(m).repeat_interleave(wide) for m, s in zip(found, read, strict=True)]
        groups, outputs, _ = found[0].shape
        mean = self._mean([m.flatten(0, 1).mT for m in found], shares)
        return mean.mT.reshape(groups, outputs, -1)

    def _matrix(self, layer: SolvableLayer, norm: fx.Node | None, net: int) -> Tensor:
        weight = self.run.known(layer.weight, net).double()
        if norm is not None:
            gain, _, _, variance = (self.run.weight(a, net) for a in norm.args[1:5])
            assert variance is not None
            slope = (variance.double() + _eps(norm)).rsqrt()
            slope = slope if gain is None else slope * gain.double()
            weight = weight * slope.reshape(-1, *[1] * (weight.dim() - 1))
        return layer.matrix(weight)

    def _set_norm(self, chain: Chain, sums: Sums, matrix: Tensor, deviation: Tensor) -> None:
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
        wanted = (second + _eps(chain.norm)).sqrt() if chain.beside is not None else deviation
        if gain is not None:
            gain.copy_(wanted)
        if shift is not None:
            shift.copy_(sums.goal_mean())

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

    def __init__(self, node: fx.Node, known: Container[fx.Node]) -> None:
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


def _same(rows: Tensor) -> Tensor:
    return rows


def _only(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _source(node: fx.Node) -> fx.Node:
    return node.args[0]  # type: ignore[return-value]


def _eps(norm: fx.Node) -> float:
    where = facts(norm).statistics
    return float(norm.args[where[2]]) if where is not None else 0.0  # type: ignore[arg-type]
