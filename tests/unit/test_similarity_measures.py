"""Reference values, oracles written another way, and the edges of every measure."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from intertwine.comparing import MEASURES, measure_for, similarity
from intertwine.comparing.kernels import hsic, kernel_cka, laplace_kernel, linear_kernel, max_kernel
from intertwine.errors import DataError, InputError, NotFound


def _demo() -> tuple[np.ndarray, np.ndarray]:
    """The public demo of Kornblith et al."""
    random = np.random.RandomState(1337)
    x = random.randn(100, 10)
    return x, random.randn(100, 10) + x


@pytest.mark.parametrize(
    ("measure", "options", "expected"),
    [
        ("cka", {}, 0.55761),
        ("cka-debiased", {}, 0.51346),
        ("cka-rbf", {"threshold": 0.5}, 0.65483),
        ("cca-squared", {"centre": False}, 0.54312),
    ],
)
def test_published_demo(measure, options, expected):
    assert similarity(*_demo(), measure, **options) == pytest.approx(expected, abs=5e-6)


def test_there_are_fourteen():
    assert len(MEASURES) == 14


def _hsic1_by_definition(k: np.ndarray, l: np.ndarray) -> float:
    k, l = k - np.diag(np.diag(k)), l - np.diag(np.diag(l))
    n, one = len(k), np.ones(len(k))
    middle = one @ k @ one * (one @ l @ one) / ((n - 1) * (n - 2))
    return (np.trace(k @ l) + middle - 2 / (n - 2) * one @ k @ l @ one) / (n * (n - 3))


def _cka_by_definition(k: np.ndarray, l: np.ndarray) -> float:
    return _hsic1_by_definition(k, l) / math.sqrt(_hsic1_by_definition(k, k) * _hsic1_by_definition(l, l))


def test_debiased_cka_in_one_pass_is_the_definition():
    x, y = _demo()
    x = x + 3.0  # a mean, so that the centring matters
    assert similarity(x, y, "cka-debiased") == pytest.approx(_cka_by_definition(x @ x.T, y @ y.T), abs=1e-12)


def test_cka_from_kernels_is_cka_from_moments():
    x, y = (torch.from_numpy(a) for a in _demo())
    for debiased, name in ((False, "cka"), (True, "cka-debiased")):
        by_kernel = kernel_cka(linear_kernel(x), linear_kernel(y), debiased=debiased)
        assert by_kernel == pytest.approx(similarity(x, y, name), abs=1e-12)


def test_wide_features_take_the_kernel_route_and_agree():
    wide = torch.randn(12, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    narrow = wide[:, :5]
    x = (wide - wide.mean(0)).T @ (narrow - narrow.mean(0))
    own = [torch.linalg.norm((a - a.mean(0)).T @ (a - a.mean(0))) for a in (wide, narrow)]
    assert similarity(wide, narrow, "cka") == pytest.approx(
        float(x.norm() ** 2 / (own[0] * own[1])), abs=1e-12
    )


def _maps(seed: int, n: int = 20, c: int = 3, size: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, c, size, size)) + 0.5


def test_max_kernel_is_d72_written_with_loops():
    x = _maps(0)
    centred = x - x.mean((0, 2, 3), keepdims=True)
    scaled = centred / np.sqrt((centred**2).sum((0, 2, 3), keepdims=True))
    expected = np.array([[max((a[c] * b[c]).sum() for c in range(3)) for b in scaled] for a in scaled])
    assert np.allclose(max_kernel(torch.from_numpy(x)), expected, atol=1e-13)
    y = _maps(1)
    other = max_kernel(torch.from_numpy(y)).numpy()
    assert similarity(x, y, "cka-grelu") == pytest.approx(_cka_by_definition(expected, other), abs=1e-11)


def test_laplace_kernel_is_eq_56_and_positive_semi_definite():
    x = _maps(2)
    centred = x - x.mean((0, 2, 3), keepdims=True)
    scaled = (centred / np.sqrt((centred**2).sum((0, 2, 3), keepdims=True))).reshape(len(x), -1)
    distances = np.abs(scaled[:, None] - scaled[None]).sum(2)
    kernel = laplace_kernel(torch.from_numpy(x), c=0.3).numpy()
    assert np.allclose(kernel, np.exp(-0.3 * distances), atol=1e-12)
    assert np.linalg.eigvalsh(kernel).min() > 0


def test_max_kernel_is_not_positive_semi_definite():
    """Example E.44: the kernel of the source is not PSD, which is why the Laplace kernel is offered."""
    points = np.array([[1.0, 1.0], [10.0, 1.0], [0.0, 5.0]])
    kernel = np.array([[(a * b).max() for b in points] for a in points])
    c = np.array([10.0, -1.0, -1.0])
    assert c @ kernel @ c == pytest.approx(-65)


def test_tiles_do_not_change_a_kernel(monkeypatch):
    x = torch.from_numpy(_maps(3, n=23))
    whole = [f(x) for f in (max_kernel, laplace_kernel, linear_kernel)]
    monkeypatch.setattr("intertwine.comparing.kernels.TILE", 5)
    for expected, f in zip(whole, (max_kernel, laplace_kernel, linear_kernel), strict=True):
        assert torch.allclose(f(x), expected, atol=1e-12)
    assert hsic(whole[0], whole[1], debiased=True) == pytest.approx(
        _hsic1_by_definition(whole[0].numpy(), whole[1].numpy()), rel=1e-9
    )


def test_progress_counts_tiles(monkeypatch):
    monkeypatch.setattr("intertwine.comparing.kernels.TILE", 5)
    seen: list[tuple[int, int]] = []
    max_kernel(torch.from_numpy(_maps(3, n=12)), progress=lambda *said: seen.append(said[:2]))
    assert seen == [(i, 6) for i in range(1, 7)]


def test_grelu_procrustes_by_brute_force():
    x, y = _maps(4), _maps(5)
    unit = [a / np.sqrt((a**2).sum((0, 2, 3), keepdims=True)) for a in (x, y)]
    delta = min(
        math.sqrt(((unit[0] - unit[1][:, list(p)]) ** 2).sum()) for p in itertools.permutations(range(3))
    )
    assert similarity(x, y, "procrustes-grelu") == pytest.approx(1 - delta / (2 * math.sqrt(3)), abs=1e-12)


def test_procrustes_by_brute_force():
    x, y = (a.transpose(0, 2, 3, 1).reshape(-1, 3) for a in (_maps(4), _maps(5)))
    x, y = x / np.linalg.norm(x), y / np.linalg.norm(y)
    u, _, v = np.linalg.svd(y.T @ x)
    expected = 1 - np.linalg.norm(x - y @ (u @ v)) / 2
    assert similarity(_maps(4), _maps(5), "procrustes") == pytest.approx(expected, abs=1e-12)
    delta = min(np.linalg.norm(x - y[:, list(p)]) for p in itertools.permutations(range(3)))
    assert similarity(_maps(4), _maps(5), "procrustes-permutation") == pytest.approx(1 - delta / 2, abs=1e-12)


def test_cca_is_the_qr_form():
    x, y = _demo()
    qx, qy = (np.linalg.qr(a - a.mean(0))[0] for a in (x, y[:, :6]))
    rho = np.linalg.svd(qx.T @ qy, compute_uv=False)
    assert similarity(x, y[:, :6], "cca") == pytest.approx(rho.mean(), abs=1e-11)
    assert similarity(x, y[:, :6], "cca-squared") == pytest.approx((rho**2).mean(), abs=1e-11)


def test_pwcca_is_the_formula_of_the_paper():
    x, y = _demo()
    x = x[:, :6] * np.arange(1, 7)
    x, y = x - x.mean(0), y - y.mean(0)
    qx, qy = np.linalg.qr(x)[0], np.linalg.qr(y)[0]
    u, rho, _ = np.linalg.svd(qx.T @ qy, full_matrices=False)
    weights = np.abs((qx @ u).T @ x).sum(1)
    expected = (weights * rho).sum() / weights.sum()
    assert similarity(x, y, "pwcca") == pytest.approx(expected, abs=1e-11)
    assert similarity(y, x, "pwcca") == pytest.approx(
        expected, abs=1e-11
    )  # the narrower side, wherever it stands


def test_svcca_drops_noise_that_cca_keeps():
    x, y = _demo()
    shared = x[:, :2] * 100
    a = np.hstack([shared, x[:, 2:5] * 1e-3])
    b = np.hstack([shared, y[:, 5:8] * 1e-3])
    assert similarity(a, b, "svcca") == pytest.approx(1.0, abs=1e-9)
    assert similarity(a, b, "cca") < 0.9


def test_rsa_is_spearman_of_distances():
    x, y = _demo()
    upper = np.triu_indices(100, 1)
    distances = [np.linalg.norm(a[:, None] - a[None], axis=2)[upper] for a in (x, y)]
    assert similarity(x, y, "rsa") == pytest.approx(spearmanr(*distances).statistic, abs=1e-9)


def test_knn_by_hand():
    x = np.array([[0.0, 0], [1, 0], [3, 0], [7, 0], [15, 0]])
    y = np.array([[0.0, 0], [9, 0], [1, 0], [10.5, 0], [15, 0]])
    # nearest of x: 1 0 1 2 3; nearest of y: 2 3 0 1 3
    assert similarity(x, y, "knn", k=1) == pytest.approx(1 / 5)


@pytest.mark.parametrize("measure", MEASURES)
def test_same_features_are_alike_and_ranges_hold(measure):
    x, y = _maps(6, n=40), _maps(7, n=40, c=5, size=2)
    low, high = MEASURES[measure].range
    assert similarity(x, x, measure) == pytest.approx(1, abs=1e-9)
    value = similarity(x, y, measure)
    assert low <= value <= high
    assert value < 0.9
    if measure != "pwcca":
        assert similarity(y, x, measure) == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("measure", MEASURES)
def test_caller_keeps_its_features(measure):
    x, y = torch.from_numpy(_maps(6)), torch.from_numpy(_maps(7))
    before = x.clone(), y.clone()
    similarity(x, y, measure)
    assert torch.equal(x, before[0]) and torch.equal(y, before[1])


@pytest.mark.parametrize("measure", MEASURES)
def test_dead_channel_is_no_nan(measure):
    x, y = _maps(8, n=30), _maps(9, n=30)
    x[:, 1] = 0
    assert math.isfinite(similarity(x, y, measure))
    # a distance is the root of a difference: rounding of 1e-16 in it shows as 1e-8, on some processors
    assert similarity(x, x, measure) == pytest.approx(1, abs=1e-7)


@pytest.mark.parametrize("measure", MEASURES)
def test_bad_features_are_refused(measure):
    x = _maps(8, n=30)
    for bad in (math.nan, math.inf):
        broken = x.copy()
        broken[7, 0, 0, 0] = bad
        with pytest.raises(DataError, match="NaN or infinity"):
            similarity(x, broken, measure)
    with pytest.raises(DataError, match="too few"):
        similarity(x[:3], x[:3], measure)
    with pytest.raises(DataError, match="30 inputs on one side, 29 on the other"):
        similarity(x, x[:29], measure)


@pytest.mark.parametrize("measure", [m for m in MEASURES if not m.startswith("procrustes")])
@pytest.mark.parametrize("level", [0.0, 0.1, 1e6])
def test_constant_features_are_refused(measure, level):
    x = _maps(8, n=30)
    with pytest.raises(DataError, match="constant"):
        similarity(x, np.full_like(x, level), measure)


@pytest.mark.parametrize("measure", [m for m in MEASURES if m.startswith("procrustes")])
def test_procrustes_refuses_zero_features_only(measure):
    x = _maps(8, n=30)
    with pytest.raises(DataError, match="constant"):
        similarity(x, np.zeros_like(x), measure)
    assert 0 <= similarity(x, np.ones_like(x), measure) <= 1


@pytest.mark.parametrize("measure", ["cka-rbf", "cka-grelu-laplace"])
def test_without_a_distance_there_is_no_rate(measure):
    """Of inputs that are nearly all one and the same the median distance is 0."""
    x = _maps(8, n=30)
    same = np.where(np.arange(30)[:, None, None, None] < 25, x[:1], x)
    with pytest.raises(DataError, match="constant"):
        similarity(x, same, measure)


def test_a_constant_in_single_precision_is_a_constant():
    """Centring it leaves rounding, which is no signal."""
    x = np.full((60, 5), 0.3337, np.float32) + 0.17 * np.arange(5, dtype=np.float32)
    with pytest.raises(DataError, match="constant"):
        similarity(x, np.random.default_rng(0).normal(size=(60, 4)), "cka-grelu")


def test_wrong_names_say_what_exists():
    x = _maps(8)
    with pytest.raises(NotFound, match="no measure named 'ckaa'") as caught:
        similarity(x, x, "ckaa")
    assert "cka-grelu" in caught.value.do
    with pytest.raises(InputError, match="cka has no option 'k'"):
        similarity(x, x, "cka", k=3)
    with pytest.raises(InputError, match="pixel"):
        similarity(x, x, "cka", pixels="mean")
    with pytest.raises(InputError, match="needs the group"):
        similarity(x, x, "auto")


def test_cca_says_when_it_means_nothing():
    x = np.random.default_rng(0).normal(size=(10, 20))
    with pytest.warns(UserWarning, match="1 by construction"):
        assert similarity(x, x[:, :4], "cca") == pytest.approx(1)
    unrelated = np.random.default_rng(1).normal(size=(10, 20))
    with pytest.warns(UserWarning, match="1 by construction"):
        assert similarity(x, unrelated, "cca") == pytest.approx(1)


@pytest.mark.parametrize(
    ("group", "measure"),
    [
        ("general linear", "cca"),
        ("orthogonal", "procrustes"),
        ("positive monomial", "procrustes-grelu"),
        ("positive monomial (2 scalings)", "procrustes-grelu"),
        ("monomial (2 scalings, 1 sign)", "cca"),
        ("sign diagonal", "procrustes"),
        ("permutation", "procrustes-permutation"),
        ("general linear in each of 4 blocks", "cca"),
    ],
)
def test_the_group_chooses_the_measure(group, measure):
    assert measure_for(group) == measure
    x, y = _maps(6, n=40), _maps(7, n=40)
    assert similarity(x, y, "auto", group=group) == similarity(x, y, measure)


def test_unknown_group():
    with pytest.raises(NotFound, match="Lorentz"):
        measure_for("Lorentz")


def test_float32_and_float64_agree():
    x, y = torch.from_numpy(_maps(6, n=40)), torch.from_numpy(_maps(7, n=40))
    for measure in MEASURES:
        assert similarity(x.float(), y.float(), measure) == pytest.approx(similarity(x, y, measure), abs=1e-5)


def test_large_mean_does_not_eat_the_digits():
    x, y = _demo()
    for measure in ("cka", "cka-debiased", "cca", "svcca"):
        assert similarity(x + 1e6, y - 1e6, measure) == pytest.approx(similarity(x, y, measure), abs=1e-6)
