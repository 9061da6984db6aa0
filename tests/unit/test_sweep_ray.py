"""The same sweep on a real Ray cluster of two worker processes, one of which is killed half-way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from intertwine.sweep import parse_sweep, read_table, run_sweep

pytest.importorskip("ray", reason="needs ray: pip install 'intertwine[distributed]'")

RECIPE = "epochs: 6\nbatch: 16\noptimizer: {name: sgd, learning_rate: 0.05, momentum: 0.9}\n"
TEXT = """
data: digits
train: {models: [mlp], seeds: 0-3, recipe: r.yml}
compare: {measures: [cka, procrustes-grelu], inputs: 90, shards: 3}
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


def test_a_killed_worker_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "r.yml").write_text(RECIPE)
    (tmp_path / "s.yml").write_text(TEXT)
    start = "import sys; from intertwine.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", start, "sweep", str(tmp_path / "s.yml"), "-o", str(tmp_path / "ray")]
    command += ["--backend", "ray", "--jobs", "2", "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": ENVIRONMENT}
    with subprocess.Popen(command, **pipes) as runner:  # type: ignore[call-overload]
        killed = victim(tmp_path / "ray", runner)
        assert killed != runner.pid
        os.kill(killed, signal.SIGKILL)
        out, err = runner.communicate()
    assert runner.returncode == 0, err
    report = json.loads(out)
    assert report["failed"] == {} and report["ran"] == report["tasks"] == 4 + 6 * 3 + 6
    here = run_sweep(parse_sweep(TEXT, folder=tmp_path), tmp_path / "here", jobs=1)
    assert not here.failed
    assert read_table(tmp_path / "ray").equals(read_table(tmp_path / "here"))
