"""One answer to one question: `find_isomorphism` and `align` say the same of B = g A and of other models."""

from __future__ import annotations

import pytest
import torch
from architectures import ARCHITECTURES, built, symmetry_of
from grammar import Net, nets
from hypothesis import HealthCheck, Phase, assume, given, note, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from intertwine import Symmetry, act, align, find_isomorphism, trace
from repeats import examples

few = settings(
    derandomize=True,
    max_examples=examples(6, 12),
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],  # shrinking traces hundreds of nets
)
EXACT = 1e-8


def apart(left: nn.Module, right: nn.Module) -> float:
    """The largest difference of a weight, relative to its largest entry."""
    pairs = zip(left.state_dict().values(), right.state_dict().values(), strict=True)
    return max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-12)) for a, b in pairs)


def check_found(model: nn.Module, symmetry: Symmetry, seed: int) -> None:
    other = act(model, symmetry.sample(seed))
    found = find_isomorphism(model, other, symmetry, restarts=0)
    aligned = align(model, other, symmetry, restarts=0)
    assert found.element is not None, found.reason
    assert found.error <= EXACT and aligned.distance_after <= EXACT
    # The elements need not be inverse (a matrix of deficient rank); what they do to the weights is.
    assert apart(act(model, found.element), other) <= EXACT
    assert apart(act(other, aligned.element), model) <= EXACT
    assert apart(act(act(other, aligned.element), found.element), other) <= EXACT


def check_refused(model: nn.Module, x: Tensor, symmetry: Symmetry, seed: int) -> bool:
    """One weight changed by a tenth of its size: no element makes up for another function."""
    other = act(model, symmetry.sample(seed))
    weights = [p for p in other.parameters() if p.dim() > 1]
    weight = weights[seed % len(weights)]
    with torch.no_grad():
        weight.view(-1)[seed % weight.numel()] += 0.1 * weight.abs().max()
        if float((other(x) - model(x)).abs().max() / model(x).abs().max()) < 1e-6:
            return False
    found = find_isomorphism(model, other, symmetry, restarts=0)
    assert not found and found.element is None and found.error > 1e-5
    assert found.weight in found.reason and (not found.axis or found.axis in found.reason)
    assert align(model, other, symmetry, restarts=0).distance_after > 1e-6
    return True


@few
@given(nets(), st.integers(0, 1000))
def test_random_nets(net: Net, seed: int) -> None:
    note(repr(net))
    check_found(net.model, trace(net.model, net.inputs), seed)


@settings(few, max_examples=6)
@given(nets(), st.integers(0, 1000))
def test_random_nets_off_the_orbit(net: Net, seed: int) -> None:
    note(repr(net))
    assume(check_refused(net.model, net.inputs, trace(net.model, net.inputs), seed))


@pytest.mark.parametrize("generic", [False, True], ids=["as built", "generic"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architectures(name: str, generic: bool) -> None:
    model, _ = built(name, generic=generic)
    symmetry = symmetry_of(name)
    assert any(axis.group.name != "trivial" for axis in symmetry.axes)
    check_found(model, symmetry, seed=1)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architectures_off_the_orbit(name: str) -> None:
    model, x = built(name)
    assert check_refused(model, x, symmetry_of(name), seed=3)
