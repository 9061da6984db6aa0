"""The registries of models and data: what is added from outside is known everywhere."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from intertwine import zoo
from intertwine.cli import main
from intertwine.data import DATA_SOURCES, Request, data_source, load_data
from intertwine.data.dataset import Raw
from intertwine.errors import DataError, InputError, ModelError, NotFound, WeightsError
from intertwine.zoo import MODEL_SOURCES, Source, Wanted, model_source
from intertwine.zoo.sources import model_help, resolve, runs_code

pytest.importorskip("transformers")


@pytest.fixture
def line() -> Iterator[str]:
    @model_source("line", form="WIDTH", help="a perceptron from elsewhere", runs_code=True)
    def build(spec: str, wanted: Wanted) -> Source:
        width = int(spec.partition(":")[2])
        net = nn.Sequential(nn.Linear(width, 7), nn.ReLU(), nn.Linear(7, wanted.classes or 3))
        return Source(spec, net, (torch.randn(2, width),))

    yield "line"
    del MODEL_SOURCES["line"]


@pytest.fixture
def checkers() -> Iterator[str]:
    @data_source("checkers", form="SIDE", help="boards from elsewhere")
    def read(rest: str, request: Request) -> Raw:
        board = np.indices((int(rest), int(rest))).sum(0) % 2 * 255
        count = request.limit or 4
        return Raw(np.stack([board.astype(np.uint8)[None]] * count), np.arange(count) % 2)

    yield "checkers"
    del DATA_SOURCES["checkers"]


def test_a_model_source_from_outside(line: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It builds, is in help texts and hints, takes weights of another number of classes, and runs code."""
    assert main(["inspect", "line:5", "--json"]) == 0
    assert '"size": 7' in capsys.readouterr().out
    assert main(["inspect", "--help"]) == 0
    assert "a perceptron from elsewhere" in capsys.readouterr().out
    with pytest.raises(ModelError, match="line:WIDTH"):
        resolve("nothing:5")
    assert runs_code("line:5")
    zoo.save_weights(resolve("line:5", classes=4).model, tmp_path / "w.safetensors")
    assert resolve("line:5", weights=tmp_path / "w.safetensors").model[2].out_features == 4  # type: ignore[index]
    with pytest.raises(WeightsError, match="does not fit"):
        resolve("line:5", weights=tmp_path / "w.safetensors", classes=6)


