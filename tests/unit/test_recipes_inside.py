"""The recipes of attribution and dissection: on what ships, and on a net trained for one epoch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from intertwine.cli import main
from intertwine.recipes import dissection

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    from intertwine.errors import MissingExtra
    from intertwine.report import png

    def refuse(*args: object, **kwargs: object) -> None:
        raise MissingExtra("no PNG in this test")

    monkeypatch.setattr(png, "write_png", refuse)


def test_one_class_across_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "ifm-fig8", "--quick", "-o", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["claims"][0]["here"].count("features:") == 1
    assert (tmp_path / "ifm-fig8.png").read_bytes().startswith(b"\x89PNG")
    assert ">Verdict: " in (tmp_path / "ifm-fig8.html").read_text()


def test_rotations_and_best_units(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = replace(dissection.NETS["ResNet"], epochs=1)
    monkeypatch.setattr(dissection, "NETS", {"ResNet": small})
    for name, value in {"SEEDS": 1, "DRAWS": 1, "PICTURES": 16, "TRAINED_ON": 32}.items():
        monkeypatch.setattr(dissection, name, value)
    monkeypatch.setattr(dissection, "POWERS", (0.0, 1.0))
    assert main(["reproduce", "symmetry-fig3", "--quick", "-o", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["claims"][0]["source"].startswith("interpretability decreases")
    assert any(value == "every IoU is equal" for value in found.values())
    assert main(["reproduce", "symmetry-fig21", "--quick", "-o", str(tmp_path), "--json"]) == 0
    assert "IoU" in (tmp_path / "symmetry-fig21.html").read_text()
