"""intertwine.load: what merge wrote comes back, and code runs only when allowed."""

from __future__ import annotations

import argparse
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import intertwine
from intertwine.cli import main
from intertwine.cli.parser import build_parser
from intertwine.errors import InputError, ModelError, WeightsError
from intertwine.terminal.outputs import OUTPUTS, kind_of
from intertwine.zoo import checkpoint, load_weights, resolve


def test_round_trip(tmp_path, capsys):
    out = tmp_path / "small"
    assert (
        main(["merge", "zoo:digits-vgg", "--weights", "shipped:0", "--target-params", "0.5", "-o", str(out)])
        == 0
    )
    small = intertwine.load(out)
    source = resolve("zoo:digits-vgg")
    full = load_weights(source.model, checkpoint("digits-vgg", 0))
    kept = sum(p.numel() for p in small.parameters()) / sum(p.numel() for p in full.parameters())
    assert kept <= 0.5 and type(small) is type(full) and not small.training
    assert small(source.example[0]).shape == full(source.example[0]).shape


def test_code_runs_only_when_allowed(tmp_path, capsys):
    (tmp_path / "net.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def make():\n"
        "    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)), (torch.zeros(2, 4),)\n"
    )
    out = tmp_path / "small"
    assert main(["merge", f"{tmp_path / 'net.py'}:make", "--target-params", "0.6", "-o", str(out)]) == 0
    with pytest.raises(InputError, match="running the Python code"):
        intertwine.load(out)
    assert intertwine.load(out, run_code=True)(torch.zeros(1, 4)).shape == (1, 3)
    capsys.readouterr()
    assert main(["inspect", str(out)]) == 2 and "--run-code" in capsys.readouterr().err
    assert main(["inspect", str(out), "--run-code", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["axes"][0]["size"] < 16
    again = ["merge", str(out), "--run-code", "--target-params", "0.9", "-o", str(tmp_path / "smaller")]
    assert main(again) == 2 and "merged model already" in capsys.readouterr().err


def test_no_network_is_built_that_the_weights_do_not_name(tmp_path, monkeypatch):
    """A recipe of a kilobyte could otherwise ask for more networks than fit into memory."""
    out = tmp_path / "small"
    assert main(["merge", "zoo:mlp", "--target-params", "0.5", "-o", str(out)]) == 0
    recipe = json.loads((out / "recipe.json").read_text())
    (out / "recipe.json").write_text(json.dumps(recipe | {"networks": ["zoo:mlp"] * 3000}))
    monkeypatch.setattr("intertwine.zoo.merged.resolve", lambda *_, **__: pytest.fail("it is built"))
    with pytest.raises(WeightsError, match="contradicts itself about 'networks'"):
        intertwine.load(out)


def test_a_recipe_whose_numbers_are_larger_than_the_model_s(tmp_path):
    out = tmp_path / "small"
    assert main(["merge", "zoo:mlp", "--target-params", "0.5", "-o", str(out)]) == 0
    model = intertwine.load(out)
    place, layer = next((name, m) for name, m in model.named_modules() if hasattr(m, "in_features"))
    edit(out, numbers={place: {"in_features": layer.in_features}})
    intertwine.load(out)
    edit(out, numbers={place: {"in_features": 2**60}})
    with pytest.raises(WeightsError, match="does not fit its factory"):
        intertwine.load(out)


def test_a_recipe_that_names_itself(tmp_path):
    out = tmp_path / "small"
    assert main(["merge", "zoo:mlp", "--target-params", "0.5", "-o", str(out)]) == 0
    recipe = json.loads((out / "recipe.json").read_text())
    (out / "recipe.json").write_text(json.dumps({**recipe, "source": str(out)}))
    with pytest.raises(WeightsError, match="made of a merged model"):
        intertwine.load(out)


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(WeightsError, match="not a merged model"):
        intertwine.load(tmp_path)


NET = """
import torch
from torch import nn
def cnn():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 3))
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory) -> Path:
    """A model of the user's own file that does not say its input, merged from its own folder."""
    place = tmp_path_factory.mktemp("own")
    (place / "mynet.py").write_text(NET)
    here = Path.cwd()
    os.chdir(place)
    try:
        command = ["merge", "mynet.py:cnn", "--input", "1x3x8x8", "--method", "magnitude"]
        assert main([*command, "--target-params", "0.6", "-o", "small"]) == 0
    finally:
        os.chdir(here)
    return place


def edit(folder: Path, **changes) -> None:
    """Change fields of a recipe; None takes one away."""
    recipe = json.loads((folder / "recipe.json").read_text()) | changes
    recipe = {key: value for key, value in recipe.items() if value is not None}
    (folder / "recipe.json").write_text(json.dumps(recipe))


@pytest.fixture
def small(own, tmp_path) -> Path:
    shutil.copytree(own / "small", tmp_path / "small")
    return tmp_path / "small"


def test_a_model_of_ones_own_loads_from_anywhere(own, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = intertwine.load(own / "small", run_code=True)
    assert model(torch.zeros(1, 3, 8, 8)).shape == (1, 3) and model[0].out_channels < 8
    with pytest.raises(InputError, match=r"running the Python code in .*mynet\.py"):
        intertwine.load(own / "small")


def test_a_file_that_moved_or_changed_is_told(own, small, tmp_path):
    moved = tmp_path / "moved.py"
    edit(small, file=str(tmp_path / "gone.py"))
    with pytest.raises(ModelError, match=r"is not at .*gone\.py"):
        intertwine.load(small, run_code=True)
    moved.write_text(NET)
    assert intertwine.load(small, run_code=True, source=f"{moved}:cnn")
    with pytest.raises(InputError, match="running the Python code"):
        intertwine.load(small, source=f"{moved}:cnn")
    moved.write_text(NET + "# another edition\n")
    with pytest.warns(UserWarning, match="has changed since"):
        assert intertwine.load(small, run_code=True, source=f"{moved}:cnn")
    moved.write_text(NET.replace("Conv2d(3, 8, 3)", "Conv2d(3, 8, 3, bias=False)"))
    gone = pytest.raises(WeightsError, match=r"gives no '0\.bias'")
    with pytest.warns(UserWarning, match="has changed"), gone:
        intertwine.load(small, run_code=True, source=f"{moved}:cnn")


def test_code_never_runs_unasked(small, tmp_path):
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\n")
    elsewhere = {"file": str(trap)}
    for changes in ({"source": f"{trap}:cnn", "file": None}, elsewhere, {"source": "zoo:mlp", **elsewhere}):
        edit(small, **changes)
        with pytest.raises(InputError):
            intertwine.load(small)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"format": "other"}, "not a merged model"),
        ({"source": None}, "lacks 'source'"),
        ({"source": 5}, "wrong 'source'"),
        ({"source": "zoo:nothing"}, "nothing"),
        ({"source": "zoo:mlp"}, "do not fit"),
        ({"input": None}, "input"),
        ({"input": 7}, "wrong 'input'"),
        ({"input": "1x0"}, "input shape"),
        ({"input": "1x5"}, "does not run"),
        ({"shapes": None}, "lacks 'shapes'"),
        ({"shapes": []}, "wrong 'shapes'"),
        ({"shapes": {"0.weight": "x"}}, "wrong 'shapes'"),
        ({"shapes": {"0.weight": [-1, 2]}}, "wrong 'shapes'"),
        ({"shapes": {}, "dtypes": {}}, "has not: '0.bias'"),
        ({"tied": {"0.weight": 1}}, "wrong 'tied'"),
        ({"tied": {"a": "b"}}, "contradicts itself"),
        ({"dtypes": {"0.bias": 1}}, "wrong 'dtypes'"),
        ({"infinite": "0.bias"}, "wrong 'infinite'"),
        ({"file": 3}, "wrong 'file'"),
    ],
)
def test_every_field_is_checked(small, changes, what):
    edit(small, **changes)
    with pytest.raises(InputError, match=what):
        intertwine.load(small, run_code=True)


