"""The recipes: which there are, and that those that need no long training come out as the source says."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from intertwine.cli import main
from intertwine.recipes import find_recipe, ifm, imagenet, recipes, symmetries
from intertwine.stitching import slopes

FIGURES = """
    ifm-fig2a ifm-fig2b ifm-fig3a ifm-fig3b ifm-fig4 ifm-fig5a ifm-fig5b ifm-fig6 ifm-fig7 ifm-fig8 ifm-fig9
    ifm-table2
    symmetry-fig1 symmetry-fig2 symmetry-fig3 symmetry-fig4 symmetry-fig5 symmetry-fig6 symmetry-fig7
    symmetry-fig8 symmetry-fig9 symmetry-fig10 symmetry-fig11 symmetry-fig13 symmetry-fig15 symmetry-fig16
    symmetry-fig17
    symmetry-fig18 symmetry-fig19 symmetry-fig20 symmetry-fig21 symmetry-fig22 symmetry-fig23 symmetry-fig24
    symmetry-fig25 symmetry-table1 symmetry-table2 symmetry-table4
    functional-fig3.1 functional-fig3.2 functional-fig3.3 functional-fig3.4 functional-fig3.5
    functional-fig3.6 functional-fig3.7 functional-fig3.8 functional-figA1 functional-figA2
    functional-table3.1 functional-table4.1
    genni-fig1 genni-fig2 genni-fig3 genni-fig4 genni-fig5 genni-fig6
""".split()


@pytest.fixture(autouse=True)
def no_browser(monkeypatch):
    """PNG files are made by a browser, seconds each: tested where figures are."""
    from intertwine.errors import MissingExtra
    from intertwine.report import png

    def refuse(*args, **kwargs):
        raise MissingExtra("no PNG in this test")

    monkeypatch.setattr(png, "write_png", refuse)


def reproduce(name, folder, capsys):
    assert main(["reproduce", name, "--quick", "-o", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["preset"] == "quick" and (folder / f"{name}.html").exists()
    stored = json.loads((folder / f"{name}.json").read_text())
    assert stored["claims"] == found["claims"]
    return found


def test_every_figure_has_a_recipe():
    assert sorted(recipes()) == sorted(FIGURES)
    assert find_recipe("genni-fig1").preset == "paper" and find_recipe("ifm-fig3a").preset == "quick"


def test_groups_are_those_of_table_1(tmp_path, capsys):
    found = reproduce("symmetry-table1", tmp_path, capsys)
    here = {claim["what"]: claim["here"] for claim in found["claims"]}
    assert here["identity"].startswith("GL(n)") and here["sigmoid"].startswith("permutation,")
    assert here["relu"] == here["leaky_relu"] == "permutation x positive diagonal, phi(A) = A"


def test_the_slope_of_xi(tmp_path, capsys):
    (claim,) = reproduce("symmetry-fig17", tmp_path, capsys)["claims"]
    assert claim["here"].startswith("0.1267")


def test_merging_figures_and_runs_that_are_read_again(tmp_path, capsys, monkeypatch):
    short = {name: replace(net, epochs=2) for name, net in ifm.QUICK_VGGS.items()}
    monkeypatch.setattr(ifm, "QUICK_VGGS", short)
    first = reproduce("ifm-fig2a", tmp_path, capsys)
    assert 0 < float(first["claims"][0]["here"]) < 1
    trained = {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").rglob("model.safetensors")}
    assert len(trained) == 1
    second = reproduce("ifm-fig2a", tmp_path, capsys)
    assert second["claims"] == first["claims"]
    assert {p: p.stat().st_mtime_ns for p in trained} == trained


def test_a_harder_task_leaves_less_to_merge(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(imagenet, "TASKS", {"2 digits": 2, "10 digits": 10})
    (claim,) = reproduce("ifm-fig4", tmp_path, capsys)["claims"]
    easy, hard = (int(part.rpartition(" ")[2].rstrip("%")) for part in claim["here"].split(", "))
    assert easy < hard


def test_published_nets_on_a_folder_of_images(tmp_path, capsys, monkeypatch):
    """The paper's setting with a small net in the place of what torchvision would download."""
    Image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(imagenet, "FOLDERS", (str(tmp_path / "val"),))
    command = ["reproduce", "ifm-fig4", "--preset", "paper", "-o", str(tmp_path / "out")]
    assert main(command) != 0
    assert "val/CLASS/image.JPEG" in capsys.readouterr().err.replace("\n", "")
    for name in ("cat", "dog"):
        (tmp_path / "val" / name).mkdir(parents=True)
        Image.new("RGB", (240, 230), name == "cat" and "red").save(tmp_path / "val" / name / "1.png")
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 9, 9, 9), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(9, 2)
    )
    monkeypatch.setattr(imagenet, "CHECKPOINTS", {"VGG16": ("vgg16_bn", "IMAGENET1K_V1")})
    monkeypatch.setattr(imagenet, "pretrained", lambda name, weights: net.eval())
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy of VGG16"] in (0.5, 1.0)


def make_small(monkeypatch, model, width):
    net = replace(symmetries._SMALL[model], options={"width": width}, epochs=1)
    monkeypatch.setitem(symmetries._SMALL, model, net)


def test_slopes_are_those_of_the_nets(tmp_path, capsys, monkeypatch):
    """Each slope has nets of its own, and at 1 the group is GL(n)."""
    make_small(monkeypatch, "resnet20", width=2)
    monkeypatch.setattr(slopes, "SLOPES", (0.1, 1.0))
    _, group = reproduce("symmetry-fig8", tmp_path, capsys)["claims"]
    assert group["here"] == "1"
    assert len(list((tmp_path / "runs").iterdir())) == 4


def test_similarity_between_seeds(tmp_path, capsys, monkeypatch):
    make_small(monkeypatch, "myrtle", width=4)
    found = reproduce("symmetry-table2", tmp_path, capsys)
    assert found["networks"] == 3 and "procrustes-grelu" in found["claims"][0]["here"]
