"""zip: networks side by side in one (`_join`), then channels merged, across networks and within them.

The joined network computes what all of them compute. `merge` removes the channels that the others can best
make up for, whichever network they came from, refits what reads them on unlabelled inputs, and measures the
statistics of norms again. So networks of other widths, and of other tasks, share a trunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from intertwine.combining._join import Heads, join
from intertwine.combining._lockstep import cut
from intertwine.data.batches import arguments
from intertwine.merging import merge
from intertwine.symmetry import Symmetry, trace


def zipped(
    models: Sequence[nn.Module],
    symmetry: Symmetry,
    inputs: Any,
    *,
    shares: Sequence[float],
    heads: Heads = "one",
    target_params: float | None = None,
) -> nn.Module:
    """One network; target_params: share of the parameters of all networks together.

    Without it every axis gets the width that it has in the first network.
    """
    example = cut(inputs, 4)
    joined = join(models, symmetry, example, shares=shares, heads=heads)
    args, kwargs = arguments(cut(inputs, 2))
    both = trace(joined, args, kwargs)
    goal: dict[str, Any]
    if target_params is None:
        sizes = {a.name: a.size for a in symmetry.alike.axes}
        goal = {"ratio": {a.name: 1 - sizes[a.name] / a.size for a in both.alike.axes if a.mergeable}}
    else:
        given, now = (sum(p.numel() for m in nets for p in m.parameters()) for nets in (models, [joined]))
        goal = {"target_params": min(1.0, target_params * given / now)}
    return merge(joined, args, kwargs=kwargs, train_data=inputs, symmetry=both, repair="data", **goal).model
