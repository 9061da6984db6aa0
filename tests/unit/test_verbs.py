"""Every verb of the command line is a function of the same name and options, with one kind of result."""

from __future__ import annotations

import ast
import inspect
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import intertwine
from intertwine.cli import main
from intertwine.cli.parser import build_parser, commands
from intertwine.errors import InputError, MissingExtra
from intertwine.exploring.exploration import _Search
from intertwine.graph import functional
from intertwine.merging.registry import all_parameters
from intertwine.results import Result, Table
from intertwine.stitching import Training
from intertwine.terminal.parsing import RENAMED

CLI = Path(intertwine.__file__).parent / "cli"
VERBS = """
    align attribute combine compare coverage dissect explore inspect interpolate merge report reproduce rotate
    stitch sweep train verify
""".split()
# What a function takes in other words: how a model, data and files are named, and what is printed.
NAMES = set(
    """
    a b context data debug device help input json limit model model_classes models normalize normalize_b
    pretrained quiet run_code size split tokenizer train_data train_limit verbose weights weights_a weights_b
    batch augment flip out
    """.split()
)
# Options of one verb that are a method, a file or the contrary of an argument.
OWN = {
    "align": {"element", "page"},
    "attribute": {"method", "sum", "text"},
    "combine": {"head_data", "page"},
    "coverage": {"markdown", "page"},
    "dissect": {"iou"},
    "explore": {"no_orbit", "png", "save"},
    "inspect": {"explain", "no_proof", "spec"},
    "merge": {"betas", "export", "latency", "page", "plan", "seed"},
    "reproduce": {"list"},
    "stitch": {"manner"},  # --as source: settings of Training
    "sweep": {"page"},
    "train": {"page"},
}
MORE = {
    "explore": {field.name for field in fields(_Search)},
    "merge": set(all_parameters()),
    "stitch": {field.name for field in fields(Training)},
}


def net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)).eval()


def labelled() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    x = torch.randn(60, 4)
    return x, net()(x).argmax(1)


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_is_a_function_with_its_options(verb: str) -> None:
    parameters = set(inspect.signature(getattr(intertwine, verb)).parameters)
    options = {action.dest for action in commands(build_parser())[(verb,)]._actions}
    assert options - parameters - NAMES - OWN.get(verb, set()) - MORE.get(verb, set()) == set()


RESULTS = {
    "attribute": lambda: intertwine.attribute(net(), labelled(), axis="0", beta=0.9, inputs=2),
    "dimension": lambda: intertwine.dimension(net(), torch.zeros(1, 4)),
    "doctor": intertwine.doctor,
    "align": lambda: intertwine.align(net(), net(1), intertwine.trace(net(), torch.zeros(1, 4)), restarts=0),
    "combine": lambda: intertwine.combine([net(), net(1)], labelled(), train_limit=40),
    "compare": lambda: intertwine.compare(net(), net(1), labelled(), "cka"),
    "explore": lambda: intertwine.explore(
        net(), torch.zeros(1, 4), plane="random", loss="cross_entropy", data=labelled(), points=3
    ),
    "inspect": lambda: intertwine.inspect(net(), torch.zeros(1, 4)),
    "interpolate": lambda: intertwine.interpolate([net(), net(1)], labelled(), points=3, align=True),
    "merge": lambda: intertwine.merge(net(), torch.zeros(1, 4), target_params=0.7, data=labelled()),
    "rotate": lambda: intertwine.rotate(net(), labelled(), labelled(), at="0", by="identity", epochs=0),
    "stitch": lambda: intertwine.stitch(net(), net(), labelled(), labelled(), at="1", kinds=["group"]),
    "verify": lambda: intertwine.verify(net(), torch.zeros(1, 4)),
}


