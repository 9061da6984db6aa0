"""The device comes from the model: what a GPU refuses (operands on two devices, numpy of what lies elsewhere,
the CPU's generator) no verb asks of it. Where there is no GPU, torch gets a device that refuses the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.device.elsewhere import COMPILER, build

# By day: what needs no data, and data on the CPU, as most loaders give it.
WHERE = [
    pytest.param(("data there",), id="data there", marks=pytest.mark.nightly),
    pytest.param(("alone", "data cpu"), id="data on the CPU"),
]
# By day: of each kind of arithmetic one.
FEW = ("verify", "isomorphism", "merge ifm", "merge text", "compare", "attribute", "zip", "layerwise")


def wrong(*arguments: str) -> dict[str, str]:
    """Case -> what went wrong, in a process of its own: a device is made known for good."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.device.verbs", *arguments],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},  # threads that wait, spin
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    assert len(found) >= 10
    return {name: said for name, said in found.items() if said}


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler: apt-get install g++")
@pytest.mark.parametrize("where", WHERE)
def test_every_verb_stays_on_the_device_of_the_model(tmp_path: Path, where: tuple[str, ...]) -> None:
    assert not wrong(str(build(tmp_path)), "float32", *where)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "words"),
    [
        pytest.param("bfloat16", FEW, id="bfloat16"),
        pytest.param("bfloat16", (), id="bfloat16, all", marks=pytest.mark.nightly),
        pytest.param("float16", (), id="float16, all", marks=pytest.mark.nightly),
    ],
)
def test_every_verb_takes_half_precision_or_says_that_it_does_not(dtype: str, words: tuple[str, ...]) -> None:
    said = wrong("cpu", dtype, *words)
    assert set(said) <= {"stitch, data there", "rotate, data there"}, said  # they train
    assert all("do call float() on it" in text for text in said.values())
