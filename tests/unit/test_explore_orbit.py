"""The orbit of the inferred group against the exact one of a one-hidden-layer ReLU net; the quotient."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from intertwine.exploring import Grid, evaluate, find_equivalents, function_distance, span
from intertwine.exploring.known import KnownSymmetry, explain_sample
from intertwine.exploring.orbit import check_explained, find_orbit, scaling_plane, trace_path
from intertwine.exploring.quotient import Quotient

WIDTH = 4


def relu_net(seed: int = 0, inputs: int = 3, outputs: int = 2) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, WIDTH), nn.ReLU(), nn.Linear(WIDTH, outputs)).double()


def hand_canonical(objective, reference: Tensor):
    """By hand: each unit scaled until its incoming and outgoing norms agree, then matched."""

    def units(vector: Tensor) -> tuple[Tensor, Tensor]:
        named = objective.layout.unflatten(vector)
        rows = torch.cat([named["0.weight"], named["0.bias"][:, None]], 1)
        columns = named["2.weight"].T
        factor = (columns.norm(dim=1) / rows.norm(dim=1)).sqrt()[:, None]
        return torch.cat([rows * factor, columns / factor], 1), named["2.bias"]

    base, _ = units(reference)

    def canonical(vector: Tensor) -> Tensor:
        found, bias = units(vector)
        _, order = linear_sum_assignment((base @ found.T).numpy(), maximize=True)
        return torch.cat([found[order].reshape(-1), bias])

    return canonical


@pytest.fixture
def known() -> KnownSymmetry:
    model, x = relu_net(), torch.randn(50, 3, dtype=torch.float64)
    return KnownSymmetry(model, x[:2], function_distance(model, x))


def test_the_inferred_orbit_computes_the_same_function(known):
    generator = torch.Generator().manual_seed(0)
    found = [known.sample(generator) for _ in range(5)]
    values = known.objective.values(torch.stack(found))
    assert float(values.max()) < 1e-25
    assert all(float((v - known.objective.theta).norm()) > 0.1 for v in found)
    assert known.loss(known.symmetry.sample(3)) < 1e-25


def test_one_path_a_hidden_unit_and_its_hyperbola(known):
    """Unit i: (w, b) -> e^t (w, b), v -> e^-t v, and the plane of the path holds all of it."""
    paths = known.scaling_paths()
    assert len(paths) == WIDTH
    theta = known.objective.layout.unflatten(known.objective.theta)
    moved_units = set()
    for path in paths:
        plane = scaling_plane(known.objective, path)
        curve = torch.stack([v for _, v in trace_path(path, [-2.0, -0.3, 0.8, 2.5], kind="scaling")])
        assert float(plane.residuals(curve).max()) < 1e-12
        moved = known.objective.layout.unflatten(path(0.5))
        ratio = (moved["0.weight"] / theta["0.weight"])[:, 0]
        unit = int((ratio - 1).abs().argmax())
        moved_units.add(unit)
        factor = float(ratio[unit])
        assert abs(np.log(factor)) == pytest.approx(0.5)
        torch.testing.assert_close(moved["0.bias"][unit], factor * theta["0.bias"][unit])
        torch.testing.assert_close(moved["2.weight"][:, unit], theta["2.weight"][:, unit] / factor)
    assert moved_units == set(range(WIDTH))


def test_the_orbit_lies_in_the_epsilon_set(known):
    path = known.scaling_paths()[1]
    plane = scaling_plane(known.objective, path)
    orbit = find_orbit(
        plane, known.objective, trace_path(path, np.linspace(-1, 1, 9).tolist(), kind="scaling")
    )
    assert orbit.values.max() < 1e-25 and orbit.residuals.max() < 1e-12
    assert orbit.kinds() == ("scaling",) and len(orbit.of_kind("scaling")[0]) == 9
    # The grid sees it too: J at the grid point nearest to the orbit is far below J away from it.
    landscape = evaluate(plane, Grid.cube(2, 1.0, 41))
    steps = np.array(landscape.grid.steps)
    nearest = np.rint((orbit.coordinates[3:6] + 1.0) / steps).astype(int)
    assert max(landscape.values[tuple(i)] for i in nearest) < 0.05 * np.median(landscape.values)


def test_canonical_forms_agree_on_the_orbit_and_with_the_hand_version(known):
    quotient = Quotient(known)
    theta = known.objective.theta
    by_hand = hand_canonical(known.objective, theta)
    generator = torch.Generator().manual_seed(0)
    for _ in range(4):
        moved = known.sample(generator)
        assert float((quotient.canonical(moved) - quotient.reference).norm()) < 1e-10
        assert float((by_hand(moved) - by_hand(theta)).norm()) < 1e-12
    # The inferred representative is balanced as the hand version demands.
    named = known.objective.layout.unflatten(quotient.reference)
    incoming = torch.cat([named["0.weight"], named["0.bias"][:, None]], 1).norm(dim=1)
    torch.testing.assert_close(incoming, named["2.weight"].norm(dim=0), rtol=1e-5, atol=0)


def test_what_is_off_the_orbit_is_not_explained(known):
    quotient = Quotient(known)
    theta = known.objective.theta
    on = known.sample(torch.Generator().manual_seed(1))
    off = theta + 0.5 * torch.randn_like(theta)
    verdicts = check_explained(torch.stack([on, off]), theta, quotient.canonical)
    by_hand = check_explained(torch.stack([on, off]), theta, hand_canonical(known.objective, theta))
    assert [v.by_known_symmetries for v in verdicts] == [True, False]
    assert [v.by_known_symmetries for v in by_hand] == [True, False]
    assert verdicts[1].distance == pytest.approx(by_hand[1].distance, rel=0.05)


def test_quotient_of_a_convolutional_net_with_a_flatten():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(12, 5),
        nn.ReLU(),
        nn.Linear(5, 1),
    ).double()
    x = torch.randn(8, 1, 6, 6, dtype=torch.float64)
    known = KnownSymmetry(model, x[:2], function_distance(model, x))
    quotient = Quotient(known)
    for seed in range(3):
        moved = known.sample(torch.Generator().manual_seed(seed))
        assert float((moved - known.objective.theta).norm()) > 0.5
        assert float((quotient.canonical(moved) - quotient.reference).norm()) < 1e-10


def batch_norm_net(activation: nn.Module | None = None) -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Linear(3, 4), nn.BatchNorm1d(4), activation or nn.ReLU(), nn.Linear(4, 1)
    model = nn.Sequential(*layers).double().eval()
    with torch.no_grad():
        model[1].running_mean.normal_()
        model[1].running_var.uniform_(0.5, 2)
        model[1].weight.uniform_(0.5, 2)
        model[1].bias.normal_()
    return model


def test_a_one_sided_scaling_has_a_representative_too():
    """Before a batch norm a scaling only enlarges: without the linear term there is no least norm."""
    model, x = batch_norm_net(), torch.randn(16, 3, dtype=torch.float64)
    known = KnownSymmetry(model, x[:2], function_distance(model, x, batch_norm="batch"))
    quotient = Quotient(known)
    moved = known.sample(torch.Generator().manual_seed(0))
    assert float((moved - quotient.reference).norm()) > 0.5
    # The statistics of C make up for any scale, but for the eps that batch norm adds to the variance.
    assert float(known.objective.values(moved[None])[0]) < 1e-8
    assert float((quotient.canonical(moved) - quotient.reference).norm()) < 1e-10


def test_stored_statistics_stay_where_they_are():
    """To permute what enters a batch norm its statistics must move, and here they are held."""
    model, x = batch_norm_net(), torch.randn(16, 3, dtype=torch.float64)
    known = KnownSymmetry(model, x[:2], function_distance(model, x))
    assert not known.group.whole and known.loss(known.symmetry.sample(0)) < 1e-25
    whole = known.act(known.objective.theta, known.symmetry.sample(0))
    assert float(known.objective.values(whole[None])[0]) > 1e-3
    quotient = Quotient(known)
    assert float(known.objective.values(quotient.reference[None])[0]) < 1e-25
    for seed in range(3):
        moved = known.sample(torch.Generator().manual_seed(seed))
        assert float((moved - known.objective.theta).norm()) > 0.1
        assert float(known.objective.values(moved[None])[0]) < 1e-25
        assert float((quotient.canonical(moved) - quotient.reference).norm()) < 1e-10
    # What remains: a gain and shift, against the weights that read them.
    assert len(known.scaling_paths()) == 4
    ends = torch.stack([path(0.7) for path in known.scaling_paths()])
    assert float(known.objective.values(ends).max()) < 1e-25


def test_signs_behind_stored_statistics_are_divided_out():
    """The channels stay where they are; the signs of gain, shift and what reads them are still free."""
    model, x = batch_norm_net(nn.Tanh()), torch.randn(16, 3, dtype=torch.float64)
    known = KnownSymmetry(model, x[:2], function_distance(model, x))
    quotient = Quotient(known)
    flipped = 0
    for seed in range(3):
        moved = known.sample(torch.Generator().manual_seed(seed), "sign")
        flipped += int((moved != known.objective.theta).sum())
        assert float(known.objective.values(moved[None])[0]) < 1e-25
        assert float((quotient.canonical(moved) - quotient.reference).norm()) < 1e-10
    assert flipped > 0


def test_signs_of_tanh_are_divided_out():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    x = torch.randn(16, 3, dtype=torch.float64)
    known = KnownSymmetry(model, x[:2], function_distance(model, x))
    quotient = Quotient(known)
    for seed in range(4):
        moved = known.sample(torch.Generator().manual_seed(seed))
        assert float((moved - quotient.reference).norm()) > 0.5
        assert float((quotient.canonical(moved) - quotient.reference).norm()) < 1e-10


def test_found_points_of_a_minimal_network_are_explained():
    """One unit for each side of zero: the class is the orbit, so all found points are explained."""
    model = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[0.9], [-0.7]]))
        model[2].weight.copy_(torch.tensor([[0.8, 0.6]]))
    x = torch.randn(256, 1, dtype=torch.float64)
    objective = function_distance(model, x)
    sample = find_equivalents(objective, n=3, optimizer="lbfgs", tolerance=1e-10)
    knowledge = explain_sample(model, x[:2], objective, sample, span(sample))
    assert all(found.by_known_symmetries for found in knowledge.explained)
    assert knowledge.known_loss < 1e-25 and knowledge.orbit.values.max() < 1e-25
    assert "explained by known symmetries" in knowledge.facts()["theta_0"]


def test_found_points_of_a_redundant_network_are_not():
    """Two units on one side: a c + b d = const has one dimension more than the orbit."""
    model = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[0.9], [0.7]]))
        model[2].weight.copy_(torch.tensor([[0.8, 0.6]]))
    x = torch.randn(256, 1, dtype=torch.float64)
    objective = function_distance(model, x)
    sample = find_equivalents(objective, n=3, optimizer="lbfgs", tolerance=1e-10)
    verdicts = explain_sample(model, x[:2], objective, sample, span(sample)).explained
    assert not all(found.by_known_symmetries for found in verdicts)


def test_the_quotient_sample_keeps_the_function(known):
    objective = known.objective
    sample = find_equivalents(
        objective, n=2, optimizer="lbfgs", tolerance=1e-4, starts="perturbed", spread=0.05
    )
    divided = Quotient(known).sample(sample)
    assert max(divided.losses) < 2e-4 and "quotient" in divided.notes[-1]


def test_align_is_the_second_opinion(known):
    theta = known.objective.theta
    on, off = known.sample(torch.Generator().manual_seed(1)), theta + 0.5 * torch.randn_like(theta)
    verdicts = check_explained(
        torch.stack([on, off]), theta, Quotient(known).canonical, align=known.aligned_distance
    )
    assert [v.by_known_symmetries for v in verdicts] == [True, False]
    assert verdicts[0].aligned is not None and verdicts[0].aligned < 1e-6
    assert verdicts[1].aligned is not None and 0.05 < verdicts[1].least <= verdicts[1].aligned
    assert "after align" in verdicts[1].describe() and "not explained" in verdicts[1].describe()


def test_what_only_align_explains_is_explained():
    """A canonical form that divides nothing out: the distance after align decides."""
    verdict = check_explained(torch.ones(1, 3), torch.zeros(3) + 9, lambda v: v, align=lambda v: 0.01)[0]
    assert verdict.by_known_symmetries and verdict.distance > 0.5 and verdict.least == 0.01


def test_an_align_that_fails_leaves_the_quotient(known, monkeypatch):
    def broken(*args: object, **kwargs: object) -> None:
        raise torch.linalg.LinAlgError("no convergence\nand more")

    # The package `intertwine` has a function of the same name, so the module is asked for by its name.
    monkeypatch.setattr(importlib.import_module("intertwine.aligning"), "align", broken)
    x = known.objective.inputs[0]
    sample = find_equivalents(
        known.objective, n=2, optimizer="lbfgs", tolerance=1e-3, starts="perturbed", spread=0.02
    )
    model = known.objective.module(known.objective.theta)
    knowledge = explain_sample(model, x[:2], known.objective, sample, span(sample))
    assert knowledge.facts()["align failed"] == "no convergence"
    assert all(found.aligned is None for found in knowledge.explained)
    assert "align failed" in knowledge.facts()["theta_0"]
