"""The functional dimension: known cases, planted deficits, and a rule that was taken away."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csc_array
from torch import Tensor, nn

import intertwine
from intertwine import Dimension, dimension, trace
from intertwine.cli import main
from intertwine.errors import InputError
from intertwine.graph.example import Example
from intertwine.ir.value import Value
from intertwine.rules import RULES
from intertwine.tangent import Looked
from intertwine.tangent.challenge import is_seen
from intertwine.tangent.coordinates import coordinates_of
from intertwine.tangent.generators import moving_only, tangents
from intertwine.tangent.jacobian import Jacobian
from intertwine.tangent.spaces import find_rank, inside, null_space, scaled, span


def mlp(act: nn.Module, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 8), act, nn.Linear(8, 2)).double()


def counts(found: Dimension) -> dict[str, int]:
    out: dict[str, int] = {}
    for d in found.directions:
        out[d.kind] = out.get(d.kind, 0) + d.count
    return out


X = torch.randn(16, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_a_tanh_net_has_no_continuous_symmetry() -> None:
    found = dimension(mlp(nn.Tanh()), X)
    assert (found.parameters, found.orbit, found.rank, found.deficit) == (50, 0, 50, 0)
    assert found.verdict == "complete" and found.gap > 1e3


class BesideTheIdentity(nn.Module):
    """What is added to the identity is a matrix, and no constant that may move."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3)
        self.middle = nn.Parameter(torch.randn(3, 3))
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.first(x) @ (self.middle + torch.eye(3, dtype=x.dtype)))
        return out


def test_a_matrix_beside_the_identity_is_no_constant() -> None:
    found = dimension(BesideTheIdentity(), X)
    assert (found.orbit, found.rank) == (9, 12)
    assert counts(found) == {"translation": 3, "product": 9}


def test_scalar_products_of_one_layer_with_itself_are_turned() -> None:
    torch.manual_seed(0)

    class Products(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            h = super().forward(x)
            return h @ h.mT

    found = dimension(Products(3, 3).double(), X)
    assert (found.parameters, found.orbit, found.rank, found.verdict) == (12, 3, 9, "complete")


def test_a_decomposition_that_does_not_converge_is_tried_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise np.linalg.LinAlgError("SVD did not converge")

    monkeypatch.setattr(np.linalg, "svd", fail)
    found, null = null_space(np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))
    assert found.rank == 2 and np.allclose(np.abs(null.T), [[0.5**0.5, 0, 0.5**0.5]])


def test_a_relu_net_has_one_scaling_a_unit() -> None:
    found = dimension(mlp(nn.ReLU()), X)
    assert (found.orbit, found.rank, found.verdict) == (8, 42, "complete")


def test_the_orbit_counts_what_moves_theta_and_not_the_group() -> None:
    net = mlp(nn.ReLU())
    with torch.no_grad():
        for part in (net[0].weight, net[0].bias):
            part[2] = 0.0
        net[2].weight[:, 2] = 0.0
    found = dimension(net, X)
    assert found.orbit == 7  # a unit that is zero stays where it is
    assert counts(found)["dead"] == 6 and found.verdict == "explained"


def test_a_dead_and_a_doubled_unit_are_named() -> None:
    net = mlp(nn.ReLU())
    with torch.no_grad():
        net[0].bias[2] = -1e3
        net[0].weight[5], net[0].bias[5] = 2 * net[0].weight[4], 2 * net[0].bias[4]
    found = dimension(net, X)
    # dead: 4 + 2 weights without effect, of which the orbit has one direction (in against out)
    assert found.verdict == "explained" and counts(found)["equal"] > 0 and counts(found)["dead"] == 5
    dead = next(d for d in found.directions if d.kind == "dead")
    assert dead.axis == "0" and set(dead.weights) == {"0.weight", "0.bias", "2.weight"}


def test_a_saturated_unit_is_named() -> None:
    net = mlp(nn.Hardtanh())
    with torch.no_grad():
        net[0].bias[2] = 1e3
    kinds = counts(dimension(net, X))
    # four weights before it have no effect, and its two weights do what the two biases do
    assert kinds == {"dead": 4, "saturated": 2}