@pytest.mark.parametrize("verb", RESULTS)
def test_results_are_alike(verb: str, tmp_path: Path) -> None:
    result: Any = RESULTS[verb]()
    assert isinstance(result, Result)
    assert len(repr(result)) <= 100 and "\n" not in repr(result) and "()" not in repr(result)
    json.dumps(result.to_dict(), allow_nan=False)
    assert "<table>" in result._repr_html_()
    assert json.loads(result.save(tmp_path / "numbers.json").read_text()).keys() == result.to_dict().keys()
    assert "<html" in result.save(tmp_path / "page.html").read_text()
    if verb not in ("attribute", "merge", "explore"):  # these write a folder
        with pytest.raises(InputError, match="cannot save as"):
            result.save(tmp_path / "numbers.txt")
    frame = result.tables()[0]
    try:
        assert list(result.to_frame().columns) == list(frame.columns)
    except MissingExtra as error:
        assert "pandas" in error.what


def test_every_extra_says_what_it_gives() -> None:
    assert all(gives for _, gives, *_ in intertwine.doctor().extras())


class Hostile(Result):
    """A result whose names are markup."""

    def to_dict(self) -> dict[str, Any]:
        return {"<script>": "<script>alert(1)</script>" * 20}

    def tables(self) -> list[Table]:
        return [Table("<script>", ["<script>"], [["<script>"]])]

    def remarks(self) -> list[str]:
        return ["<script>"]


def test_names_are_text() -> None:
    assert "<script>" not in Hostile()._repr_html_()
    assert "<script>" not in Hostile().page().render()
    assert len(repr(Hostile())) <= 100


def test_the_smaller_model_runs() -> None:
    small = intertwine.merge(net(), torch.zeros(1, 4), max_drop=0.1, data=labelled())
    assert small.accuracy_after is not None and small.accuracy_before == 1
    assert small.accuracy_after >= 0.9
    assert small.model(torch.zeros(2, 4)).shape == (2, 3)
    with pytest.raises(InputError, match="several goals"):
        intertwine.merge(net(), torch.zeros(1, 4), beta=0.1, target_params=0.5)
    with pytest.raises(InputError, match="no parameter 'colour'"):
        intertwine.merge(net(), torch.zeros(1, 4), colour="red")


@pytest.mark.parametrize(
    ("command", "new"),
    [
        ("explore zoo:mlp --lr 0.1", "--lr is now --learning-rate"),
        ("explore zoo:mlp --inputs=8", "--inputs is now --limit"),
        ("train mlp --data digits --output x", "--output is now --out"),
        ("train mlp --data digits --test digits -o x", "--test is now --data"),
        ("train mlp --data digits --limit 9 -o x", "--limit is now --train-limit"),
        ("interpolate zoo:mlp zoo:mlp --data digits --calibrate 8", "--calibrate is now --train-limit"),
        ("coverage --library zoo --gigabytes 2 -o x.json", "--gigabytes is now --memory"),
    ],
)
def test_old_names_say_the_new_one(command: str, new: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command.split()) == 2
    assert new in capsys.readouterr().err


def test_no_old_name_is_declared() -> None:
    for words, parser in commands(build_parser()).items():
        old = set(parser._option_string_actions) & set(RENAMED)
        anew = {("attribute",): {"--inputs"}, ("combine",): {"--calibrate"}, ("merge",): {"--calibrate"}}
        assert old <= {"--limit"} | anew.get(words, set())


def verb_files() -> list[Path]:
    return [path for path in sorted(CLI.glob("*.py")) if "def add_parser(" in path.read_text()]


@pytest.mark.parametrize("path", verb_files(), ids=lambda p: p.stem)
def test_the_command_line_parses_calls_and_prints(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 135  # most are below 100
    others = {f"intertwine.cli.{other.stem}" for other in verb_files()} - {f"intertwine.cli.{path.stem}"}
    imports = [n.module for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom)]
    assert not others & set(imports)


def exports(monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    """Every model that is exported from here on."""
    seen: list[nn.Module] = []
    real = functional.in_one_go

    def counted(model: nn.Module, *args: Any) -> Any:
        seen.append(model)
        return real(model, *args)

    monkeypatch.setattr(functional, "in_one_go", counted)
    return seen


@pytest.mark.parametrize(
    ("verb", "most"),
    [("inspect", 1), ("verify", 1), ("merge", 1), ("compare", 2), ("rotate", 1), ("stitch", 2)],
)
def test_one_export_for_each_model(verb: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = exports(monkeypatch)
    RESULTS[verb]()
    assert 1 <= len(seen) <= most
