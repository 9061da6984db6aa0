"""Collecting values, comparing two networks, functions, and how sure we are."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from intertwine import trace
from intertwine.comparing import (
    MEASURES,
    StreamedMoments,
    collect,
    compare,
    functional_similarity,
    input_interval,
    measure_for,
    permutation_null,
    seed_interval,
    similarity,
)
from intertwine.comparing.function import jensen_shannon, rank_correlation
from intertwine.comparing.measures import find_measure
from intertwine.errors import DataError, InputError, NotFound
from repeats import examples

STREAMED = [name for name, measure in MEASURES.items() if measure.streams]


class Block(nn.Module):
    """A residual block with one ReLU module used twice, in place, and a functional op."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.conv2(out) + x)


class Net(nn.Module):
    def __init__(self, width: int = 4, classes: int = 3) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.block = Block(width)
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        x = functional.relu_(self.stem(x))
        x = functional.max_pool2d(self.block(x), 2)
        return self.fc(torch.sigmoid(x).mean((2, 3)))


def _net(seed: int, **sizes) -> Net:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Net(**sizes)


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randn(50, 3, 8, 8, generator=torch.Generator().manual_seed(9))


def test_every_value_has_a_name_functional_and_in_place_ops_too(images):
    features = collect(_net(0), images, at="all")
    assert list(features) == [
        "stem", "relu", "block.conv1", "block.bn1", "block.relu", "block.conv2", "block.add", "block.relu_1",
        "max_pool2d", "sigmoid", "mean", "fc",
    ]  # fmt: skip
    assert list(collect(_net(0), images)) == [
        "relu", "block.relu", "block.relu_1", "sigmoid", "mean", "fc",
    ]  # fmt: skip


def test_in_place_ops_do_not_corrupt_what_came_before(images):
    net = _net(0).eval()
    features = collect(net, images, at=["stem", "block.bn1", "block.add", "fc"])
    with torch.no_grad():
        stem = net.stem(images)
        x = stem.clamp(min=0)
        norm = net.block.bn1(net.block.conv1(x))
        total = net.block.conv2(norm.clamp(min=0)) + x
        logits = net(images)
    for name, expected in (("stem", stem), ("block.bn1", norm), ("block.add", total), ("fc", logits)):
        assert torch.allclose(features[name], expected, atol=1e-6), name
    assert (features["stem"] < 0).any()
    assert torch.allclose(features.outputs, logits, atol=1e-6)


def test_the_callers_model_is_untouched(images):
    net = _net(0).train()
    net.block.eval()
    net.fc.register_forward_hook(lambda *_: None)
    before = copy.deepcopy(net.state_dict())
    modes = [m.training for m in net.modules()]
    hooks = [len(m._forward_hooks) for m in net.modules()]
    compare(net, net, images, ["cka", "knn"])
    assert [m.training for m in net.modules()] == modes
    assert [len(m._forward_hooks) for m in net.modules()] == hooks
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())


def test_training_mode_does_not_matter(images):
    net = _net(0)
    a, b = collect(net.train(), images), collect(net.eval(), images)
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_layer_that_does_not_exist(images):
    with pytest.raises(NotFound, match="no layer named 'conv9'") as caught:
        collect(_net(0), images, at="conv9")
    assert "block.conv1" in caught.value.do
    with pytest.raises(NotFound, match="no layer named 'x'"):
        collect(_net(0), images)["x"]
    assert list(collect(_net(0), images, at="block.*")) == [
        "block.conv1", "block.bn1", "block.relu", "block.conv2", "block.add", "block.relu_1",
    ]  # fmt: skip


def test_forms_of_data_and_batches_agree(images):
    labels = torch.arange(50) % 3
    net = _net(0)
    expected = collect(net, images)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), batch_size=7)
    for data in (
        (images, labels),
        loader,
        [images[:20], images[20:]],
        list(zip(images.split(9), labels.split(9), strict=True)),
    ):
        got = collect(net, data)
        assert all(torch.allclose(got[name], expected[name], atol=1e-6) for name in expected)
    assert torch.equal(collect(net, loader).labels, labels)
    assert len(collect(net, loader, limit=10)["fc"]) == 10
    with pytest.raises(DataError, match="50 inputs but 49 labels"):
        collect(net, (images, labels[:-1]))