def test_units_that_are_always_on_are_named() -> None:
    net = mlp(nn.ReLU())
    with torch.no_grad():
        net[0].bias[[2, 6]] = 1e3
    found = dimension(net, X)
    # their biases can move into the last one, and they can be mixed with each other
    assert counts(found) == {"translation": 2, "linear": 2} and found.verdict == "explained"


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 6), nn.Linear(6, 2)
        self.q, self.k, self.v, self.o = (nn.Linear(6, 6) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.first(x))
        q, k, v = (m(h).unflatten(-1, (2, 3)).transpose(1, 2) for m in (self.q, self.k, self.v))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.last(torch.tanh(h + self.o(mixed)))


def test_biases_of_keys_and_values_are_translations() -> None:
    torch.manual_seed(0)
    net = Attention().double()
    found = dimension(net, torch.randn(3, 5, 3, dtype=torch.float64))
    # GL(3) in two heads, twice; softmax does not see the keys' bias; the values' bias moves into the output's
    assert found.orbit == 4 * 9
    assert counts(found) == {"constant": 6, "translation": 6}
    assert {d.kind: d.weights for d in found.directions}["constant"] == ("k.bias",)
    assert found.verdict == "explained"


def test_translations_are_elements_that_act_and_compose() -> None:
    """Of the bias before a batch norm, its mean and its shift, two may move and the third makes up for it."""
    torch.manual_seed(0)
    head = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2)).double().eval()
    found = dimension(head, X)
    moved = [t for t in found.translations if "0.bias" in t.moves]
    assert len(moved) == 2 * 4 and all(set(t.moves) <= {"0.bias", "1.running_mean", "1.bias"} for t in moved)
    both = moved[0] @ (2.5 * moved[1])
    twin = intertwine.act(head, both)
    assert not torch.allclose(twin[0].bias, head[0].bias, atol=0.01)
    fresh = 3 * torch.randn(50, 3, dtype=torch.float64)
    assert torch.allclose(twin(fresh), head(fresh), atol=1e-10)
    back = intertwine.act(twin, both.inverse())
    assert torch.allclose(back[0].bias, head[0].bias, atol=1e-12)
    # The control: the bias moves and its mean stays.
    half = intertwine.Translation({"0.bias": both.moves["0.bias"]})
    assert not torch.allclose(intertwine.act(head, half)(fresh), head(fresh), atol=1e-3)
    with pytest.raises(InputError, match="no weight"):
        intertwine.act(head, intertwine.Translation({"9.bias": torch.zeros(1)}))


def test_what_holds_to_first_order_only_is_no_translation() -> None:
    """A unit that is off on the data may be moved a little, and not as far as one likes."""
    net = mlp(nn.ReLU())
    with torch.no_grad():
        net[0].bias[0] = -30.0
    found = dimension(net, X, data=[(X,)])
    assert counts(found).get("dead")
    fresh = 3 * torch.randn(50, 3, dtype=torch.float64)
    for one in found.translations:
        assert torch.allclose(intertwine.act(net, one)(fresh), net(fresh), atol=1e-8)


def test_the_statistics_of_a_batch_norm_are_named() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2)).double()
    found = dimension(net, X)
    assert (found.parameters, found.statistics) == (82, 16)
    assert counts(found) == {"translation": 16, "statistics": 8}  # bias, mean, shift: one is enough


def test_rows_that_no_input_looks_up_are_named() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(9, 4), nn.Tanh(), nn.Flatten(), nn.Linear(8, 2)).double()
    found = dimension(net, torch.tensor([[0, 3], [5, 1]]))
    assert counts(found)["rows"] == 3 * 4


def test_a_weight_that_is_not_used_is_named() -> None:
    net, without = mlp(nn.Tanh()), dimension(mlp(nn.Tanh()), X)
    net.register_parameter("idle", nn.Parameter(torch.zeros(30_000, dtype=torch.float64)))
    found = dimension(net, X)
    assert counts(found) == {"unused": 30_000} and found.parameters == without.parameters + 30_000
    assert (found.rank, found.verdict) == (without.rank, "explained")
    assert len(found.singular_values) == len(without.singular_values)  # nothing is computed of it


