"""MODEL strings: every kind resolves, and every bad one is a clear error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from intertwine import zoo
from intertwine.errors import InputError, ModelError, NotFound, Unsupported
from intertwine.zoo.sources import parse_input


def run(source: zoo.Source) -> object:
    with torch.no_grad():
        return source.model(*source.example, **source.kwargs)


def test_zoo_source_is_reproducible_and_leaves_the_random_state_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    a, b, c = zoo.resolve("zoo:tiny10"), zoo.resolve("zoo:tiny10"), zoo.resolve("zoo:tiny10", seed=1)
    assert torch.get_rng_state().equal(before)
    assert a.example[0].shape == (2, 3, 32, 32)
    assert run(a).equal(run(b))  # type: ignore[attr-defined]
    assert not run(a).equal(run(c))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        ("torchvision:squeezenet1_1", (2, 3, 224, 224)),
        ("torchvision:googlenet", (2, 3, 224, 224)),
        ("torchvision:inception_v3", (2, 3, 299, 299)),
        ("torchvision:lraspp_mobilenet_v3_large", (2, 3, 128, 128)),
        ("torchvision:r3d_18", (2, 3, 8, 112, 112)),
        ("timm:ghostnet_100", (2, 3, 224, 224)),
        ("timm:test_resnet", (2, 3, 160, 160)),
    ],
)
def test_vision_defaults(spec: str, shape: tuple[int, ...]) -> None:
    source = zoo.resolve(spec)
    assert source.example[0].shape == shape
    assert not source.model.training


def test_googlenet_has_no_idle_heads_but_accepts_files_that_do(tmp_path: Path) -> None:
    source = zoo.resolve("torchvision:googlenet")
    state = source.model.state_dict()
    assert not any(name.startswith("aux") for name in state)
    path = zoo.save_weights({**state, "aux1.fc1.weight": torch.zeros(2, 2)}, tmp_path / "w.safetensors")
    zoo.load_weights(source.model, path, ignore=source.idle)


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "vit", "t5", "mixtral", "swin"])
def test_small_transformers_run(family: str) -> None:
    source = zoo.resolve(f"hf:{family}")
    output = run(source)
    assert torch.isfinite(output["logits"]).all()  # type: ignore[index]
    if family != "swin":  # its widths are lists, which stay as they are
        assert sum(p.numel() for p in source.model.parameters()) < 200_000


def test_input_overrides() -> None:
    source = zoo.resolve("zoo:mlp", input="5x784")
    assert source.example[0].shape == (5, 784)
    t5 = zoo.resolve("hf:t5", input="3x7:int64,3x5:int64")
    assert t5.example[0].shape == (3, 7)
    assert t5.kwargs["decoder_input_ids"].shape == (3, 5)
    raft = zoo.resolve("torchvision:raft_small", input="2x3x136x136")
    assert [tuple(t.shape) for t in raft.example] == [(2, 3, 136, 136), (2, 3, 128, 128)]
    with pytest.raises(InputError, match="takes 1 inputs, not 2"):
        zoo.resolve("zoo:mlp", input="1x784,1x784")
    tokens = zoo.resolve("hf:gpt2", input="3x7:int64").example[0]
    assert tokens.shape == (3, 7)
    assert tokens.dtype is torch.int64


@pytest.mark.parametrize("text", ["", "3xx3", "axb", "1x-3", "0x3", "1x3:float7", "1x3,,2", "1.5x2"])
def test_bad_input_shapes(text: str) -> None:
    with pytest.raises(InputError, match="cannot read the input shape"):
        parse_input(text)


@pytest.mark.parametrize(
    ("spec", "kind", "says"),
    [
        ("zoo:resnet21", NotFound, "resnet20"),
        ("torchvision:resnet19", NotFound, "resnet18"),
        ("torchvision:fasterrcnn_resnet50_fpn", Unsupported, "detector"),
        ("timm:resnet5O", NotFound, "resnet50"),
        ("timm:hf-hub:someone/something", NotFound, "no model"),
        ("hf:berd", NotFound, "bert"),
        ("hf:dinat", Unsupported, "natten"),
        ("resnet18", ModelError, "zoo:NAME"),
        ("", ModelError, "zoo:NAME"),
        ("nowhere.py:build", ModelError, "no such file"),
    ],
)
def test_bad_specs(spec: str, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind) as info:
        zoo.resolve(spec)
    assert says in str(info.value)


USER_FILE = """
import torch
from dataclasses import dataclass
from neighbour import WIDTH

@dataclass
class Config:
    width: int = WIDTH

def bare():
    return torch.nn.Linear(Config().width, 2)

def with_example():
    return torch.nn.Linear(3, 2), torch.ones(4, 3)

def with_kwargs():
    return torch.nn.Bilinear(3, 3, 2), (torch.ones(4, 3),), {"input2": torch.ones(4, 3)}

def broken():
    raise RuntimeError("no weights today")

def wrong():
    return 7
"""


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    (tmp_path / "neighbour.py").write_text("WIDTH = 3\n")
    path = tmp_path / "nets.py"
    path.write_text(USER_FILE)
    return path


def test_user_factories(user_file: Path) -> None:
    path_before = list(sys.path)
    assert zoo.resolve(f"{user_file}:bare", input="2x3").model.training is False
    assert run(zoo.resolve(f"{user_file}:with_example")).shape == (4, 2)  # type: ignore[attr-defined]
    assert run(zoo.resolve(f"{user_file}:with_kwargs")).shape == (4, 2)  # type: ignore[attr-defined]
    assert sys.path == path_before


@pytest.mark.parametrize(
    ("factory", "kind", "says"),
    [
        ("bare", InputError, "--input"),
        ("broken", ModelError, "no weights today"),
        ("wrong", ModelError, "int"),
        ("missing", NotFound, "with_example"),
    ],
)
def test_bad_factories(user_file: Path, factory: str, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind) as info:
        zoo.resolve(f"{user_file}:{factory}")
    assert says in str(info.value)


def test_user_file_that_does_not_run(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text("def f(:\n")
    with pytest.raises(ModelError, match="SyntaxError"):
        zoo.resolve(f"{path}:f")


def test_zoo_and_data_import_nothing_heavy() -> None:
    code = (
        "import sys, intertwine.zoo, intertwine.data, intertwine.terminal.loading\n"
        "heavy = {'torchvision', 'timm', 'transformers', 'sklearn', 'pyarrow', 'PIL', 'plotly', 'ray'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_torchvision_imports_after_the_shim_in_a_fresh_interpreter() -> None:
    code = (
        "from intertwine.vision_shim import import_vision\n"
        "models = import_vision('torchvision.models')\n"
        "import timm\n"
        "print(models.resnet18(weights=None).fc.out_features)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "1000"
