"""Stitching: closed forms against their conditions, Theorem 4.2 and Remark 3.6, training, errors."""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stitch_nets import images, residual
from torch import Tensor, nn

from intertwine import Group, act, trace
from intertwine.errors import DataError, InputError, NotFound, Unsupported
from intertwine.stitching import Training, parse_kind, stitch, stitch_slopes, stitched_model
from intertwine.stitching import fit as fitting
from intertwine.stitching.augment import augment
from intertwine.stitching.cache import TensorStore, record
from intertwine.stitching.fit import SOURCE_BATCH, Held, choose_alpha, evaluate, fit, polish_scales
from intertwine.stitching.junctions import find_junctions
from intertwine.stitching.maps import BirkhoffMap, SoftSortMap, place, resize, sinkhorn
from intertwine.stitching.start import (
    StitchMoments,
    assign,
    closed_form,
    lasso,
    least_squares,
    reduced_rank,
    sparsity,
)
from intertwine.symmetry.surgery import Surgeon

RELU = Group(permutation=True, positive=1)


def _moments(x: Tensor, y: Tensor) -> StitchMoments:
    found = StitchMoments(x.shape[1], y.shape[1])
    found.add(x, y)
    return found


# ---------------------------------------------------------------- closed forms


def test_least_squares_satisfies_the_normal_equations():
    x, y = torch.randn(200, 5, dtype=torch.float64), torch.randn(200, 3, dtype=torch.float64)
    matrix = least_squares(_moments(x, y), ridge=0)
    assert torch.allclose((y - x @ matrix.T).T @ x, torch.zeros(3, 5, dtype=torch.float64), atol=1e-9)


def test_reduced_rank_is_the_best_of_its_rank():
    torch.manual_seed(0)
    x = torch.randn(300, 6, dtype=torch.float64) * torch.tensor([5.0, 1, 1, 1, 1, 0.1])
    y = x @ torch.randn(6, 6, dtype=torch.float64) + 0.1 * torch.randn(300, 6, dtype=torch.float64)
    moments = _moments(x, y)
    best = reduced_rank(moments, 2, ridge=0)
    assert torch.linalg.matrix_rank(best) == 2
    error = (y - x @ best.T).square().sum()
    u, s, v = torch.linalg.svd(least_squares(moments, ridge=0))
    plain = u[:, :2] * s[:2] @ v[:2]
    assert error < (y - x @ plain.T).square().sum()  # the SVD of the map alone forgets how large x is
    for _ in range(20):
        moved = best + 1e-3 * torch.randn(6, 2, dtype=torch.float64) @ torch.randn(2, 6, dtype=torch.float64)
        u, s, v = torch.linalg.svd(moved)
        assert error <= (y - x @ (u[:, :2] * s[:2] @ v[:2]).T).square().sum() + 1e-9


def test_the_group_start_recovers_a_planted_element():
    torch.manual_seed(1)
    x = torch.randn(50, 7, 3, 3, dtype=torch.float64).relu()
    order, scale = torch.randperm(7), torch.rand(7, dtype=torch.float64) + 0.1
    planted = place(order, scale)
    y = torch.einsum("dc,nchw->ndhw", planted, x)
    assert torch.allclose(closed_form(parse_kind("group"), _moments(x, y), RELU), planted, atol=1e-12)


@pytest.mark.parametrize(
    ("scale", "entries"),
    [
        ("permutation", [1.0] * 5),
        ("signed permutation", [1.0, -1, -1, 1, 1]),
        ("monomial", [2.0, -3, 0.5, -0.1, 1]),
    ],
)
def test_other_groups_recover_theirs(scale, entries):
    torch.manual_seed(2)
    x = torch.randn(400, 5, dtype=torch.float64) * torch.tensor([1, 1.5, 2, 0.5, 1])
    planted = place(torch.randperm(5), torch.tensor(entries, dtype=torch.float64))
    group = Group.parse(scale)
    found = closed_form(parse_kind("group"), _moments(x, x @ planted.T), group)
    assert torch.allclose(found, planted, atol=1e-12)


