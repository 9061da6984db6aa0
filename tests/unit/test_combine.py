"""combine: planted elements, least squares against an oracle, several models, averages, errors."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
from torch import nn

from intertwine import act, combine, trace, zoo
from intertwine.cli.program import main
from intertwine.combining import METHODS, _one_sided, align_all
from intertwine.combining._distil import Teachers, distilled, teachers
from intertwine.combining._hidden import HiddenValues
from intertwine.combining._lockstep import short_branches_first
from intertwine.combining._methods import Settings, _trimmed
from intertwine.combining._normal import PULLS, Sums, best_pull
from intertwine.combining._one_sided import LayerRows, one_sided
from intertwine.combining._rows import find_layer
from intertwine.combining._together import placement
from intertwine.data import load_data
from intertwine.errors import DataError, InputError, ModelError
from intertwine.graph.export import export
from intertwine.graph.record import Recorder
from intertwine.orbit import Pairing


class Residual(nn.Module):
    """Two batch-normed convolutions beside a skip, a grouped one, a strided one, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.one, self.norm1 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.two, self.norm2 = nn.Conv2d(8, 8, 3, padding=1, groups=2, bias=False), nn.BatchNorm2d(8)
        self.down = nn.Conv2d(8, 12, 3, stride=2)
        self.head = nn.Linear(12, 4)

    def forward(self, x):
        x = torch.relu(self.norm(self.stem(x)))
        x = torch.relu(x + self.norm2(self.two(torch.relu(self.norm1(self.one(x))))))
        return self.head(torch.relu(self.down(x)).mean((2, 3)))


def trained_look(seed):
    """A network whose batch norms hold the statistics of its inputs."""
    torch.manual_seed(seed)
    net = Residual()
    for _ in range(60):
        net.train()(torch.randn(32, 3, 9, 9))
    return net.eval()


class Smooth(Residual):
    """The same weights, another activation at the end."""

    def forward(self, x):
        x = torch.relu(self.norm(self.stem(x)))
        return self.head(torch.tanh(self.down(x)).mean((2, 3)))


def spoilt(net):
    nn.init.constant_(net.stem.weight, float("nan"))
    return net


def of_four_colours():
    net = Residual().eval()
    net.stem = nn.Conv2d(4, 8, 3, padding=1)
    return net