def test_a_model_that_reads_no_weight_has_no_rank() -> None:
    net = nn.Tanh()
    net.register_parameter("idle", nn.Parameter(torch.zeros(3, dtype=torch.float64)))
    found = dimension(net, X)
    assert (found.rank, found.deficit, counts(found)) == (0, 3, {"unused": 3})


def test_a_symmetry_that_is_missed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: with ReLU taken for a function that commutes with no scale, eight scalings are
    missing, and they are where they belong."""

    def opaque(ctx: object, x: Value) -> Value:
        return ctx.opaque(x)  # type: ignore[attr-defined,no-any-return]

    monkeypatch.setitem(RULES, "relu.default", replace(RULES["relu.default"], apply=opaque))
    found = dimension(mlp(nn.ReLU()), X)
    assert (found.orbit, found.deficit, found.verdict) == (0, 8, "open")
    assert counts(found) == {"channel": 8} and {d.axis for d in found.directions} == {"0"}


class Apply(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def verdict_of(*layers: nn.Module, inputs: Tensor = X) -> tuple[str, dict[str, int]]:
    torch.manual_seed(0)
    for layer in layers:
        for p in layer.parameters():
            nn.init.normal_(p, 0.2, 0.7)
    found = dimension(nn.Sequential(*layers).double().eval(), inputs)
    return found.verdict, counts(found)


def test_a_common_scale_before_a_norm_without_eps_is_named() -> None:
    layers = nn.Linear(3, 4), nn.RMSNorm(4), nn.Tanh(), nn.Linear(4, 3)
    assert verdict_of(*layers) == ("explained", {"length": 1})


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (torch.exp, ("explained", {"exponential": 4})),
        (lambda x: 2.0 ** (0.3 * x) - 1.0, ("explained", {"exponential": 4})),  # the last bias takes 1 over
        (nn.functional.softplus, ("complete", {})),
        (torch.sinh, ("complete", {})),
    ],
)
def test_constants_before_an_exponential_are_named(
    function: Callable[[Tensor], Tensor], expected: tuple[str, dict[str, int]]
) -> None:
    assert verdict_of(nn.Linear(3, 4), Apply(function), nn.Linear(4, 2)) == expected


def test_the_scale_of_a_channel_that_a_split_leaves_alone_is_named() -> None:
    lone = Apply(lambda x: torch.cat([x[:, :1], torch.tanh(x[:, 1:])], 1))
    verdict, found = verdict_of(nn.Linear(3, 5), lone, nn.Linear(5, 3))
    assert verdict == "explained" and found["scale"] == 1


def test_channels_of_which_only_a_mean_is_read_are_an_open_question() -> None:
    """They have a common scale. A rule that said so tied the channels of every norm, and gains were lost."""
    means = Apply(lambda x: x.view(-1, 2, 3).mean(1))
    assert verdict_of(nn.Linear(3, 6), nn.ReLU(), means, nn.Linear(3, 2)) == ("open", {"channel": 3})


def test_matrices_inside_the_groups_of_a_linear_chain_are_in_the_group() -> None:
    pixels = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    layers = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 6, 1, groups=2), nn.Tanh(), nn.Conv2d(6, 2, 1)
    verdict, found = verdict_of(*layers, inputs=pixels)
    assert verdict == "explained" and found == {"translation": 4}  # of the biases


class Rotary(nn.Module):
    """One head whose queries and keys are turned by their places."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(3, 4, bias=False), nn.Linear(3, 4, bias=False), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        angle = torch.outer(torch.arange(x.shape[1]).to(x), torch.tensor([1.0, 0.3]).to(x)).repeat(1, 2)
        turned = [
            y * angle.cos() + torch.cat([-y[..., 2:], y[..., :2]], -1) * angle.sin()
            for y in (self.q(x), self.k(x))
        ]
        return (turned[0] @ turned[1].transpose(1, 2)).softmax(-1) @ self.v(x)


def test_rotations_of_the_pairs_of_a_rotary_head_are_in_the_group() -> None:
    tokens = torch.randn(2, 5, 3, dtype=torch.float64)
    assert verdict_of(Rotary(), inputs=tokens) == ("complete", {})


