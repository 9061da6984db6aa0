"""The device comes from the model: what a GPU refuses (operands on two devices, numpy of what lies elsewhere,
the CPU's generator) no verb asks of it. Where there is no GPU, torch gets a device that refuses the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.device.elsewhere import COMPILER, build


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler: apt-get install g++")
def test_every_verb_stays_on_the_device_of_the_model(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.device.verbs", str(build(tmp_path))],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) > 60
    wrong = {name: said for name, said in found.items() if said}
    assert not wrong, "\n".join(f"{name}: {said}" for name, said in wrong.items())