X = torch.randn(200, 3, 9, 9, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("how", ["layerwise", "average", "fisher"])
@pytest.mark.parametrize("align", ["activations", "weights", "loss"])
def test_networks_of_one_orbit_give_the_network(how, align):
    """Permuted, rescaled, all of it: combine(m, g m, h m) is m."""
    net = trained_look(0)
    symmetry = trace(net, X[:2])
    others = [act(net, symmetry.sample(seed)) for seed in (1, 2)]
    result = combine([net, *others], train_data=X, how=how, align=align, steps=2, symmetry=symmetry)
    with torch.no_grad():
        scale = net(X).std()
        assert (result.model(X) - net(X)).abs().max() < 1e-6 * scale
        assert (act(others[0], result.elements[1])(X) - net(X)).abs().max() < 1e-4 * scale
    assert "up to a symmetry" in result.notes[-1]


def test_channels_that_are_only_alike_are_found_by_activations():
    """Off the orbit by a tenth, so that weights alone do not tell: least squares gives back the network."""
    net = trained_look(0)
    symmetry = trace(net, X[:2])
    other = act(net, symmetry.sample(1, parts=("permutation",)))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in other.parameters():
            p += 0.1 * p.std() * torch.randn(p.shape, generator=generator) if p.dim() > 1 else 0
    result = combine([net, other], train_data=X)
    with torch.no_grad():
        wanted = (net(X) + other(X)) / 2
        assert (result.model(X) - wanted).square().mean() < 0.05 * wanted.var()


def test_without_alignment_the_average_is_another_function():
    """The control of the test above."""
    net = trained_look(0)
    other = act(net, trace(net, X[:2]).sample(1, parts=("permutation",)))
    mixed = combine([net, other], train_data=X, how="average", align="none", repair="none").model
    with torch.no_grad():
        assert (mixed(X) - net(X)).abs().max() > 0.5 * net(X).std()


def test_rows_times_matrix_is_the_layer():
    net = trained_look(0)
    traced = export(net, (X[:5],))
    found = [
        layer
        for n in traced.graph.nodes
        if n.op == "call_function" and (layer := find_layer(n, traced.weights))
    ]
    assert len(found) == 5
    inputs = {
        "stem": X[:5],
        "two": torch.randn(5, 8, 9, 9),
        "down": torch.randn(5, 8, 9, 9),
        "head": torch.randn(5, 12),
    }
    for layer in found:
        name = traced.weights[layer.weight.name].removesuffix(".weight")
        if name in inputs:
            module = net.get_submodule(name)
            made = (layer.rows(inputs[name]) @ layer.matrix(module.weight).mT).movedim(0, 1).flatten(1)
            shift = 0 if module.bias is None else module.bias
            torch.testing.assert_close(
                made + shift, layer.columns(module(inputs[name])), rtol=1e-4, atol=1e-5
            )


def test_picked_rows_are_those_of_all():
    """Strided, dilated, padded and in groups: what is picked is what unfolding everything gives there."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(2, 1), dilation=(1, 2), groups=2))
    x = torch.randn(3, 4, 9, 7)
    traced = export(net, (x,))
    (layer,) = (
        f for n in traced.graph.nodes if n.op == "call_function" and (f := find_layer(n, traced.weights))
    )
    made, pick = net(x).detach(), torch.tensor([5, 0, 61])
    torch.testing.assert_close(layer.rows(x, pick), layer.rows(x)[:, pick])
    assert layer.count(made) == len(layer.columns(made)) == layer.rows(x).shape[1]
    torch.testing.assert_close(layer.columns(made, pick), layer.columns(made)[pick])
    found = (layer.rows(x, pick) @ layer.matrix(net[0].weight.detach()).mT).movedim(0, 1).flatten(1)
    torch.testing.assert_close(found + net[0].bias.detach(), layer.columns(made, pick), rtol=1e-4, atol=1e-5)


def test_sums_solve_ridge_regression():
    torch.manual_seed(0)
    rows, true = torch.randn(500, 6).double(), torch.randn(3, 6).double()
    goal, before = rows @ true.T + 2, torch.randn(3, 6).double()
    sums = Sums()
    for part in (slice(0, 200), slice(200, 500)):
        sums.add(rows[None, part], goal[part])
    matrix = sums.solve(before[None], 1e-9, centred=True)
    torch.testing.assert_close(matrix[0], true, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(sums.shift(matrix), torch.full((3,), 2.0).double(), rtol=1e-6, atol=1e-6)
    mean, variance = sums.output_moments(matrix)
    made = rows @ matrix[0].T
    torch.testing.assert_close(mean, made.mean(0))
    torch.testing.assert_close(variance, made.var(0, correction=0))
    pulled = sums.solve(before[None], 1e9, centred=True)
    torch.testing.assert_close(pulled[0], before, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("groups", [1, 2])
def test_spreading_out_gives_the_covariance_that_was_asked_for(groups):
    """Of a fit that explains half; where it explains all, nothing moves."""
    torch.manual_seed(0)
    rows, true = torch.randn(groups, 800, 5).double(), torch.randn(groups, 4, 5).double()
    exact = (rows @ true.mT).movedim(0, 1).flatten(1)
    goal = exact + 2 * torch.randn(800, 4 * groups).double() @ torch.randn(4 * groups, 4 * groups).double()
    sums, whole = Sums(), Sums()
    sums.add(rows, goal)
    whole.add(rows, exact)
    before = torch.zeros_like(true)
    made = rows @ sums.spread_out(sums.solve(before, 1e-6, centred=True)).mT
    for k in range(groups):
        wanted = torch.cov(goal[:, 4 * k : 4 * k + 4].T)
        torch.testing.assert_close(torch.cov(made[k].T), wanted, rtol=1e-3, atol=1e-3 * float(wanted.max()))
        less = torch.cov((rows @ sums.solve(before, 1e-6, centred=True).mT)[k].T)
        assert less.trace() < 0.8 * wanted.trace()
    fit = whole.solve(before, 1e-9, centred=True)
    torch.testing.assert_close(whole.spread_out(fit), fit, rtol=1e-4, atol=1e-4)


def test_the_pull_follows_what_the_average_is_worth():
    """Noise in few rows: strong if the average is right, weak if it is wrong and rows are many."""
    torch.manual_seed(0)
    true = torch.randn(3, 20)

    def sums(count, noise):
        out, rows = Sums(), torch.randn(count, 20)
        out.add(rows[None], rows @ true.T + noise * torch.randn(count, 3))
        return out

    right, wrong = true[None].double(), torch.zeros(1, 3, 20).double()
    assert best_pull(sums(30, 3.0), sums(400, 3.0), right, centred=True) == PULLS[-1]
    assert best_pull(sums(4000, 0.1), sums(400, 0.1), wrong, centred=True) <= PULLS[1]


@pytest.mark.parametrize(("groups", "summed"), [(1, False), (1, True), (2, False)])
def test_before_a_rectifier_only_what_comes_through_counts(monkeypatch, groups, summed):
    """Against the convex problem solved by gradients, and every round errs less than the one before."""
    torch.manual_seed(0)
    rows, goal = torch.randn(groups, 200, 4).double(), torch.randn(200, 2 * groups).double()
    beside = 0.3 * torch.randn_like(goal) if summed else None
    off = torch.rand_like(goal) < 0.5
    goal = torch.where(off, -3.0, goal)  # far below zero, which nothing that is read can explain
    before = torch.zeros(groups, 2, 4).double()
    parts = [LayerRows(lambda: rows, goal if beside is None else goal - beside, off, beside)]
    sums = Sums()
    sums.add(rows, parts[0].goal)

    def error(matrix: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        z = torch.cat([(r @ m.T) for r, m in zip(rows, matrix, strict=True)], 1) + shift
        z = z if beside is None else z + beside
        return torch.where(off, z.relu(), z - goal).square().mean()

    errors = []
    for rounds in (0, 1, 4, 60):
        monkeypatch.setattr(_one_sided, "ROUNDS", rounds)
        matrix, after = one_sided(sums, parts, before, 1e-9, centred=True)
        errors.append(float(error(matrix, after.shift(matrix))))
    assert errors == sorted(errors, reverse=True) and errors[2] < 0.6 * errors[0]
    free = [before.clone().requires_grad_(), torch.zeros(2 * groups).double().requires_grad_()]
    solver = torch.optim.LBFGS(free, max_iter=100, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        solver.zero_grad()
        found = error(*free)
        found.backward()
        return found

    solver.step(closure)
    assert errors[-1] == pytest.approx(error(*free).item(), rel=1e-3)


def test_a_projection_on_the_shortcut_is_solved_for_before_the_branch():
    """Whichever of them forward computes first: the branch, which can do more, makes up for the sum."""

    class Block(nn.Module):
        def __init__(self, first):
            super().__init__()
            self.first, self.short = first, nn.Conv2d(3, 3, 1)
            self.long, self.end = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)

        def forward(self, x):
            short = self.short(x) if self.first else None
            out = self.end(self.long(x).relu())
            return out + (self.short(x) if short is None else short)

    for first in (True, False):
        traced = export(Block(first), (torch.zeros(1, 3, 4, 4),), {})
        nodes = short_branches_first(traced.graph)
        seen = {n: k for k, n in enumerate(nodes)}
        assert set(seen) == set(traced.graph.nodes)
        assert all(seen[n] < seen[node] for node in nodes for n in node.all_input_nodes)
        read = [traced.weights[n.args[1].name] for n in nodes if n.op == "call_function" and "conv" in n.name]
        assert read == ["short.weight", "long.weight", "end.weight"]


def test_mirror_images_are_inputs_too():
    a, b = trained_look(0), trained_look(1)
    assert combine([a, b], train_data=X[:20], flip=True).inputs == 40
    with pytest.raises(DataError, match="mirrors images"):
        combine([nn.Linear(3, 2), nn.Linear(3, 2)], train_data=torch.randn(9, 3), flip=True)


@torch.no_grad()
def test_learning_on_varied_images_comes_nearer_to_the_mean_outputs_of_others():
    a, b = trained_look(2), trained_look(3)
    others = torch.randn(200, 3, 9, 9, generator=torch.Generator().manual_seed(1))
    taught, wanted = teachers([a, b], [0.5, 0.5], X), teachers([a, b], [0.5, 0.5], others).outputs
    learned = distilled(a, taught, X, epochs=8, learning_rate=3e-2, augment=True)
    assert taught.apart(wanted, learned(others)) < 0.5 * taught.apart(wanted, a(others))
    assert torch.equal(learned.norm.running_mean, a.norm.running_mean)
    with pytest.raises(DataError, match="shifts images"):
        combine([nn.Linear(3, 2), nn.Linear(3, 2)], train_data=torch.randn(9, 3), epochs=1, augment=True)


def test_hidden_values_that_are_learned_come_nearer_to_the_mean():
    a, b = trained_look(2), trained_look(3)
    inside = HiddenValues(export(a, (X[:20],)), [a, b], [0.5, 0.5])
    off, scores, wanted = inside.beside(a)(X[:30])  # another number of inputs than the graph was made for
    assert len(inside.at) == 4 and torch.allclose(scores, a(X[:30]), atol=1e-6)
    assert torch.allclose(wanted, (a(X[:30]) + b(X[:30])) / 2, atol=1e-5)
    (gradient,) = torch.autograd.grad(off, a.stem.weight)
    assert gradient.abs().max() > 0 and all(p.grad is None for p in b.parameters())
    taught = teachers([a, b], [0.5, 0.5], X)
    learned = distilled(a, taught, X, epochs=6, learning_rate=3e-2, augment=True, hidden=(10.0, inside))
    with torch.no_grad():
        assert inside.beside(learned)(X)[0] < 0.8 * off


def test_a_graph_says_whether_it_holds_its_number_of_rows():
    """Then fewer rows go through it as they are; else they are filled up, and what comes out is the same."""

    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(12, 2)

        def forward(self, x):
            return self.head(x.reshape(len(x), 12))

    for model, rows, loose in ((trained_look(0), X[:20], True), (Flat(), torch.randn(20, 3, 2, 2), False)):
        traced = export(model, (rows,))
        assert Recorder(traced, model).runs_on(2) is loose
        for kind in {False, loose}:
            _, found = Recorder(traced, model, loose=kind)((rows[:7],), None, ())
            assert torch.allclose(found, model(rows[:7]), atol=1e-5)


def test_hidden_values_of_an_element_of_the_orbit_are_those_of_the_mean():
    """One network, moved and brought back: nothing is off, so nothing is learned away from it."""
    a = trained_look(0)
    inside = HiddenValues(export(a, (X[:20],)), [a, a], [0.3, 0.7])
    assert inside.beside(a)(X)[0] < 1e-10
    with pytest.raises(InputError, match="count"):
        combine([a, trained_look(1)], train_data=X, epochs=1, hidden=-1.0)
    with pytest.raises(InputError, match="no hidden layers"):
        combine([nn.Linear(3, 2), nn.Linear(3, 2)], train_data=torch.randn(60, 3), epochs=1, hidden=1.0)


def test_unlike_channels_follow_one_network():
    """Of one network that is averaged with itself nothing is unlike."""

    def net(seed):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 3)
        ).eval()

    a, b, x = net(0), net(1), torch.randn(400, 6, generator=torch.Generator().manual_seed(2))
    half, followed = (combine([a, b], train_data=x, follow=f).model for f in (0.0, 1.0))
    with torch.no_grad():
        assert float((half(x) - followed(x)).abs().max()) > 1e-3 and followed(x).isfinite().all()
    moved = act(a, trace(a, x[:2]).sample(0))
    torch.testing.assert_close(
        combine([a, moved], train_data=x, follow=0.9).model(x), a(x), rtol=0, atol=1e-4
    )
    with pytest.raises(InputError, match="from 0 to 1"):
        combine([a, b], train_data=x, follow=1.5)
    with pytest.raises(InputError, match="solved for"):
        combine([a, b], train_data=x, how="zip", follow=0.5)


def test_what_cannot_be_learned_is_told():
    nowhere = Teachers(torch.full((9, 2), torch.nan), (2,), (1.0,), lambda batch: batch)
    with pytest.raises(InputError, match="epoch 1 of learning makes weights that are not finite"):
        distilled(nn.Linear(3, 2), nowhere, torch.randn(9, 3), epochs=1)
    with pytest.raises(InputError, match="1e\\+30"):
        combine([nn.Linear(3, 2), nn.Linear(3, 2)], train_data=torch.randn(9, 3), learning_rate=1e300)
    with pytest.raises(InputError):  # no data at all, for several heads
        combine([nn.Linear(3, 2), nn.Linear(3, 2)], [], how="zip")


def test_least_squares_beats_the_reset_average_of_unrelated_networks():
    """What it is for: the outputs of the combined network are nearer to the mean of the outputs."""
    a, b = trained_look(2), trained_look(3)
    with torch.no_grad():
        wanted = (a(X) + b(X)) / 2
        error = {
            repair: float((combine([a, b], train_data=X, repair=repair).model(X) - wanted).square().mean())
            for repair in ("reset", "rescale", "least-squares")
        }
    assert error["least-squares"] < 0.2 * min(error["reset"], error["rescale"])


def test_a_further_sweep_is_pulled_less_towards_the_average():
    """With a strong pull most of the average stays; each sweep takes the last one's solution in its place."""
    a, b = trained_look(2), trained_look(3)
    with torch.no_grad():
        wanted = (a(X) + b(X)) / 2
        made = [combine([a, b], train_data=X, ridge=3.0, sweeps=n).model(X) for n in (1, 2, 4)]
        error = [float((y - wanted).square().mean()) for y in made]
    assert error[2] < error[1] < error[0]


def test_shares_lead_from_one_end_to_the_other():
    a, b = trained_look(0), trained_look(1)
    with torch.no_grad():
        near = [combine([a, b], train_data=X, shares=s).model(X) for s in ((1, 0), (0.9, 0.1), (0.1, 0.9))]
        spread, to_a = float(a(X).var()), [float((y - a(X)).square().mean()) for y in near]
    assert to_a[0] < 0.05 * spread and to_a[0] < to_a[1] < to_a[2]


def test_the_callers_models_stay():
    a, b = trained_look(0), trained_look(1).train()
    before = [copy.deepcopy(m.state_dict()) for m in (a, b)]
    combine([a, b], train_data=X, epochs=1)
    assert b.training and b.norm.training and not a.training
    for model, state in zip((a, b), before, strict=True):
        assert all(torch.equal(t, state[name]) for name, t in model.state_dict().items())


def test_three_models_are_aligned_consistently():
    """g_1^-1 g_2 is the same however the models are ordered, up to the place of the first."""
    net = trained_look(3)
    symmetry = trace(net, X[:2])
    planted = [symmetry.sample(seed, parts=("permutation",)) for seed in (5, 6)]
    models = [net, *(act(net, g) for g in planted)]
    elements = align_all(models, symmetry, data=X)
    for g, e in zip(planted, elements[1:], strict=True):
        forest = Pairing(symmetry, net, net).action.forest
        for unit in forest.units:
            if unit.permutes and unit.name != "two":
                np.testing.assert_allclose(
                    placement(unit, e) @ placement(unit, g), np.eye(unit.size), atol=1e-9
                )


def test_one_model_twice_returns_it():
    net = trained_look(0)
    result = combine([net, copy.deepcopy(net)], train_data=X)
    assert all(torch.equal(t, net.state_dict()[n]) for n, t in result.model.state_dict().items())
    assert "one and the same" in result.notes[0]


def linear(*values):
    net = nn.Linear(len(values), 1, bias=False)
    net.weight.data = torch.tensor([values])
    return net


def test_averages_by_hand():
    zero, a, b = linear(0.0, 0.0, 0.0), linear(4.0, 1.0, -2.0), linear(2.0, -3.0, -4.0)
    half = (0.5, 0.5)
    assert METHODS["task"]([a, b], Settings(half, zero, scale=2.0)).weight.tolist() == [[6.0, -2.0, -6.0]]
    # ties with everything kept: signs of the sums are +, -, -; 1 disagrees and is left out
    assert METHODS["ties"]([a, b], Settings(half, zero, density=1.0)).weight.tolist() == [[3.0, -3.0, -3.0]]
    assert _trimmed(torch.tensor([1.0, -5.0, 2.0, 0.5]), 0.5).tolist() == [0.0, -5.0, 2.0, 0.0]
    around = METHODS["slerp"]([linear(1.0, 0.0), linear(0.0, 1.0)], Settings(half)).weight
    torch.testing.assert_close(around, torch.full((1, 2), 0.5**0.5))
    same = METHODS["slerp"]([a, a], Settings(half)).weight
    torch.testing.assert_close(same, a.weight)


def test_fisher_follows_the_model_that_cares():
    torch.manual_seed(0)
    a, b = nn.Linear(2, 2), nn.Linear(2, 2)
    x = torch.randn(64, 2)
    mixed = METHODS["fisher"]([a, b], Settings((1.0, 0.0), data=x))
    torch.testing.assert_close(mixed.weight, a.weight)
    even = METHODS["fisher"]([a, b], Settings((0.5, 0.5), data=x)).weight
    assert ((even - a.weight) * (even - b.weight) <= 1e-9).all()  # between the two, entry by entry


@pytest.mark.parametrize(("scale", "finite"), [(1.0, True), (1e10, False)])
def test_fisher_where_gradients_overflow(scale, finite):
    """Outputs are finite in both cases; the gradient of the first layer is scale * 3e38."""
    a = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    nn.init.zeros_(a[0].weight)
    nn.init.constant_(a[0].bias, 1e-10)
    a[2].weight.data = scale * torch.eye(2)
    b = copy.deepcopy(a)
    b[0].bias.data *= 2
    b[2].weight.data *= 2
    settings = Settings((0.5, 0.5), data=torch.full((4, 2), 3e38))
    if not finite:
        with pytest.raises(DataError, match="gradient"):
            METHODS["fisher"]([a, b], settings)
        return
    mixed = METHODS["fisher"]([a, b], settings)
    for low, found, high in zip(a.parameters(), mixed.parameters(), b.parameters(), strict=True):
        assert ((found - low) * (found - high) <= 1e-9).all()  # finite, and between the two


def test_a_soup_leaves_out_what_spoils_it():
    data = load_data("digits", limit=200)
    good = zoo.load_weights(zoo.build("digits-vgg"), zoo.checkpoint("digits-vgg", 0)).eval()
    bad = zoo.build("digits-vgg").eval()
    mixed = METHODS["soup"]([bad, good], Settings((0.5, 0.5), data=data))
    assert all(torch.equal(t, good.state_dict()[n]) for n, t in mixed.state_dict().items())
    made = combine([bad, good], train_data=data, how="soup").model
    assert all(torch.equal(t, good.state_dict()[n]) for n, t in made.state_dict().items())


@pytest.mark.parametrize(
    ("call", "kind", "says"),
    [
        (lambda a, b: combine([a], train_data=X), InputError, "at least two"),
        (lambda a, b: combine([a, nn.Linear(3, 2)], train_data=X), InputError, "other weights"),
        (lambda a, b: combine([a, b], train_data=torch.randn(9, 5)), InputError, "model 1 does not run"),
        (lambda a, b: combine([a, of_four_colours()], train_data=X), InputError, "model 2 does not run"),
        (lambda a, b: combine([a, Smooth().eval()], train_data=X, align="none"), InputError, "graphs of"),
        (lambda a, b: combine([a, b]), DataError, "needs inputs"),
        (lambda a, b: combine([a, spoilt(b)], train_data=X), ModelError, "model 2: stem.weight holds NaN"),
        (lambda a, b: combine([a, b], train_data=X, shares=(1,)), InputError, "1 shares for 2"),
        (lambda a, b: combine([a, b], train_data=X, shares=(1, -1)), InputError, "parts of a whole"),
        (lambda a, b: combine([a, b], train_data=X, how="magic"), InputError, "layerwise"),
        (lambda a, b: combine([a, b], train_data=X, sweeps=0), InputError, "at least 1"),
        (lambda a, b: combine([a, b], train_data=X, how="task"), InputError, "trained from"),
        (lambda a, b: combine([a, b], train_data=X, how="zip", align="loss"), InputError, "leave align"),
        (lambda a, b: combine([a, b], train_data=X, target_params=0.5), InputError, "how='zip'"),
        (lambda a, b: combine([a, b], train_data=X, heads="each"), InputError, "how='zip'"),
        (lambda a, b: combine([a, b, a], train_data=X, how="slerp"), InputError, "two models"),
    ],
)
def test_errors(call, kind, says):
    with pytest.raises(kind) as info:
        call(trained_look(0), trained_look(1))
    assert says in str(info.value)


def test_the_command(tmp_path, capsys):
    out, page = tmp_path / "both.safetensors", tmp_path / "both.html"
    argv = ["combine", "zoo:digits-vgg", "zoo:digits-vgg", "--weights", "shipped:0", "--weights", "shipped:1",
            "--data", "digits", "--limit", "300", "--train-data", "digits",
            "--train-limit", "300", "-o", str(out), "--page", str(page), "--json"]  # fmt: skip
    assert main(argv) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["accuracy_before"]) == 2 and found["repair"] == "least-squares"
    stages = {s["name"]: s["accuracy"] for s in found["stages"]}
    assert found["accuracy_after"] > stages["averaged as they are"] + 0.2
    assert found["accuracy_after"] > min(found["accuracy_before"]) - 0.1
    loaded = zoo.load_weights(zoo.build("digits-vgg"), out).eval()
    from intertwine.data import evaluate

    assert evaluate(loaded, load_data("digits", limit=300)).accuracy == pytest.approx(found["accuracy_after"])
    assert "Several networks into one" in page.read_text()


def test_inputs_that_overflow_are_told() -> None:
    sums = Sums()
    sums.add(torch.full((1, 4, 3), 1e30), torch.ones(4, 2))
    with pytest.raises(DataError, match="not finite"):
        sums.solve(torch.zeros(1, 2, 3).double(), 0.1, centred=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_inputs_are_brought_into_the_precision_of_the_networks(dtype):
    torch.manual_seed(0)
    nets = [nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 3)).to(dtype).eval() for _ in range(2)]
    x = torch.randn(300, 4)
    with torch.no_grad():
        wanted = sum(net(x.to(dtype)).double() for net in nets) / 2
        made = combine(nets, train_data=x).model(x.to(dtype)).double()
    assert float((made - wanted).square().mean() / wanted.var()) < 0.2
