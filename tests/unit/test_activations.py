"""The intertwiner group of scalar functions: Table 1 of Godfrey et al. 2022, negative controls, proofs."""

from __future__ import annotations

import doctest
import json
import math
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import ndtr
from torch import nn

import intertwine.activations
from intertwine.activations import (
    Intertwiner,
    decide,
    functions,
    gelu,
    groups,
    intertwiner,
    names,
    xi,
    xi_slope,
)
from intertwine.cli.program import main
from intertwine.errors import InputError, NotFound

DOC = Path(__file__).parents[2] / "docs" / "activations.md"


def verdict(sigma: object) -> tuple[str, bool, float, str]:
    found = intertwiner(sigma)  # type: ignore[arg-type]
    return found.scalars, found.linear, found.degree, found.sign


NONE = ("none", False, 0.0, "none")
ODD = ("sign", False, 0.0, "odd")
EVEN = ("sign", False, 0.0, "even")
LINEAR = ("nonzero", True, 1.0, "odd")
POSITIVE = ("positive", False, 1.0, "none")

# ---------------------------------------------------------------- Table 1, and the functions beyond it


@pytest.mark.parametrize(
    ("name", "group", "phi"),
    [
        ("identity", "GL(n)", "phi(A) = A"),
        ("sigmoid", "permutation", "phi(A) = A"),
        ("relu", "permutation x positive diagonal", "phi(A) = A"),
        ("leaky_relu", "permutation x positive diagonal", "phi(A) = A"),
        ("rbf", "permutation x sign", "phi(A) = abs(A)"),
        ("x**2", "permutation x nonzero diagonal", "phi(A) = A^2 entrywise"),
        ("x**3", "permutation x nonzero diagonal", "phi(A) = A^3 entrywise"),
        ("x**7", "permutation x nonzero diagonal", "phi(A) = A^7 entrywise"),
        ("gelu", "permutation", "phi(A) = A"),
    ],
)
def test_table_1(name: str, group: str, phi: str) -> None:
    found = intertwiner(name)
    assert (found.group_text, found.phi_text) == (group, phi)
    assert found.condition_e8
    assert str(found) == f"{name}: {group}, {phi}"


EXPECTED = {
    **dict.fromkeys(
        ["gelu_tanh", "silu", "mish", "softplus", "elu", "celu", "selu", "relu6", "hardswish"], NONE
    ),
    **dict.fromkeys(["hardsigmoid", "threshold", "logsigmoid", "exp", "expm1", "log", "log1p"], NONE),
    **dict.fromkeys(["floor", "ceil"], NONE),
    **dict.fromkeys(["tanh", "tanhshrink", "softsign", "softshrink", "hardshrink", "hardtanh"], ODD),
    **dict.fromkeys(["erf", "atan", "sin", "sinh", "round", "trunc"], ODD),
    **dict.fromkeys(["cos", "cosh"], EVEN),
    "prelu": POSITIVE,
    "squared_relu": ("positive", False, 2.0, "none"),
    "sqrt": ("positive", False, 0.5, "none"),
    "rsqrt": ("positive", False, -0.5, "none"),
    "heaviside": ("positive", False, 0.0, "none"),
    "reciprocal": ("nonzero", False, -1.0, "odd"),
    "abs": ("nonzero", False, 1.0, "even"),
    "square": ("nonzero", False, 2.0, "even"),
    "sign": ("nonzero", False, 0.0, "odd"),
    "neg": LINEAR,
}


@pytest.mark.parametrize("name", sorted(functions.EXTRA.keys() - {"gelu"}))
def test_other_names(name: str) -> None:
    assert verdict(name) == EXPECTED[name]


