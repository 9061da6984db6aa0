"""A run that is killed with SIGKILL, wherever it stands, goes on with the same command to the same bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from intertwine import zoo
from intertwine.errors import ProcessDied
from intertwine.training import processes, read_metrics

RECIPE = """
epochs: 4
batch: 32
optimizer: {name: sgd, learning_rate: 0.05, momentum: 0.9, nesterov: true, weight_decay: 0.0005}
schedule: {kind: one-cycle, warmup: 0.3}
augment: {translate: 1}
checkpoints: [0, 2, 4]
keep: best
"""
# One process a run, forked from a process that has imported everything and computed nothing. A run dies by
# a real SIGKILL: its own in the n-th write of a checkpoint, when half of the file is on the disk, or its
# parent's once the journal has two epochs.
DRIVER = """
import json, os, signal, sys, time
from pathlib import Path
import lightning_fabric
from intertwine.cli import main
from intertwine.training import read_metrics, train

def run(folder, fatal=0, seconds=300.0):
    train.__wrapped__.__kwdefaults__["save_seconds"] = seconds
    writes, real = 0, os.fsync
    def fsync(handle):
        nonlocal writes
        writes += os.fstat(handle).st_size > 10_000
        if 0 < writes == fatal:
            os.truncate(os.readlink(f"/proc/self/fd/{handle}"), 4321)
            os.kill(os.getpid(), signal.SIGKILL)
        real(handle)
    os.fsync = fsync
    command = ["train", "digits-vgg", "--data", "digits", "--recipe", sys.argv[1], "--threads", "1"]
    command += ["--train-limit", "480"]
    os._exit(main([*command, "-o", str(folder)]))

def launch(folder, **how):
    child = os.fork()
    if not child:
        try:
            run(folder, **how)
        finally:
            os._exit(70)
    return child

def wait(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

root = Path(sys.argv[2])
codes = {"whole": [wait(launch(root / "whole"))], "inside": [], "outside": []}
while len(codes["inside"]) < 8 and 0 not in codes["inside"]:
    codes["inside"].append(wait(launch(root / "inside", fatal=19, seconds=0.0)))
child = launch(root / "outside", seconds=0.05)
ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
while len(read_metrics(root / "outside")) < 2 and os.waitid(os.P_PID, child, ended) is None:
    time.sleep(0.005)
os.kill(child, signal.SIGKILL)
finished = (root / "outside" / "model.safetensors").exists()
codes["outside"] = [wait(child), finished, wait(launch(root / "outside"))]
(root / "codes.json").write_text(json.dumps(codes))
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of a run that nobody interrupted and of two that were killed, with their exit codes."""
    root = tmp_path_factory.mktemp("killed")
    (root / "r.yml").write_text(RECIPE)
    command = [sys.executable, "-c", DRIVER, str(root / "r.yml"), str(root)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return root


def codes(root: Path) -> dict[str, list[Any]]:
    return json.loads((root / "codes.json").read_text())  # type: ignore[no-any-return]


def assert_same_end(folder: Path, whole: Path) -> None:
    files = ["model.safetensors", "best.safetensors", "state.safetensors"]
    files += [f"checkpoints/epoch-{epoch:04d}.safetensors" for epoch in (0, 2, 4)]
    for name in files:
        ours, theirs = zoo.read_weights(folder / name), zoo.read_weights(whole / name)
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            assert torch.equal(ours[key], value), (name, key)
    timeless = [[{**row, "images_per_second": 0} for row in read_metrics(f)] for f in (folder, whole)]
    assert timeless[0] == timeless[1] and len(timeless[0]) == 4
    assert not [p for p in folder.rglob("*") if p.name.startswith(".")]


def test_kill_in_the_middle_of_checkpoint_writes(killed: Path) -> None:
    """Every start dies in its 19th write (mostly a state within an epoch) until one gets to the end."""
    assert codes(killed)["whole"] == [0]
    found = codes(killed)["inside"]
    assert found[-1] == 0 and found.count(-9) == len(found) - 1 >= 3
    assert_same_end(killed / "inside", killed / "whole")


def test_kill_from_outside(killed: Path) -> None:
    assert codes(killed)["outside"] == [-9, False, 0]
    assert_same_end(killed / "outside", killed / "whole")


@pytest.mark.parametrize("code", ["os.kill(os.getpid(), 9)", "sys.exit(0)"])
def test_a_process_that_dies_ends_all_with_an_error_of_ours(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what it broke torch raises anything; if nobody died, that is what is told."""
    monkeypatch.setattr(processes, "_command", lambda: [sys.executable, "-c", f"import os, sys; {code}"])
    monkeypatch.setattr(processes, "_LOOK", 0.01)
    monkeypatch.setattr(processes, "_NOTICE", 20.0 if "kill" in code else 0.05)
    before = dict(os.environ)
    with pytest.raises((ProcessDied, ZeroDivisionError)) as raised, processes.together(2):
        assert os.environ["LOCAL_RANK"] == "0" and os.environ["WORLD_SIZE"] == "2"
        raise ZeroDivisionError("Connection closed by peer")
    assert dict(os.environ) == before
    if "kill" in code:
        assert raised.value.exit_code == 1 and "process 2 of 2 was ended by SIGKILL" in str(raised.value)
    else:
        assert raised.type is ZeroDivisionError
