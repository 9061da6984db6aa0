"""G_sigma1 = {a != 0 : sigma(a x) = b sigma(x) for some b != 0 and all x}, decided by evaluation.

By Theorem E.14 of Godfrey et al. 2022 the group of sigma on n channels is permutations times diagonals with
entries in G_sigma1, or GL(n) if sigma is linear. G_sigma1 of a continuous sigma is {1}, {1, -1}, all a > 0,
all a != 0, or a discrete group (powers of two, say), of which only the part in {1, -1} is reported: the
verdict is never larger than what held at every point tried.

How: evaluate sigma once at the products a x of some scales a and points x, nearly all different, so that they
are a dense sweep of the line too. For each a one point y forces b = sigma(a y) / sigma(y), and every other x
is a test. A failure is a proof; a success is evidence at four thousand points to a relative 4e-11.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import torch
from torch import Tensor, nn

from intertwine.activations.functions import Scalar, find_function
from intertwine.activations.groups import Counterexample, Intertwiner, check_e8
from intertwine.checks import checked
from intertwine.errors import InputError

# Ordered by how well they read in a proof. Powers of 2 and 3 are dense together: no lattice holds both.
_POSITIVE = (2.0, 3.0, 0.5, 10.0, 0.1, 1.1, 0.9, 1.01, 0.77, 0.137, math.sqrt(2), math.e, math.pi, 5.7, 7.3)
_SCALES = (*_POSITIVE, -1.0)
_GOLDEN = (math.sqrt(5) - 1) / 2


@checked
def intertwiner(
    sigma: str | nn.Module | Scalar, *, dtype: torch.dtype = torch.float64, n: int | None = None
) -> Intertwiner:
    """G_sigma and phi_sigma of a scalar function: a name, a module, or any elementwise callable.

    n is the width for condition (E.8); by default it is reported for every n >= 2. A module is copied and put
    in eval mode. What is not elementwise is refused with an InputError.

    >>> leaky = intertwiner(lambda x: torch.ops.aten.leaky_relu(x, 0.1))
    >>> leaky.scalars, leaky.degree, leaky.sign
    ('positive', 1.0, 'none')
    >>> print(leaky.counterexamples[0])
    a = -1: x = 1 forces b = -0.1, but x = -1 gives 1 != 0.01
    """
    if dtype not in (torch.float32, torch.float64):
        raise InputError(f"an intertwiner is decided in float32 or float64, not {dtype}")
    if isinstance(sigma, str):
        return _of_name(sigma, dtype, n)
    if isinstance(sigma, nn.Module):
        return _decide(type(sigma).__name__, _detached_copy(sigma, dtype), dtype, n)
    if not callable(sigma):
        raise InputError(
            f"an activation is a name, a module or a callable, not {type(sigma).__name__}",
            do="pass for example 'relu', nn.ReLU() or torch.relu",
        )
    return _decide(getattr(sigma, "__name__", type(sigma).__name__), sigma, dtype, n)


@lru_cache(maxsize=1024)
def _of_name(name: str, dtype: torch.dtype, n: int | None) -> Intertwiner:
    return _decide(name, find_function(name), dtype, n)


def _detached_copy(module: nn.Module, dtype: torch.dtype) -> Scalar:
    """A copy in eval mode whose hooks are gone: copied hooks would still write to the caller's objects."""
    clone = copy.deepcopy(module).to(device="cpu", dtype=dtype).eval()
    for part in clone.modules():
        part._forward_hooks.clear()
        part._forward_pre_hooks.clear()
    return clone


# ---------------------------------------------------------------- evaluation


@dataclass(frozen=True)
class _Sample:
    """sigma at the points x, and at every product a x of a scale and a point."""

    points: Tensor  # [m]
    scales: Tensor  # [k], the last one is -1
    base: Tensor  # [m]     sigma(x)
    scaled: Tensor  # [k, m]  sigma(a x)


@lru_cache(maxsize=2)
def _points(dtype: torch.dtype) -> Tensor:
    """Zero and, of both signs, magnitudes that read well, 64 from 0.01 to 30 and 64 from 1e-8 to 1e8.

    The golden-ratio sequence spreads them evenly over the decades and keeps them off every lattice. Most are
    moderate: far out sigmoids are flat and far in everything is linear.
    """
    spread = torch.arange(1, 65, dtype=torch.float64) * _GOLDEN % 1
    moderate = 10 ** (-2 + (2 + math.log10(30)) * spread)
    wide = 10 ** (-8 + 16 * spread)
    magnitudes = torch.cat([torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=torch.float64), moderate, wide])
    return torch.cat([magnitudes, -magnitudes, torch.zeros(1, dtype=torch.float64)]).to(dtype)


