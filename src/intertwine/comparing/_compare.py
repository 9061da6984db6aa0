"""Compare every layer of one network with every layer of another, and the two as functions, in one pass over
the data.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from intertwine.checks import checked
from intertwine.comparing.collecting import At, Runner
from intertwine.comparing.comparison import Comparison
from intertwine.comparing.features import Pixels, check_pixels
from intertwine.comparing.function import Kind, Outputs
from intertwine.comparing.grids import AskedMeasure, Grids
from intertwine.comparing.measures import measure_for
from intertwine.comparing.passes import run_passes
from intertwine.comparing.summaries import run_summaries
from intertwine.data.batches import Batches
from intertwine.errors import DataError
from intertwine.ir.groups import Group
from intertwine.progress import Progress
from intertwine.symmetry import Symmetry

KERNEL_INPUTS = 1000
MEMORY = 2**31


@checked
def compare(
    model_a: nn.Module,
    model_b: nn.Module,
    data: Any,
    measures: Sequence[str] | str = ("cka",),
    *,
    at: At = "layers",
    at_b: At | None = None,
    data_b: Any = None,
    pixels: Pixels | None = None,
    symmetry: Symmetry | None = None,
    kernel_inputs: int = KERNEL_INPUTS,
    memory: int = MEMORY,
    function: bool = True,
    intervals: bool = True,
    kind: Kind = "logits",
    seed: int = 0,
    progress: Progress | None = None,
) -> Comparison:
    """All layers of A against all layers of B under each measure, with intervals, and the two as functions.

    `data` must be re-iterable when a kernel measure is asked for. `data_b` gives network B its own form of
    the same inputs (another normalisation, say). `pixels` overrides the treatment of maps: by default CKA
    and CCA stream means over pixels ("pool"), Procrustes streams pixels ("samples", eq. D.2), kernels sum
    over pixels ("flatten"). "flatten" turns linear CKA into a kernel measure. `"auto"` among the measures
    takes, for each layer of A, the measure of the group that acts there. symmetry: that of A, if it is known
    already. `intervals=False` skips the intervals. memory: bytes for moments and features; where those of all
    pairs of layers need more, layers of one name are compared, in several passes, and a note says so.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> result = compare(net, net, torch.randn(40, 3), ["cka", "procrustes-grelu"])
    >>> [(a, b, round(value, 6)) for a, b, value in result.matched("cka")]
    [('1', '1', 1.0), ('2', '2', 1.0)]
    """
    names = [measures] if isinstance(measures, str) else list(measures)
    if pixels is not None:
        check_pixels(pixels)
    plan = [AskedMeasure.of(name, pixels) for name in names if name != "auto"]
    a = Runner(model_a, at, symmetry)
    b = Runner(model_b, at if at_b is None else at_b, like=a)
    groups: list[Group] = []
    if "auto" in names:
        first, data = _first(a, data)
        groups = [value.group for value in a.wanted(first)]
        plan += [
            AskedMeasure.of(name, pixels, precise=True) for name in dict.fromkeys(map(measure_for, groups))
        ]
    plan = list({p.measure.name: p for p in plan}.values())
    second = data if data_b is None else data_b
    grids = Grids(plan, notes=[])
    outputs = Outputs(kind) if function else None
    sides = (a, data), (b, second)
    outputs = run_passes(sides, plan, grids, outputs, intervals, memory, progress)
    run_summaries(sides, plan, grids, kernel_inputs, memory, progress)
    if "auto" in names:
        grids.add_auto(groups)
    masked = dict.fromkeys((*a.masked, *b.masked))
    if masked:
        grids.notes.append(
            f"left out, since they hold infinities or numbers as large (a mask): {', '.join(masked)}"
        )
    wanted = {name: grids.values[name] for name in names}
    return Comparison(
        layers_a=grids.layers[0],
        layers_b=grids.layers[1],
        values=wanted,
        pixels={name: grids.pixels.get(name, "by layer") for name in names},
        inputs={name: grids.inputs.get(name, max(grids.inputs.values())) for name in names},
        intervals={name: grids.intervals.get(name, {}) for name in names},
        function=None if outputs is None else outputs.result(seed=seed),
        notes=tuple(grids.notes),
    )


def _first(runner: Runner, data: Any) -> tuple[Any, Any]:
    """The first inputs, and the data with them still in it (an iterator can be read only once)."""
    source = iter(data) if isinstance(data, Iterator) else None
    if source is None:
        return next(iter(Batches(data, device=runner.device)), (None, None))[0], data
    head = next(source, None)
    if head is None:
        raise DataError("the data set is empty")
    return next(iter(Batches([head], device=runner.device)))[0], itertools.chain([head], source)
