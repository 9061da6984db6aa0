"""No program of `known` gets a wrong symmetry or a crash, at any size, with the proof switched off."""

from __future__ import annotations

import pytest

from .check import check
from .fast_export import in_one_pass
from .known import KNOWN, PROGRAMS

LONG = ("hundreds of unbound entries",)  # nightly


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.nightly if n in LONG else ()) for n in KNOWN]
)
def test_a_known_program_is_exact_or_frozen(name: str) -> None:
    with in_one_pass():
        result = check(*KNOWN[name](), elements=4)
    assert not result.failed, (
        f"{result.verdict} at {result.size}: {result.error:.1e} {result.detail}\n{PROGRAMS[name].short()}"
    )
