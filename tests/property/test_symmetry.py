"""Random nets times random group elements: the output stays, the group laws hold, wrong actions show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from grammar import Net, nets
from hypothesis import HealthCheck, given, note, settings
from torch import Tensor

from intertwine import Axis, Element, Symmetry, act, trace
from intertwine.symmetry.transform import apply_element
from repeats import examples

TOLERANCE = 1e-10
few = settings(derandomize=True, max_examples=examples(12, 50), suppress_health_check=list(HealthCheck))
fewer = settings(few, max_examples=examples(8, 15))

Weights = dict[str, Tensor]


def weights_of(symmetry: Symmetry, net: Net) -> Weights:
    return {name: t.detach() for name, t in symmetry.weights(net.model).items()}


def error(left: Tensor, right: Tensor) -> float:
    return float((left - right).abs().max() / left.abs().max())


def same(left: Weights, right: Weights, tolerance: float) -> bool:
    return all(
        float((left[n] - right[n]).abs().max()) <= tolerance * (1 + float(left[n].abs().max())) for n in left
    )


@few
@given(nets())
def test_the_group_acts_and_the_output_stays(net: Net) -> None:
    note(repr(net))
    symmetry = trace(net.model, net.inputs)
    assert not symmetry.unknown_ops
    weights = weights_of(symmetry, net)
    with torch.no_grad():
        before = net.model(net.inputs)
        g, h = symmetry.sample(0), symmetry.sample(1)
        for element in (g, h, g @ h, g.inverse()):
            assert error(before, act(net.model, element)(net.inputs)) <= TOLERANCE
    check_laws(symmetry, weights, g, h)
    check_round_trip(symmetry, weights, g)


def check_laws(symmetry: Symmetry, weights: Weights, g: Element, h: Element) -> None:
    """(g h) theta = g (h theta); g^-1 g = 1; 1 theta = theta, bit for bit."""
    after = apply_element(g, apply_element(h, weights))
    assert same(apply_element(g @ h, weights), after, 1e-9)
    assert (g @ g.inverse()).is_identity(1e-8) and (g.inverse() @ g).is_identity(1e-8)
    assert same(apply_element(g.inverse(), apply_element(g, weights)), weights, 1e-8)
    identity = symmetry.identity()
    assert identity.is_identity()
    assert all(torch.equal(t, weights[n]) for n, t in apply_element(identity, weights).items())


def check_round_trip(symmetry: Symmetry, weights: Weights, g: Element) -> None:
    with TemporaryDirectory() as folder:
        g.save(Path(folder) / "g.safetensors")
        again = symmetry.load(Path(folder) / "g.safetensors")
    assert all(torch.equal(t, apply_element(g, weights)[n]) for n, t in apply_element(again, weights).items())


@fewer
@given(nets())
def test_a_wrong_action_changes_the_output(net: Net) -> None:
    """Each weight that moves and matters, left behind alone, must show (the last linear map always does)."""
    note(repr(net))
    symmetry = trace(net.model, net.inputs)
    weights = weights_of(symmetry, net)
    moved = apply_element(symmetry.sample(0), weights)
    changed = [n for n in weights if weights[n].dim() > 1 and not same({n: weights[n]}, {n: moved[n]}, 1e-6)]
    assert changed, "nothing moves in this net"
    with torch.no_grad():
        before = net.model(net.inputs)
        errors = []
        for name in changed:
            state = {**dict(net.model.state_dict()), **moved, name: weights[name]}
            errors.append(error(before, torch.func.functional_call(net.model, state, net.inputs)))
    assert max(errors) > 1e-6


@fewer
@given(nets())
def test_planted_duplicates_are_automorphisms(net: Net) -> None:
    """Theorem 2.3 of IFM: exchanging two channels with equal weights leaves every weight as it is."""
    note(repr(net))
    symmetry = trace(net.model, net.inputs)
    weights = weights_of(symmetry, net)
    for axis in symmetry.axes:
        if axis.size < 2 or not axis.mergeable or axis.group.linear:
            continue
        swap = exchange(symmetry, axis, 0, axis.size - 1)
        assert not same(apply_element(swap, weights), weights, 1e-9), (
            f"{axis.name} has no channels to exchange"
        )
        with torch.no_grad():
            assert error(net.model(net.inputs), act(net.model, swap)(net.inputs)) <= TOLERANCE
        planted = plant(symmetry, axis, weights, 0, axis.size - 1)
        assert all(torch.equal(t, planted[n]) for n, t in apply_element(swap, planted).items())


def exchange(symmetry: Symmetry, axis: Axis, i: int, j: int) -> Element:
    """The element that exchanges two channels of an axis, and with them what lies inside (their pixels)."""
    classes, identity = symmetry.structure.classes, symmetry.identity()
    pair = axis.classes.reshape(-1)[[i, j]].tolist()
    other = dict(zip(pair, reversed(pair), strict=True))
    relabel = identity.relabel.copy()
    above = {c: frozenset(classes.ancestors[[c]].tocoo().col.tolist()) for c in range(classes.count)}
    inside: dict[tuple[int, frozenset[int]], list[int]] = {}
    for c, blocks in above.items():
        if blocks & set(pair):
            inside.setdefault((int(classes.orbit[c]), blocks), []).append(c)
    for (orbit, blocks), found in inside.items():
        relabel[found] = inside[orbit, frozenset(other.get(b, b) for b in blocks)]
    relabel[pair] = pair[::-1]
    return replace(identity, relabel=relabel)


def plant(symmetry: Symmetry, axis: Axis, weights: Weights, i: int, j: int) -> Weights:
    """The weights with channel j made a copy of channel i, wherever the axis occurs."""
    planted = {n: t.clone() for n, t in weights.items()}
    for member in axis.members:
        places = symmetry.positions(axis, member)
        source, target = torch.from_numpy(np.stack([places[i], places[j]]))
        tensor = planted[member.param]
        tensor.index_copy_(member.dim, target, tensor.index_select(member.dim, source))
    return planted