def test_lasso_meets_its_optimality_conditions():
    torch.manual_seed(0)
    x, y = torch.randn(300, 6, dtype=torch.float64), torch.randn(300, 4, dtype=torch.float64)
    moments = _moments(x, y)
    weight = 0.3 * moments.yx.abs().max()
    found = lasso(moments, 0.3, steps=20000)
    gradient = found @ moments.xx - moments.yx
    on = found != 0
    assert torch.allclose(gradient[on], -weight * found[on].sign(), rtol=1e-5)
    assert (gradient[~on].abs() <= weight * (1 + 1e-6)).all() and (~on).any() and on.any()
    assert not lasso(moments, 1.0).any()


def test_sparsity_of_a_monomial_map():
    assert sparsity(place(torch.tensor([2, 0, 1]), torch.ones(3))) == pytest.approx(1 - 1 / 3)


def test_dead_channels_do_not_break_the_start():
    x = torch.rand(30, 4, dtype=torch.float64)
    x[:, 1] = 0
    y = x[:, [2, 1, 0, 3]] * 2
    found = closed_form(parse_kind("group"), _moments(x, y), RELU)
    assert torch.isfinite(found).all() and (found.count_nonzero(1) == 1).all()
    assert torch.allclose(x @ found.T, y, atol=1e-12)


# ---------------------------------------------------------------- maps


@settings(max_examples=25)
@given(st.integers(2, 9), st.integers(0, 10**6))
def test_sinkhorn_and_rounding(width, seed):
    torch.manual_seed(seed)
    doubly = sinkhorn(torch.rand(width, width, dtype=torch.float64) + 0.1, 200)
    for dim in (0, 1):
        assert torch.allclose(doubly.sum(dim), torch.ones(width, dtype=torch.float64), atol=1e-6)
    order, scale = torch.randperm(width), torch.rand(width, dtype=torch.float64) + 0.5
    start = place(order, scale)
    birkhoff = BirkhoffMap(start, RELU, blur=0.3)
    with torch.no_grad():
        birkhoff.project(0.1)
    assert torch.allclose(birkhoff.rounded(), start)
    soft = SoftSortMap(start, RELU)
    assert torch.allclose(soft.rounded(), start)
    rows = soft.matrix() / scale[:, None]
    assert torch.allclose(rows.sum(1), torch.ones(width, dtype=torch.float64))
    assert torch.equal(rows.argmax(1), order)


def test_resize_averages_and_interpolates():
    x = torch.arange(16.0).view(1, 1, 4, 4)
    assert torch.allclose(resize(x, (2, 2)), torch.nn.functional.avg_pool2d(x, 2))
    assert resize(x, (8, 2)).shape == (1, 1, 8, 2) and resize(x, (4, 4)) is x


# ---------------------------------------------------------------- groups


@pytest.mark.parametrize(
    ("activation", "name"),
    [
        (nn.ReLU(), "positive monomial"),
        (nn.LeakyReLU(0.01), "positive monomial"),
        (nn.LeakyReLU(0.9), "positive monomial"),
        (nn.LeakyReLU(1.0), "general linear"),
        (nn.GELU(), "permutation"),
        (nn.Tanh(), "signed permutation"),
        (nn.Identity(), "general linear"),
    ],
)
def test_the_group_is_that_of_the_layers_own_activation(activation, name):
    net = nn.Sequential(nn.Linear(3, 4), activation, nn.Linear(4, 2))
    surgeon = Surgeon(net, (torch.zeros(2, 3),))
    layer = "0" if isinstance(activation, nn.Identity) else "1"
    assert surgeon.value(layer).group.name == name


def test_pooling_is_looked_through():
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(2, 2, 1), nn.MaxPool2d(2))
    surgeon = Surgeon(net, (torch.zeros(2, 1, 8, 8),))
    groups = [surgeon.value(name).group.name for name in ("0", "1", "2", "3", "4")]
    assert groups == ["positive monomial"] * 3 + ["trivial"] * 2  # the last channels are the output's


# ---------------------------------------------------------------- Theorem 4.2 and Remark 3.6


