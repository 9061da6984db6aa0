"""The recipes of attribution and dissection: on what ships, and on a net trained for one epoch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from intertwine.cli import main
from intertwine.inside import Dissection, LayerReading
from intertwine.recipes import dissected, dissection

pytestmark = pytest.mark.usefixtures("one_thread", "no_browser")


def test_one_class_across_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "ifm-fig8", "--quick", "-o", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["claims"][0]["here"].count("features:") == 1
    assert (tmp_path / "ifm-fig8.png").read_bytes().startswith(b"\x89PNG")
    assert ">Verdict: " in (tmp_path / "ifm-fig8.html").read_text()


def test_rotations_and_best_units(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = replace(dissected.NETS["ResNet"], epochs=1)
    monkeypatch.setattr(dissected, "NETS", {"ResNet": small})
    for name, value in {"SEEDS": 1, "DRAWS": 1, "PICTURES": 16, "TRAINED_ON": 32}.items():
        monkeypatch.setattr(dissected, name, value)
    monkeypatch.setattr(dissected, "POWERS", (0.0, 1.0))
    assert main(["reproduce", "symmetry-fig3", "--quick", "-o", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["claims"][0]["source"].startswith("interpretability decreases")
    assert any(value == "every IoU is equal" for value in found.values())
    assert main(["reproduce", "symmetry-fig21", "--quick", "-o", str(tmp_path), "--json"]) == 0
    assert "IoU" in (tmp_path / "symmetry-fig21.html").read_text()


def made_up(own: float, turned: tuple[float, ...], units: int = 100) -> Dissection:
    """A dissection whose shares of interpretable units are these: in the own basis, and a draw each."""

    def reading(share: float, alpha: float, draw: int) -> LayerReading:
        iou = np.where(np.arange(units) < round(share * units), 0.5, 0.0)
        return LayerReading("at", "x", alpha, draw, iou, np.zeros(units, int), ("red",), ("colour",), 0.04)

    turns = [reading(share, 1.0, draw) for draw, share in enumerate(turned)]
    return Dissection("d", 1, 0.995, 0.04, {"at": "trivial"}, (reading(own, 0.0, 0), *turns))


@pytest.mark.parametrize(
    ("turned", "expected", "verdict"),
    [
        ((0.30, 0.31, 0.29), "falls", "agrees"),
        ((0.30, 0.31, 0.29), "rises", "not reproduced"),
        ((0.50, 0.51, 0.49), "stays", "agrees"),
        ((0.20, 0.80, 0.50), "stays", "not reproduced"),  # it cannot be told: that is no agreement
        ((0.30, 0.31), "falls", "not run"),  # two nets give no interval
    ],
)
def test_what_a_rotation_does_is_decided_over_nets(
    turned: tuple[float, ...], expected: str, verdict: str
) -> None:
    """Draws of one net are averaged first: more of them do not make nets."""
    nets = [made_up(0.5, (share - 0.05, share + 0.05)) for share in turned]
    points = dissection.by_power(nets, dissection.share)
    assert [len(values) for values in points.values()] == [len(turned)] * 2
    claim = dissection._trend_claim("net", points, "sentence", expected)
    assert str(claim.verdict) == verdict


def test_of_a_single_net_draws_are_compared() -> None:
    points = dissection.by_power([made_up(0.5, (0.3, 0.31, 0.29))], dissection.share)
    assert points == {0.0: [0.5], 1.0: [0.3, 0.31, 0.29]}
    assert dissection.trend(dissection.change(points)) == "falls"
