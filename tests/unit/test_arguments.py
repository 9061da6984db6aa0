"""Shared command-line arguments and output helpers."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from intertwine import zoo
from intertwine.errors import InputError, NotFound, WeightsError
from intertwine.terminal import arguments, loading, output, showing


def parse(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(epilog="examples", formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_model_arguments(parser)
    arguments.add_data_arguments(parser)
    return parser.parse_args(argv)


def test_model_with_shipped_weights() -> None:
    source = loading.load_model(parse("zoo:digits-vgg", "--weights", "shipped:1"))
    expected = zoo.read_weights(zoo.checkpoint("digits-vgg", 1))
    assert all(expected[k].equal(v) for k, v in source.model.state_dict().items())


def test_weights_of_the_call_replace_those_of_the_arguments(tmp_path: Path) -> None:
    path = zoo.save_weights(zoo.build("digits-vgg"), tmp_path / "w.safetensors")
    source = loading.load_model(parse("zoo:digits-vgg", "--weights", "shipped:1"), weights=str(path))
    assert source.model.state_dict()["classifier.bias"].equal(zoo.read_weights(path)["classifier.bias"])


def test_seed_and_input() -> None:
    a, b = (
        loading.load_model(parse("zoo:digits-vgg", "--seed", str(s), "--input", "3x1x8x8")) for s in (0, 1)
    )
    assert a.example[0].shape == (3, 1, 8, 8)
    assert not a.model.state_dict()["classifier.bias"].equal(b.model.state_dict()["classifier.bias"])


@pytest.mark.parametrize(
    ("argv", "kind", "says"),
    [
        (("zoo:digits-vgg", "--weights", "shipped:9"), NotFound, "seed 9"),
        (("zoo:digits-vgg", "--weights", "shipped:x"), NotFound, "shipped:0"),
        (("timm:test_resnet", "--weights", "shipped:0"), NotFound, "shipped:0"),
        (("zoo:digits-vgg", "--weights", "nothing.pt"), WeightsError, "nothing.pt"),
        (("zoo:digits-vgg", "--device", "warp"), InputError, "warp"),
        (("zoo:digits-vgg", "--device", "cuda:77"), InputError, "--device cpu"),
    ],
)
def test_bad_models(argv: tuple[str, ...], kind: type[Exception], says: str) -> None:
    with pytest.raises(kind) as info:
        loading.load_model(parse(*argv))
    assert says in str(info.value)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("zoo:mlp", "--input", "3xx"), "1x3x32x32"),
        (("zoo:mlp", "--normalize", "cifar"), "cifar10-legacy"),
        (("zoo:mlp", "--limit", "0"), "at least 1"),
        (("zoo:mlp", "--batch", "many"), "at least 1"),
    ],
)
def test_usage_errors_say_what_is_right(
    argv: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as info:
        parse(*argv)
    assert info.value.code == 2
    assert says in capsys.readouterr().err


def test_help_warns_that_a_file_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--help")
    text = capsys.readouterr().out
    assert "RUNS THE PYTHON CODE" in text
    assert "examples" in text
    assert "parquet:FILE" in text


def test_dataset() -> None:
    args = parse("zoo:mlp", "--data", "digits", "--limit", "7", "--normalize", "0.5/0.5", "--batch", "3")
    data = loading.load_dataset(args)
    assert (len(data), data.batch) == (7, 3)
    assert float(data.images.min()) == -1.0
    assert not loading.load_dataset(args, split="train").images.equal(data.images)
    with pytest.raises(InputError, match="--data digits"):
        loading.load_dataset(parse("zoo:mlp"))


@dataclass(frozen=True)
class Result:
    loss: float
    path: Path


def test_json_is_json_whatever_comes(capsys: pytest.CaptureFixture[str]) -> None:
    value = {
        "nan": float("nan"),
        "inf": [np.float32("inf"), torch.tensor(float("-inf"))],
        "tensor": torch.tensor([[1, 2]]),
        "array": np.array([0.5]),
        "flag": np.bool_(True),
        "data": Result(0.1, Path("a/b")),
        "set": {"b", "a"},
        7: "ä",
    }
    output.print_json(value)
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {
        "nan": None,
        "inf": [None, None],
        "tensor": [[1, 2]],
        "array": [0.5],
        "flag": True,
        "data": {"loss": 0.1, "path": "a/b"},
        "set": ["a", "b"],
        "7": "ä",
    }


def test_table_takes_cells_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table("[red]x[/red]", ["name", "n"], [["[bold]y[/bold]", 12345]], right=["n"])
    text = capsys.readouterr().out
    assert "[red]x[/red]" in text
    assert "[bold]y[/bold]" in text
    assert "12,345" in text


def test_progress_keeps_stdout_clean(capsys: pytest.CaptureFixture[str]) -> None:
    with showing.bar() as progress:
        progress(1, 2, "work")
        progress(2, 2, "work")
    assert capsys.readouterr().out == ""


def test_write_text_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = output.write_text(tmp_path / "r.html", "one")
    assert path.read_text() == "one"
    assert path.stat().st_mode & 0o777 == 0o644

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(InputError, match="No space left"):
        output.write_text(path, "two")
    assert path.read_text() == "one"
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]