@pytest.mark.parametrize(
    ("sigma", "expected"),
    [
        (nn.ReLU(inplace=True), POSITIVE),
        (nn.LeakyReLU(1.0), LINEAR),
        (nn.LeakyReLU(-1.0), ("nonzero", False, 1.0, "even")),
        (nn.PReLU(), POSITIVE),
        (nn.RReLU(), POSITIVE),
        (nn.Dropout(0.5), LINEAR),
        (nn.Identity(), LINEAR),
        (nn.Hardtanh(), ODD),
        (nn.Hardtanh(-1, 2), NONE),
        (nn.Sequential(nn.ReLU(), nn.Tanh()), NONE),
        (nn.Sequential(nn.Tanh(), nn.Softsign()), ODD),
        (lambda x: torch.ops.aten.leaky_relu(x, 0.01), POSITIVE),
        (lambda x: x.sin_(), ODD),
        (lambda x: x + 1, NONE),
        (lambda x: 0.3 * x, LINEAR),
        (lambda x: -7.0 * x, LINEAR),
        (lambda x: 2.5 * torch.relu(x) - 0.5 * torch.relu(-x), POSITIVE),
        (lambda x: x * x.abs(), ("nonzero", False, 2.0, "odd")),
        (lambda x: x.abs().sqrt(), ("nonzero", False, 0.5, "even")),
        (lambda x: torch.ones_like(x), ("nonzero", False, 0.0, "even")),
        (lambda x: torch.zeros_like(x), LINEAR),
        (lambda x: torch.relu(x - 2e8), NONE),
        (nn.Hardshrink(2e8), ODD),
        (lambda x: x > 0, ("positive", False, 0.0, "none")),
        (lambda x: x == 0, ("nonzero", False, 0.0, "even")),
        (lambda x: x.clamp(min=0), POSITIVE),
        (lambda x: x.clamp(min=1e-12), NONE),
        (torch.asin, ODD),
        (torch.acos, NONE),
        (torch.tan, ODD),
        (lambda x: 1 / torch.relu(x), ("positive", False, -1.0, "none")),
    ],
)
def test_modules_and_callables(sigma: object, expected: tuple[str, bool, float, str]) -> None:
    assert verdict(sigma) == expected


@pytest.mark.parametrize("name", names())
def test_float32_agrees(name: str) -> None:
    double, single = intertwiner(name), intertwiner(name, dtype=torch.float32)
    assert (double.group, double.phi_text) == (single.group, single.phi_text)


# ---------------------------------------------------------------- negative controls


@pytest.mark.parametrize(
    "sigma",
    [
        lambda x: torch.where(
            x == 0, x, x * (1 + 0.3 * torch.sin(2 * math.pi * x.abs().log2()))
        ),  # powers of 2
        lambda x: torch.where(
            x == 0, x, x * (1 + 0.3 * torch.cos(2 * math.pi * x.abs().log10()))
        ),  # powers of 10
        lambda x: x.clamp(-10, 10),
        lambda x: x.clamp(-65504, 65504),
        lambda x: torch.relu(x).clamp(max=1e6),
        lambda x: torch.where(x.abs() < 1e-5, 2 * x, x),
        lambda x: x * torch.rsqrt(x * x + 1e-12),
        lambda x: torch.relu(x) + (x == 0),
        lambda x: x + 1e-6,
        lambda x: x + 1e-8 * x.square(),
        lambda x: F.softplus(x, beta=100.0),
        lambda x: torch.sigmoid(1e4 * x),
        lambda x: torch.relu(x - 30.0),
        lambda x: torch.relu(x) + 1e-3 * torch.exp(-(((x - 3.3) / 0.1) ** 2)),
    ],
)
def test_almost_homogeneous_is_not(sigma: object) -> None:
    assert verdict(sigma)[0] in {"none", "sign"}


@pytest.mark.parametrize(
    "sigma",
    [
        lambda x: torch.tanh(x) + 1e-6,
        lambda x: torch.where(x > 0, torch.tanh(x), torch.tanh(1.0001 * x)),
        lambda x: x.abs() + 1e-6 * x,
        lambda x: x**3 + 1e-4 * x**2,
        lambda x: torch.tanh(x) + 1e-9 * x**2,
        lambda x: torch.sign(x) + 0.5 * (x == 0),
        lambda x: torch.tanh(x) + 1e-3 * torch.exp(-(((x - 3.3) / 0.05) ** 2)),
        lambda x: torch.where(x.abs() < 500, torch.sinh(x), torch.sinh(x).abs()),
    ],
)
def test_almost_odd_or_even_is_not(sigma: object) -> None:
    assert verdict(sigma)[3] == "none"


# ---------------------------------------------------------------- proofs


def at(sigma: object, x: float) -> float:
    return float(sigma(torch.tensor([x], dtype=torch.float64)))  # type: ignore[operator]