def _evaluate(name: str, sigma: Scalar, points: Tensor) -> Tensor:
    """sigma(points) as points' dtype, from a copy (sigma may work in place)."""
    try:
        with torch.no_grad():
            values = sigma(points.clone())
    except Exception as error:
        raise InputError(
            f"{name} cannot be evaluated on a tensor of shape {list(points.shape)} and type {points.dtype}",
            so=f"{type(error).__name__}: {error}".splitlines()[0],
            do="pass a function of one tensor that acts elementwise",
        ) from error
    if not isinstance(values, Tensor) or values.is_complex():
        kind = values.dtype if isinstance(values, Tensor) else type(values).__name__
        raise InputError(f"{name} returned {kind}, not a real tensor", do="pass an instance, not a class")
    if values.shape != points.shape:
        raise InputError(
            f"{name} is not elementwise: it turned shape {list(points.shape)} into {list(values.shape)}"
        )
    return values.to(points)


def _refuse_unless_elementwise(name: str, sigma: Scalar, dtype: torch.dtype) -> None:
    """sigma of a vector must be sigma of each entry, in any order and any shape, each time it is called."""
    x = torch.tensor([0.3, -1.7, 2.9, 0.8, -0.4, 1.3, -2.6, 1.9, -0.9, 0.6, 2.2, -1.1], dtype=dtype)
    whole = _evaluate(name, sigma, x)
    again = {
        "entry by entry": torch.cat([_evaluate(name, sigma, x[i : i + 1]) for i in range(len(x))]),
        "in reverse order": _evaluate(name, sigma, x.flip(0)).flip(0),
        "as a matrix": _evaluate(name, sigma, x.view(3, 4)).flatten(),
    }
    eps = torch.finfo(dtype).eps  # vector and scalar code of one op differ by some of these
    for how, values in again.items():
        different = ~torch.isclose(whole, values, rtol=eps**0.5, atol=64 * eps, equal_nan=True)
        if bool(different.any()):
            i = int(different.nonzero()[0])
            raise InputError(
                f"{name} is not elementwise: at {float(x[i]):g} it is {float(whole[i]):g} inside a vector "
                f"but {float(values[i]):g} {how}",
                so="it has no intertwiner group of a scalar function",
                do="use a rule for the whole op, or turn off what is random in it",
            )


def _sample(name: str, sigma: Scalar, dtype: torch.dtype) -> _Sample:
    points = _points(dtype)
    scales = torch.tensor(_SCALES, dtype=dtype)
    every = torch.cat([points, (scales[:, None] * points).flatten()])
    # A full number of SIMD lanes: vector and remainder code round differently, and x - tanh(x) shows it.
    padding = torch.ones(-len(every) % 64, dtype=dtype)
    values = _evaluate(name, sigma, torch.cat([every, padding]))[: len(every)]
    if not bool(values.isfinite().any()):
        raise InputError(f"{name} is not finite at any point tried", so="it has no intertwiner group")
    return _Sample(points, scales, values[: len(points)], values[len(points) :].view(len(scales), -1))


# ---------------------------------------------------------------- verdicts


def _agree(lhs: Tensor, rhs: Tensor) -> Tensor:
    """Equal to rounding, or both too small to trust, or both too large with one sign, or both undefined."""
    info = torch.finfo(lhs.dtype)
    size, least = torch.maximum(lhs.abs(), rhs.abs()), torch.minimum(lhs.abs(), rhs.abs())
    close = size.isfinite() & ((lhs - rhs).abs() <= info.eps ** (2 / 3) * size)
    underflow = size < info.tiny**0.65
    overflow = (least > info.max**0.65) & (lhs.sign() == rhs.sign())
    result: Tensor = close | underflow | overflow | (lhs.isnan() & rhs.isnan())
    return result


def _plainness(points: Tensor) -> Tensor:
    """Least for the points that read best in a proof: size 1, then half-integers, then near 1; zero last."""
    size = points.abs()
    crooked = (2 * points).frac() != 0
    return torch.maximum(size, 1 / size).clamp(max=1e30) * torch.where(crooked, 8.0, 1.0)


def _find_anchor(sample: _Sample) -> int | None:
    """The plainest point where sigma is neither zero nor out of range; None if sigma is zero."""
    info = torch.finfo(sample.base.dtype)
    size = sample.base.abs()
    usable = (size > info.tiny**0.65) & (size < info.max**0.65)
    if not bool(usable.any()):
        return None
    return int(torch.where(usable, _plainness(sample.points), torch.inf).argmin())


def _find_break(
    candidate: str, sample: _Sample, rows: slice, b: Tensor, anchor: int | None = None
) -> Counterexample | None:
    """Where sigma(a x) = b sigma(x) fails for the scales of these rows: the first scale, the plainest x."""
    lhs, rhs = sample.scaled[rows], b[:, None] * sample.base
    possible = b.isfinite() & (b != 0)
    bad = ~_agree(lhs, rhs) & possible[:, None]
    if not bool(bad.any()):
        if anchor is None or bool(possible.all()):
            return None
        return _no_b_fits(candidate, sample, rows, int((~possible).nonzero()[0]), anchor)
    row = int(bad.any(1).nonzero()[0])
    left, right = lhs[row], rhs[row]
    gap = ((left - right).abs() / torch.maximum(left.abs(), right.abs())).nan_to_num(1.0)
    plain = bad[row] & (gap > min(0.01, float(gap[bad[row]].max()) / 2))
    column = int(torch.where(plain, _plainness(sample.points), torch.inf).argmin())
    return Counterexample(
        candidate,
        a=float(sample.scales[rows][row]),
        x=float(sample.points[column]),
        b=float(b[row]),
        lhs=float(left[column]),
        rhs=float(right[column]),
        forced_at=None if anchor is None else float(sample.points[anchor]),
    )


