"""The recipes: which there are, and that those that need no long training come out as the source says."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from intertwine.cli import main
from intertwine.recipes import (
    Setting,
    connected,
    find_recipe,
    functional,
    godfrey,
    ifm,
    imagenet,
    longer,
    paths,
    recipes,
    slopes,
    stitchings,
    symmetries,
    transformers,
    worlds,
)
from intertwine.recipes.claims import Verdict

pytestmark = pytest.mark.usefixtures(
    "no_browser"
)  # PNG files are made by a browser, seconds each: tested where figures are

FIGURES = """
    ifm-fig2a ifm-fig2b ifm-fig3a ifm-fig3b ifm-fig4 ifm-fig5a ifm-fig5b ifm-fig6 ifm-fig7 ifm-fig8 ifm-fig9
    ifm-table2 ifm-training ifm-connected
    symmetry-fig1 symmetry-fig2 symmetry-fig3 symmetry-fig4 symmetry-fig5 symmetry-fig6 symmetry-fig7
    symmetry-fig8 symmetry-fig9 symmetry-fig10 symmetry-fig11 symmetry-fig12 symmetry-fig13 symmetry-fig14
    symmetry-fig15 symmetry-fig16
    symmetry-fig17
    symmetry-fig18 symmetry-fig19 symmetry-fig20 symmetry-fig21 symmetry-fig22 symmetry-fig23 symmetry-fig24
    symmetry-fig25 symmetry-table1 symmetry-table2 symmetry-table4
    functional-fig3.1 functional-fig3.2 functional-fig3.3 functional-fig3.4 functional-fig3.5
    functional-fig3.6 functional-fig3.7 functional-fig3.8 functional-figA1 functional-figA2
    functional-table3.1 functional-table4.1
    genni-fig1 genni-fig2 genni-fig3 genni-fig4 genni-fig5 genni-fig6
""".split()


def reproduce(name, folder, capsys):
    assert main(["reproduce", name, "--quick", "-o", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["preset"] == "quick" and (folder / f"{name}.html").exists()
    stored = json.loads((folder / f"{name}.json").read_text())
    assert stored["claims"] == found["claims"] and found["differs"]
    assert found["verdict"] in list(Verdict) and all(c["test"] and c["verdict"] for c in found["claims"])
    page = (folder / f"{name}.html").read_text()
    assert (
        page.index('<p class="finding">Verdict: ')
        < page.index("<h2>Against the source")
        == page.index("<h2>")
    )
    return found


def test_every_figure_has_a_recipe():
    assert sorted(recipes()) == sorted(FIGURES)
    assert find_recipe("genni-fig1").preset == "paper" and find_recipe("ifm-fig3a").preset == "quick"


def test_groups_are_those_of_table_1(tmp_path, capsys):
    found = reproduce("symmetry-table1", tmp_path, capsys)
    here = {claim["what"]: claim["here"] for claim in found["claims"]}
    assert here["identity"].startswith("GL(n)") and here["sigmoid"].startswith("permutation,")
    assert here["relu"] == here["leaky_relu"] == "permutation x positive diagonal, phi(A) = A"

    assert found["verdict"] == "agrees"


def test_the_slope_of_xi(tmp_path, capsys):
    found = reproduce("symmetry-fig17", tmp_path, capsys)
    assert found["claims"][0]["here"] == "0.127" and found["verdict"] == "agrees"


def test_merging_figures_and_runs_that_are_read_again(tmp_path, capsys, monkeypatch):
    short = {name: replace(net, epochs=2) for name, net in ifm.QUICK_VGGS.items()}
    monkeypatch.setattr(ifm, "QUICK_VGGS", short)
    first = reproduce("ifm-fig2a", tmp_path, capsys)
    assert 0 < float(first["claims"][0]["here"]) < 1 and first["verdict"] == "not reproduced"
    assert first["claims"][0]["why"]
    trained = {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").rglob("model.safetensors")}
    assert len(trained) == 1
    second = reproduce("ifm-fig2a", tmp_path, capsys)
    assert second["claims"] == first["claims"]
    assert {p: p.stat().st_mtime_ns for p in trained} == trained


@pytest.mark.nightly  # by day the same figure is made of published nets, below
def test_a_harder_task_leaves_less_to_merge(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(imagenet, "TASKS", {"2 digits": 2, "10 digits": 10})
    found = reproduce("ifm-fig4", tmp_path, capsys)
    easy, hard = (int(part.rpartition(" ")[2].rstrip("%")) for part in found["claims"][0]["here"].split(", "))
    assert (easy < hard) == (found["verdict"] == "agrees in kind")


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


def make_small(monkeypatch, model, width, nets=3):
    net = godfrey.SMALL[model]
    net = replace(net, options={**net.options, "width": width}, epochs=1)
    monkeypatch.setitem(godfrey.SMALL, model, net)
    monkeypatch.setitem(godfrey.IMAGES, "quick", (100, 100))
    monkeypatch.setitem(godfrey.NETS, "quick", nets)


@pytest.mark.nightly  # by day the other stitching figures, and slopes in test_stitch.py
def test_slopes_are_those_of_the_nets(tmp_path, capsys, monkeypatch):
    """Each slope has nets of its own, and at 1 the group is GL(n)."""
    make_small(monkeypatch, "resnet20-pad", width=2, nets=2)
    monkeypatch.setitem(slopes.SLOPES, "quick", (0.1, 1.0))
    groups = reproduce("symmetry-fig8", tmp_path, capsys)["groups"]
    assert len(set(groups.values())) == 2 and len(list((tmp_path / "runs").iterdir())) == 4


def test_similarity_between_seeds(tmp_path, capsys, monkeypatch):
    make_small(monkeypatch, "myrtle", width=4)
    found = reproduce("symmetry-table2", tmp_path, capsys)
    assert found["networks"] == 3 and found["measures"] == ["procrustes-grelu", "procrustes"]


@pytest.mark.parametrize("name", ["fig16"])
def test_every_similarity_figure(name, tmp_path, capsys, monkeypatch):
    """Both kinds of CKA are prepared alike: flattened and debiased."""
    for model in godfrey.SMALL:
        make_small(monkeypatch, model, width=4)
    monkeypatch.setitem(symmetries.INPUTS, "quick", 40)
    found = reproduce(f"symmetry-{name}", tmp_path, capsys)
    assert found["measures"] in (["cka-grelu", "cka-debiased"], ["procrustes-grelu", "procrustes"])


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Figures of the same nets read the runs of each other."""
    return {kind: tmp_path_factory.mktemp(kind) for kind in ("stitching", "merging")}