def test_tangents_are_the_derivative_of_acting() -> None:
    """(g_t theta - theta) / t for a small element lies in the span of the tangents."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 8, 1), nn.Conv2d(8, 4, 1, groups=2)
    ).double()
    symmetry = trace(net, torch.randn(1, 3, 4, 4, dtype=torch.float64))
    at = coordinates_of(net, symmetry)
    basis = span(tangents(symmetry, at).toarray())
    state = {n: t.double() for n, t in symmetry.weights(net).items()}
    from intertwine.symmetry.transform import apply_element

    moved = apply_element(symmetry.sample(0, parts=("scale",), spread=1e-6), state)
    step = np.concatenate([(moved[n] - at.values[n]).numpy().reshape(-1) for n in at.values])
    assert np.linalg.norm(step) > 0
    assert np.linalg.norm(step - basis @ (basis.T @ step)) < 1e-5 * np.linalg.norm(step)


def test_a_large_model_is_looked_at_axis_by_axis() -> None:
    found = dimension(mlp(nn.ReLU()), X, dense=10)
    assert found.scope == "0" and found.looked == Looked(8, (8,)) and found.verdict == "complete"
    assert found.looked.whole
    # all weights but the last bias, which lies on no hidden axis
    assert (found.parameters, found.orbit, found.rank) == (48, 8, 40)


def test_random_sets_of_channels_say_what_the_whole_axis_says() -> None:
    net = mlp(nn.ReLU())
    with torch.no_grad():
        net[0].bias[2] = -1e3
    whole = dimension(net, X, dense=10)
    # six numbers a channel: two at a time, no channel twice
    found = dimension(net, X, dense=10, sample=12, looks=9)
    assert (
        found.looked == Looked(8, (2, 2, 2, 2)) and [p.looked for p in found.parts] == [Looked(8, (2,))] * 4
    )
    assert (found.parameters, found.orbit, found.rank) == (whole.parameters, whole.orbit, whole.rank)
    assert counts(found) == counts(whole) == {"dead": 5} and found.verdict == "explained"
    few = dimension(net, X, dense=10, sample=12, looks=1)
    assert few.looked == Looked(8, (2,)) and few.parameters == 12 and not few.looked.whole


def test_a_rule_that_was_taken_away_shows_in_every_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def opaque(ctx: object, x: Value) -> Value:
        return ctx.opaque(x)  # type: ignore[attr-defined,no-any-return]

    monkeypatch.setitem(RULES, "relu.default", replace(RULES["relu.default"], apply=opaque))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    found = dimension(net, X, dense=10, sample=30, looks=2, at="0")
    assert found.verdict == "open" and all(part.verdict == "open" for part in found.parts)


def test_multiples_of_one_are_named_where_some_channels_are_looked_at() -> None:
    torch.manual_seed(0)
    layers = nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 2)
    found = dimension(nn.Sequential(*layers).double(), X, dense=10, sample=24, looks=1, at="0")
    assert (found.verdict, counts(found)) == ("explained", {"ones": 3})


def test_equal_channels_are_seen_where_they_are_together() -> None:
    """The limit of a random set: a direction of two channels is seen by the sets that have both."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    with torch.no_grad():
        net[0].weight[5], net[0].bias[5] = net[0].weight[4], net[0].bias[4]
    assert counts(dimension(net, X, dense=10))["equal"] > 0
    found = [dimension(net, X, dense=10, sample=24, looks=1, seed=seed) for seed in range(4)]
    seen = [f.deficit > 0 for f in found]
    assert any(seen) and not all(seen)
    assert all(f.looked is not None and f.looked.pairs == pytest.approx(6 / 28) for f in found)


@pytest.mark.parametrize(("of", "m"), [(6, 2), (7, 5), (9, 1), (5, 5)])
def test_what_may_have_been_missed_is_counted(of: int, m: int) -> None:
    """Of all sets of m channels, how many have none of b that have a direction?"""
    looked = Looked(of, (m,))
    bad = round(looked.below * of)

    def missed(b: int) -> float:
        sets = list(combinations(range(of), m))
        return sum(min(some) >= b for some in sets) / len(sets)

    assert looked.whole == (m == of) and (bad > 0) == (m < of)
    assert m == of or missed(bad) < 0.05 <= missed(bad - 1)