def test_a_data_source_from_outside(checkers: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = load_data("checkers:4", limit=2)
    assert data.images.shape == (2, 1, 4, 4)
    assert set(data.images.unique().tolist()) == {0.0, 1.0}
    assert main(["compare", "--help"]) == 0
    assert "boards from elsewhere" in capsys.readouterr().out
    for bad in ("checkers", "checkers:"):
        with pytest.raises(DataError, match="checkers:SIDE"):
            load_data(bad)


def test_every_builtin_source_has_help() -> None:
    for source in MODEL_SOURCES.values():
        assert source.help
        assert source.form in model_help()
    assert all(source.help for source in DATA_SOURCES.values())
    assert [s.prefix for s in MODEL_SOURCES.values() if s.runs_code] == ["hub", "file.pt2", "file.py"]


def test_classes_follow_the_weights(tmp_path: Path) -> None:
    pytest.importorskip("timm")
    for spec in ("zoo:tiny10", "timm:resnet18", "torchvision:resnet18"):
        zoo.save_weights(resolve(spec, classes=13).model, tmp_path / "w.safetensors")
        source = resolve(spec, weights=tmp_path / "w.safetensors")
        assert source.model.fc.out_features == 13  # type: ignore[union-attr]


def test_names_of_trained_weights() -> None:
    pytest.importorskip("timm")
    with pytest.raises(NotFound, match="IMAGENET1K_V1"):
        resolve("torchvision:resnet18@IMAGENET21K")
    with pytest.raises(NotFound, match=r"resnet18\.a1_in1k"):
        resolve("timm:resnet18.a1_in2k")
    with pytest.raises(InputError, match="no trained weights"):
        resolve("zoo:mlp", pretrained=True)


def test_torchvision_weights_come_from_the_hubs_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is read with weights_only, normalisation and size come with it; without it, our message."""
    pytest.importorskip("torchvision")
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr(torch.hub, "download_url_to_file", refuse)
    with pytest.raises(WeightsError, match="no network"):
        resolve("torchvision:squeezenet1_1@IMAGENET1K_V1")
    torch.manual_seed(3)
    trained = resolve("torchvision:squeezenet1_1", seed=7).model.state_dict()
    torch.save(trained, tmp_path / "checkpoints" / "squeezenet1_1-b8a52dc0.pth")
    source = resolve("torchvision:squeezenet1_1@IMAGENET1K_V1")
    assert all(value.equal(trained[name]) for name, value in source.model.state_dict().items())
    assert source.prepare.normalize == "0.485,0.456,0.406/0.229,0.224,0.225"
    assert source.prepare.size == 224
    assert resolve("torchvision:squeezenet1_1", pretrained=True).prepare == source.prepare


def test_a_tag_of_timm_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights of a tag lie in the hub's cache; classes, size and normalisation come with the tag."""
    timm = pytest.importorskip("timm")
    from huggingface_hub import constants
    from safetensors.torch import save_file

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    spec = "timm:test_resnet.r160_in1k"
    with pytest.raises(WeightsError, match="not in the cache"):
        resolve(spec)
    trained = resolve("timm:test_resnet", seed=7).model.state_dict()
    place = tmp_path / "models--timm--test_resnet.r160_in1k"
    (place / "snapshots" / "0123").mkdir(parents=True)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("0123")
    save_file(trained, place / "snapshots" / "0123" / "model.safetensors")
    for source in (resolve(spec), resolve("timm:test_resnet", pretrained=True)):
        assert all(value.equal(trained[name]) for name, value in source.model.state_dict().items())
        config = timm.get_pretrained_cfg("test_resnet.r160_in1k")
        assert source.prepare.size == config.input_size[-1] and source.example[0].shape[-1] == 160
        assert source.prepare.normalize == "0.5,0.5,0.5/0.5,0.5,0.5"
    head = resolve(spec, classes=7).model.state_dict()  # another head, the trained body
    assert head["fc.weight"].shape[0] == 7 and head["conv1.0.weight"].equal(trained["conv1.0.weight"])
    assert not resolve("timm:test_resnet").model.state_dict()["fc.weight"].equal(trained["fc.weight"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small GPT-2 as save_pretrained writes it, in shards."""
    path = tmp_path_factory.mktemp("hf") / "gpt2"
    source = resolve("hf:gpt2?layers=1&vocabulary=40", seed=3)
    source.model.save_pretrained(path, max_shard_size="20KB")  # type: ignore[operator]
    return path


def test_hf_folder(folder: Path) -> None:
    assert len(list(folder.glob("*.safetensors"))) > 1
    source, toy = resolve(f"hf:{folder}"), resolve("hf:gpt2?layers=1&vocabulary=40", seed=3)
    mine, theirs = source.model.state_dict(), toy.model.state_dict()
    assert mine.keys() == theirs.keys()
    assert all(mine[name].equal(theirs[name]) for name in mine)
    assert source.prepare.objective == "causal"
    assert source.folder == folder


def test_hf_toys_take_sizes() -> None:
    sized = resolve("hf:llama?layers=3&hidden=56").model.config
    assert (sized.num_hidden_layers, sized.intermediate_size) == (3, 56)  # type: ignore[union-attr]
    with pytest.raises(InputError, match="no size 'depth'"):
        resolve("hf:llama?depth=3")


def test_hf_folder_that_does_not_fit(folder: Path, tmp_path: Path) -> None:
    import shutil

    from safetensors.torch import load_file, save_file

    with pytest.raises(ModelError, match=r"no config\.json|is no folder"):
        resolve(f"hf:{tmp_path}")
    resolve(f"hf:{folder}").model.save_pretrained(tmp_path / "one")  # type: ignore[operator]
    weights = tmp_path / "one" / "model.safetensors"
    state = load_file(weights)
    save_file({n: t for n, t in state.items() if "c_fc.weight" not in n}, weights, {"format": "pt"})
    with pytest.raises(WeightsError, match=r"c_fc\.weight"):
        resolve(f"hf:{tmp_path / 'one'}")
    save_file({n: t.fill_(float("nan")) for n, t in state.items()}, weights, {"format": "pt"})
    with pytest.raises(WeightsError, match="NaN"):
        resolve(f"hf:{tmp_path / 'one'}")
    weights.write_bytes(b"garbage")
    with pytest.raises(ModelError, match="cannot load"):
        resolve(f"hf:{tmp_path / 'one'}")
    shutil.rmtree(tmp_path / "one")


def test_hf_never_runs_code_unasked(folder: Path, tmp_path: Path) -> None:
    """A folder with its own code is refused, and the code leaves no trace, until --run-code."""
    import json
    import shutil

    own = tmp_path / "own"
    shutil.copytree(folder, own)
    config = json.loads((own / "config.json").read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "modeling_own.Own"}
    (own / "config.json").write_text(json.dumps(config))
    (own / "modeling_own.py").write_text(
        "from pathlib import Path\nfrom transformers import GPT2LMHeadModel\n"
        f"Path({str(tmp_path / 'ran')!r}).touch()\nclass Own(GPT2LMHeadModel):\n    pass\n"
    )
    with pytest.raises(InputError, match="run-code"):
        resolve(f"hf:{own}")
    assert not (tmp_path / "ran").exists()
    assert type(resolve(f"hf:{own}", run_code=True).model).__name__ == "Own"
    assert (tmp_path / "ran").exists()


def test_a_hub_name_that_is_not_there() -> None:
    with pytest.raises(ModelError, match="cannot be fetched from the hub"):
        resolve("hf:nobody/nothing")


@pytest.mark.filterwarnings("ignore:.*LeafSpec")  # torch warns about the programs that it saves
def test_an_exported_program(tmp_path: Path) -> None:
    """`.pt2` in: the same function, and its axes are found; never without --run-code."""
    net = nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 2)).eval()
    x = torch.randn(3, 4)
    torch.export.save(torch.export.export(net, (x,)), tmp_path / "net.pt2")
    with pytest.raises(InputError, match="run-code"):
        resolve(str(tmp_path / "net.pt2"))
    source = resolve(str(tmp_path / "net.pt2"), run_code=True)
    other = torch.randn(7, 4)  # a program that was exported for three rows
    assert torch.allclose(source.model(x), net(x)) and torch.allclose(source.model(other), net(other))
    assert main(["verify", str(tmp_path / "net.pt2"), "--run-code"]) == 0
    (tmp_path / "bad.pt2").write_bytes(b"garbage")
    with pytest.raises(ModelError, match="cannot read"):
        resolve(str(tmp_path / "bad.pt2"), run_code=True)


@pytest.mark.filterwarnings("ignore:.*LeafSpec")
def test_a_program_whose_rows_meet_keeps_its_batch(tmp_path: Path) -> None:
    class Centred(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.cumsum(0)

    torch.export.save(torch.export.export(Centred(), (torch.randn(3, 4),)), tmp_path / "net.pt2")
    model = resolve(str(tmp_path / "net.pt2"), run_code=True).model
    with pytest.raises(RuntimeError, match="to be equal to 3"):
        model(torch.randn(7, 4))


def test_a_path_that_is_no_model_says_what_was_meant(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "net.py").write_text("")
    (tmp_path / "w.pt").write_bytes(b"")
    for name, meant in (
        ("", "write hf:"),
        ("net.py", "net.py:NAME"),
        ("w.pt", "--weights"),
        ("no", "zoo:NAME"),
    ):
        with pytest.raises(ModelError, match="cannot read the model") as caught:
            resolve(str(tmp_path / name))
        assert meant in caught.value.do


def test_a_hub_that_cannot_be_reached_is_not_tried_five_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """No name server, no proxy: only the cache is looked at."""
    from huggingface_hub import constants

    from intertwine.zoo import reaching

    def gone(*_: Any) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # as tests have it otherwise
    monkeypatch.setattr(reaching, "getproxies", dict)
    monkeypatch.setattr(reaching.socket, "getaddrinfo", gone)
    with reaching.hub_if_there():
        assert constants.HF_HUB_OFFLINE
    with pytest.raises(ModelError, match=r"cannot be fetched from the hub: .* cannot be looked up"):
        resolve("hf:nobody/nothing")
    monkeypatch.setattr(reaching, "getproxies", lambda: {"https": "proxy"})
    with reaching.hub_if_there():
        assert not constants.HF_HUB_OFFLINE


def test_transformers_imported_by_the_user(tmp_path: Path) -> None:
    """Both ways of the issue: a factory's file, and a script that imports intertwine first."""
    (tmp_path / "net.py").write_text(
        "from transformers import AutoConfig, AutoModel\nimport torch\n"
        "def make():\n"
        "    config = AutoConfig.for_model('bert', hidden_size=16, num_hidden_layers=1, vocab_size=20,\n"
        "                                  num_attention_heads=2, intermediate_size=24)\n"
        "    return AutoModel.from_config(config), torch.randint(0, 20, (2, 5))\n"
    )
    script = (
        "import intertwine\nfrom transformers import ViTModel\n"
        "from intertwine.zoo import resolve\n"
        f"print(type(resolve({str(tmp_path / 'net.py') + ':make'!r}).model).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "BertModel", done.stderr