@pytest.mark.parametrize("pixels", ["pool", "samples"])
def test_compare_streams_what_similarity_computes(pixels, images):
    a, b = _net(0), _net(1)
    result = compare(a, b, list(images.split(9)), STREAMED, pixels=pixels, intervals=False)
    x, y = collect(a, images), collect(b, images)
    assert result.measures == tuple(STREAMED)
    for measure in STREAMED:
        for i, p in enumerate(result.layers_a):
            for j, q in enumerate(result.layers_b):
                expected = similarity(x[p], y[q], measure, pixels=pixels)
                assert result.values[measure][i, j] == pytest.approx(expected, abs=1e-6), (measure, p, q)


def test_compare_kernels_is_what_similarity_computes(images):
    a, b, images = _net(0).double(), _net(1).double(), images.double()  # ranks turn on the last digit
    kernels = [name for name in MEASURES if name not in STREAMED]
    result = compare(a, b, list(images.split(25)), kernels, memory=1)  # one layer a pass
    x, y = collect(a, images), collect(b, images)
    for measure in kernels:
        for i, p in enumerate(result.layers_a):
            for j, q in enumerate(result.layers_b):
                expected = similarity(x[p], y[q], measure)
                assert result.values[measure][i, j] == pytest.approx(expected, abs=1e-6), (measure, p, q)
        assert result.inputs[measure] == 50
    assert compare(a, b, images, "knn", kernel_inputs=20).inputs["knn"] == 20


def test_compare_flatten_is_cka_of_flattened_maps(images):
    a, b = _net(0), _net(1)
    result = compare(a, b, images, ["cka", "cka-debiased"], pixels="flatten")
    x, y = collect(a, images), collect(b, images)
    for name in result.measures:
        expected = similarity(x["relu"].flatten(1), y["block.relu"].flatten(1), name)
        assert result.values[name][0, 1] == pytest.approx(expected, abs=1e-6)


def test_compare_does_not_depend_on_the_batch_size(images):
    a, b = _net(0), _net(1)
    pieces = [list(images.split(size)) for size in (50, 17, 5)]
    results = [compare(a, b, data, STREAMED, intervals=False).values for data in pieces]
    for measure in STREAMED:
        for other in results[1:]:
            assert np.abs(results[0][measure] - other[measure]).max() < 1e-6, measure


def test_different_architectures(images):
    small = nn.Sequential(nn.Flatten(), nn.Linear(192, 5), nn.Tanh(), nn.Linear(5, 3))
    result = compare(_net(0), small, images, ["cka", "cca", "procrustes", "cka-grelu", "rsa"])
    assert result.layers_a[-1] == "fc" and result.layers_b == ("2", "3")
    assert all(np.isfinite(grid).all() for grid in result.values.values())
    best = result.matched("cka")
    assert [p for p, _, _ in best] == list(result.layers_a)
    with pytest.raises(InputError, match="same layers"):
        result.identification("cka")


def test_a_dead_layer_is_a_note_not_a_silent_nan(images):
    dead = _net(0)
    with torch.no_grad():
        dead.stem.weight.zero_()
        dead.stem.bias.fill_(-1)
    result = compare(dead, _net(1), images, ["cka", "procrustes", "cka-grelu"])
    row = result.layers_a.index("relu")
    for measure in result.measures:
        assert np.isnan(result.values[measure][row]).all()
        assert any(note.startswith(f"{measure}, relu with") and "constant" in note for note in result.notes)
    assert result.to_dict()["measures"]["cka"]["values"][row][0] is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_means_that_are_nothing_but_rounding_are_no_features(dtype):
    """A value minus its own mean over pixels pools to zeros, not to noise."""
    x = torch.randn(40, 3, 2, 2, dtype=dtype, generator=torch.Generator().manual_seed(0))
    x -= x.mean((2, 3), keepdim=True)
    assert float(x.mean((2, 3)).abs().max()) > 0
    y = x.roll(1, 1) * 2

    def streamed(a, b):
        moments = StreamedMoments(pixels="pool")
        moments.update({"a": a}, {"a": b})
        return find_measure("cca").of_moments(moments.pair("a", "a"))

    for alike in (streamed, lambda a, b: similarity(a, b, "cca", pixels="pool")):
        with pytest.raises(DataError, match="constant"):
            alike(x, y)
        shift = torch.randn(40, 3, 1, 1, dtype=dtype, generator=torch.Generator().manual_seed(1))
        assert alike(x + 1e-3 * shift, y + 2e-3 * shift.roll(1, 1)) == pytest.approx(1, abs=1e-3)


