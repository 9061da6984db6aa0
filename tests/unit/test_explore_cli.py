"""The verbs explore and reproduce: files, JSON, exit codes and messages."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from intertwine.cli.program import main
from intertwine.errors import InputError, MissingExtra, NotFound
from intertwine.exploring import EquivalenceSample, Landscape, Plane
from intertwine.recipes import Outcome, Reproduction, Setting, find_recipe, recipes
from intertwine.recipes.genni import (
    LENET,
    SMALL,
    View,
    draw_view,
    find_sample,
    make_figure,
    make_objective,
    measure,
)

NET = """
import torch
from torch import nn

def make():
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
    return net, (torch.randn(2, 1),)

def redundant():
    torch.manual_seed(10)
    net = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
    return net, (torch.randn(2, 1),)

def pair():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(1, 1)
        def forward(self, x):
            return self.layer(x), x
    return Pair(), (torch.randn(2, 1),)
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    path = tmp_path / "net.py"
    path.write_text(NET)
    return f"{path}:make"


def explore(net: str, tmp_path: Path, *more: str) -> int:
    common = ["--limit", "64", "--optimizer", "lbfgs", "--steps", "400", "--tolerance", "1e-7"]
    return main(["explore", net, *common, "-o", str(tmp_path / "out.html"), *more])


def test_two_dimensions(net, tmp_path, capsys):
    code = explore(
        net, tmp_path, "--points", "20", "--epsilon", "0.01", "--json", "--save", str(tmp_path / "kept")
    )
    result = json.loads(capsys.readouterr().out)
    assert code == 0 and result["parameters"] == 4 and result["evaluations"] <= result["grid points"] == 400
    assert [mark["name"] for mark in result["marks"]] == ["theta_0", "theta_1", "theta_2"]
    assert all(mark["value"] < 1e-7 for mark in result["marks"])
    assert result["J of known equivalents"] < 1e-10 and "positive monomial" in result["groups"]
    html = (tmp_path / "out.html").read_text()
    assert "<script src=" not in html and "theta_2" in html and "log10 J" in html
    kept = tmp_path / "kept"
    assert len(EquivalenceSample.load(kept / "sample.safetensors")) == 3
    assert Plane.load(kept / "plane.safetensors").dim == 2
    assert Landscape.load(kept / "landscape.safetensors").grid.shape == (20, 20)


@pytest.mark.parametrize(("dim", "points"), [(1, 11), (3, 9)])
def test_other_dimensions(net, tmp_path, dim, points, monkeypatch):
    monkeypatch.setattr("intertwine.exploring.embed", lambda rows, method, seed=0: rows[:, :2])
    code = explore(
        net, tmp_path, "--dim", str(dim), "--points", str(points), "--epsilon", "0.05", "--no-orbit"
    )
    assert code == 0 and (tmp_path / "out.html").stat().st_size > 10_000


def test_the_quotient_of_what_symmetries_explain_is_a_point(net, tmp_path, capsys):
    """One unit for each side of zero: nothing is left to draw. Two units on one side: a curve is left."""
    assert explore(net, tmp_path, "--quotient", "--tolerance", "1e-12", "--dim", "1") == 2
    assert "known symmetries explain them" in capsys.readouterr().err
    more = ["--quotient", "--dim", "1", "--points", "9", "--epsilon", "0.01", "--json"]
    assert explore(net.replace(":make", ":redundant"), tmp_path, *more) == 0
    result = json.loads(capsys.readouterr().out)
    assert all(mark["value"] < 1e-6 for mark in result["marks"]) and "in the quotient" in str(result)


def test_loss_landscape_of_data(tmp_path, capsys):
    code = main(
        ["explore", "zoo:digits-vgg", "--data", "digits", "--limit", "16", "--plane", "random", "--loss",
         "cross_entropy", "--points", "4", "-o", str(tmp_path / "loss.html"), "--json"]
    )  # fmt: skip
    result = json.loads(capsys.readouterr().out)
    assert code == 0 and result["drawn"] == "loss" and result["evaluations"] == 16
    assert any("buffers are held" in str(value) for value in result.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epsilon", "0"], "--epsilon: '0' is not a number above 0"),
        (["--epsilon", "-1"], "not a number above 0"),
        (["--dim", "5"], "'5' is not a whole number from 1 to 4"),
        (["--points", "9999"], "more than the maximum of 5,000,000"),
        (["--loss", "cross_entropy"], "a data loss needs data"),
        (["--learning-rate", "-1"], "--learning-rate: '-1' is not a number above 0"),
        (["-o", "/no/such/folder/x.html"], "cannot write /no/such/folder/x.html"),
    ],
)
def test_errors_have_no_traceback(net, tmp_path, capsys, arguments, message):
    assert explore(net, tmp_path, *arguments) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error
    assert not (tmp_path / "out.html").exists()