@pytest.mark.parametrize("name", ["fig1", "fig13", "fig14", "fig15"])
def test_every_stitching_figure(name, shared, capsys, monkeypatch):
    """Two nets give no interval, so that claims about means are not run; nothing is a finding by one pair."""
    for model in godfrey.SMALL:
        make_small(monkeypatch, model, width=2, nets=2)
    monkeypatch.setitem(stitchings.KINDS, "quick", ("full", "rank:1", "group"))
    monkeypatch.setitem(stitchings.LASSOS, "quick", ("0.1", "0.01"))
    found = reproduce(f"symmetry-{name}", shared["stitching"], capsys)
    assert any(c["verdict"] == "not run" for c in found["claims"]) or name in ("fig14", "fig7")
    if name in ("fig13", "fig14"):  # one measurement for both
        assert len(list((shared["stitching"] / "runs").glob("alphas-*.json"))) == 1


def test_windows_of_text_and_the_character_after_each(tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "tinyshakespeare.txt").write_text("abc" * 100)
    (seen, after), (held, rest) = transformers.load_windows(Setting("cifar", tmp_path), 5, length=4)
    assert seen.shape == (5, 4) and held.shape == (5, 4) and len(after) == len(rest) == 5
    assert torch.equal((seen[:, -1] + 1) % 3, after) and torch.equal((held[:, -1] + 1) % 3, rest)


def test_the_smallest_net_within_reach_whatever_the_setting_means():
    """A larger beta keeps less, a larger share keeps more."""
    from intertwine.merging.experiments import CurvePoint

    shares = [CurvePoint(share, share, 0.9) for share in (0.9, 0.5, 0.7)]
    betas = [CurvePoint(0.1, 0.9, 0.9), CurvePoint(0.3, 0.6, 0.88), CurvePoint(0.5, 0.2, 0.3)]
    assert ifm.smallest_within(shares, 0.9).kept == 0.5 and ifm.smallest_within(betas, 0.9).setting == 0.3
    assert ifm.smallest_within(betas[2:], 0.9) is None