@pytest.mark.parametrize("name", names())
def test_counterexamples_break(name: str) -> None:
    found, sigma = intertwiner(name), functions.find_function(name)
    failed = {c.candidate for c in found.counterexamples}
    assert ("positive" in failed) == (found.scalars in {"none", "sign"})
    assert ("sign" in failed) == (found.sign == "none")
    assert ("linear" in failed) == (not found.linear)
    for c in found.counterexamples:
        lhs, base = at(sigma, c.a * c.x), at(sigma, c.x)
        assert lhs == pytest.approx(c.lhs, rel=1e-12, nan_ok=True)
        if math.isnan(c.b):
            assert c.rhs == pytest.approx(base, rel=1e-12)
            assert (base == 0 and lhs != 0) or (math.isfinite(base) and not math.isfinite(lhs))
            continue
        forced = c.a if c.forced_at is None else at(sigma, c.a * c.forced_at) / at(sigma, c.forced_at)
        assert c.b == pytest.approx(forced, rel=1e-12)
        assert c.rhs == pytest.approx(forced * base, rel=1e-12, nan_ok=True)
        assert not math.isclose(lhs, c.rhs, rel_tol=1e-4)


def test_counterexample_reads_well() -> None:
    relu, leaky = intertwiner("relu"), intertwiner(nn.LeakyReLU(0.5))
    assert str(relu.counterexamples[0]) == "a = -1: x = -1 takes 0 to 1, as no b does"
    assert str(leaky.counterexamples[0]) == "a = -1: x = 1 forces b = -0.5, but x = -1 gives 1 != 0.25"
    assert str(leaky.counterexamples[1]) == "a = -1: b = -1, but x = 1 gives -0.5 != -1"


def test_a_function_that_vanishes_at_every_scaled_point_is_not_homogeneous() -> None:
    """Its forced b is 0 for every a, which no invertible B allows."""
    lone = float(decide._points(torch.float64)[10])
    found = intertwiner(lambda x: x == lone)
    assert found.scalars == "none"
    assert all(math.isnan(c.b) for c in found.counterexamples if c.candidate != "linear")


# ---------------------------------------------------------------- phi


def holds(found: Intertwiner, sigma: object, a: torch.Tensor, x: torch.Tensor) -> None:
    lhs, rhs = sigma(a * x), found.phi(a) * sigma(x)  # type: ignore[operator]
    torch.testing.assert_close(lhs, rhs, rtol=1e-10, atol=0)


magnitude = st.floats(1e-3, 1e3)
slopes = st.floats(-5, 5).filter(lambda s: s == 0 or abs(s) > 1e-100)  # products of the rest are subnormal
nonzero = st.builds(lambda m, s: m * s, magnitude, st.sampled_from([-1.0, 1.0]))


@settings(max_examples=60)
@given(slope=slopes, gain=nonzero, a=magnitude, x=nonzero)
def test_every_leaky_slope(slope: float, gain: float, a: float, x: float) -> None:
    def sigma(t: torch.Tensor) -> torch.Tensor:
        return gain * F.leaky_relu(t, slope)

    found = intertwiner(sigma)
    if slope == 1:
        assert found.linear
    elif slope == -1:
        assert (found.scalars, found.sign) == ("nonzero", "even")
    elif abs(abs(slope) - 1) > 1e-9:
        assert (found.scalars, found.degree, found.sign) == ("positive", 1.0, "none")
    holds(found, sigma, torch.tensor(a).double(), torch.tensor(x).double())


@settings(max_examples=60)
@given(d=st.integers(-12, 12), a=nonzero, b=nonzero, x=nonzero)
def test_integer_powers(d: int, a: float, b: float, x: float) -> None:
    found = intertwiner(f"x**{d}")
    assert (found.scalars, found.degree) == ("nonzero", float(d))
    assert found.sign == ("odd" if d % 2 else "even")
    assert found.phi(a) == pytest.approx(a**d, rel=1e-12)
    assert found.phi(a * b) == pytest.approx(found.phi(a) * found.phi(b), rel=1e-12)
    holds(found, lambda t: torch.pow(t, d), torch.tensor(a).double(), torch.tensor(x).double())


@pytest.mark.parametrize("d", [-100, -41, 40, 99])
def test_powers_that_overflow_and_underflow(d: int) -> None:
    assert verdict(f"x**{d}") == ("nonzero", False, float(d), "odd" if d % 2 else "even")


