"""intertwine stitch on the networks and digits that ship with the package."""

from __future__ import annotations

import json

import numpy as np
import pytest

from intertwine.cli import main

NETS = ["stitch", "zoo:digits-vgg", "zoo:digits-vgg", "--weights-a", "shipped:0", "--weights-b", "shipped:1"]
FEW = ["--data", "digits", "--limit", "100", "--train-limit", "200", "--epochs", "0"]


def test_numbers_as_json_and_a_page(tmp_path, capsys):
    page = tmp_path / "stitch.html"
    arguments = [*NETS, *FEW, "--at", "features.12,features.16", "--kinds", "full,group,identity", "--json"]
    assert main([*arguments, "-o", str(page)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["accuracy_a"] > 0.9 and found["training inputs"].startswith("200 of")
    rows = {(s["layer"], s["kind"]): s for s in found["stitchings"]}
    assert set(rows) == {
        (p, k) for p in ("features.12", "features.16") for k in ("full", "group", "identity")
    }
    assert rows["features.16", "full"]["start"] < 10 < rows["features.16", "identity"]["start"]
    assert rows["features.16", "group"]["group"] == "positive monomial"
    text = page.read_text()
    assert text.startswith("<!doctype html>") and "features.16" in text and "penalty" in text


def test_a_table_for_people_and_training(capsys):
    arguments = [*NETS, *FEW[:-1], "1", "--at", "features.16", "--kinds", "rank:2", "--augment", "1"]
    assert main(arguments) == 0
    assert "rank:2" in capsys.readouterr().out


def test_a_file_without_splits_is_halved(tmp_path, capsys):
    random = np.random.default_rng(0)
    path = tmp_path / "data.npz"
    np.savez(path, images=random.random((40, 1, 8, 8), np.float32), labels=np.arange(40) % 10)
    arguments = ["--data", f"npz:{path}", "--at", "features.16", "--kinds", "full", "--epochs", "0", "--json"]
    assert main([*NETS, *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["train_inputs"] == found["test_inputs"] == 20
    assert "second half" in found["training inputs"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--at", "features.99"], "no layer named 'features.99'"),
        (["--at", "features.12", "--kinds", "ful"], "no kind of stitch named 'ful'"),
        (["--at", "features.12", "--kinds", ","], "no kind of stitch is named"),
        (["--at", "features.12", "--alpha", "x"], "is not a number"),
        (["--at", "features.12", "--epochs", "-1"], "'-1' is not a whole number from 0 to 100,000"),
        (["--at", "features.12", "-o", "missing/page.html"], "cannot write"),
    ],
)
def test_bad_input_is_a_message_not_a_traceback(arguments, message, capsys):
    assert main([*NETS, *FEW, "--kinds", "full", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_models_whose_graphs_differ(capsys):
    other = ["stitch", "zoo:digits-vgg", "zoo:lenet5", "--weights-a", "shipped:0", *FEW]
    assert main(other) in (2, 3)
    assert "Traceback" not in capsys.readouterr().err
