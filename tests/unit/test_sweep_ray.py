"""The same sweep in two worker processes, of Ray and of joblib; a worker or the driver is killed half-way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from intertwine.sweeping import parse_sweep, read_table, run_sweep

pytest.importorskip("ray", reason="needs ray: pip install 'intertwine[distributed]'")

RECIPE = "epochs: 6\nbatch: 16\noptimizer: {name: sgd, learning_rate: 0.05, momentum: 0.9}\n"
TEXT = """
data: digits
train: {models: [mlp], seeds: 0-2, recipe: r.yml}
compare: {measures: [cka, procrustes-grelu], inputs: 90, shards: 2}
"""
# Ray gives its workers the lowest priority unless told otherwise; the test would only take longer.
ENVIRONMENT = {**os.environ, "RAY_worker_niceness": "0", "RAY_DEDUP_LOGS": "0"}


def victim(folder: Path, runner: subprocess.Popen[str]) -> int:
    """The process id of a worker in the middle of its training: it has finished an epoch and not the last."""
    while runner.poll() is None:
        for state in folder.glob("results/*/run/state.safetensors"):
            if not (state.parent / "model.safetensors").exists():
                return int((state.parent / ".lock").read_text())
        time.sleep(0.01)
    raise AssertionError(f"the sweep ended before a worker could be killed: {runner.communicate()}")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The table of the same sweep, in one process."""
    folder = write_sweep(tmp_path_factory.mktemp("sweep"))
    report = run_sweep(parse_sweep(TEXT, folder=folder), folder / "here", jobs=1)
    assert not report.failed
    return read_table(folder / "here")


def write_sweep(folder: Path) -> Path:
    (folder / "r.yml").write_text(RECIPE)
    (folder / "s.yml").write_text(TEXT)
    return folder


def start(folder: Path, backend: str) -> subprocess.Popen[str]:
    """`intertwine sweep` with two worker processes."""
    run = "import sys; from intertwine.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", run, "sweep", str(folder / "s.yml"), "-o", str(folder / "out")]
    command += ["--backend", backend, "--jobs", "2", "--json"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=ENVIRONMENT)


def test_a_killed_worker_loses_nothing(tmp_path: Path, undisturbed: Any) -> None:
    with start(write_sweep(tmp_path), "ray") as runner:
        killed = victim(tmp_path / "out", runner)
        assert killed != runner.pid
        os.kill(killed, signal.SIGKILL)
        out, err = runner.communicate()
    assert runner.returncode == 0, err
    report = json.loads(out)
    assert report["failed"] == {} and report["ran"] == report["tasks"] == 3 + 3 * 2 + 3
    assert read_table(tmp_path / "out").equals(undisturbed)


@pytest.mark.nightly
@pytest.mark.parametrize("backend", ["joblib", "ray"])
def test_a_killed_driver_loses_nothing(backend: str, tmp_path: Path, undisturbed: Any) -> None:
    """Its workers may still be writing when the same command is given again. By day the scenarios of a sweep
    in tests/crash kill it too, without two processes that import torch each time."""
    with start(write_sweep(tmp_path), backend) as runner:
        victim(tmp_path / "out", runner)
        runner.kill()
        runner.stdout.close()  # type: ignore[union-attr]  # the workers have the other end
        runner.stderr.close()  # type: ignore[union-attr]
        runner.wait()
    with start(tmp_path, backend) as runner:
        out, err = runner.communicate()
    assert runner.returncode == 0, err
    assert json.loads(out)["failed"] == {}
    assert read_table(tmp_path / "out").equals(undisturbed)
    assert not [p for p in (tmp_path / "out").rglob("*") if ".tmp" in p.name or p.name.endswith(".lock")]