@pytest.mark.parametrize(
    ("n", "nullity", "spread", "noise"), [(320, 0, 4, 0), (320, 9, 7, 1e-16), (400, 70, 5, 1e-13)]
)
def test_the_small_end_of_a_decomposition_is_that_of_the_whole(
    n: int, nullity: int, spread: float, noise: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(n + nullity)
    left, right = (np.linalg.qr(rng.standard_normal((m, n)))[0] for m in (n + 50, n))
    values = np.r_[10.0 ** -np.linspace(0, spread, n - nullity), noise * rng.random(nullity)]
    rows = (left * values) @ right.T
    rows[:, 7] = 0.0
    found, null = null_space(rows, n - nullity)
    assert np.isnan(found.singular_values).any()  # nothing between was computed
    monkeypatch.setattr("intertwine.tangent.spaces.MANY", n + 1)
    whole, expected = null_space(rows, n - nullity)
    assert found.rank == whole.rank and found.gap == pytest.approx(whole.gap, rel=0.5)
    assert np.abs(null - expected @ (expected.T @ null)).max() < 1e-8


@pytest.mark.parametrize("seed", range(6))
def test_generators_that_move_nothing_else_are_those_of_the_dense_null_space(seed: int) -> None:
    # Rows that one column has alone, rows that several share, dependent columns, columns that cancel.
    rng = np.random.default_rng(seed)
    dense = rng.normal(size=(60, 12)) * (rng.random((60, 12)) < 0.15)
    dense[:, 11] = dense[:, 0] - dense[:, 1]
    dense[20:, 2] = dense[20:, 3]
    sizes, chosen = np.exp(rng.normal(size=60)), np.arange(20)
    outside = np.linalg.svd(dense[20:] / sizes[20:, None])
    combined = (dense / sizes[:, None])[:20] @ outside[2][(outside[1] > 1e-10).sum() :].T
    expected, found = span(combined), moving_only(chosen, csc_array(dense), sizes)
    assert expected.shape == found.shape and found.shape[1] > 0
    assert np.abs(found - expected @ (expected.T @ found)).max() < 1e-10


def test_some_coordinates_have_the_columns_of_the_whole_jacobian() -> None:
    net = mlp(nn.Tanh())
    symmetry = trace(net, X)
    theta, example = coordinates_of(net, symmetry), Example.of(X)
    chosen = np.array([1, 5, 23, 24, 31, 33, 49])
    whole, some = (Jacobian(symmetry.traced, net, theta, c).rows(example) for c in (None, chosen))
    assert some.shape[1] == len(chosen) and np.array_equal(whole[:, chosen], some)


def test_data_that_ends_too_early_is_no_verdict() -> None:
    found = dimension(mlp(nn.ReLU()), X[:2], data=X)
    assert found.verdict == "unsure" and not found.settled


def test_the_rank_is_where_the_singular_values_fall() -> None:
    assert find_rank(np.array([1.0, 1e-3, 1e-15])).rank == 2
    assert find_rank(np.array([1.0, 1e-3])).rank == 2
    assert not find_rank(np.geomspace(1, 1e-16, 40)).certain
    rows, lengths = scaled(np.array([[1.0, 1e-17, 2.0], [0.0, 0.0, 3.0]]))
    assert lengths[1] == 0 and not rows[:, 1].any()
    basis = span(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]))
    assert inside(basis, np.array([True, False, False])).shape[1] == 1


