"""Random nets: the action on every value, and the truths that compare and stitch owe to it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from architectures import ARCHITECTURES, built, symmetry_of
from grammar import Net, nets
from hypothesis import HealthCheck, given, note, settings
from torch import nn

from intertwine import act, compare, trace
from intertwine.stitching import parse_kind
from intertwine.stitching.cache import TensorStore, record
from intertwine.stitching.junctions import find_junctions
from intertwine.stitching.maps import apply_map
from intertwine.stitching.start import closed_form
from intertwine.symmetry.surgery import Surgeon
from repeats import examples
from value_oracle import check_every_value, distance, recorded

few = settings(derandomize=True, max_examples=examples(7, 15), suppress_health_check=list(HealthCheck))
fewer = settings(few, max_examples=6)


def inputs(count: int = 48) -> torch.Tensor:
    return torch.randn(count, 3, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@few
@given(nets())
def test_elements_act_on_every_value_as_stated(net: Net) -> None:
    note(repr(net))
    symmetry = check_every_value(net.model, (net.inputs,))
    g, h = symmetry.sample(1), symmetry.sample(2)
    for value in symmetry.values.values():
        x = torch.randn(value.shape, dtype=torch.float64)
        twice, once = value.act(g, value.act(h, x)), value.act(g @ h, x)
        assert torch.allclose(twice, once, rtol=1e-9, atol=1e-9 * float(once.abs().max()))


@fewer
@given(nets())
def test_a_wrong_element_shows(net: Net) -> None:
    """Negative control: what one element does to the values is not what another one does."""
    note(repr(net))
    symmetry = trace(net.model, net.inputs)
    g, h = symmetry.sample(0), symmetry.sample(1)
    after = recorded(symmetry, act(net.model, g), (net.inputs,))
    before = recorded(symmetry, net.model, (net.inputs,))
    acted = [v for v in symmetry.values.values() if not v.group.is_trivial]
    wrong = [v for v in acted if distance(v.act(h, before[v.node]), after[v.node]) > 1e-3]
    assert wrong or not acted


@fewer
@given(nets())
def test_a_model_and_its_copy_under_the_group_are_alike_at_every_value(net: Net) -> None:
    note(repr(net))
    symmetry = trace(net.model, net.inputs)
    moved = act(net.model, symmetry.sample(3))
    options = {"at": "all", "function": False, "intervals": False}
    result = compare(net.model, moved, inputs(), ["auto"], symmetry=symmetry, **options)
    defined = ~np.isnan(np.diag(result.values["auto"]))
    assert np.diag(result.values["auto"])[defined] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architectures_and_their_copies_are_alike_at_every_value(name: str) -> None:
    model, x = built(name, generic=True)
    data = torch.randn(40, *x.shape[1:], dtype=x.dtype, generator=torch.Generator().manual_seed(0))
    symmetry = symmetry_of(name)
    options = {"at": "all", "function": False, "intervals": False}
    moved = act(model, symmetry.sample(3))
    found = np.diag(compare(model, moved, data, ["auto"], symmetry=symmetry, **options).values["auto"])
    assert not np.isnan(found).all()
    assert found[~np.isnan(found)] == pytest.approx(1, abs=1e-6)
    turned = act(model, symmetry.sample(3, parts=("permutation", "sign")))
    found = np.diag(compare(model, turned, data, "cka", pixels="flatten", **options).values["cka"])
    assert found[~np.isnan(found)] == pytest.approx(1, abs=1e-6)
    other, _ = built(name)  # negative control: other weights, another function
    found = np.diag(compare(model, other, data, ["auto"], symmetry=symmetry, **options).values["auto"])
    assert np.nanmin(found) < 0.999


@fewer
@given(nets())
def test_cka_does_not_see_what_is_orthogonal(net: Net) -> None:
    note(repr(net))
    symmetry = trace(net.model, net.inputs)
    moved = act(net.model, symmetry.sample(3, parts=("permutation", "sign")))
    options = {"at": "all", "function": False, "intervals": False, "pixels": "flatten"}
    result = compare(net.model, moved, inputs(), "cka", **options)
    found = np.diag(result.values["cka"])
    assert found[~np.isnan(found)] == pytest.approx(1, abs=1e-6)


def assert_group_stitch(model: nn.Module, x: torch.Tensor, seed: int = 4) -> int:
    """At every value outside blocks the group stitch onto g . model gives back the function; how many."""
    symmetry = trace(model, x)
    moved = act(model, symmetry.sample(seed))
    sides = [Surgeon(each, (x,), symmetry=symmetry) for each in (model, moved)]
    expected = model(x).detach()
    cuts = [v.name for v in sides[0].values if not sides[0].is_output(v.name)]
    junctions = [j for j in find_junctions(sides[0], sides[1], cuts) if not j.inside]
    labels = expected.reshape(len(expected), -1).argmax(1)
    with TensorStore() as store:
        kept = record(sides[0], sides[1], junctions, x, labels, store)
        for k, junction in enumerate(junctions):
            matrix = closed_form(parse_kind("group"), kept.moments[k], junction.group)
            layout = junction.b.value.layout
            value = layout.restore(apply_map(matrix, layout.features(kept.values[k][0])))
            out = sides[1].suffix(junction.b)(value)
            size = float(expected.abs().max())
            assert float((out - expected).abs().max()) <= 1e-6 * size, (junction.name, str(junction.group))
    return len(junctions)


@fewer
@given(nets())
def test_the_group_stitch_is_exact_outside_blocks(net: Net) -> None:
    note(repr(net))
    assert_group_stitch(net.model, inputs())


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_group_stitch_is_exact_in_architectures(name: str) -> None:
    model, x = built(name, generic=True)
    data = torch.randn(40, *x.shape[1:], dtype=x.dtype, generator=torch.Generator().manual_seed(0))
    assert assert_group_stitch(model, data) >= 1
