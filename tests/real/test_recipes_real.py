"""The preset `cifar` on the nets and images that it names: two recipes by day, all of them at night."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from intertwine.cli import main
from intertwine.recipes import (
    connected,
    existence,
    functional,
    godfrey,
    ifm,
    inside,
    longer,
    paths,
    recipes,
    symmetries,
    transformers,
    worlds,
)
from intertwine.recipes.cifar import CHECKPOINTS, find
from intertwine.recipes.reproducing import Setting

pytestmark = pytest.mark.usefixtures("one_thread", "no_browser")


def reproduce(
    name: str, shared_data: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> dict[str, dict[str, str]]:
    """Claim -> what came out; no claim on nets of others may say more than that it agrees in kind."""
    places = ["--data", str(shared_data), "--weights", str(shared_data / "checkpoints")]
    assert main(["reproduce", name, "--preset", "cifar", *places, "-o", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["preset"] == "cifar" and found["differs"] and found["verdict"] != "not run"
    assert "agrees" not in {claim["verdict"] for claim in found["claims"]}
    assert (folder / f"{name}.html").is_file()
    return {claim["what"]: claim for claim in found["claims"]}


def test_every_checkpoint_that_the_preset_names_is_here(shared_data: Path) -> None:
    setting = Setting("cifar", shared_data, shared_data / "checkpoints")
    assert all(find(setting, f"{name}.safetensors").is_file() for name in CHECKPOINTS)
    assert sum("cifar" in recipe.presets for recipe in recipes().values()) >= 24


OWN_TEST = ("functional-table4.1", "ifm-fig2a")
ALL = [name for name, recipe in recipes().items() if "cifar" in recipe.presets and name not in OWN_TEST]


@pytest.mark.nightly
@pytest.mark.parametrize("name", ALL)
def test_every_recipe_of_the_preset(
    name: str, shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """To its end, on a few images: what comes out is not looked at, only that there is a verdict."""
    for module in (worlds, functional, paths, ifm, transformers):
        monkeypatch.setattr(module, "IMAGES", 24)
    monkeypatch.setattr(functional, "RELATED", functional.RELATED[:3])
    monkeypatch.setitem(inside.IMAGES, "cifar", 60)
    monkeypatch.setitem(godfrey.IMAGES, "cifar", (24, 24))
    monkeypatch.setitem(godfrey.NETS, "cifar", 3)
    monkeypatch.setitem(symmetries.INPUTS, "cifar", 12)
    monkeypatch.setitem(connected.PARTED, "cifar", (1,))
    monkeypatch.setitem(connected.TRAINED_ON, "cifar", 60)
    short = replace(longer.PLANS["cifar"], epochs=4, images=32, tested=16)
    monkeypatch.setitem(longer.PLANS, "cifar", short)
    reproduce(name, shared_data, tmp_path, capsys)


def test_cats_and_dogs_with_opposite_functions(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Table 4.1: features are equal by construction, outputs as far apart as the source has it."""
    monkeypatch.setattr(existence, "LIMIT", 600)
    found = reproduce("functional-table4.1", shared_data, tmp_path, capsys)
    assert found["CKA and CCA before the mask"]["verdict"] == "agrees in kind"
    assert found["JSD, nothing masked"]["verdict"] == "agrees in kind"


def test_no_two_features_of_this_vgg_are_equal(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Figure 2a: the source has a smallest distance of 2e-15; here the row says no, with a reason."""
    found = reproduce("ifm-fig2a", shared_data, tmp_path, capsys)
    smallest = found["smallest normalised distance"]
    assert smallest["verdict"] == "not reproduced" and smallest["why"] and float(smallest["here"]) > 1e-6
