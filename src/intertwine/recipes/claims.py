"""What a source says, as a test on the numbers that came out; the verdict is decided here and nowhere else.

agrees          the test passes in the source's own setting, or the setting does not matter (a theorem)
agrees in kind  it passes on other nets or other data, or the direction holds and the number does not
not reproduced  it fails, or the uncertainty is too large to decide it
not run         there is no number to test
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from intertwine.comparing.statistics import Interval


class Verdict(StrEnum):
    """The four words of a verdict."""

    AGREES = "agrees"
    IN_KIND = "agrees in kind"
    NOT_REPRODUCED = "not reproduced"
    NOT_RUN = "not run"


_WORST_FIRST = (Verdict.NOT_REPRODUCED, Verdict.IN_KIND, Verdict.AGREES)


@dataclass(frozen=True)
class Claim:
    """One sentence or number of a source, what came out, and what must hold of it.

    what: the quantity. test: the predicate in words. anywhere: it does not depend on nets or data, so passing
    it in another setting counts in full. why: the best explanation of one that fails.
    """

    what: str
    source: str
    here: str
    test: str
    verdict: Verdict
    why: str = ""
    anywhere: bool = False

    def in_setting(self, own: bool) -> Claim:
        """The claim as tested in the source's own setting or in another, where agreement is one in kind.

        >>> holds("a", "b", "c", "d", True).in_setting(own=False).verdict
        <Verdict.IN_KIND: 'agrees in kind'>
        """
        if own or self.anywhere or self.verdict != Verdict.AGREES:
            return self
        return replace(self, verdict=Verdict.IN_KIND)

    def to_dict(self) -> dict[str, str]:
        """Plain data for JSON."""
        row = {"what": self.what, "source": self.source, "here": self.here, "test": self.test}
        return {**row, "verdict": str(self.verdict), "why": self.why}


def holds(
    what: str, source: str, here: str, test: str, passed: bool | None, *, why: str = "",
    anywhere: bool = False,
) -> Claim:  # fmt: skip
    """A claim whose test came out as `passed`; None where it could not be made."""
    if passed is None:
        verdict = Verdict.NOT_RUN
    else:
        verdict = Verdict.AGREES if passed else Verdict.NOT_REPRODUCED
    return Claim(what, source, here, test, verdict, why if passed is False else "", anywhere)


def number(
    what: str, said: float, found: Interval | float | None, *, source: str = "", within: float = 0.0,
    factor: float | None = None, unit: str = "", why: str = "", anywhere: bool = False,
) -> Claim:  # fmt: skip
    """A number of the source: it lies in our interval (or within `within` of our number), or only in sign.

    factor: for a quantity that cannot be negative, whose sign says nothing: in kind within this factor.

    >>> from intertwine.comparing.statistics import Interval
    >>> number("rho", -0.72, Interval(-0.5, -0.6, -0.4)).verdict.value
    'agrees in kind'
    >>> number("rho", 0.58, Interval(0.5, -0.1, 0.7)).here, number("rho", 0.58, None).verdict.value
    ('0.5 [-0.1, 0.7]: the interval holds 0', 'not run')
    >>> number("JSD", 0.29, 0.51, within=0.05, factor=1.5).verdict.value
    'not reproduced'
    """
    source = source or f"{said:g}{unit}"
    kind = "the sign" if factor is None else f"within a factor of {factor:g}"
    test = f"{said:g} lies in the interval; in kind: {kind}, and the interval holds no 0"
    if isinstance(found, (int, float)):
        test = f"{said:g} within {within:g}; in kind: {kind}"
    if found is None or math.isnan(_value(found)):
        return Claim(what, source, "-", test, Verdict.NOT_RUN, anywhere=anywhere)
    value, low, high = _value(found), _low(found, within), _high(found, within)
    text, verdict = shown(found) + unit, Verdict.IN_KIND
    if math.isnan(low) or math.isnan(high):
        text, verdict = f"{text}: too few seeds for an interval", Verdict.NOT_RUN
    elif low <= 0 <= high and said:
        text, verdict = f"{text}: the interval holds 0", Verdict.NOT_REPRODUCED
    elif value * said < 0:
        text, verdict = f"{text}: the opposite sign", Verdict.NOT_REPRODUCED
    elif low <= said <= high:
        verdict = Verdict.AGREES
    elif factor is not None and not said / factor <= value <= said * factor:
        verdict = Verdict.NOT_REPRODUCED
    else:
        text = f"{text}: {'weaker' if abs(value) < abs(said) else 'stronger'} than the source"
    why = why if verdict == Verdict.NOT_REPRODUCED else ""
    return Claim(what, source, text, test, verdict, why, anywhere)


def above(
    what: str, source: str, differences: Sequence[Interval | float | None], *, margin: float = 0.0,
    names: Iterable[str] = (), unit: str = "", why: str = "", anywhere: bool = False,
) -> Claim:  # fmt: skip
    """Every difference lies above `margin` with its whole interval; none without an interval is decided.

    >>> from intertwine.comparing.statistics import Interval
    >>> above("gap", "larger", [Interval(0.2, 0.1, 0.3), Interval(0.1, -0.1, 0.3)]).verdict.value
    'not reproduced'
    >>> above("gap", "larger", [Interval(0.2, float("nan"), float("nan"))]).verdict.value
    'not run'
    """
    known = [d for d in differences if d is not None]
    labels = list(names) or [""] * len(known)
    text = ", ".join(f"{n} {shown(d)}{unit}".strip() for n, d in zip(labels, known, strict=True)) or "-"
    test = f"every interval lies above {margin:g}{unit}"
    if not known or any(math.isnan(_low(d)) for d in known):
        return holds(what, source, text, test, None, anywhere=anywhere)
    good = sum(_low(d) > margin for d in known)
    if len(known) > 1:
        text = f"{good} of {len(known)}: {text}"
    return holds(what, source, text, test, good == len(known), why=why, anywhere=anywhere)


def verdict_of(claims: Iterable[Claim]) -> Verdict:
    """The worst verdict among the claims that were run; not run if none was.

    >>> a, b = (holds("", "", "", "", passed) for passed in (True, None))
    >>> verdict_of([a, b]).value, verdict_of([b]).value
    ('agrees', 'not run')
    """
    given = {claim.verdict for claim in claims}
    return next((verdict for verdict in _WORST_FIRST if verdict in given), Verdict.NOT_RUN)


def mean_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """The mean of independent values with Student's interval; bounds are NaN for fewer than three.

    >>> found = mean_interval([1.0, 2.0, 3.0])
    >>> round(found.value, 2), round(found.high, 2)
    (2.0, 4.48)
    """
    import numpy as np
    from scipy.stats import t

    from intertwine.comparing.statistics import Interval

    mean, n = float(np.mean(values)), len(values)
    if n < 3:
        return Interval(mean, math.nan, math.nan, level)
    half = float(np.std(values, ddof=1) / n**0.5 * t.ppf((1 + level) / 2, n - 1))
    return Interval(mean, mean - half, mean + half, level)


def share_interval(share: float, n: int, level: float = 0.95) -> Interval:
    """Wilson's interval of a share of `n` cases, an accuracy on n test inputs for one.

    >>> found = share_interval(0.9, 100)
    >>> round(found.low, 3), round(found.high, 3)
    (0.826, 0.945)
    """
    from scipy.stats import norm

    from intertwine.comparing.statistics import Interval

    z = float(norm.ppf((1 + level) / 2))
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * (share * (1 - share) / n + z * z / (4 * n * n)) ** 0.5
    return Interval(share, middle - half, middle + half, level)


def shown(found: Interval | float) -> str:
    """A number, with its interval where it has one."""
    if isinstance(found, (int, float)):
        return f"{found:.3g}"
    return f"{found.value:.3g}" + ("" if math.isnan(found.low) else f" [{found.low:.3g}, {found.high:.3g}]")


def _value(found: Interval | float) -> float:
    return float(found) if isinstance(found, (int, float)) else found.value


def _low(found: Interval | float, within: float = 0.0) -> float:
    return found - within if isinstance(found, (int, float)) else found.low


def _high(found: Interval | float, within: float = 0.0) -> float:
    return found + within if isinstance(found, (int, float)) else found.high
