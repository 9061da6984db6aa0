"""Packages of others that would report their use to their makers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from intertwine.foreign import report_nothing

_CODE = "from intertwine.foreign import report_nothing; report_nothing(); import onnxruntime"


def test_onnxruntime_keeps_no_number_of_the_machine(tmp_path: Path) -> None:
    """It writes one into the home folder when it is imported, unless it was told before."""
    pytest.importorskip("onnxruntime")
    telling = ("ORT_DISABLE_TELEMETRY", "CI", "GITHUB_ACTIONS", "TF_BUILD")  # what else would keep it quiet
    environment = {name: value for name, value in os.environ.items() if name not in telling}
    environment |= {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / ".cache")}
    subprocess.run([sys.executable, "-c", _CODE], env=environment, check=True)
    assert not list(tmp_path.rglob("deviceid"))


def test_who_wants_to_report_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "0")
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    report_nothing()
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "0"
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