@settings(max_examples=60)
@given(d=st.floats(-6, 6).filter(lambda d: abs(d - round(d)) > 1e-3), a=magnitude, b=magnitude)
def test_fractional_powers(d: float, a: float, b: float) -> None:
    found = intertwiner(lambda x: torch.pow(x, d))
    assert (found.scalars, found.sign) == ("positive", "none")
    assert found.degree == pytest.approx(d, rel=1e-13, abs=1e-14)
    assert found.phi(a * b) == pytest.approx(found.phi(a) * found.phi(b), rel=1e-11)


@settings(max_examples=60)
@given(p=st.integers(-30, 30), q=st.integers(1, 30))
def test_rational_degrees_are_exact(p: int, q: int) -> None:
    assert intertwiner(f"x**{p}/{q}").degree == p / q


@pytest.mark.parametrize("name", names())
def test_phi_is_a_homomorphism_that_intertwines(name: str) -> None:
    found, sigma = intertwiner(name), functions.find_function(name)
    members = {
        "none": [1.0],
        "sign": [1.0, -1.0],
        "positive": [0.37, 1.0, 5.3],
        "nonzero": [-4.1, -1.0, 0.37, 1.0, 5.3],
    }[found.scalars]
    x = torch.tensor([0.2, 0.9, 1.7, 6.1, 12.0], dtype=torch.float64)
    for a in members:
        torch.testing.assert_close(sigma(a * x), found.phi(a) * sigma(x), rtol=1e-10, atol=0, equal_nan=True)
        for b in members:
            assert found.phi(a * b) == pytest.approx(found.phi(a) * found.phi(b), rel=1e-12)
    assert found.phi(1.0) == 1.0


def test_phi_keeps_type_and_dtype() -> None:
    relu = intertwiner("relu")
    assert isinstance(relu.phi(2.0), float)
    assert relu.phi(torch.tensor([2.0, 3.0])).dtype == torch.float32
    sign = intertwiner("sign").phi(torch.tensor([-2.0, 3.0], dtype=torch.float64))
    assert sign.tolist() == [-1.0, 1.0]


@pytest.mark.parametrize(
    ("name", "a"),
    [("gelu", 2.0), ("tanh", 0.5), ("relu", -1.0), ("x**2", 0.0), ("relu", math.nan), ("relu", math.inf)],
)
def test_phi_refuses_what_is_outside(name: str, a: float) -> None:
    with pytest.raises(InputError, match=re.escape(f"does not pass through {name}")):
        intertwiner(name).phi(a)


@pytest.mark.parametrize(
    ("sigma", "text"),
    [
        (lambda x: x * x.abs(), "phi(A) = sign(A) abs(A)^2 entrywise"),
        (lambda x: x.abs() ** 3, "phi(A) = abs(A)^3 entrywise"),
        (torch.abs, "phi(A) = abs(A)"),
        (torch.sign, "phi(PD) = P sign(D)"),
        (torch.ones_like, "phi(PD) = P"),
        (torch.sqrt, "phi(A) = A^0.5 entrywise"),
        (torch.cos, "phi(A) = abs(A)"),
        (torch.tanh, "phi(A) = A"),
    ],
)
def test_phi_text(sigma: object, text: str) -> None:
    assert intertwiner(sigma).phi_text == text  # type: ignore[arg-type]


@pytest.mark.parametrize(("n", "name"), [(4, "relu"), (3, "x**3"), (5, "rbf"), (4, "tanh"), (3, "identity")])
def test_lemma_3_1_gives_the_same_phi(n: int, name: str) -> None:
    """phi(A) = sigma(A) sigma(I)^-1 for a random A = PD of the group (any A of GL(n) for the identity)."""
    found, sigma = intertwiner(name), functions.find_function(name)
    rng = torch.Generator().manual_seed(0)
    scale = torch.rand(n, generator=rng, dtype=torch.float64) + 0.5
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64)[torch.randint(2, (n,), generator=rng)]
    entries = {"sign": signs, "positive": scale, "nonzero": scale * signs}[found.scalars]
    permutation = torch.eye(n, dtype=torch.float64)[torch.randperm(n, generator=rng)]
    eye = torch.eye(n, dtype=torch.float64)
    expected = permutation @ torch.diag(found.phi(entries))
    a = permutation @ torch.diag(entries)
    torch.testing.assert_close(sigma(a) @ torch.linalg.inv(sigma(eye)), expected, rtol=1e-12, atol=1e-14)


