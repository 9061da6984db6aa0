"""zip: networks side by side in one (`_join`), then channels merged, across networks and within them.

The joined network computes what all of them compute. `merge` removes the channels that the others can best
make up for, whichever network they came from. Then every layer of what is left is solved for
(`_layerwise`), so that the channels that stayed are what they are in the joined network: a layer makes up for
what those before it got wrong. So networks of other widths, and of other tasks, share a trunk, whole or up
to a layer (`_branch`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from intertwine.combining._branch import Rows, branch
from intertwine.combining._distil import scores_of
from intertwine.combining._folded import Folded
from intertwine.combining._hidden import HiddenValues
from intertwine.combining._join import Heads, join
from intertwine.combining._layerwise import Kept, Narrow, batch_graph, solved
from intertwine.combining._lockstep import cut
from intertwine.combining._statistics import reset
from intertwine.data.batches import Batches, count_rows, take
from intertwine.errors import InputError
from intertwine.graph.export import Traced, named_tensors
from intertwine.merging import MergePlan, Options, Planner, apply_merge, merge
from intertwine.merging.budget import Sizes, fit_budget
from intertwine.merging.readers import Reading
from intertwine.merging.rewriting import has_attention
from intertwine.merging.sequential import in_output_error
from intertwine.merging.shrink import find_dropped
from intertwine.progress import Progress
from intertwine.symmetry import Symmetry

MEASURED, TRIED = 1000, 200  # inputs that say what channels are worth to each other, and to the outputs
TAKEN = 0.4  # of an axis, to see what it is worth to the outputs: about as much as will go


@dataclass(frozen=True)
class Zipped:
    """model: what is left. joined: all networks side by side, on the graph of a batch. narrow: which of its
    channels are left; None where what is left are no channels (ranks, heads)."""

    model: nn.Module
    joined: nn.Module
    traced: Traced
    narrow: Narrow | None

    def hidden(self) -> HiddenValues:
        """What the channels that are left should be, for learning."""
        if self.narrow is None:
            raise InputError(
                "what is left of the networks are no channels of theirs",
                so="its hidden values cannot be compared with theirs",
                do="leave hidden out",
            )
        return HiddenValues(self.traced, [self.joined], [1.0], self.narrow)


def zipped(
    models: Sequence[nn.Module],
    symmetry: Symmetry,
    inputs: Any,
    *,
    shares: Sequence[float],
    heads: Heads = "one",
    target_params: float | None = None,
    trunk: str | None = None,
    ridge: float | None = None,
    sweeps: int = 1,
    together: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Zipped:
    """One network; target_params: share of the parameters of all networks together.

    Without it every axis gets the width that it has in the first network. trunk: the last axis that is
    shared, of networks that keep their heads (default: all are).
    """
    rows: Rows | None = None
    if trunk is None:
        joined = join(models, symmetry, cut(inputs, 4), shares=shares, heads=heads)
    else:
        joined, rows = branch(models, symmetry, trunk, cut(inputs, 4))
    folded = Folded([joined], inputs, False)
    both, traced = folded.symmetry().alike, folded.claimed.traced
    given, now = (sum(p.numel() for m in nets for p in m.parameters()) for nets in (models, [joined]))
    if target_params is not None and not has_attention(both):
        plan = ZipPlanner(models, joined, both, inputs, shares, heads, rows).plan(
            min(1.0, target_params * given / now)
        )
    else:
        goal: dict[str, Any] = {"target_params": min(1.0, (target_params or 1.0) * given / now)}
        if target_params is None:
            sizes = {a.name: a.size for a in symmetry.alike.axes}
            goal = {"ratio": {a.name: 1 - sizes[a.name] / a.size for a in both.axes if a.mergeable}}
        args, kwargs = traced.example.args, traced.example.kwargs
        plan = merge(
            joined, args, kwargs=kwargs, train_data=inputs, symmetry=both, repair="data", **goal
        ).plan
    small, kept = apply_merge(joined, plan), kept_channels(plan, traced.shapes)
    if kept is None:
        return Zipped(reset(small, inputs), joined, traced, None)
    narrow = Narrow(batch_graph(small, inputs), kept)
    model = solved(
        traced, [joined], small, [1.0], inputs, ridge=ridge, sweeps=sweeps, together=together, seed=seed,
        progress=progress, narrow=narrow,
    )  # fmt: skip
    return Zipped(model, joined, traced, narrow)


class ZipPlanner:
    """Which channels go.

    Inside an axis, the one that its readers can best make up for; the rows of a network count by its share.
    An axis costs what losing two fifths of it costs at the outputs, as a part of what each head makes: what
    is small inside a layer may be what a head of few classes hangs on.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        joined: nn.Module,
        symmetry: Symmetry,
        inputs: Any,
        shares: Sequence[float],
        heads: Heads,
        rows: Rows | None = None,
    ) -> None:
        self.joined, self.symmetry, self.shares = joined, symmetry, shares
        self.rows = rows or _rows(models)
        chosen = torch.linspace(0, count_rows(inputs) - 1, min(MEASURED, count_rows(inputs))).long()
        self.few = take(inputs, chosen[:: max(1, len(chosen) // TRIED)])
        with torch.no_grad():
            widths = [scores_of(m, cut(inputs, 2)).shape[-1] for m in models]
            self.outputs = scores_of(joined, self.few)
        self.heads = list(zip(widths, shares, strict=True)) if heads == "each" else [(widths[0], 1.0)]
        example = symmetry.traced.example
        call = tuple(example.args), dict(example.kwargs)
        batches = [batch for batch, _ in Batches(take(inputs, chosen), batch=100)]
        self.planner = Planner(joined, symmetry, Options(repair="data"), None, batches, True, call)

    def plan(self, share: float) -> MergePlan:
        """At most this share of the joined network's parameters."""
        seen = self.planner.readings
        self.planner.readings = {axis: [self._counted(r) for r in each] for axis, each in seen.items()}
        whole = self.planner.whole()
        self.planner.readings = seen  # what is left is refitted as it is
        axes = tuple(in_output_error(self.planner, a, self._error, TAKEN) for a in whole.axes)
        whole = replace(whole, axes=axes)
        sizes = Sizes(self.joined, self.symmetry, whole)
        return self.planner.finish(fit_budget(whole, sizes, share, "parameters"))

    def _counted(self, reading: Reading) -> Reading:
        """What it makes of each network, as much as that counts."""
        own = self.rows[reading.place.param]
        total = self.symmetry.traced.shapes[reading.place.param][0]
        if sum(own) != total:  # what is made there is of all networks
            return reading
        parts = [
            torch.full((n,), (s * len(own)) ** 0.5, dtype=torch.float64)
            for n, s in zip(own, self.shares, strict=True)
        ]
        factor = torch.cat(parts)
        return replace(reading, slope=factor if reading.slope is None else factor * reading.slope)

    @torch.no_grad()
    def _error(self, small: nn.Module) -> float:
        found, start, total = scores_of(small.eval(), self.few), 0, 0.0
        for width, share in self.heads:
            y, t = (out[..., start : start + width] for out in (found, self.outputs))
            total += share * float((y - t).square().sum() / (t - t.mean(0)).square().sum().clamp_min(1e-30))
            start += width
        return total


def _rows(models: Sequence[nn.Module]) -> Rows:
    """Those of networks that lie side by side as a whole."""
    states = [named_tensors(m) for m in models]
    return {name: [state[name].shape[0] for state in states] for name, t in states[0].items() if t.dim()}


def kept_channels(plan: MergePlan, shapes: Mapping[str, Sequence[int]]) -> Kept | None:
    """Of every dimension of a weight that has lost positions, those that are left; None unless they are
    channels as they were.

    >>> from intertwine.merging.plan import AxisPlan, Merge, PlacePlan
    >>> places = (PlacePlan("0.weight", 0, "out"),)
    >>> axis = AxisPlan("0", 4, (Merge(0, 2, 0.0, 1.0),), True, places, select=True)
    >>> kept_channels(MergePlan((axis,)), {"0.weight": (4, 3)})
    {('0.weight', 0): tensor([0, 1, 3])}
    """
    cut_axes = [axis for axis in plan.axes if axis.merges]
    if any(not a.select or a.turns or any(p.scale is not None for p in a.places) for a in cut_axes):
        return None
    return {
        (name, dim): torch.from_numpy(np.setdiff1d(np.arange(shapes[name][dim]), gone))
        for (name, dim), gone in find_dropped(plan).items()
    }
