"""Random nets times random group elements: `align` finds an element that undoes them."""

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
def test_planted_elements_are_undone(net: Net) -> None:
    note(repr(net))
    symmetry = trace(net.model, net.inputs)
    other = act(net.model, symmetry.sample(3))
    found = align(net.model, other, symmetry, restarts=2)
    assert found.distance_after <= 1e-6, [(a.name, a.group, a.cosine_after) for a in found.axes]
    with torch.no_grad():
        wanted = net.model(net.inputs)
        error = (act(other, found.element)(net.inputs) - wanted).abs().max() / wanted.abs().max()
    assert float(error) <= 1e-9