@pytest.mark.parametrize("text", ["", "null", "[]", "{", '"x"', "[" * 100_000, '{"format": []}', "\ud800"])
def test_a_recipe_that_is_none(small, text):
    (small / "recipe.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(WeightsError, match="not a merged model"):
        intertwine.load(small, run_code=True)


def test_weights_are_those_of_the_recipe(small):
    good = load_file(small / "weights.safetensors")
    bias = good["0.bias"]
    spoilt = {
        "lacks the weight '0.bias'": {k: v for k, v in good.items() if k != "0.bias"},
        "has not: 'extra'": {**good, "extra": torch.zeros(1)},
        "in the recipe": {**good, "0.bias": bias[:-1].clone()},
        "is float64": {**good, "0.bias": bias.double()},
        "NaN": {**good, "0.bias": bias * float("nan")},
        "infinite": {**good, "0.bias": bias / 0.0},
    }
    for what, weights in spoilt.items():
        save_file(weights, small / "weights.safetensors")
        with pytest.raises(WeightsError, match=what):
            intertwine.load(small, run_code=True)
    for damage in (b"", b"\xff" * 100):
        (small / "weights.safetensors").write_bytes(damage)
        with pytest.raises(WeightsError, match="not a merged model"):
            intertwine.load(small, run_code=True)


def test_shapes_that_do_not_fit_together_do_not_load(small):
    """The recipe and the weights agree, and still are no network."""
    weights = load_file(small / "weights.safetensors")
    weights["3.weight"] = weights["3.weight"][:, :-1].clone()
    save_file(weights, small / "weights.safetensors")
    edit(small, shapes={name: list(t.shape) for name, t in weights.items()})
    with pytest.raises(WeightsError, match="does not run on its example"):
        intertwine.load(small, run_code=True)
    weights["3.weight"] = weights["3.weight"][0].clone()
    save_file(weights, small / "weights.safetensors")
    edit(small, shapes={name: list(t.shape) for name, t in weights.items()})
    with pytest.raises(WeightsError, match="in the recipe and"):
        intertwine.load(small, run_code=True)


def test_a_folder_with_something_else_in_it_is_kept(small, capsys):
    (small / "notes.txt").write_text("mine")
    before = sorted((p.name, p.read_bytes()) for p in small.iterdir())
    command = ["merge", "zoo:mlp", "--method", "magnitude", "-o", str(small)]
    assert main(command) == 2 and "which merge did not write" in capsys.readouterr().err
    assert sorted((p.name, p.read_bytes()) for p in small.iterdir()) == before
    (small / "notes.txt").unlink()
    (small / "recipe.json").write_text("{}")
    assert main(command) == 2 and "not a merged model" in capsys.readouterr().err


def test_no_output_over_an_input(small, own, tmp_path, capsys):
    weights = small / "weights.safetensors"
    before = weights.read_bytes()
    (tmp_path / "link").symlink_to(weights)
    model = f"{own / 'mynet.py'}:cnn"
    for command in (
        ["inspect", model, "--weights", str(weights), "-o", str(weights)],
        ["inspect", model, "--weights", str(tmp_path / "link"), "-o", str(weights)],
        ["inspect", model, "-o", str(own / "mynet.py")],
        ["merge", model, "--weights", str(weights), "-o", str(small)],
        ["merge", model, "--data", f"npz:{weights}", "--plan", str(weights)],
        ["align", model, model, "--weights-b", str(weights), "-o", str(weights)],
        ["align", model, model, "-o", str(tmp_path / "a"), "--element", str(tmp_path / "a")],
        ["merge", model, "-o", str(tmp_path / "new"), "--plan", str(tmp_path / "new" / "plan.json")],
    ):
        assert main(command) == 2
        told = capsys.readouterr().err
        assert any(what in told for what in ("is an input", "written twice", "each other")), told
    assert weights.read_bytes() == before and (own / "mynet.py").read_text() == NET


def test_every_output_of_every_verb_is_known():
    """An option that says it writes is one of OUTPUTS, and the other way round."""
    found = set()

    def walk(parser, verb=""):
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, child in action.choices.items():
                    walk(child, verb or name)
            elif action.nargs == 0:
                continue  # a flag
            elif "-o" in action.option_strings or "write" in (action.help or "") or action.dest == "save":
                found.add((verb, action.dest))

    walk(build_parser())
    assert OUTPUTS.keys() <= found
    assert all(kind_of(verb, name) is not None for verb, name in found), found


def test_a_name_that_is_too_long_is_no_folder() -> None:
    with pytest.raises(WeightsError):
        intertwine.load("x" * 5000)
