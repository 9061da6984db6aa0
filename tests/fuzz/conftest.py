"""Every test of this folder exports fast, on one thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from .fast_export import fast_export


@pytest.fixture(autouse=True, scope="module")
def _fast() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with fast_export():
        yield
    torch.set_num_threads(threads)
