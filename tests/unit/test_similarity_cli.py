"""intertwine compare on the networks and digits that ship with the package."""

from __future__ import annotations

import json

import pytest

from intertwine.cli import main

NETS = ["compare", "zoo:digits-vgg", "zoo:digits-vgg", "--weights-a", "shipped:0", "--weights-b", "shipped:1"]
DATA = ["--data", "digits", "--limit", "60"]


def test_numbers_as_json_and_a_page(tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main([*NETS, *DATA, "--measures", "cka,rsa,auto", "--json", "-o", str(page)]) == 0
    result = json.loads(capsys.readouterr().out)
    assert list(result["measures"]) == ["cka", "rsa", "auto"]
    grid = result["measures"]["cka"]["values"]
    assert len(grid) == len(result["layers_a"]) and all(0 <= v <= 1 for row in grid for v in row)
    assert result["function"]["accuracy_a"] > 0.9
    assert page.read_text().startswith("<!doctype html>")


def test_a_table_for_people(capsys):
    assert main([*NETS, *DATA, "--measures", "cka"]) == 0
    out = capsys.readouterr().out
    assert "classifier" in out and "Jensen-Shannon" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*DATA, "--measures", "ckaa"], "no measure named 'ckaa'"),
        ([*DATA, "--measures", ","], "no measure is named"),
        ([*DATA, "--at", "conv99"], "no layer named 'conv99'"),
        ([*DATA[:2], "--limit", "3"], "too few"),
        (["--data", "nowhere"], "cannot read the data source"),
        ([*DATA, "-o", "missing/page.html", "--measures", "cka"], "cannot write"),
    ],
)
def test_bad_input_is_a_message_not_a_traceback(arguments, message, capsys):
    assert main([*NETS, *arguments]) == 2
    assert message in capsys.readouterr().err