def _exactness(skip: str) -> dict[bool, list[float]]:
    """The largest error of the group's closed form, for B = g . A, at cuts outside and inside of blocks."""
    a, x = residual(), images(12)
    b = act(a, trace(a, x[:2]).sample(5))
    expected = a(x).detach()
    sides = [Surgeon(net, (x,)) for net in (a, b)]
    junctions = find_junctions(*sides, "all", skip=skip)
    errors: dict[bool, list[float]] = {False: [], True: []}
    with TensorStore() as store:
        kept = record(*sides, junctions, x, expected.argmax(1), store)
        for k, junction in enumerate(junctions):
            matrix = closed_form(parse_kind("group"), kept.moments[k], junction.group)
            held = Held(junction, sides[1].suffix(junction.b), kept.values[k], kept.labels, x.device)
            value = torch.einsum("dc,nchw->ndhw", matrix, kept.values[k][0])
            out = held.suffix(value, *kept.values[k][1:])
            errors[junction.inside].append(float((out - expected).abs().max()))
    return errors


def test_theorem_4_2_outside_and_remark_3_6_inside():
    errors = _exactness("a")
    assert len(errors[False]) == 3 and len(errors[True]) == 2
    assert max(errors[False]) < 1e-10
    assert min(errors[True]) > 1e-3  # A's skip is in A's basis: no stitch of the value can mend it


def test_the_theorem_holds_inside_with_the_skip_of_b():
    errors = _exactness("b")
    assert max(errors[False] + errors[True]) < 1e-10


def test_permuted_gelu_networks_stitch_exactly():
    torch.manual_seed(0)
    a = nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 3)).double()
    x = torch.randn(40, 5, dtype=torch.float64)
    for weight in a.parameters():
        weight.data.mul_(3)
    a[4].bias.data -= a(x).mean(0).detach()  # so that the classes depend on the hidden channels
    b = act(a, trace(a, x[:2]).sample(1))
    labels = a(x).argmax(1)
    report = stitch(a, b, (x, labels), (x, labels), kinds=["group", "identity"], batch=20)
    assert report.accuracy_a == report.accuracy_b == 1
    assert all(s.start == 0 and not s.training_needed for s in report.stitchings if s.kind == "group")
    assert max(s.start for s in report.stitchings if s.kind == "identity") > 10


# ---------------------------------------------------------------- training


