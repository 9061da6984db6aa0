"""The oracle lies beside the tests of this folder, and rules are held against the graphs that users get."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuzz.fast_export import in_all_passes

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def the_graphs_of_torch() -> Iterator[None]:
    with in_all_passes():
        yield
