"""Random nets times random group elements: `align` returns a symmetry that brings them closer."""

from __future__ import annotations

import torch
from grammar import Net, nets
from hypothesis import HealthCheck, Phase, given, note, settings

from intertwine import act, trace
from intertwine.align import align

few = settings(
    deadline=None,
    derandomize=True,
    max_examples=12,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],  # shrinking traces hundreds of nets
)


@few
@given(nets())
def test_alignment_is_a_symmetry_and_comes_closer(net: Net) -> None:
    note(repr(net))
    symmetry = trace(net.model, net.inputs)
    other = act(net.model, symmetry.sample(3))
    found = align(net.model, other, symmetry, restarts=2)
    assert found.distance_after <= found.distance_before * (1 + 1e-9)
    with torch.no_grad():
        wanted = other(net.inputs)
        error = (act(other, found.element)(net.inputs) - wanted).abs().max() / wanted.abs().max()
    assert float(error) <= 1e-8
