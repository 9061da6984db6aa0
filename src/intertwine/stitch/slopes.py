"""LeakyReLU with negative slope s (Table 3 and Fig. 8 of source 002): the group is G_ReLU until s = 1, where
the activation is the identity and the group is GL(n)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from intertwine.stitch.fit import Training
from intertwine.stitch.stitching import StitchReport, stitch

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
    build: Callable[[float], nn.Module],
    train: Labelled,
    test: Labelled,
    *,
    at: str,
    slopes: Sequence[float] = SLOPES,
    kinds: Sequence[str] = ("group", "full"),
    epochs: int = 10,
    rate: float = 1e-2,
    batch: int = 64,
    seed: int = 0,
    training: Training | None = None,
) -> list[SlopeResult]:
    """For every slope: train `build(slope)` from two seeds, and stitch one onto the other at `at`."""
    found = []
    for slope in slopes:
        nets = []
        for k in range(2):
            torch_state = torch.random.get_rng_state()
            torch.manual_seed(2 * seed + k)
            net = build(slope)
            torch.random.set_rng_state(torch_state)
            nets.append(_trained(net, train, epochs, rate, batch, 2 * seed + k))
        report = stitch(nets[0], nets[1], train, test, at=at, kinds=kinds, training=training, batch=batch)
        group = report.stitchings[0].group
        found.append(SlopeResult(slope, group, (report.accuracy_a + report.accuracy_b) / 2, report))
    return found


def _trained(net: nn.Module, data: Labelled, epochs: int, rate: float, batch: int, seed: int) -> nn.Module:
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    random = torch.Generator().manual_seed(seed)
    net.train()
    for _ in range(epochs):
        for chosen in torch.randperm(len(data[1]), generator=random).split(batch):
            optimizer.zero_grad()
            functional.cross_entropy(net(data[0][chosen]), data[1][chosen]).backward()
            optimizer.step()
    return net.eval()