@pytest.mark.parametrize("name", ["ifm-fig2b", "ifm-fig3a", "ifm-fig3b", "ifm-fig5a"])
def test_every_merging_figure(name, shared, capsys, monkeypatch):
    short = {name: replace(net, epochs=2) for name, net in list(ifm.QUICK_VGGS.items())[:2]}
    monkeypatch.setattr(ifm, "QUICK_VGGS", short)
    monkeypatch.setattr(ifm, "QUICK_BETAS", (0.3, 0.6))
    reproduce(name, shared["merging"], capsys)


def test_a_resnet_merged_on_the_same_axes(tmp_path, capsys, monkeypatch):
    """Ours is given what the released code is given, and both are given all."""
    small = {"ResNet20": replace(ifm.QUICK_RESNET["ResNet20"], epochs=1, options={"width": 4})}
    monkeypatch.setattr(ifm, "QUICK_RESNET", small)
    monkeypatch.setattr(ifm, "QUICK_BETAS", (0.3, 0.6))
    found = reproduce("ifm-fig6", tmp_path, capsys)
    assert found["claims"][0]["here"].count("all axes") == 2


@pytest.mark.parametrize(
    "figure", ["3.3", *(pytest.param(f"3.{k}", marks=pytest.mark.nightly) for k in (1, 2, 4, 5))]
)
def test_every_figure_of_representation_and_function(figure, tmp_path, capsys, monkeypatch):
    small = replace(worlds.DIGITS, options={"width": 4}, epochs=1)
    monkeypatch.setattr(worlds, "DIGITS", small)
    nets = tuple(replace(small, options={"width": width}) for width in (2, 4))
    monkeypatch.setattr(functional, "QUICK_NETS", nets)
    monkeypatch.setattr(paths, "QUICK_EPOCHS", (0, 1, 2, 3, 4))
    assert reproduce(f"functional-fig{figure}", tmp_path, capsys)["verdict"] != "not run"


@pytest.mark.nightly
def test_seconds_of_a_round(tmp_path, capsys, monkeypatch):
    """One net has no order."""
    monkeypatch.setattr(ifm, "QUICK_TIMED", ("vgg13",))
    assert reproduce("ifm-table2", tmp_path, capsys)["verdict"] == "not run"


