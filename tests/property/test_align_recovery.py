"""Random nets times random group elements: `align` finds an element that brings every weight back."""

from __future__ import annotations

import torch
from grammar import Net, nets
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from intertwine import act, trace
from intertwine.aligning import align, mix
from repeats import examples

few = settings(
    derandomize=True,
    max_examples=examples(7, 14),
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],  # shrinking traces hundreds of nets
)


@few
@given(nets(), st.integers(0, 1000), st.booleans())
def test_planted_elements_come_back(net: Net, seed: int, single: bool) -> None:
    note(repr(net))
    model, inputs = (net.model.float(), net.inputs.float()) if single else (net.model, net.inputs)
    exact = 1e-5 if single else 1e-8
    symmetry = trace(model, inputs)
    other = act(model, symmetry.sample(seed))
    found = align(model, other, symmetry, restarts=0)
    aligned = act(other, found.element)
    # The element need not be unique (a matrix of deficient rank); the weights that it leads to are.
    assert found.distance_after <= exact
    with torch.no_grad():
        wanted = model(inputs)
        # Any element leaves the function of the aligned model; only the right one that of the mean of both.
        outputs = torch.stack([aligned(inputs), mix([model, aligned], [0.5, 0.5])(inputs)])
    assert float((outputs - wanted).abs().max() / wanted.abs().max()) <= exact


@settings(few, max_examples=6)
@given(nets(), st.integers(0, 1000))
def test_alignment_of_other_weights_is_a_symmetry(net: Net, seed: int) -> None:
    note(repr(net))
    symmetry = trace(net.model, net.inputs)
    other = act(net.model, symmetry.sample(seed))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter += parameter.std(correction=0) * torch.randn(
                parameter.shape, generator=generator, dtype=parameter.dtype
            )
        wanted = other(net.inputs)
    found = align(net.model, other, symmetry, restarts=0)
    assert found.distance_after <= found.distance_before * (1 + 1e-9)
    with torch.no_grad():
        error = (act(other, found.element)(net.inputs) - wanted).abs().max() / wanted.abs().max()
    assert float(error) <= 1e-8
