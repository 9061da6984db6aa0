"""Statements of the sources small enough to be checked whole: each has a row in recipes/sources.py."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from intertwine import act, trace
from intertwine.aligning import naturality_defect
from intertwine.comparing import similarity
from intertwine.exploring.betti import betti_numbers, euler_characteristic
from intertwine.orbit.stabiliser import find_stabiliser
from intertwine.symmetry.transform import apply_element

RNG = np.random.default_rng(0)


def _matrices(n: int) -> dict[str, np.ndarray]:
    order = np.eye(n)[RNG.permutation(n)]
    signs = np.ones(n)
    signs[0] = -1
    return {
        "P D": order * RNG.uniform(0.2, 3, n),
        "P": order,
        "P with a sign": order * signs,
        "P D with a sign": order * RNG.uniform(0.2, 3, n) * signs,
        "rotation": np.linalg.qr(RNG.standard_normal((n, n)))[0],
        "shear": np.eye(n) + np.eye(n, k=1),
        "singular": np.diag([0.0] + [1.0] * (n - 1)),
    }


def _stabilises_rays(matrix: np.ndarray) -> bool:
    """Whether it sends the set of rays of the basis vectors onto itself: A = P D, D positive."""
    used = np.abs(matrix) > 1e-9
    return bool((used.sum(0) == 1).all() and (used.sum(1) == 1).all() and (matrix[used] > 0).all())


@pytest.mark.parametrize("name", list(_matrices(4)))
def test_theorem_3_3_the_stabiliser_of_the_rays_is_the_group_of_relu(name: str) -> None:
    """A is in G_ReLU iff relu(A x) = relu(A) relu(x) for all x, which is tried where it could fail."""
    matrix = _matrices(4)[name]
    x = RNG.standard_normal((4, 200))
    phi = np.maximum(matrix, 0)  # Lemma 3.1: sigma(I) = I
    intertwines = np.allclose(np.maximum(matrix @ x, 0), phi @ np.maximum(x, 0))
    invertible = abs(np.linalg.det(matrix)) > 1e-9 and abs(np.linalg.det(phi)) > 1e-9
    assert _stabilises_rays(matrix) == (intertwines and invertible)


def test_theorem_3_3_only_basis_rays_have_a_finite_orbit() -> None:
    for vector in itertools.product((-1, 0, 2), repeat=3):
        if not any(vector):
            continue
        rays = set()
        for scale in np.linspace(1, 2, 50):  # D = diag(t, 1, ..., 1), and its permutations
            for k in range(3):
                moved = np.array(vector, float)
                moved[k] *= scale
                rays.add(tuple(np.round(moved / np.abs(moved).max(), 6)))
        assert (np.count_nonzero(vector) == 1) == (len(rays) <= 2), vector


@pytest.mark.parametrize("name", list(_matrices(3)))
def test_lemma_e46_what_the_max_kernel_cannot_see(name: str) -> None:
    matrix = _matrices(3)[name]
    x, y = RNG.standard_normal((2, 3, 500))
    same = np.allclose(((matrix @ x) * (matrix @ y)).max(0), (x * y).max(0))
    signed = _stabilises_rays(np.abs(matrix)) and np.allclose(np.abs(matrix).max(0), 1)
    assert signed == same == (name in ("P", "P with a sign"))


def test_example_e44_by_hand() -> None:
    """sum c_i max(x_i * x_j) c_j is below 0: the max kernel is not positive semi-definite."""
    x, c = np.array([[1, 1], [10, 1], [0, 5]]), np.array([10, -1, -1])
    kernel = (x[:, None] * x[None]).max(2)
    assert c @ kernel @ c == -65


def test_r2_cca_is_cka_of_whitened_features() -> None:
    """R2_CCA = CKA(Q_X Q_X', Q_Y Q_Y') sqrt(p2 / p1), section 2.4 of source 003."""
    torch.manual_seed(0)
    x, y = torch.randn(60, 4, dtype=torch.float64), torch.randn(60, 7, dtype=torch.float64)
    y[:, :3] += x[:, :3]
    q_x, q_y = (torch.linalg.qr(v - v.mean(0)).Q for v in (x, y))
    r2 = float((q_y.T @ q_x).square().sum()) / 4
    assert math.isclose(similarity(q_x, q_y, "cka") * (7 / 4) ** 0.5, r2, rel_tol=1e-9)


def test_remark_d3_positions_kept_apart() -> None:
    """The max kernel of positions of images instead of images: pixels as samples, against loops."""
    torch.manual_seed(0)
    x = torch.randn(4, 3, 2, 2, dtype=torch.float64)
    y = torch.randn(4, 3, 2, 2, dtype=torch.float64)
    flat = [v.permute(0, 2, 3, 1).reshape(-1, 3) for v in (x, y)]  # (image, position) x channels
    apart = similarity(flat[0], flat[1], "cka-grelu")
    kernels = []
    for v in flat:
        v = v - v.mean(0)
        v = v / v.norm(dim=0)
        kernels.append(torch.stack([(a * v).max(1).values for a in v]).fill_diagonal_(0))
    n = len(flat[0])

    def hsic(k: torch.Tensor, l: torch.Tensor) -> float:
        one = torch.ones(n, dtype=torch.float64)
        middle = one @ k @ one * (one @ l @ one) / ((n - 1) * (n - 2))
        return float((torch.trace(k @ l) + middle - 2 / (n - 2) * (one @ k @ l @ one)) / (n * (n - 3)))

    expected = hsic(*kernels) / (hsic(kernels[0], kernels[0]) * hsic(kernels[1], kernels[1])) ** 0.5
    assert math.isclose(apart, expected, rel_tol=1e-6)
    assert not math.isclose(apart, similarity(x, y, "cka-grelu"), abs_tol=0.01)


def _log_group_maps(n: int, numbers: float) -> float:
    """log |G_ReLU| = log n! + n log(M / epsilon) (E.29) on a grid of M / epsilon numbers an entry."""
    return math.lgamma(n + 1) + n * math.log(numbers)


def _log_rank_maps(n: int, rank: int, numbers: float) -> float:
    """log |rank r| = (2 n r - r^2) log(2 M / epsilon) (E.32)."""
    return (2 * n * rank - rank * rank) * math.log(2 * numbers)


@pytest.mark.parametrize("n", [8, 64])
@pytest.mark.parametrize("rank", [1, 2, 4])
def test_e7_fewer_group_maps_than_maps_of_any_rank(n: int, rank: int) -> None:
    assert _log_group_maps(n, 1e4) < _log_rank_maps(n, rank, 1e4)
    # The premise M / epsilon >> n is needed: on a coarse grid of one number an entry the group is larger.
    assert _log_group_maps(64, 1.0) > _log_rank_maps(64, 1, 1.0)


def _mlp(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)).double()


def test_the_defect_of_naturality_is_zero_for_an_isomorphic_net_and_only_for_one() -> None:
    net, inputs = _mlp(0), torch.randn(40, 3, dtype=torch.float64)
    symmetry = trace(net, inputs[:1])
    element = symmetry.sample(1)
    moved = act(net, element)
    assert max(naturality_defect(net, moved, inputs).values()) > 0.1
    aligned = act(moved, element.inverse())
    assert max(naturality_defect(net, aligned, inputs).values()) < 1e-9
    assert max(naturality_defect(net, _mlp(1), inputs).values()) > 0.1


def test_isotropy_is_what_leaves_a_parameter_as_it_is() -> None:
    """Source 004, section 2: the stabiliser of theta; its elements fix every weight, the others do not."""
    net = _mlp(0)
    symmetry = trace(net, torch.zeros(1, 3, dtype=torch.float64))
    assert not find_stabiliser(net, symmetry).generators
    with torch.no_grad():
        for tensor in (net[0].weight, net[0].bias, net[2].weight.T):
            tensor[4].copy_(tensor[1])
    found = find_stabiliser(net, symmetry)
    assert found.classes == {"0": [[1, 4]]}
    weights = symmetry.weights(net)
    for element in found.generators:
        moved = apply_element(element, weights)
        assert all(torch.allclose(moved[name], weights[name]) for name in weights)


def test_betti_numbers_of_known_sets() -> None:
    full = np.ones((7, 7, 7), bool)
    tunnel, hollow, torus = full.copy(), full.copy(), np.zeros((7, 7, 3), bool)
    tunnel[3, 3, :], hollow[3, 3, 3] = False, False
    torus[1:6, 1:6, 1] = True
    torus[3, 3, 1] = False
    assert betti_numbers(full) == (1, 0, 0) and betti_numbers(tunnel) == (1, 1, 0)
    assert betti_numbers(hollow) == (1, 0, 1) and betti_numbers(torus) == (1, 1, 0)
    two = np.zeros((9, 9), bool)
    two[:3, :3], two[5:8, 5:8] = True, True
    two[6, 6] = False
    assert betti_numbers(two) == (2, 1) and euler_characteristic(two) == 1
    corner = np.eye(2, dtype=bool)  # cubes that touch in a corner are one piece, their complement is not
    assert betti_numbers(corner) == (1, 0)


@pytest.mark.parametrize("seed", range(5))
def test_betti_numbers_in_a_plane_follow_from_the_euler_characteristic(seed: int) -> None:
    inside = np.random.default_rng(seed).random((12, 12)) < 0.6
    pieces, holes = betti_numbers(inside)
    assert pieces - holes == euler_characteristic(inside)


def test_the_hole_of_figure_2b_is_two_units_on_one_side() -> None:
    """Source 004, figure 2: theta with a unit on each side has a class in two pieces; on one side, one."""
    from intertwine.recipes.genni import invariant_error

    theta = torch.tensor([1.0, -1.0, 0.7, 0.4])  # a, b, c, d: one unit for x > 0, one for x < 0
    swapped = torch.tensor([-1.0, 1.0, 0.4, 0.7])
    assert invariant_error(theta, swapped) < 1e-6  # the other order of the units: another piece of the class
    middle = (theta + swapped) / 2
    assert invariant_error(theta, middle) > 0.3
    same_side = torch.tensor([1.0, 1.0, 0.7, 0.4])
    path = [torch.tensor([1.0, 1.0, 0.7 - t, 0.4 + t]) for t in np.linspace(0, 0.3, 5)]
    assert all(invariant_error(same_side, p) < 1e-6 for p in path)  # to the other order without leaving it