# ---------------------------------------------------------------- condition (E.8)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(
    "sigma",
    [
        torch.relu,
        torch.sigmoid,
        torch.cos,
        torch.ones_like,
        torch.zeros_like,
        lambda x: 1 - 3 * x,  # sigma(1) = -2 sigma(0): singular for n = 3 only
        lambda x: 0.5 - x,  # sigma(1) = -sigma(0): n = 2
        lambda x: 1 - x,  # sigma(1) = 0: n = 1
        lambda x: torch.relu(x - 2),
    ],
)
def test_condition_e8_is_invertibility(sigma: object, n: int) -> None:
    matrix = sigma(torch.eye(n, dtype=torch.float64))  # type: ignore[operator]
    invertible = int(torch.linalg.matrix_rank(matrix)) == n
    assert intertwiner(sigma, n=n).condition_e8 == invertible  # type: ignore[arg-type]
    assert intertwiner(sigma).check_e8(n) == invertible  # type: ignore[arg-type]


def test_condition_e8_for_every_n() -> None:
    assert intertwiner("relu").condition_e8
    assert intertwiner(lambda x: 1 - x).condition_e8
    assert not intertwiner(lambda x: 1 - 3 * x).condition_e8
    assert not intertwiner(torch.ones_like).condition_e8
    assert not intertwiner("log").condition_e8
    with pytest.raises(InputError, match="n must be a whole number of at least 1"):
        intertwiner("relu", n=0)


# ---------------------------------------------------------------- what is refused, and what is left alone


@pytest.mark.parametrize(
    ("sigma", "message"),
    [
        (lambda x: torch.softmax(x, -1), "not elementwise"),
        (lambda x: x - x.mean(), "not elementwise"),
        (lambda x: x.flip(0), "not elementwise"),
        (lambda x: x.cumsum(0), "not elementwise"),
        (lambda x: x / x.abs().max(), "not elementwise"),
        (lambda x: F.normalize(x, dim=-1), "not elementwise"),
        (lambda x: torch.relu(x) if x.ndim == 1 else torch.softmax(x, -1), "not elementwise"),
        (lambda x: x + torch.rand_like(x), "not elementwise"),
        (lambda x: F.glu(x), "not elementwise|cannot be evaluated"),
        (lambda x: x.sum(), "not elementwise"),
        (nn.Softmax(dim=-1), "Softmax is not elementwise"),
        (nn.LayerNorm(12), "LayerNorm"),
        (nn.PReLU(5), "PReLU cannot be evaluated"),
        (nn.BatchNorm1d(4), "BatchNorm1d cannot be evaluated"),
        (nn.ReLU, "returned ReLU, not a real tensor"),
        (lambda x: x.to(torch.complex128), "not a real tensor"),
        (lambda x: x / 0 * 0, "not finite at any point"),
        (3.0, "is a float, not"),
    ],
)
def test_refused(sigma: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        intertwiner(sigma)  # type: ignore[arg-type]


def test_refused_dtype_and_name() -> None:
    with pytest.raises(InputError, match="float16"):
        intertwiner("relu", dtype=torch.float16)
    with pytest.raises(NotFound, match="no activation named 'reluu'") as error:
        intertwiner("reluu")
    assert "did you mean relu" in str(error.value)
    with pytest.raises(NotFound):
        intertwiner("x**1/0")


def test_the_callers_module_is_left_alone() -> None:
    module = nn.Sequential(nn.PReLU(), nn.Dropout(0.5)).train()
    calls: list[object] = []
    module.register_forward_hook(lambda *_: calls.append(1))
    module[0].register_forward_pre_hook(lambda *_: calls.append(1))
    before = {key: value.clone() for key, value in module.state_dict().items()}
    assert verdict(module) == POSITIVE
    assert module.training
    assert module[1].training
    assert not calls
    for key, value in module.state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, before[key])
    assert module[0].weight.grad is None


def test_the_callers_defaults_do_not_matter() -> None:
    with torch.device("meta"):
        assert verdict(lambda x: torch.heaviside(x, torch.zeros(1, dtype=x.dtype)))[0] == "positive"
        assert verdict(nn.Tanh()) == ODD
        assert intertwiner("x**4/3").phi(8.0) == pytest.approx(16.0, rel=1e-14)


