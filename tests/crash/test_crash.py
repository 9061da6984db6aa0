"""A part of the crash matrix; `python -m tests.crash` is the whole of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
EVERY = 41  # prime to the number of events that one write makes; `make nightly` kills at every event
NAMES = (
    "train", "merge", "merge over old", "merge over old, in steps", "combine over old", "align over old",
    "sweep", "sweep, its workers go on", "coverage", "reproduce",
)  # fmt: skip

pytest.importorskip("lightning_fabric", reason="needs the extra 'train'")


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    """What the matrix says, by scenario; one process that forks."""
    command = [sys.executable, "-m", "tests.crash", "--every", str(EVERY)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.stdout, done.stderr
    return {row["scenario"]: row for row in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("name", NAMES)
def test_a_kill_loses_nothing_and_leaves_nothing(name: str, results: dict[str, dict[str, Any]]) -> None:
    found = results[name]
    assert found["wrong"] == {} and found["kills"] >= max(1, found["events"] // EVERY)


def test_every_scenario_is_asked_for(results: dict[str, dict[str, Any]]) -> None:
    assert set(results) == set(NAMES)
