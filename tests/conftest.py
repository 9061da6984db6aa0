"""Fixtures that several test folders share."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from intertwine.data import Dataset

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test reaches for the network
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started behind `&` in a script; tests send it
    signal.signal(signal.SIGINT, signal.default_int_handler)
ROOT = Path(__file__).resolve().parents[1]

# No test depends on time: on a busy machine an example may take any number of seconds.
settings.register_profile("any time", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any time")

STARTED = ExitStack()  # kept: what a generator put in place goes with it
SLOW = frozenset((ROOT / "tests" / "slow.txt").read_text().split())  # written by scripts/list_slow_tests.py


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="also what only `make nightly` runs")


def pytest_configure(config: pytest.Config) -> None:
    """Test modules ask for the number of their examples when they are imported."""
    if config.getoption("--all"):
        os.environ["INTERTWINE_ALL_TESTS"] = "1"
    if "PYTEST_XDIST_WORKER" in os.environ or not config.getoption("numprocesses", None):
        _start_to_test()


def _start_to_test() -> None:
    """In every process that runs tests; the one that deals them out to others waits for no torch."""
    import torch

    from export_once import exporting_once
    from fuzz.fast_export import install

    if "PYTEST_XDIST_WORKER" in os.environ:
        # the workers already use every core; threads inside them only get in each other's way
        torch.set_num_threads(1)
    # Thousands of exports of small models, many of them equal; fuzz/test_fuzz.py holds them to torch's own.
    install()
    STARTED.enter_context(exporting_once())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What took long is marked `slow`, so that `make check` can leave it out; more of the same is left to
    `make nightly`."""
    for item in items:
        if item.nodeid.partition("[")[0] in SLOW:
            item.add_marker(pytest.mark.slow)
    if not config.getoption("--all"):
        left = [item for item in items if item.get_closest_marker("nightly")]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Sums have one order, and small convolutions on a busy machine do not wait for each other."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """No figure is drawn by a browser: as where kaleido is not installed."""
    from intertwine.errors import MissingExtra
    from intertwine.pages import png

    def refuse(*args: object, **kwargs: object) -> None:
        raise MissingExtra("no PNG in this test")

    monkeypatch.setattr(png, "write_png", refuse)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real data and checkpoints beside the checkout; tests that need them skip where they are absent."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("needs real data: ../shared/data (beside the checkout) is absent")
    return folder


@pytest.fixture(scope="session")
def cifar10_test(shared_data: Path) -> Callable[..., Dataset]:
    """`cifar10_test(normalize="cifar10", limit=2000)`: real CIFAR-10 test images."""
    path = shared_data / "cifar10" / "test.parquet"
    if not path.is_file():
        pytest.skip("needs real data: ../shared/data/cifar10/test.parquet is absent")

    def load(normalize: str = "cifar10", limit: int | None = 2000) -> Dataset:
        from intertwine.data import load_data

        return load_data(f"parquet:{path}", normalize=normalize, limit=limit)

    return load
