"""zip: networks side by side in one (`_join`), then channels merged, across networks and within them.

The joined network computes what all of them compute. `merge` removes the channels that the others can best
make up for, whichever network they came from. Then every layer of what is left is solved for
(`_layerwise`), so that the channels that stayed are what they are in the joined network: a layer makes up for
what those before it got wrong. So networks of other widths, and of other tasks, share a trunk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from intertwine.combining._distil import scores_of
from intertwine.combining._folded import Folded
from intertwine.combining._hidden import HiddenValues
from intertwine.combining._join import Heads, join
from intertwine.combining._layerwise import Kept, Narrow, batch_graph, solved
from intertwine.combining._lockstep import cut
from intertwine.combining._statistics import reset
from intertwine.data.batches import Batches, count_rows, take
from intertwine.errors import InputError
from intertwine.graph.export import Traced
from intertwine.merging import MergePlan, Options, Planner, apply_merge, merge
from intertwine.merging.budget import Sizes, fit_budget
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
    ridge: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Zipped:
    """One network; target_params: share of the parameters of all networks together.

    Without it every axis gets the width that it has in the first network.
    """
    joined = join(models, symmetry, cut(inputs, 4), shares=shares, heads=heads)
    folded = Folded([joined], inputs, False)
    both, traced = folded.symmetry(), folded.claimed.traced
    given, now = (sum(p.numel() for m in nets for p in m.parameters()) for nets in (models, [joined]))
    if target_params is not None and not has_attention(both):
        outputs = [scores_of(m, cut(inputs, 2)).shape[-1] for m in models]
        widths = outputs if heads == "each" else outputs[:1]
        plan = plan_zip(joined, both, inputs, widths, min(1.0, target_params * given / now))
    else:
        goal: dict[str, Any] = {"target_params": min(1.0, (target_params or 1.0) * given / now)}
        if target_params is None:
            sizes = {a.name: a.size for a in symmetry.axes}
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
        traced, [joined], small, [1.0], inputs, ridge=ridge, seed=seed, progress=progress, narrow=narrow
    )
    return Zipped(model, joined, traced, narrow)


@torch.no_grad()
def plan_zip(
    joined: nn.Module, symmetry: Symmetry, inputs: Any, widths: Sequence[int], share: float
) -> MergePlan:
    """Which channels go. An axis costs what losing two fifths of it costs at the outputs, as a share of each
    head's own: what is small inside a layer may be what a head of few classes hangs on.

    widths: how many outputs belong to each head.
    """
    rows = torch.linspace(0, count_rows(inputs) - 1, min(MEASURED, count_rows(inputs))).long()
    few = take(inputs, rows[:: max(1, len(rows) // TRIED)])
    wanted = scores_of(joined, few)

    def error(small: nn.Module) -> float:
        heads = zip(scores_of(small.eval(), few).split(widths, -1), wanted.split(widths, -1), strict=True)
        return sum(float((y - t).square().sum() / (t - t.mean(0)).square().sum()) for y, t in heads)

    example = symmetry.traced.example
    call = tuple(example.args), dict(example.kwargs)
    batches = [batch for batch, _ in Batches(take(inputs, rows), batch=100)]
    planner = Planner(joined, symmetry, Options(repair="data"), None, batches, True, call)
    whole = planner.whole()
    whole = replace(whole, axes=tuple(in_output_error(planner, a, error, TAKEN) for a in whole.axes))
    return planner.finish(fit_budget(whole, Sizes(joined, symmetry, whole), share, "parameters"))


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
