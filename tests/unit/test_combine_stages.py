"""interpolate with the stages of combine, and the table of what was measured."""

from __future__ import annotations

import copy
import importlib.util
import json
from pathlib import Path

import pytest
import torch
from torch import nn

from intertwine import act, interpolate, trace, zoo
from intertwine.cli.program import main
from intertwine.combining._layerwise import batch_graph
from intertwine.combining._path import SolvedMixer
from intertwine.data import load_data
from intertwine.errors import InputError
from intertwine.zoo.nanogpt import nanogpt

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def digits():
    name = "digits-vgg"
    models = [zoo.load_weights(zoo.build(name), zoo.checkpoint(name, k)).eval() for k in (0, 1)]
    return models, load_data("digits", limit=150), load_data("digits", split="train").images[:150]


def test_every_stage_lowers_the_barrier(digits):
    models, data, train = digits
    found = interpolate(models, data, train_data=train, stages=True, points=3)
    barrier = {curve.label: curve.barrier for curve in found.curves}
    assert list(barrier) == ["none", "aligned", "reset", "repair", "least-squares"]
    assert barrier["none"] > barrier["aligned"] > 3 * barrier["reset"] > 3 * barrier["least-squares"]
    ends = [[curve.lines[0].scores[k].loss for k in (0, -1)] for curve in found.curves]
    assert ends[0] == pytest.approx(ends[-1], rel=1e-3)  # moving a network changes no function
    assert found.tables()[0].title == "along the line, stage by stage"
    assert "aligned, layers solved for" in found.page().render()


def test_the_ends_of_the_solved_line_are_the_networks():
    torch.manual_seed(0)
    a, b = (nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval() for _ in range(2))
    x = torch.randn(60, 4)
    mixer = SolvedMixer([a, b], x, batch_graph(a, x), 0)
    with torch.no_grad():
        assert torch.equal(mixer.mixed([0.0, 1.0])(x), b(x))
        wanted = (a(x) + b(x)) / 2
        assert (mixer.mixed([0.5, 0.5])(x) - wanted).square().mean() < 0.2 * wanted.var()


def test_stages_of_transformers_fold_and_learn(tmp_path, monkeypatch):
    monkeypatch.setattr("intertwine.combining._path.STEPS", 5)
    torch.manual_seed(0)
    a = nanogpt(classes=11, context=8, width=16, heads=4, layers=1).eval()
    ids = torch.randint(0, 11, (30, 8))
    (tmp_path / "text.txt").write_text("".join("abcdefghijk"[k] for k in ids.flatten()))
    noisy = copy.deepcopy(a)
    with torch.no_grad():
        for p in noisy.parameters():
            p += 0.3 * p.std() * torch.randn_like(p) if p.dim() > 1 else 0
    b = act(noisy, trace(noisy, ids[:2]).sample(1))
    data = load_data(f"text:{tmp_path / 'text.txt'}", context=8, limit=20)
    found = interpolate([a, b], data, train_data=ids, stages=True, points=3, fold=True, by="loss")
    assert [curve.label for curve in found.curves] == ["none", "aligned", "repair", "least-squares"]
    for wrong in (
        {"fold": True},
        {"by": "loss"},
        {"stages": True, "by": "both"},
        {"stages": True, "inputs": {}},
    ):
        with pytest.raises(InputError):
            interpolate([a, b], data, points=2, **wrong)


def test_stages_from_the_command_line(tmp_path, capsys):
    page = tmp_path / "line.html"
    argv = ["interpolate", "zoo:digits-vgg", "zoo:digits-vgg", "--weights", "shipped:0",
            "--weights", "shipped:1",
            "--data", "digits", "--limit", "60", "--train-limit", "60", "--stages", "--points", "3",
            "-o", str(page), "--json"]  # fmt: skip
    assert main(argv) == 0
    labels = [curve["label"] for curve in json.loads(capsys.readouterr().out)["curves"]]
    assert labels[-1] == "least-squares" and "layers solved for" in page.read_text()


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location("made", ROOT / "scripts" / "make_combine_table.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_docs_say_what_was_measured(script):
    page = (ROOT / "docs" / "combine.md").read_text()
    assert script.render(page) == page, "run python scripts/make_combine_table.py"


def test_the_table_has_means_intervals_and_barriers(script):
    way = {"accuracy": 0.8, "loss": 0.75, "cpu_seconds": 12.3}
    measured = {
        "networks": {"a": {"accuracy": 0.9, "loss": 0.3}, "b": {"accuracy": 0.8, "loss": 0.5}},
        "works": {
            f"tiny10 seed0 seed{k}": {
                "networks": ["a", "b"], "test_inputs": 10000,
                "ways": {"combine": {**way, "accuracy": 0.8 + k / 100}},
            }
            for k in (1, 2)
        },
    }  # fmt: skip
    ends, row = script.rows(measured)
    assert ends[3] == "85.00 ± 9.80 %"
    assert row[1:] == ["**combine**", "2", "81.50 ± 0.98 %", "0.750 ± 0.000", "0.35 ± 0.00", "12"]
