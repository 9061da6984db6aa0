"""How many random examples a test draws: a few with `make test`, all of them with `make nightly`."""

from __future__ import annotations

import os

ALL = os.environ.get("INTERTWINE_ALL_TESTS") == "1"  # set by conftest.py where pytest is given --all


def examples(usual: int, nightly: int) -> int:
    """The number for `max_examples`."""
    return nightly if ALL else usual
