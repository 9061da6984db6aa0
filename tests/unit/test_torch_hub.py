"""`hub:PLACE:NAME`: entry points of a hubconf.py, from a folder or torch.hub's cache; code needs leave."""

from pathlib import Path

import pytest
import torch

from intertwine import load, merge
from intertwine.cli import main
from intertwine.errors import InputError, ModelError, NotFound
from intertwine.zoo import resolve, save_model
from intertwine.zoo.sources import runs_code

CODE = """
dependencies = ["torch"]
import torch as _torch
from neighbour import WIDTH

def mlp(pretrained=False, num_classes=2):
    import later  # entry points import when they are called
    net = _torch.nn.Sequential(_torch.nn.Linear(3, WIDTH), later.ReLU(), _torch.nn.Linear(WIDTH, num_classes))
    if pretrained:
        net.load_state_dict(_torch.hub.load_state_dict_from_url("https://nowhere.invalid/mlp.pt"))
    return net

def number():
    return 7

def fails():
    raise RuntimeError("no such luck")
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of torch.hub with one repository, at one ref, and its weights."""
    repository = tmp_path / "own_nets_main"
    repository.mkdir()
    (repository / "hubconf.py").write_text(CODE)
    (repository / "neighbour.py").write_text("WIDTH = 8\n")
    (repository / "later.py").write_text("from torch.nn import ReLU\n")
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path))
    return tmp_path


def test_a_folder_and_the_cache(cache: Path) -> None:
    for place in (f"{cache}/own_nets_main", "own/nets", "own/nets:main"):
        source = resolve(f"hub:{place}:mlp", input="2x3", run_code=True)
        assert source.model[0].out_features == 8 and source.name == f"hub:{cache}/own_nets_main:mlp"
    assert resolve("hub:own/nets:mlp", input="2x3", classes=5, run_code=True).model[2].out_features == 5


def test_nothing_runs_without_leave(cache: Path) -> None:
    (cache / "own_nets_main" / "hubconf.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(InputError, match="runs the Python code"):
        resolve("hub:own/nets:mlp", input="2x3")
    assert runs_code("hub:own/nets:mlp")
    with pytest.raises(ModelError, match="SystemExit"):
        resolve("hub:own/nets:mlp", input="2x3", run_code=True)


def test_weights_come_from_the_checkpoints_of_the_cache(cache: Path) -> None:
    wanted = resolve("hub:own/nets:mlp", input="2x3", run_code=True, seed=3).model.state_dict()
    (cache / "checkpoints").mkdir()
    torch.save(wanted, cache / "checkpoints" / "mlp.pt")
    found = resolve("hub:own/nets:mlp", input="2x3", run_code=True, pretrained=True).model
    assert torch.equal(found[0].weight, wanted["0.weight"])


def test_what_is_not_there_is_said(cache: Path) -> None:
    for spec, error, words in (
        ("hub:own/nets:cnn", NotFound, "no entry point 'cnn'"),
        ("hub:own/other:mlp", NotFound, "neither a folder"),
        ("hub:own/nets:dev:mlp", NotFound, "neither a folder"),
        ("hub:mlp", InputError, "cannot read"),
        ("hub:own/nets:number", ModelError, "returned a int"),
        ("hub:own/nets:fails", ModelError, "no such luck"),
    ):
        with pytest.raises(error, match=words):
            resolve(spec, input="2x3", run_code=True)
    with pytest.raises(InputError, match="no argument `pretrained`"):
        resolve("hub:own/nets:number", input="2x3", run_code=True, pretrained=True)
    (cache / "own_nets_v2").mkdir()
    (cache / "own_nets_v2" / "hubconf.py").write_text(CODE)
    with pytest.raises(InputError, match="several"):
        resolve("hub:own/nets:mlp", input="2x3", run_code=True)


def test_a_merged_one_loads_from_anywhere(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(cache)
    source = resolve("hub:own_nets_main:mlp", input="2x3", run_code=True)
    small = merge(source.model, source.example, target_params=0.7)
    save_model(small.model, source, tmp_path / "small", {**small.details(), "input": "2x3"})
    monkeypatch.chdir("/")
    with pytest.raises(InputError, match="run_code"):
        load(tmp_path / "small")
    again = load(tmp_path / "small", run_code=True)
    assert torch.equal(again(source.example[0]), small.model(source.example[0]))


def test_the_command(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "hub:own/nets:mlp", "--input", "2x3", "--run-code", "--no-proof"]) == 0
    assert "positive monomial" in capsys.readouterr().out