def test_auto_takes_the_measure_of_the_group(images):
    symmetry = trace(_net(0), images[:8])
    result = compare(_net(0), _net(1), images, ["auto", "cka"], symmetry=symmetry)
    by_hand = compare(_net(0), _net(1), images, ["procrustes-grelu", "procrustes-permutation", "cca"])
    chosen = {layer: measure_for(symmetry.values[layer].group) for layer in result.layers_a}
    assert len(set(chosen.values())) > 1, chosen
    for i, measure in enumerate(chosen.values()):
        assert np.allclose(result.values["auto"][i], by_hand.values[measure][i])
    again = compare(_net(0), _net(1), iter([images[:16], images[16:]]), "auto")  # read once, traced within
    assert np.allclose(again.values["auto"], result.values["auto"])


def test_intervals_cover_the_value_and_shrink(images):
    many = torch.randn(400, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    a, b = _net(0), _net(1)
    few, more = (compare(a, b, data, "cka").intervals["cka"]["relu"] for data in (many[:100], many))
    assert few.low <= few.value <= few.high
    assert more.high - more.low < few.high - few.low
    both = compare(a, b, many[:100], ["procrustes-grelu", "cka"]).intervals  # read from the same halves
    assert both["cka"]["relu"] == few and both["procrustes-grelu"]["relu"] != few


def test_too_little_data(images):
    with pytest.raises(DataError, match="too few"):
        compare(_net(0), _net(1), images[:3])
    with pytest.raises(InputError, match="GB"):
        compare(_net(0), _net(1), images, memory=100)


def test_inputs_of_both_must_pair_up(images):
    with pytest.raises(DataError, match="pair up"):
        compare(_net(0), _net(1), images, data_b=images[:40])
    shifted = compare(_net(0), _net(0), images, data_b=2 * images)
    assert shifted.matched("cka")[0][2] < 1


def test_moments_refuse_what_does_not_belong_together():
    a, b, c = StreamedMoments(), StreamedMoments(), StreamedMoments(pixels="pool")
    for moments, width in ((a, 3), (b, 4), (c, 3)):
        moments.update({"p": torch.randn(6, width)}, {"q": torch.randn(6, 2)})
    for other in (b, c):
        with pytest.raises(InputError, match="do not belong together"):
            a + other
    with pytest.raises(NotFound, match="'z'"):
        a.pair("z", "q")
    with pytest.raises(DataError, match="NaN or infinity"):
        a.update({"p": torch.full((6, 3), math.nan)}, {"q": torch.randn(6, 2)})
    with pytest.raises(DataError, match="shape changed"):
        a.update({"p": torch.randn(6, 5)}, {"q": torch.randn(6, 2)})


# Functions


def test_functional_numbers_by_hand():
    p = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]], dtype=torch.float64)
    q = torch.tensor([[0.25, 0.5, 0.25], [0.1, 0.2, 0.7]], dtype=torch.float64)
    m = (p + q) / 2
    expected = ((p * (p / m).log()).sum(1) + (q * (q / m).log()).sum(1)) / 2
    assert torch.allclose(jensen_shannon(p.log(), q.log()), expected, atol=1e-12)
    assert torch.allclose(rank_correlation(p, q), torch.tensor([-0.5, 1.0], dtype=torch.float64), atol=1e-12)


def test_jsd_of_disjoint_outputs_is_ln_2():
    a = torch.tensor([[1000.0, 0.0], [0.0, 1000.0]])
    value = jensen_shannon(torch.log_softmax(a.double(), 1), torch.log_softmax(a.flip(1).double(), 1))
    assert torch.allclose(value, torch.full((2,), math.log(2), dtype=torch.float64))