def _no_b_fits(candidate: str, sample: _Sample, rows: slice, row: int, anchor: int) -> Counterexample:
    """sigma(a y) is zero or not finite where sigma(y) is neither: read one way or the other, no b will do."""
    a, y = float(sample.scales[rows][row]), float(sample.points[anchor])
    scaled, base = float(sample.scaled[rows][row, anchor]), float(sample.base[anchor])
    if scaled == 0:
        return Counterexample(candidate, a=1 / a, x=a * y, b=math.nan, lhs=base, rhs=scaled)
    return Counterexample(candidate, a=a, x=y, b=math.nan, lhs=scaled, rhs=base)


def _check_positive(sample: _Sample, anchor: int) -> tuple[float, Counterexample | None]:
    """All a > 0: each a alone with the b it forces, then all of them with b = a^degree."""
    rows = slice(0, -1)
    forced = sample.scaled[rows, anchor] / sample.base[anchor]
    broken = _find_break("positive", sample, rows, forced, anchor)
    if broken:
        return 0.0, broken
    # A negative b would be a contradiction (phi(a) = phi(sqrt a)^2); abs leaves it to the check of a^degree.
    degree = _tidy(math.log10(abs(float(forced[_POSITIVE.index(10.0)]))), sample.base.dtype)
    return degree, _find_break("positive", sample, rows, sample.scales[rows] ** degree)


def _tidy(degree: float, dtype: torch.dtype) -> float:
    """The simple fraction that rounding has hidden, if there is one."""
    near = float(Fraction(degree).limit_denominator(64))
    return near if abs(near - degree) <= 16 * torch.finfo(dtype).eps * max(1.0, abs(degree)) else degree


def _check_sign(sample: _Sample, anchor: int) -> tuple[str, Counterexample | None]:
    """a = -1, for which b can only be -1 (odd) or 1 (even)."""
    mirrored = _mirror(sample)
    forced = mirrored.scaled[:, anchor] / mirrored.base[anchor]
    broken = _find_break("sign", mirrored, slice(None), forced, anchor)
    if broken:
        return "none", broken
    return ("odd" if float(forced) < 0 else "even"), None


def _mirror(sample: _Sample) -> _Sample:
    """sigma(y) beside sigma(-y) for every y at hand: the mirror images of the products a x are among them."""
    half = len(sample.points) // 2  # points are m, -m and 0, see _points
    products = sample.scales[:-1, None] * sample.points[:-1]
    values = sample.scaled[:-1, :-1]
    return _Sample(
        points=torch.cat([sample.points, products.flatten()]),
        scales=sample.scales[-1:],
        base=torch.cat([sample.base, values.flatten()]),
        scaled=torch.cat([sample.scaled[-1], values.roll(half, dims=1).flatten()])[None],
    )


def _check_zero(sample: _Sample) -> tuple[str, Counterexample | None, Counterexample | None]:
    """sigma = 0 at every x: linear (phi(A) = A does as well as any other), unless it is not 0 at some a x."""
    mirrored = _mirror(sample)
    not_positive = _find_break("positive", sample, slice(0, -1), sample.scales[:-1])
    not_sign = _find_break("sign", mirrored, slice(None), mirrored.scales)
    return "none" if not_sign else "odd", not_positive, not_sign


def _decide(name: str, sigma: Scalar, dtype: torch.dtype, n: int | None) -> Intertwiner:
    with torch.device("cpu"):  # also for what sigma creates, whatever the caller's default device
        _refuse_unless_elementwise(name, sigma, dtype)
        sample = _sample(name, sigma, dtype)
    return _judge(name, sample, n)


def _judge(name: str, sample: _Sample, n: int | None) -> Intertwiner:
    at_one, at_zero = float(sample.base[0]), float(sample.base[-1])
    anchor = _find_anchor(sample)
    degree = 1.0
    if anchor is None:
        sign, not_positive, not_sign = _check_zero(sample)
    else:
        degree, not_positive = _check_positive(sample, anchor)
        sign, not_sign = _check_sign(sample, anchor)
    not_linear = _find_break("linear", sample, slice(None), sample.scales)
    scalars = {
        (True, True): "nonzero",
        (True, False): "positive",
        (False, True): "sign",
        (False, False): "none",
    }[not_positive is None, not_sign is None]
    return Intertwiner(
        name=name,
        scalars=scalars,
        linear=not_linear is None and scalars == "nonzero",
        degree=degree if not_positive is None else 0.0,
        sign=sign,
        counterexamples=tuple(c for c in (not_positive, not_sign, not_linear) if c is not None),
        condition_e8=check_e8(at_zero, at_one, n),
        at_zero=at_zero,
        at_one=at_one,
    )