def test_six_trainings_and_how_near_their_features_come(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(longer.PLANS, "quick", replace(longer.PLANS["quick"], width=2, epochs=2, batch=512))
    found = reproduce("ifm-training", tmp_path, capsys)
    assert {row["epoch"] for row in found["rows"]} == {0, 1, 2} and len(found["rows"]) == 18
    assert all(0 <= row["dead"] <= row["features"] >= row["left"] > 0 for row in found["rows"])
    assert found["claims"][0]["verdict"] == "not reproduced" and found["claims"][0]["why"]


def test_nets_that_parted_and_nets_that_never_were_one(tmp_path, capsys, monkeypatch):
    """A net trained on twice stays nearer to natural than two that were trained apart."""
    make_small(monkeypatch, "myrtle", width=2)
    monkeypatch.setitem(connected.PARTED, "quick", (1,))
    found = reproduce("ifm-connected", tmp_path, capsys)
    parted, apart = found["rows"]
    assert 0 < parted["defect, mean of layers"] < apart["defect, mean of layers"]


def test_an_isomorphic_pair_is_natural_and_a_pair_off_the_line_is_not_asked():
    def pairs_of(barrier, defect):
        near = [connected.ConnectedPair(4, k, barrier, {"a": defect, "b": defect / 2}) for k in range(3)]
        return {
            4: near,
            None: [connected.ConnectedPair(None, k, 50.0, {"a": 0.9 + k / 99, "b": 0.8}) for k in range(3)],
        }

    verdict = {
        case: [claim.verdict for claim in connected.claims_of(pairs_of(*case), ["a", "b"])]
        for case in ((0.5, 0.01), (0.5, 0.3), (9.0, 0.01))
    }
    assert verdict[0.5, 0.01] == [Verdict.AGREES, Verdict.AGREES]
    assert verdict[0.5, 0.3][0] == Verdict.NOT_REPRODUCED and verdict[9.0, 0.01] == [Verdict.NOT_RUN]


def test_a_preset_that_a_recipe_does_not_have(tmp_path, capsys):
    assert main(["reproduce", "symmetry-table1", "--preset", "cifar", "-o", str(tmp_path)]) == 2
    assert "quick or paper" in capsys.readouterr().err


LAYERS = ["a", "b", "c", "d", "e", "f"]


def pairs(inside, **curves):
    """Four nets whose pairs have these numbers at six layers, and a little noise."""
    noise = np.random.default_rng(0).normal(0, 1e-3, (4, 4, len(LAYERS)))
    values = {name.replace("_", ":"): np.array(curve, float) + noise for name, curve in curves.items()}
    return godfrey.Pairs(LAYERS, dict(zip(LAYERS, inside, strict=True)), values)


def verdicts(claims):
    return {claim.what: claim.verdict for claim in claims}


@pytest.mark.parametrize("model", ["myrtle", "resnet20-pad", "resnet18", "myrtle-constant"])
def test_claims_about_cka_hold_for_what_the_source_shows_and_for_nothing_else(model):
    inside = [False, True, False, True, False, True] if model.startswith("resnet") else [False] * 6
    group = np.array([0.8, 0.7, 0.65, 0.2, 0.5, 0.45])
    rotation = np.array([0.9, 0.85, 0.88, 0.6, 0.86, 0.8])
    low = np.full((4, 4), 0.1)
    found = pairs(inside, G_ReLU=group, orthogonal=rotation)
    found.values["G_ReLU"], found.values["orthogonal"] = (found.values.pop(k) for k in list(found.values))
    others = {"G_ReLU": low, "orthogonal": low}
    setting = Setting("paper")
    good = symmetries._cka_claims(found, others, model, setting)
    assert set(verdicts(good).values()) == {"agrees"}
    swapped = godfrey.Pairs(LAYERS, found.inside, {"G_ReLU": found.values["orthogonal"],
                                                   "orthogonal": found.values["G_ReLU"]})  # fmt: skip
    bad = verdicts(symmetries._cka_claims(swapped, others, model, setting))
    assert bad["orthogonal minus G_ReLU at each layer"] == "not reproduced"
    assert bad["the same drop, G_ReLU minus orthogonal"] == "not reproduced"


@pytest.mark.parametrize("model", ["myrtle", "resnet20-pad", "resnet18", "myrtle-constant"])
def test_claims_about_procrustes(model):
    inside = [False, True, False, True, False, True] if model.startswith("resnet") else [False] * 6
    group, rotation = np.array([0.7, 0.6, 0.55, 0.66, 0.44, 0.5]), np.array([0.8, 0.7, 0.65, 0.76, 0.5, 0.6])
    values = {
        "G_ReLU": pairs(inside, g=group).values["g"],
        "orthogonal": pairs(inside, o=rotation).values["o"],
    }
    found = godfrey.Pairs(LAYERS, dict(zip(LAYERS, inside, strict=True)), values)
    assert set(verdicts(symmetries._procrustes_claims(found, {}, model, Setting())).values()) == {"agrees"}
    own = symmetries._procrustes_claims(found, {}, model, Setting("paper"))
    assert len(own) >= len(symmetries._procrustes_claims(found, {}, model, Setting()))


def test_claims_about_stitching():
    plain = pairs(
        [False] * 6, full=[1, 1, 2, 2, 3, 1], rank_1=[60] * 6, rank_4=[30] * 6, group=[3, 4, 6, 8, 14, 5]
    )
    assert set(verdicts(stitchings._plain_claims(plain)).values()) == {"agrees"}
    worse = pairs([False] * 6, full=[1] * 6, rank_1=[2] * 6, rank_4=[1] * 6, group=[20, 19, 18, 17, 16, 15])
    found = verdicts(stitchings._plain_claims(worse))
    assert found.pop("group minus full, mean over layers") == "agrees"
    assert set(found.values()) == {"not reproduced"}
    blocks = [False, True, False, True, False, True]
    residual = pairs(
        blocks, full=[1, 9, 1, 9, 1, 9], rank_1=[50, 55, 50, 55, 50, 55], group=[9, 70, 9, 88, 9, 70]
    )
    for model in ("resnet20-pad", "resnet18"):
        assert set(verdicts(stitchings._residual_claims(residual, model, [0.9])).values()) == {"agrees"}
    lower = pairs(blocks, full=[2, 1] * 3, rank_1=[5, 9] * 3, group=[9, 8] * 3)
    assert set(verdicts(stitchings._residual_claims(lower, "resnet20-pad", [0.9])).values()) == {
        "not reproduced"
    }


def test_one_pair_is_no_finding():
    found = pairs([False] * 6, full=[1] * 6, rank_1=[60] * 6, group=[3, 4, 6, 8, 14, 5])
    two = godfrey.Pairs(LAYERS, found.inside, {k: v[:2, :2] for k, v in found.values.items()})
    known = verdicts(stitchings._plain_claims(two))
    assert known["group minus full, mean over layers"] == "not run"