def test_functional_similarity_of_a_network_with_itself_and_with_its_negative(images):
    net = _net(0)
    labels = collect(net, images).outputs.argmax(1)
    same = functional_similarity(net, net, (images, labels))
    assert same.jsd.value == pytest.approx(0, abs=1e-12)
    assert same.disagreement.value == 0 and same.accuracy_a == 1 and same.accuracy_difference.value == 0
    assert same.spearman.value == pytest.approx(1) and same.logit_distance.value == pytest.approx(0, abs=1e-6)
    other = copy.deepcopy(net)
    with torch.no_grad():
        other.fc.weight.neg_()
        other.fc.bias.neg_()
    opposite = functional_similarity(net, other, (images, labels))
    assert opposite.spearman.value == pytest.approx(-1)
    assert opposite.logit_distance.value == pytest.approx(2)
    assert opposite.disagreement.value == 1
    assert opposite.accuracy_difference.value == -1


def test_temperature_changes_jsd_but_not_the_logit_distance(images):
    net, hot = _net(0), _net(0)
    with torch.no_grad():
        hot.fc.weight.mul_(5)
        hot.fc.bias.mul_(5)
    result = functional_similarity(net, hot, images)
    assert result.logit_distance.value == pytest.approx(0, abs=1e-6)
    assert result.jsd.value > 1e-3
    assert result.accuracy_a is None


def test_outputs_that_are_no_distribution(images):
    one = nn.Sequential(nn.Flatten(), nn.Linear(192, 1))
    with pytest.raises(DataError, match="not one distribution"):
        functional_similarity(one, one, images)
    result = compare(one, one, images)
    assert result.function is None and any("functions not compared" in note for note in result.notes)
    with pytest.raises(DataError, match=r"\(50, 3\) and \(50, 4\)"):
        functional_similarity(_net(0), _net(0, classes=4), images)


def test_a_network_that_ties_every_class(images):
    flat = _net(0)
    with torch.no_grad():
        flat.fc.weight.zero_()
        flat.fc.bias.zero_()
    result = functional_similarity(flat, _net(1), images)
    assert result.spearman is None and result.logit_distance is None and result.tied_inputs == 50


# How sure


def test_biased_cka_of_unrelated_features_is_shown_for_what_it_is():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(50, 100)), random.normal(size=(50, 100))
    biased, debiased = (permutation_null(x, y, m, permutations=40) for m in ("cka", "cka-debiased"))
    assert biased.value > 0.5 and biased.mean > 0.5
    assert abs(debiased.mean) < 0.1
    assert biased.p_value > 0.05 and abs(biased.excess) < 0.1
    related = permutation_null(x, x + y, "cka-debiased", permutations=40)
    assert related.p_value == pytest.approx(1 / 41)


def test_input_interval_has_the_right_width():
    """Coverage over fresh draws of the inputs: a 95 % interval of debiased CKA holds most of the time."""
    random = np.random.default_rng(0)
    mix = random.normal(size=(4, 4))

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        x = random.normal(size=(n, 4))
        return x, x @ mix + random.normal(size=(n, 4))

    truth = similarity(*draw(200_000), "cka-debiased")
    hits = 0
    draws = examples(20, 40)
    for seed in range(draws):
        interval = input_interval(*draw(120), "cka-debiased", resamples=60, seed=seed)
        hits += interval.low <= truth <= interval.high
    assert 0.8 * draws <= hits


def test_seed_interval_resamples_networks():
    values = np.full((5, 5), 0.6)
    assert seed_interval(values).low == pytest.approx(0.6)
    values[0, :] = values[:, 0] = 0.2
    interval = seed_interval(values)
    assert interval.low < interval.value < interval.high
    with pytest.raises(InputError, match="square"):
        seed_interval(np.ones((2, 3)))


def test_intervals_that_need_too_much_memory_are_left_out() -> None:
    net, x = nn.Linear(3, 40), torch.randn(64, 3)
    whole = compare(net, net, x, "cka", memory=10**9)
    small = compare(net, net, x, "cka", memory=8 * 40 * 40)
    assert whole.intervals["cka"] and not small.intervals["cka"]
    assert any("no intervals" in note for note in small.notes)
    assert (whole.values["cka"] == small.values["cka"]).all()
