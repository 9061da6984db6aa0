"""The verdict on a scalar function: plain data that prints, and proves what it denies."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import overload

import torch
from torch import Tensor

from intertwine.errors import InputError
from intertwine.ir.groups import GENERAL, Group

_GROUPS = {
    "none": "permutation",
    "sign": "permutation x sign",
    "positive": "permutation x positive diagonal",
    "nonzero": "permutation x nonzero diagonal",
}


@dataclass(frozen=True)
class Counterexample:
    """sigma(a x) != b sigma(x): why the scalars of a candidate class do not pass through sigma.

    The b is not a guess: sigma(a y) = b sigma(y) at y = `forced_at` leaves no other choice, or, where
    `forced_at` is None, the class itself demands it (b = a for a linear sigma, b = |a|^degree for all a > 0).
    It prints as "x gives lhs != rhs". Where no b will do (sigma(x) = 0 != sigma(a x), or sigma(a x)
    is undefined), b is nan and rhs is sigma(x), and it prints as "x takes rhs to lhs".
    """

    candidate: str
    a: float
    x: float
    b: float
    lhs: float
    rhs: float
    forced_at: float | None = None

    def __str__(self) -> str:
        start = f"a = {self.a:.4g}: "
        if math.isnan(self.b):
            return start + f"x = {self.x:.4g} takes {self.rhs:.4g} to {self.lhs:.4g}, as no b does"
        forced = "" if self.forced_at is None else f"x = {self.forced_at:.4g} forces "
        breaks = f"x = {self.x:.4g} gives {self.lhs:.4g} != {self.rhs:.4g}"
        return start + f"{forced}b = {self.b:.4g}, but {breaks}"


@dataclass(frozen=True)
class Intertwiner:
    """G_sigma and phi_sigma of one scalar function (Godfrey et al. 2022, Definition 3.2 and Theorem E.14).

    scalars: the a with sigma(a x) = b sigma(x) for some b and all x: "none" (only 1), "sign" (1 and -1),
    "positive" or "nonzero". linear: sigma(x) = c x, so that all of GL(n) passes. phi(a) = |a|**degree for
    a > 0, and phi(-1) = -1 if sign is "odd", +1 if "even"; sign is "none" where -1 does not pass.
    counterexamples: one for each of the candidates "positive", "sign", "linear" that fails.
    condition_e8: eq. E.8, sigma(I_n) is invertible, for the n asked for or for every n >= 2.
    """

    name: str
    scalars: str
    linear: bool
    degree: float
    sign: str
    counterexamples: tuple[Counterexample, ...]
    condition_e8: bool
    at_zero: float
    at_one: float

    @property
    def group(self) -> Group:
        """G_sigma, as a value that compares with the group of any axis.

        >>> from intertwine.activations import intertwiner
        >>> intertwiner("relu").group <= intertwiner("identity").group, str(intertwiner("relu").group)
        (True, 'positive monomial')
        """
        if self.linear:
            return Group(linear=GENERAL)
        positive, sign = self.scalars in ("positive", "nonzero"), self.scalars in ("sign", "nonzero")
        return Group(permutation=True, positive=int(positive), sign=int(sign))

    @property
    def group_text(self) -> str:
        """G_sigma as Table 1 writes it."""
        return "GL(n)" if self.linear else _GROUPS[self.scalars]

    @property
    def phi_text(self) -> str:
        """The human form of phi_sigma, as in the last column of Table 1."""
        d = f"{self.degree:.6g}"
        if self.linear or self.scalars == "none" or (self.scalars == "sign" and self.sign == "odd"):
            return "phi(A) = A"
        if self.scalars == "sign":
            return "phi(A) = abs(A)"
        if self.degree == 0:
            return "phi(PD) = P sign(D)" if self.sign == "odd" else "phi(PD) = P"
        if self.scalars == "positive" or (self.sign, self.degree % 2) in {("odd", 1), ("even", 0)}:
            return "phi(A) = A" if self.degree == 1 else f"phi(A) = A^{d} entrywise"
        power = "" if self.degree == 1 else f"^{d} entrywise"
        return f"phi(A) = {'sign(A) ' if self.sign == 'odd' else ''}abs(A){power}"

    @overload
    def phi(self, a: float) -> float: ...
    @overload
    def phi(self, a: Tensor) -> Tensor: ...
    def phi(self, a: float | Tensor) -> float | Tensor:
        """The b with sigma(a x) = b sigma(x), entry by entry; an a outside the group is refused.

        >>> from intertwine.activations import intertwiner
        >>> intertwiner("x**2").phi(-3.0)
        9.0
        """
        values = a if isinstance(a, Tensor) else torch.tensor(a, dtype=torch.float64, device="cpu")
        self._refuse_outside(values)
        magnitude = values.abs() ** self.degree if self.degree else torch.ones_like(values)
        result = torch.where(values < 0, -magnitude, magnitude) if self.sign == "odd" else magnitude
        return result if isinstance(a, Tensor) else float(result)

    def check_e8(self, n: int | None = None) -> bool:
        """(E.8): sigma(1) != sigma(0) and sigma(1) != -(n-1) sigma(0), for one n or for every n >= 2."""
        return check_e8(self.at_zero, self.at_one, n)

    def _refuse_outside(self, values: Tensor) -> None:
        member = {
            "none": values == 1,
            "sign": values.abs() == 1,
            "positive": values > 0,
            "nonzero": values != 0,
        }
        inside = member[self.scalars] & values.isfinite()
        if not bool(inside.all()):
            bad = float(values[~inside].flatten()[0])
            proof = next((str(c) for c in self.counterexamples if c.candidate != "linear"), "")
            raise InputError(f"{bad:g} does not pass through {self.name}", where=self.group_text, so=proof)

    def __str__(self) -> str:
        return f"{self.name}: {self.group_text}, {self.phi_text}"


def check_e8(at_zero: float, at_one: float, n: int | None = None) -> bool:
    """(E.8): sigma(1) != sigma(0) and sigma(1) != -(n-1) sigma(0); n None asks for every n >= 2.

    >>> check_e8(0.0, 1.0), check_e8(1.0, 1.0), check_e8(1.0, -2.0), check_e8(1.0, -2.0, n=2)
    (True, False, False, True)
    """
    if n is not None and n < 1:
        raise InputError(f"condition (E.8) needs n >= 1, not {n}")
    if not (math.isfinite(at_zero) and math.isfinite(at_one)):
        return False  # sigma(I_n) does not exist
    scale = max(abs(at_zero), abs(at_one))
    if math.isclose(at_one, at_zero, rel_tol=0, abs_tol=1e-12 * scale):
        # An eigenvalue of multiplicity n - 1: absent for n = 1, where only sigma(1) != 0 counts.
        return n == 1 and at_one != 0
    if at_zero == 0:
        return True
    ratio = -at_one / at_zero
    excluded = max(round(ratio), 1) if n is None else n - 1
    return not math.isclose(ratio, excluded, rel_tol=1e-12, abs_tol=1e-12)