def test_a_plane_through_files_of_one_name(net, tmp_path, capsys):
    """Runs name their weights alike; one checkpoint twice spans nothing."""
    from intertwine import zoo

    files = [tmp_path / run / "model.safetensors" for run in ("a", "b")]
    for seed, file in enumerate(files):
        file.parent.mkdir()
        torch.manual_seed(seed)
        zoo.save_weights(nn.Sequential(*(nn.Linear(*s, bias=False) for s in ((1, 2), (2, 1)))), file)
    source = tmp_path / "plain.py"
    source.write_text(NET.replace("nn.ReLU(), ", ""))
    line = ["explore", f"{source}:make", "--limit", "8", "--points", "2", "-o", str(tmp_path / "p.html")]
    assert main([*line, "--json", "--plane", *map(str, files)]) == 0
    marks = json.loads(capsys.readouterr().out)["marks"]
    assert [mark["name"] for mark in marks] == [*map(str, files)]
    assert main([*line, "--plane", str(files[0]), str(files[0])]) == 2
    assert "different checkpoints" in capsys.readouterr().err


def test_an_output_that_is_no_tensor(net, tmp_path, capsys):
    assert explore(net.replace(":make", ":pair"), tmp_path) == 2
    assert "output is a tuple, not a tensor" in capsys.readouterr().err


def test_the_best_points_are_kept(net, tmp_path, capsys):
    arguments = ["--limit", "64", "--tolerance", "1e-30", "--steps", "20", "-o", str(tmp_path / "out.html")]
    assert main(["explore", net, *arguments]) == 1
    assert "out.best.safetensors" in capsys.readouterr().err
    best = EquivalenceSample.load(tmp_path / "out.best.safetensors")
    assert len(best) == 3 and min(best.losses) > 0


def test_recipes_are_listed(capsys):
    assert main(["reproduce", "--list", "--json"]) == 0
    names = [row["name"] for row in json.loads(capsys.readouterr().out)]
    assert {f"genni-fig{k}" for k in range(1, 7)} <= set(names) and names == sorted(names)


def test_unknown_recipes(capsys):
    assert main(["reproduce", "genni-fig9"]) == 2
    assert "no recipe named 'genni-fig9'" in capsys.readouterr().err
    assert main(["reproduce"]) == 2
    with pytest.raises(NotFound, match="no recipe") as caught:
        find_recipe("geni-fig1")
    assert "did you mean genni-fig1" in str(caught.value)


def test_two_recipes_of_one_name(monkeypatch):
    import intertwine.recipes.genni as module

    twin = Reproduction("genni-fig1", "twin", "none", lambda folder, quick, progress: Outcome(()))
    monkeypatch.setattr(module, "RECIPES", (*module.RECIPES, twin))
    with pytest.raises(InputError, match="two recipes are called"):
        recipes()


def test_the_small_network_of_the_paper():
    """Appendix B.2, quick: the found points satisfy the exact invariants to 1e-2."""
    objective = make_objective(SMALL.at_size(quick=True))
    assert objective.layout.length == 4 and SMALL.lr == 0.015 and SMALL.inputs == 16384
    assert SMALL.at_size(quick=False) == SMALL
    sample = find_sample(objective, SMALL, 2, lambda *_: None)
    view = View(2, 2.0, 100, 0.0025, quick=12)
    landscape = draw_view(objective, sample, view, True, lambda *_: None)
    facts = measure(SMALL, view, objective, sample, landscape)
    assert facts["largest error of the invariants"] < 1e-2 and landscape.grid.shape == (12, 12)
    assert facts["epsilon / variance of outputs"] > 1


def test_a_recipe_writes_its_page_also_without_a_browser(tmp_path, monkeypatch):
    """LeNet-5 in three dimensions, with a tolerance that the first step meets."""

    def no_browser(figure: object, path: Path, caption: str) -> Path:
        raise MissingExtra(f"cannot write {path.name}")

    monkeypatch.setattr("intertwine.pages.png.write_png", no_browser)
    monkeypatch.setattr("intertwine.exploring.embed", lambda rows, method, seed=0: rows[:, :2])
    settings = replace(LENET, quick=(8, 10.0))
    parts = ((settings, View(3, 13.0, 35, 0.0025, quick=3)),)
    outcome = make_figure("page", "a title", parts, False, tmp_path, Setting(), lambda *_: None)
    assert outcome.files == (tmp_path / "page.html",) and "cannot write" in outcome.facts["PNG"]
    assert outcome.facts["grid points"] == 27 and outcome.facts["parameters"] == 60_941
    assert LENET.inputs == 8192 and LENET.lr == 0.001 and LENET.optimizer == "sgd"
