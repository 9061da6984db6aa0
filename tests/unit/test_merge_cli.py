"""intertwine merge: keys of the report, OUT, and messages instead of tracebacks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from intertwine.cli import main

BASE = ["merge", "zoo:digits-vgg", "--weights", "shipped:0"]
KEYS = {
    "parameters_before",
    "parameters_after",
    "flops_before",
    "flops_after",
    "complexity",
    "merges",
    "accuracy_before",
    "accuracy_after",
    "seconds",
}


def test_report_and_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, plan = tmp_path / "out", tmp_path / "plan.json"
    goal = ["--target-params", "0.5", "--data", "digits", "--limit", "100"]
    assert main([*BASE, *goal, "-o", str(out), "--plan", str(plan), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report) >= KEYS
    assert report["parameters_after"] <= 0.5 * report["parameters_before"]
    assert report["flops_after"] < report["flops_before"]
    assert report["accuracy_after"] > 0.9
    assert sorted(p.name for p in out.iterdir()) == ["recipe.json", "weights.safetensors"]
    recipe = json.loads((out / "recipe.json").read_text())
    assert recipe["source"] == "zoo:digits-vgg" and recipe["widths"] == report["complexity"]
    assert json.loads(plan.read_text())["method"] == "moments"


def test_the_papers_method_and_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*BASE, "--paper", "--betas", "0.2,0.6", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["sweep"]
    assert [r["beta"] for r in rows] == [0.2, 0.6]
    assert rows[0]["parameters_after"] > rows[1]["parameters_after"]
    assert {r["method"] for r in rows} == {"ifm"}


def test_max_drop(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*BASE, "--max-drop", "0.02", "--data", "digits", "--limit", "200", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["accuracy_after"] >= report["accuracy_before"] - 0.02
    assert report["parameters_after"] < 0.9 * report["parameters_before"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--beta", "1.5"], "not a number from 0 to 1"),
        (["--axes", "nothing*"], "no axis matches"),
        (["--target-params", "0.0001"], "cannot be reached"),
        (["--max-drop", "0.1"], "needs data"),
        (["--repair", "data"], "needs data"),
        (["--betas", "a,b"], "'a' is not a number from 0 to 1"),
        (["--betas", "-o", "x"], "makes many models"),
    ],
)
def test_errors(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*BASE, *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and "Traceback" not in captured.err
    assert captured.out == ""


def test_the_data_say_what_a_model_of_a_file_takes(tmp_path, capsys):
    """A factory that returns the model alone, no --input: what a new user types first."""
    layers = "nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)"
    code = f"from torch import nn\ndef make():\n    return nn.Sequential({layers})\n"
    (tmp_path / "net.py").write_text(code)
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "t.npz", x=rng.normal(size=(12, 5)).astype("float32"), y=rng.integers(0, 3, 12))
    out, page = tmp_path / "small", tmp_path / "lost.html"
    words = ["merge", f"{tmp_path}/net.py:make", "--data", f"npz:{tmp_path}/t.npz", "--target-params", "0.8"]
    assert main([*words, "-o", str(out), "--page", str(page)]) == 0
    assert "wrote" in capsys.readouterr().out and page.exists()
    assert json.loads((out / "recipe.json").read_text())["input"] == "1x5"
