"""Random nets times random group elements: the quotient gives every point of an orbit one representative."""

from __future__ import annotations

import torch
from grammar import Net, nets
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from torch import nn

from intertwine.exploring import function_distance
from intertwine.exploring.known import KnownSymmetry
from intertwine.exploring.quotient import Quotient
from repeats import examples


def check(model: nn.Module, inputs: torch.Tensor, seed: int) -> None:
    known = KnownSymmetry(model, inputs[:2], function_distance(model, inputs))
    quotient = Quotient(known)
    moved = known.sample(torch.Generator().manual_seed(seed))
    assert float((quotient.canonical(moved) - quotient.reference).norm() / quotient.reference.norm()) < 1e-8


@settings(
    derandomize=True,
    max_examples=examples(6, 12),
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],  # shrinking traces hundreds of nets
)
@given(nets(), st.integers(0, 1000))
def test_one_representative_an_orbit(net: Net, seed: int) -> None:
    note(repr(net))
    check(net.model, net.inputs, seed)


def test_signs_of_depthwise_outputs() -> None:
    """No weight of its own tells the sign of a depthwise output: both its sides are moved by others."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 24, 3, padding=1, groups=8),
        nn.Conv2d(24, 2, 3, padding=1, groups=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 3),
    ).double()  # fmt: skip
    for seed in range(3):
        check(model, torch.randn(4, 3, 6, 6, dtype=torch.float64), seed)
