"""inspect, verify and demo as a user calls them: output, exit codes, helpful errors, nothing half-written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from intertwine.cli import main
from intertwine.zoo import build


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(list(argv))
    out = capsys.readouterr()
    return code, out.out, out.err


def test_inspect_json_has_the_documented_keys(capsys):
    code, out, _ = run(capsys, "inspect", "zoo:digits-vgg", "--json")
    axes = json.loads(out)["axes"]
    assert code == 0
    assert set(axes[0]) == {"name", "size", "group", "members", "mergeable", "frozen_because"}
    assert {"param": "features.0.weight", "dim": 0, "role": "out"} in axes[0]["members"]
    assert axes[0]["group"] == "monomial (2 scalings, 1 sign)"
    assert axes[-1]["frozen_because"].startswith("it is an output")


def test_inspect_table_and_explanation(capsys):
    code, out, _ = run(capsys, "inspect", "zoo:digits-vgg")
    assert code == 0 and "features.0" in out
    code, out, _ = run(capsys, "inspect", "zoo:digits-vgg", "--explain", "features.0")
    assert code == 0 and "tied by conv2d.default at features.0" in out


def test_inspect_page(capsys, tmp_path):
    target = tmp_path / "page.html"
    code, _, _ = run(capsys, "inspect", "zoo:mlp", "-o", str(target))
    assert code == 0 and "The network as a map" in target.read_text()


def test_verify_json(capsys):
    code, out, _ = run(capsys, "verify", "zoo:digits-vgg", "--weights", "shipped:0", "--json")
    report = json.loads(out)
    assert code == 0
    assert report["max_error"] <= 1e-10 <= 1e-4 <= report["control_error"]
    assert report["parameter_coverage"] >= 0.95 and report["dtype"] == "float64"
    assert set(report["seconds"]) == {"export", "infer", "verify"}
    assert {"axes", "channels", "frozen_channels", "unknown_ops"} <= set(report)


def test_a_wrong_symmetry_gives_exit_code_1(capsys, monkeypatch):
    from intertwine.activations import intertwiner
    from intertwine.rules import pointwise

    monkeypatch.setattr(pointwise, "_measured", lambda *args: intertwiner("identity"))
    code, out, _ = run(capsys, "verify", "zoo:mlp", "--json")
    assert code == 1 and json.loads(out)["verdict"] == "wrong"


@pytest.mark.parametrize(
    ("argv", "code", "text"),
    [
        (["verify", "zoo:nothing"], 2, "the zoo has no model 'nothing'"),
        (["verify", "zoo:mlp", "--weights", "missing.safetensors"], 2, "missing.safetensors"),
        (["verify", "zoo:lenet5", "--input", "1x4x9x9"], 2, "does not run on the example"),
        (["inspect", "zoo:mlp", "--explain", "nope"], 2, "no axis named 'nope'"),
    ],
)
def test_bad_input_says_what_and_where(capsys, argv, code, text):
    got, out, err = run(capsys, *argv)
    assert got == code and text in " ".join(err.split()) and "Traceback" not in err and not out


def test_nan_weights_are_refused(capsys, tmp_path):
    state = build("mlp").state_dict()
    first = next(iter(state))
    save_file({**state, first: torch.full_like(state[first], float("nan"))}, tmp_path / "nan.safetensors")
    code, _, err = run(capsys, "verify", "zoo:mlp", "--weights", str(tmp_path / "nan.safetensors"))
    assert code == 2 and first in err


def test_a_model_that_cannot_be_exported_is_unsupported(capsys, tmp_path):
    (tmp_path / "m.py").write_text(
        "import torch\n"
        "class M(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x if x.sum() > 0 else -x\n"
        "def make():\n"
        "    return M(), (torch.ones(2, 3),)\n"
    )
    code, _, err = run(capsys, "inspect", f"{tmp_path / 'm.py'}:make")
    assert code == 3 and "torch.export cannot trace" in err


def test_demo_writes_the_report(capsys, tmp_path):
    target = tmp_path / "report.html"
    code, out, err = run(capsys, "demo", "-o", str(target), "--json")
    summary = json.loads(out)
    assert code == 0 and "wrote" in err
    before, after = summary["accuracy before and after acting"].split(" and ")
    assert before == after
    assert target.stat().st_size > 500_000, "the plotting library is embedded"
    assert not list(Path(tmp_path).glob(".report*"))


def test_the_package_runs_as_a_module():
    # In a process of its own: run here, it would depend on what other tests have imported.
    import subprocess
    import sys

    command = [sys.executable, "-m", "intertwine", "activations", "relu"]
    left = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert left.returncode == 0 and "relu" in left.stdout and not left.stderr