def test_a_named_verdict_is_decided_once() -> None:
    assert intertwiner("relu") is intertwiner("relu")
    assert verdict("Swish") == verdict("silu")


# ---------------------------------------------------------------- xi


@pytest.mark.parametrize(
    "lam", [1e-3, 0.2, 0.4999, 0.5, 0.9, 0.99, 1.01, 1.3, 1.5, 1.5001, 2.0, 5.0, 40.0, -1.5]
)
def test_xi_is_the_root_mean_square_of_e22(lam: float) -> None:
    def squared(x: float) -> float:
        return (
            (lam * x * ndtr(lam * x) - lam * x * ndtr(x)) ** 2 * math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        )

    cuts = [-12.0, -2 / max(1.0, lam), 0.0, 2 / max(1.0, lam), 12.0]
    pieces = [quad(squared, a, b, epsabs=1e-20, limit=200)[0] for a, b in pairwise(cuts)]
    assert xi(lam) == pytest.approx(math.sqrt(sum(pieces)), rel=1e-8, abs=1e-14)


def test_xi_near_one_is_linear_in_the_distance() -> None:
    """xi(1 + h) = |h| sqrt(3 / (2 pi 3^(5/2))) + O(h^2), down to h that moments cannot resolve."""
    slope = math.sqrt(3 / (2 * math.pi * 3**2.5))
    for h in (1e-5, 1e-8, 1e-11):
        assert xi(1 + h) / h == pytest.approx(slope, rel=1e-4)
    assert xi(1.0) == 0.0
    assert xi(0.0) == 0.0


def test_xi_slope() -> None:
    def squared(x: float) -> float:
        return (x * ndtr(-x)) ** 2 * math.exp(-x * x / 2) / math.sqrt(2 * math.pi)

    # x (1[x >= 0] - Phi(x)) is odd up to sign, so both halves contribute the same.
    assert xi_slope() == pytest.approx(math.sqrt(2 * quad(squared, 0, 12, epsabs=1e-14)[0]), rel=1e-10)
    assert xi_slope() == pytest.approx(0.127, abs=5e-4)
    assert xi(1e6) / 1e6 == pytest.approx(xi_slope(), rel=1e-8)


def test_xi_is_vectorised() -> None:
    lam = np.array([[0.3, 1.0], [1.2, 30.0]])
    assert xi(lam).shape == (2, 2)
    assert xi(lam).tolist() == [[xi(float(v)) for v in row] for row in lam]
    assert isinstance(xi(2), float)


# ---------------------------------------------------------------- command line and documents


def test_cli_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["activations"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == names()
    relu = next(line for line in lines if line.startswith("relu "))
    assert "permutation x positive diagonal" in relu
    assert "sign: a = -1: x = -1 takes 0 to 1" in relu


def test_cli_json_is_strict(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    assert main(["activations", "--json", *names(), "x**2.5"]) == 0
    out = json.loads(capsys.readouterr().out, parse_constant=refuse)
    rows = {row["name"]: row for row in out["activations"]}
    assert rows["x**2.5"]["degree"] == 2.5
    assert rows["identity"]["group"] == "GL(n)"
    assert rows["gelu"]["counterexamples"][0]["a"] == 2.0
    assert rows["sqrt"]["counterexamples"][0]["lhs"] == "nan"
    assert out["gelu_xi_slope"] == xi_slope()


def test_cli_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["activations", "relu", "gellu"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "no activation named 'gellu'" in captured.err
    assert "did you mean gelu" in captured.err
    assert "Traceback" not in captured.err


@pytest.mark.parametrize("module", [intertwine.activations, decide, functions, gelu, groups])
def test_docstring_examples(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


def test_document_examples_and_table() -> None:
    results = doctest.testfile(str(DOC), module_relative=False)
    assert results.attempted > 0
    assert results.failed == 0
    rows = [
        line.strip("| \n").split(" | ") for line in DOC.read_text().splitlines() if line.startswith("| `")
    ]
    assert {row[0].strip("`") for row in rows} == set(names())
    for name, group, phi in rows:
        found = intertwiner(name.strip("`"))
        assert (group.strip(), phi.strip()) == (found.group_text, found.phi_text)