def test_no_axis_of_that_name() -> None:
    with pytest.raises(intertwine.IntertwineError, match="no axis matches"):
        dimension(mlp(nn.ReLU()), X, at="nowhere")
    with pytest.raises(InputError, match="no weights"):
        dimension(nn.Sequential(nn.ReLU()), X)


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, page = tmp_path / "net.py", tmp_path / "page.html"
    model.write_text(
        "import torch\nfrom torch import nn\n"
        "def net():\n    return nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2))\n"
    )
    code = main(["dimension", f"{model}:net", "--input", "8x3", "-o", str(page), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == 0 and found["verdict"] in ("complete", "explained")
    assert found["parameters"] == found["orbit"] + found["rank"] + found["deficit"] == 38
    assert "rank of the Jacobian" in page.read_text()


PIXELS = torch.randn(2, 2, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("between", [None, nn.Tanh()])
def test_layers_in_a_row_are_seen_as_their_product(between: nn.Module | None) -> None:
    """Of depthwise kernels before a mean over pixels little is seen; with a tanh between, all of it."""
    mean = Apply(lambda x: x.mean((2, 3)))
    more = [] if between is None else [between]
    layers = nn.Conv2d(2, 3, 1), *more, nn.Conv2d(3, 3, 3, padding=1, groups=3), *more, mean, nn.Linear(3, 2)
    verdict, found = verdict_of(*layers, inputs=PIXELS)
    if between is None:
        assert verdict == "explained" and found["product"] > 0
    else:
        assert "product" not in found


def test_matrices_that_keep_what_a_norm_sees_are_rotations() -> None:
    rms = nn.Linear(3, 4), nn.RMSNorm(4, eps=1e-3), nn.Linear(4, 2)
    assert verdict_of(*rms)[1]["rotation"] == 4 * 3 // 2
    layer = nn.Linear(3, 4), nn.LayerNorm(4, eps=1e-3), nn.Linear(4, 2)
    assert verdict_of(*layer)[1]["rotation"] == 3 * 2 // 2
    # The control: what is not linear behind the norm cannot undo them.
    control = nn.Linear(3, 4), nn.RMSNorm(4, eps=1e-3), nn.Tanh(), nn.Linear(4, 2)
    assert "rotation" not in verdict_of(*control)[1]


class Gated(nn.Module):
    def __init__(self, act: nn.Module) -> None:
        super().__init__()
        self.gate, self.up, self.act = nn.Linear(2, 5), nn.Linear(2, 5), act

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.gate(x)) * self.up(x)


@pytest.mark.parametrize("act", [nn.Identity(), nn.Tanh()])
def test_gates_without_an_activation_are_seen_as_a_polynomial(act: nn.Module) -> None:
    """Five products of two lines, mixed into one number: a quadratic of two variables has six numbers."""
    x = torch.randn(16, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    verdict, found = verdict_of(Gated(act), nn.Linear(5, 1), inputs=x)
    if isinstance(act, nn.Identity):
        assert verdict == "explained" and found["polynomial"] > 0
    else:
        assert "polynomial" not in found


def test_a_unit_that_is_seldom_active_counts() -> None:
    net = mlp(nn.ReLU())
    with torch.no_grad():
        net[0].bias[0] = -3.0 * net[0].weight[0].norm()
    assert dimension(net, X).verdict == "complete"


def test_regions_end_where_the_graph_is_not_affine() -> None:
    """A residual stream is one region; what its norm reads comes from outside, gains belong to it."""
    from intertwine.graph.example import Example
    from intertwine.tangent.regions import regions

    class Stream(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm, self.back = nn.Linear(3, 4), nn.RMSNorm(4), nn.Linear(4, 4)
            self.last = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            h = self.first(x)
            return torch.tanh(self.last(h + self.back(self.norm(h))))

    net = Stream().double()
    state = {name: p.detach() for name, p in net.named_parameters()}
    (one,) = regions(trace(net, X).traced, state, Example.of(X))
    assert set(one.weights) == set(state)
    assert len(one.traced.example.args) == 2  # the input, and what the norm reads


def planted(function: Callable[..., object], **parts: nn.Module | nn.Parameter) -> nn.Module:
    """A module whose forward is a function of its parts and the inputs."""

    class Planted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part)

        def forward(self, *given: Tensor) -> object:
            return function(self, *given)

    return Planted()


def test_layers_of_very_unlike_sizes_are_seen_alike() -> None:
    net = mlp(nn.ReLU())
    with torch.no_grad():
        net[0].weight.mul_(1e6), net[0].bias.mul_(1e6), net[2].weight.mul_(1e-6)
    found = dimension(net, X)
    assert (found.orbit, found.rank, found.verdict) == (8, 42, "complete")


def test_a_softmax_that_is_saturated_hands_no_rounding_on() -> None:
    """Far out all attention is on one key, and what is left of its derivative is rounding."""
    torch.manual_seed(0)
    attention = planted(lambda m, x: m.a(x, x, x), a=nn.MultiheadAttention(4, 2, batch_first=True)).eval()
    found = dimension(attention, torch.randn(3, 5, 4))
    assert counts(found) == {"constant": 4, "translation": 4} and found.rank == 80 - 16 - 8


def test_the_row_that_is_called_padding_is_read_too() -> None:
    torch.manual_seed(0)
    table = nn.Embedding(5, 3, padding_idx=0)
    nn.init.normal_(table.weight)
    net = nn.Sequential(table, nn.Linear(3, 5), nn.Tanh()).double()
    found = dimension(net, torch.arange(5).repeat(8, 1))
    assert "rows" not in counts(found) and found.verdict == "explained"


def test_scales_of_what_is_alone_or_compared_have_names() -> None:
    assert verdict_of(nn.Linear(3, 1), nn.ReLU(), nn.Linear(1, 2)) == ("complete", {})  # in the group
    plain = nn.Linear(3, 4), nn.BatchNorm1d(4, affine=False), nn.ReLU(), nn.Linear(4, 2)
    assert verdict_of(*plain) == ("explained", {"translation": 4, "statistics": 4})
    torch.manual_seed(0)
    cosine = planted(
        lambda m, x: nn.functional.cosine_similarity(m.a(x), m.b(x), dim=-1),
        a=nn.Linear(3, 4), b=nn.Linear(3, 4),
    )  # fmt: skip
    assert counts(dimension(cosine.double(), X)) == {"length": 2}


def test_what_a_function_does_to_constants_is_no_rotation() -> None:
    """exp(x + c) = exp(c) exp(x): not in the group, and no norm keeps a length here."""
    net = nn.Sequential(nn.Linear(3, 4), Apply(torch.exp), nn.Linear(4, 2)).double()
    assert "rotation" not in counts(dimension(net, X))


def test_truth_values_are_drawn_anew() -> None:
    """Eight rows of three truth values are not all there are; a row of a mask keeps one that is true."""
    from itertools import islice

    from intertwine.graph.example import Example
    from intertwine.tangent.jacobian import draws

    x = torch.eye(4, dtype=torch.bool)
    drawn = [e.args[0] for e in islice(draws(Example.of(x, None)), 1, 9)]
    assert any(not torch.equal(new, x) for new in drawn) and all(bool(new.any(dim=1).all()) for new in drawn)


def test_complex_weights_are_refused_in_words() -> None:
    net = planted(lambda m, x: (x * m.w).abs(), w=nn.Parameter(torch.randn(3, dtype=torch.complex64)))
    with pytest.raises(InputError, match="complex entries"):
        dimension(net, X.float())


def test_what_only_an_op_that_jumps_sees_is_called_so() -> None:
    """Rounding and argmax have no derivative to speak of: their readers are not dead, and no symmetry is."""
    torch.manual_seed(0)
    rounded = nn.Sequential(nn.Linear(3, 4), Apply(torch.round), nn.Linear(4, 2)).double()
    assert counts(dimension(rounded, X)) == {"jumps": 16}
    chosen = planted(
        lambda m, x: (m.b(torch.relu(m.a(x))), m.a(x).argmax(-1)), a=nn.Linear(3, 4), b=nn.Linear(4, 2)
    )
    found = dimension(chosen.double(), X)
    assert counts(found) == {"jumps": 4} and found.verdict == "explained"
    # The control: comparisons whose edges stay where they are. ReLU by hand keeps its scales.
    by_hand = nn.Sequential(nn.Linear(3, 4), Apply(lambda x: torch.where(x > 0, x, 0 * x)), nn.Linear(4, 2))
    assert "jumps" not in counts(dimension(by_hand.double(), X))


def test_the_slopes_of_two_functions_in_a_row_are_seen_together() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.PReLU(4, 0.4), nn.PReLU(4, 0.7), nn.Linear(4, 2)).double()
    found = dimension(net, torch.randn(16, 3, dtype=torch.float64))
    assert [(d.kind, d.count) for d in found.directions] == [("function", 4)]


@pytest.mark.parametrize(("reach", "named"), [(0.1, True), (30.0, False)])
def test_functions_on_one_piece_are_polynomials(reach: float, named: bool) -> None:
    """hardswish is a square on |x| < 3, which has a scale about -1.5; the control leaves that piece."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Tanh(), nn.Linear(3, 4), nn.Hardswish(), nn.Linear(4, 5), nn.Tanh()).double()
    with torch.no_grad():
        net[1].weight *= reach
    found = dimension(net, torch.randn(16, 3, dtype=torch.float64))
    assert found.verdict == ("explained" if named else "complete")
    assert {d.kind for d in found.directions} <= {"piece", "translation"}
    assert any(d.kind == "piece" and d.count == 4 for d in found.directions) == named


def with_shuffled(x: Tensor) -> Tensor:
    """x + P x with P two cycles of three channels: 1 + P is invertible."""
    return x + x[:, [1, 2, 0, 4, 5, 3]]


def test_scales_of_sums_of_channels_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """relu((1 + P) x): a scale of every channel of (1 + P) x, of which one a cycle of P is in the group."""
    x = torch.randn(16, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    shuffled = nn.Linear(7, 6), Apply(with_shuffled), nn.ReLU(), nn.Linear(6, 7)
    assert verdict_of(*shuffled, inputs=x) == ("explained", {"sums": 4})
    # The control: what passes no scale has none of its sums either.
    control = nn.Linear(7, 6), Apply(with_shuffled), nn.Tanh(), nn.Linear(6, 7)
    assert "sums" not in verdict_of(*control, inputs=x)[1]

    def opaque(ctx: object, x: Value, *_: object) -> Value:
        return ctx.opaque(x)  # type: ignore[attr-defined, no-any-return]

    monkeypatch.setitem(RULES, "relu.default", replace(RULES["relu.default"], apply=opaque))
    # Scales of channels that the group should have are no sums: they were missed.
    verdict, found = verdict_of(*shuffled, inputs=x)
    assert verdict == "open" and "sums" not in found


def test_the_eps_of_a_norm_behind_a_norm_is_named() -> None:
    """Both act on y = gain z + shift with (1 / gain)' y constant; behind a tanh nothing makes up for them."""
    rms = Apply(lambda x: x * (x.square().mean(-1, keepdim=True) + 0.1).rsqrt())
    layers = nn.Linear(5, 4), nn.BatchNorm1d(4, affine=False), nn.LayerNorm(4, eps=0.1), rms
    x = torch.randn(16, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert verdict_of(*layers, nn.Linear(4, 3), inputs=x)[1]["norms"] == 1
    assert "norms" not in verdict_of(*layers, nn.Tanh(), nn.Linear(4, 3), inputs=x)[1]


def test_what_would_be_called_missed_is_held_against_other_inputs() -> None:
    """A unit that was never on: what reads it changes nothing, until an input switches it on."""
    net = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1))
    with torch.no_grad():
        net[0].weight.fill_(1.0)
        net[0].bias.copy_(torch.tensor([0.0, -3.0]))
    net = net.double()
    x = torch.tensor([[0.5], [1.0]], dtype=torch.float64)
    symmetry = trace(net, x)
    at = coordinates_of(net, symmetry)
    reader = np.zeros(at.size)
    reader[at.of("2.weight").reshape(-1)[1]] = 1.0
    weights = dict(net.named_parameters())
    below, above = Example((x,), {}), Example((x + 5.0,), {})
    assert not is_seen([reader], symmetry.traced, at, weights, [below])
    assert is_seen([reader], symmetry.traced, at, weights, [below, above])
    orbit = np.zeros(at.size)  # the scale of the unit that is on is seen by nobody
    orbit[at.of("0.weight").reshape(-1)[0]], orbit[at.of("0.bias").reshape(-1)[0]] = 1.0, 0.0
    orbit[at.of("2.weight").reshape(-1)[0]] = -float(net[2].weight[0, 0].detach())
    assert not is_seen([orbit], symmetry.traced, at, weights, [below, above])
