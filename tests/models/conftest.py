"""Markers of the table of real architectures."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes more than some twenty seconds on one core")
