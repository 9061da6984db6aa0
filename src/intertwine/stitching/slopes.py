"""LeakyReLU with negative slope s (Table 3 and Fig. 8 of source 002): the group is G_ReLU until s = 1, where
the activation is the identity and the group is GL(n)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from intertwine.stitching.fit import Training
from intertwine.stitching.stitching import StitchReport, stitch

SLOPES = (1e-4, 1e-3, 1e-2, 0.1, 0.5, 0.9, 1.0)  # Table 3
Labelled = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class SlopeResult:
    """Two networks of one slope: the group of their layer, mean accuracy, and the stitching of its class."""

    slope: float
    group: str
    accuracy: float
    report: StitchReport


def stitch_slopes(
    trained: Callable[[float, int], nn.Module],
    train: Labelled,
    test: Labelled,
    *,
    at: str | Sequence[str],
    slopes: Sequence[float] | None = None,
    kinds: Sequence[str] = ("group", "full"),
    batch: int = 64,
    seeds: tuple[int, int] = (0, 1),
    training: Training | None = None,
) -> list[SlopeResult]:
    """For every slope: two networks `trained(slope, seed)`, and one stitched onto the other at `at`."""
    found = []
    for slope in SLOPES if slopes is None else slopes:
        a, b = (trained(slope, seed) for seed in seeds)
        report = stitch(a, b, train, test, at=at, kinds=kinds, training=training, batch=batch)
        group = report.stitchings[0].group
        found.append(SlopeResult(slope, group, (report.accuracy_a + report.accuracy_b) / 2, report))
    return found