@pytest.fixture(scope="module")
def pair() -> tuple[nn.Module, nn.Module, tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Two small nets with a batch norm, trained on the same task from different seeds."""
    torch.manual_seed(0)
    x = torch.randn(600, 8)
    labels = (x @ torch.randn(8, 4)).relu().argmax(1)
    nets = []
    for seed in range(2):
        torch.manual_seed(10 + seed)
        net = nn.Sequential(
            nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 4)
        )
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        for _ in range(120):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x[:400]), labels[:400]).backward()
            optimizer.step()
        nets.append(net.eval())
    return nets[0], nets[1], (x[:400], labels[:400]), (x[400:], labels[400:])


def test_g_relu_is_a_class_where_another_group_acts():
    """Between two linear maps any invertible matrix acts; source 002 asks there too what P D costs."""
    torch.manual_seed(0)
    a, b = (nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3)) for _ in range(2))
    x = torch.randn(60, 6)
    data = x, b(x).argmax(1)
    report = stitch(a, b, data, data, at="0", kinds=["grelu", "group"], epochs=0, batch=20)
    found = report["0", "grelu"]
    assert found.group == "general linear" and (found.matrix.count_nonzero(0) == 1).all()
    assert (found.matrix.sum(1) > 0).all() and found.start >= report["0", "group"].start


def test_training_helps_and_stays_in_its_class(pair):
    a, b, train, test = pair
    kinds = ["identity", "group", "full", "rank:2", "lasso:0.1"]
    plan = Training(epochs=10, polish=6)
    report = stitch(a, b, train, test, at=["1", "4"], kinds=kinds, training=plan, batch=50, enough=-100.0)
    for layer in report.layers:
        found = {kind: report[layer, kind] for kind in kinds}
        group = found["group"].matrix
        assert (group.count_nonzero(0) == 1).all() and (group.count_nonzero(1) == 1).all()
        assert (group.sum(1) > 0).all() and found["group"].sparsity >= 1 - 1 / 12 - 1e-9
        assert torch.linalg.matrix_rank(found["rank:2"].matrix) == 2
        assert found["identity"].trained > 20 > found["full"].trained
        assert found["group"].trained <= found["group"].start
        assert found["lasso:0.1"].sparsity > found["full"].sparsity
    assert sum(report[p, "group"].start - report[p, "group"].trained for p in report.layers) > 1
    assert sum(report[p, "rank:2"].start - report[p, "rank:2"].trained for p in report.layers) > 1


def test_the_result_is_reproducible_and_the_models_untouched(pair):
    a, b, train, test = pair
    states = [copy.deepcopy(net.state_dict()) for net in (a, b)]
    runs = [
        stitch(a, b, train, test, at="4", kinds=["group"], training=Training(epochs=2), batch=50, enough=-1)
        for _ in range(2)
    ]
    assert torch.equal(runs[0]["4", "group"].matrix, runs[1]["4", "group"].matrix)
    assert runs[0].to_dict() == runs[1].to_dict()
    for net, state in zip((a, b), states, strict=True):
        assert not net.training and all(torch.equal(state[k], v) for k, v in net.state_dict().items())
        assert all(p.grad is None or p.requires_grad for p in net.parameters())


def test_the_stitched_module_is_what_was_evaluated_and_trains_only_the_stitch(pair):
    a, b, train, test = pair
    report = stitch(a, b, train, test, at="1", kinds=["full"], batch=50, enough=-1)
    model = stitched_model(a, b, train[0][:50], report["1", "full"])
    accuracy = float((model(test[0]).argmax(1) == test[1]).double().mean())
    mean = (report.accuracy_a + report.accuracy_b) / 2
    assert 100 * (mean - accuracy) == pytest.approx(report["1", "full"].trained, abs=1e-9)
    assert [n for n, p in model.named_parameters() if p.requires_grad] == ["stitch.channels.weight"]


@pytest.mark.parametrize("sign", [0, 1])
def test_channels_that_are_affine_images_of_each_other_are_told_apart(sign):
    """Their correlation is 1 with one another, and yet only one P D is exact; without one nothing changes."""
    torch.manual_seed(1)
    t = torch.randn(50, 1, dtype=torch.float64)
    x = torch.cat([t + 3, 2 * t - 1, t * 0.1 + 5, torch.randn(50, 1).double()], 1)
    order, scales = torch.tensor([2, 0, 3, 1]), torch.tensor([0.5, 2.0, 3.0, 0.7]).double()
    scales[1] *= -1 if sign else 1
    group = Group(permutation=True, positive=1, sign=sign)
    moments = StitchMoments(4, 4)
    moments.add(x, x[:, order] * scales)
    matrix = closed_form(parse_kind("group"), moments, group)
    assert torch.equal(matrix.abs().argmax(1), order)
    assert torch.allclose(x @ matrix.T, x[:, order] * scales)
    noisy = StitchMoments(4, 4)
    noisy.add(x, x[:, order] * scales + torch.randn(50, 4))
    by_correlation = assign(noisy.correlation().abs() if sign else noisy.correlation())
    assert torch.equal(closed_form(parse_kind("group"), noisy, group).abs().argmax(1), by_correlation)


def test_a_layer_whose_name_has_an_arrow_in_it_is_one_layer(pair):
    """`A -> B` names two values in a report; of a module called so there is one."""
    _, _, train, _ = pair
    torch.manual_seed(0)
    size = math.prod(train[0].shape[1:])
    parts = {"in": nn.Flatten(), "up -> down": nn.Linear(size, 4), "act": nn.ReLU(), "out": nn.Linear(4, 3)}
    net = nn.Sequential(OrderedDict(parts)).eval()
    x = train[0][:40]
    data = x, net(x).argmax(1)
    found = stitch(net, net, data, data, at="up -> down", kinds=["full"], batch=40)
    model = stitched_model(net, net, x[:2], found["up -> down", "full"])
    assert torch.allclose(model(x), net(x), atol=1e-4)


def _held(pair) -> tuple[Held, StitchMoments]:
    a, b, train, _ = pair
    sides = [Surgeon(net, (train[0][:50],)) for net in (a, b)]
    (junction,) = find_junctions(*sides, "4")
    kept = record(*sides, [junction], *train, TensorStore())
    held = Held(junction, sides[1].suffix(junction.b), kept.values[0], kept.labels, torch.device("cpu"))
    return held, kept.moments[0]


@pytest.mark.parametrize("method", ["birkhoff", "softsort"])
def test_permutations_are_found_from_a_bad_start(pair, method):
    """From a wrong permutation the loss must fall by more than scales alone can lower it."""
    held, _ = _held(pair)
    start = place(torch.arange(12).roll(1), torch.ones(12))
    rate = 0.3 if method == "birkhoff" else 0.02
    plan = Training(epochs=30, polish=2, blur=0.8, learning_rate=rate, method=method)
    scaled = polish_scales(start, held, plan)
    found = fit(parse_kind("group"), start, held, plan)
    assert not torch.equal(found != 0, start != 0)
    assert evaluate(found, held)[1] < 0.8 * evaluate(scaled, held)[1]


def test_alpha_by_cross_validation_comes_from_the_grid(pair):
    held, moments = _held(pair)
    start = closed_form(parse_kind("group"), moments, held.junction.group).float()
    statistics = held.suffix.state_dict()["body.3.running_mean"].clone() if held.suffix.norms() else None
    alpha = choose_alpha(parse_kind("group"), start, held, Training(epochs=1), alphas=(0.01, 1.0))
    assert alpha in (0.01, 1.0)
    if statistics is not None:
        assert torch.equal(statistics, held.suffix.state_dict()["body.3.running_mean"])


def test_a_cache_on_disk_gives_the_same(pair, tmp_path):
    a, b, train, test = pair
    options = {"at": "1", "kinds": ["full"], "training": Training(epochs=1), "batch": 50, "enough": -1}
    inside = stitch(a, b, train, test, **options)
    outside = stitch(a, b, train, test, memory=1000, **options)
    assert torch.equal(inside["1", "full"].matrix, outside["1", "full"].matrix)
    with TensorStore(memory=10, folder=tmp_path) as store:
        store.empty((10, 10), torch.float32)
        assert store.on_disk == 400 and any(tmp_path.iterdir())
    assert not any(tmp_path.iterdir())


# ---------------------------------------------------------------- LeakyReLU slopes (Table 3, Fig. 8)


def test_the_group_changes_only_at_slope_one():
    torch.manual_seed(0)
    x = torch.randn(400, 6)
    labels = (x[:, :2].square().sum(1) > 1.4).long()
    data = (x[:300], labels[:300]), (x[300:], labels[300:])

    def trained(slope: float, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        first, second = nn.LeakyReLU(slope), nn.LeakyReLU(slope)
        net = nn.Sequential(nn.Linear(6, 16), first, nn.Linear(16, 16), second, nn.Linear(16, 2))
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
        for _ in range(25):
            for chosen in torch.randperm(300).split(100):
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(x[chosen]), labels[chosen]).backward()
                optimizer.step()
        return net.eval()

    found = stitch_slopes(trained, *data, at="3", batch=100, training=Training(epochs=1, polish=1))
    assert [r.slope for r in found] == [1e-4, 1e-3, 1e-2, 0.1, 0.5, 0.9, 1.0]
    assert {r.group for r in found[:-1]} == {"positive monomial"}
    assert found[-1].group == "general linear"
    assert found[0].accuracy > found[-1].accuracy + 0.1  # a disc is not linear (Table 3 falls too)
    last = found[-1].report
    assert torch.equal(last["3", "group"].matrix, last["3", "full"].matrix)  # GL(n) is the full class
    assert found[0].report["3", "group"].sparsity > 0.9


# ---------------------------------------------------------------- different networks, errors


def test_different_architectures_at_single_values():
    torch.manual_seed(0)
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)]
    narrow = nn.Sequential(nn.Conv2d(3, 6, 3, 2), nn.ReLU(), *head)
    x, labels = torch.randn(40, 3, 16, 16), torch.arange(40) % 3
    wide = residual().float()
    report = stitch(
        narrow, wide, (x, labels), (x, labels), at="1", at_b="one.relu_1",
        kinds=["full", "rank:2"], batch=20, training=Training(epochs=1),
    )  # fmt: skip
    found = report["1 -> one.relu_1", "full"]
    assert found.matrix.shape == (4, 6) and found.widths == (6, 4)
    model = stitched_model(narrow, wide, x[:20], found)
    assert model(x).shape == (40, 5)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"at": "layer9.relu"}, NotFound, "no layer named 'layer9.relu'"),
        ({"at": "layer*.nothing"}, NotFound, "no layer named"),
        ({"at": "relu", "at_b": ["relu", "one.relu_1"]}, InputError, "1 layers of A, 2 of B"),
        ({"at": "relu", "kinds": ["rank:0"]}, InputError, "rank 0"),
        ({"at": "relu", "kinds": ["rank:x"]}, InputError, "not a number"),
        ({"at": "relu", "kinds": ["ful"]}, InputError, "no kind of stitch"),
        ({"at": "relu", "skip": "c"}, InputError, "skip"),
        ({"at": "relu", "at_b": "fc"}, Unsupported, "cannot be stitched"),
        ({"at": "relu", "at_b": "one.relu"}, Unsupported, "inside a residual block"),
    ],
)
def test_bad_arguments(change, error, message):
    net, data = residual(), (images(4), torch.arange(4))
    with pytest.raises(error, match=message):
        stitch(net, net, data, data, **{"kinds": ["full"], **change})


def test_different_widths_and_graphs_and_data():
    x, labels = images(4), torch.arange(4)
    data = x, labels
    with pytest.raises(DataError, match="4 channels of A onto 6 of B"):
        stitch(residual(), residual(0, width=6), data, data, at="relu", kinds=["group"])
    with pytest.raises(Unsupported, match="A's skip"):
        stitch(residual(), residual(0, width=6), data, data, at="one.relu", kinds=["full"])
    other = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)).double()
    with pytest.raises(InputError, match="graphs of A and B differ"):
        stitch(residual(), other, data, data)
    with pytest.raises(InputError, match="does not run on the example"):
        stitch(residual(), residual(), (x[:, :1], labels), (x[:, :1], labels), at="relu")
    with pytest.raises(DataError, match="shape"):
        stitch(residual(), residual(), data, (x[:, :, :6], labels), at="relu")
    with pytest.raises(DataError, match="labels go up to 99"):
        stitch(residual(), residual(), data, (x, labels + 96), at="relu")
    with pytest.raises(DataError, match="labels of shape"):
        stitch(residual(), residual(), data, (x, labels[:2]), at="relu")
    for inputs in ((x,), (x, x[:2]), ("", x)):  # those of A, prepared for B
        with pytest.raises(DataError):
            stitch(residual(), residual(), data, data, at="relu", inputs_b=inputs)


def test_augmented_images_are_shifted_windows():
    pictures = torch.rand(6, 3, 8, 8) + 1
    moved = augment(pictures, 2, flip=True, black=(-1.0, -2.0, -3.0), seed=0)
    framed = torch.stack([torch.full((6, 12, 12), -1.0 - c) for c in range(3)], 1)
    framed[:, :, 2:10, 2:10] = pictures
    for i in range(6):
        windows = [framed[i, :, r : r + 8, c : c + 8] for r in range(5) for c in range(5)]
        assert any(torch.equal(moved[i], w) or torch.equal(moved[i], w.flip(-1)) for w in windows)
    assert torch.equal(augment(pictures, 0), pictures)
    with pytest.raises(DataError):
        augment(pictures, 8)


def test_training_as_the_source_starts_anywhere_and_reports_its_alpha(pair):
    """From a random permutation with the source's optimiser; the closed form is no fallback."""
    a, b, train, test = pair
    plan = replace(Training.as_source(), epochs=2)
    found = stitch(a, b, train, test, at="4", kinds=["group", "full"], training=plan, batch=SOURCE_BATCH)
    group, full = found["4", "group"], found["4", "full"]
    assert group.training_needed and full.training_needed and group.alpha == 0.1 and full.alpha is None
    assert sorted((group.matrix != 0).sum(1).tolist()) == [1] * len(group.matrix)
    ours = stitch(a, b, train, test, at="4", kinds=["group"], batch=50, training=Training(epochs=2))
    assert ours["4", "group"].trained < group.trained  # two epochs at rate 1e-3 from anywhere are too few


def test_an_alpha_that_was_chosen_is_told(pair, monkeypatch):
    a, b, train, test = pair
    monkeypatch.setattr(fitting, "ALPHAS", (0.01, 1.0))
    monkeypatch.setattr(fitting, "ALPHA_EPOCHS", 1)
    plan = Training(epochs=1, alpha="cv")
    found = stitch(a, b, train, test, at="4", kinds=["group"], training=plan, batch=50, enough=-1)
    assert found["4", "group"].alpha in fitting.ALPHAS
    assert found.to_dict()["stitchings"][0]["alpha"] in fitting.ALPHAS
