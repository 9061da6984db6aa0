"""What ends a command: numbers out of range, code that exits, signals, bugs; and names on the terminal."""

from __future__ import annotations

import argparse
import ast
import copy
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import intertwine
import intertwine.cli as verbs
from intertwine import numbers
from intertwine.cli import program
from intertwine.cli.program import INTERRUPTED, main
from intertwine.errors import DataError, InputError, ModelError, NotFound
from intertwine.pages.page import Page
from intertwine.reading import existing_file, parsing, user_path
from intertwine.terminal import output
from intertwine.terminal.failures import OUR_BUG
from intertwine.text import shown
from intertwine.training import load_splits, parse_recipe, train
from intertwine.training.models import build_model
from intertwine.training.recipe import Optimizer
from intertwine.training.schedule import make_optimizer
from intertwine.zoo import resolve

RANGES = [numbers.positive, numbers.nonnegative, numbers.fraction, numbers.share, numbers.below_one]


@given(st.floats(allow_nan=True, allow_infinity=True), st.sampled_from(RANGES))
def test_a_range_accepts_its_numbers_and_no_others(number: float, allowed: numbers.Real) -> None:
    inside = math.isfinite(number) and abs(number) < 1e308 and allowed.holds(number)
    for value in (number, repr(number)):
        if inside:
            assert allowed(value) == number
        elif not (isinstance(value, str) and allowed.holds(number)):
            with pytest.raises(InputError):
                allowed(value)


@given(st.integers(), st.sampled_from([numbers.count, numbers.whole, numbers.seed, numbers.pixels]))
def test_whole_ranges(number: int, allowed: numbers.Whole) -> None:
    for value in (number, str(number)):
        if allowed.low <= number <= allowed.high:
            assert allowed(value) == number
        else:
            with pytest.raises(InputError):
                allowed(value)


@pytest.mark.parametrize(
    "text", ["nan", "inf", "1e400", "", "x", "9" * 5000, "٣", "1_0", "0x1", "--1", "1 2"]
)
def test_what_is_no_number_here(text: str) -> None:
    for allowed in (*RANGES, numbers.count, numbers.seed, numbers.finite):
        with pytest.raises(InputError) as caught:
            allowed(text)
        assert len(caught.value.what) < 200


@given(st.text())
def test_shown_text_obeys_nothing(text: str) -> None:
    assert all(c.isprintable() or c in "\n\t" for c in shown(text))
    assert shown(shown(text)) == shown(text)


@given(st.text())
def test_json_with_any_names_is_json_and_obeys_nothing(text: str) -> None:
    document = output.to_json({"name": text})
    assert json.loads(document)["name"] == text
    assert document.replace("\n", "").isprintable()


def test_no_verb_prints_past_the_escaping() -> None:
    for path in Path(verbs.__path__[0]).glob("*.py"):
        if path.stem not in ("program", "output", "streams"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            names = [
                n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
            ]
            assert "print" not in names, f"{path.name} prints by itself; use output.say"


def _run_raising(error: BaseException, monkeypatch: pytest.MonkeyPatch, *flags: str) -> int:
    def run(args: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr("intertwine.cli.zoo.run_list", run)
    return main(["zoo", "list", *flags])


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (KeyError("x\x1b[2J"), OUR_BUG, "bug of intertwine"),
        (RecursionError("deep"), OUR_BUG, "RecursionError"),
        (SystemExit(0), 2, "sys.exit(0)"),
        (MemoryError(), 2, "memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: ..."), 2, "memory"),
        (OSError(28, "No space left on device", "x"), 2, "No space left"),
        (RuntimeError("element 0 of tensors does not require grad and does not have a grad_fn"), 3, "torch"),
        (KeyboardInterrupt(), INTERRUPTED, "interrupted"),
        (ModelError("no"), 2, "ModelError: no"),
    ],
)
def test_every_end_is_a_message(
    error: BaseException,
    code: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _run_raising(error, monkeypatch) == code
    told = capsys.readouterr().err
    assert says in told and "Traceback" not in told and "\x1b" not in told


def test_debug_shows_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run_raising(KeyError("x"), monkeypatch, "--debug") == OUR_BUG
    assert "Traceback" in capsys.readouterr().err


def test_a_parser_may_raise_anything() -> None:
    class Panic(BaseException):
        pass

    for error in (Panic("p"), RecursionError(), MemoryError(), UnicodeDecodeError("utf-8", b"x", 0, 1, "no")):
        with pytest.raises(InputError, match="cannot read"), parsing("a file"):
            raise error
    with pytest.raises(KeyboardInterrupt), parsing("a file"):
        raise KeyboardInterrupt


@pytest.mark.parametrize("path", ["a\0b", "", "~nobody-at-all/x"])
def test_paths_that_are_none(path: str) -> None:
    with pytest.raises(InputError):
        user_path(path)


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe")
    for name, says in (
        ("pipe", "a pipe"),
        (".", "a folder"),
        ("missing", "no such file"),
        ("n" * 300, "name"),
    ):
        with pytest.raises(InputError, match=says):
            existing_file(tmp_path / name)
    with pytest.raises(InputError, match="a device"):
        existing_file("/dev/null")


SLOW = "epochs: 400\nbatch: 64\noptimizer: {learning_rate: 0.01}\n"


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.nightly),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.nightly),
    ],
)
def test_signals_save_the_state_of_training(number: signal.Signals, code: int, tmp_path: Path) -> None:
    (tmp_path / "slow.yml").write_text(SLOW)
    argv = [sys.executable, "-m", "intertwine", "train", "mlp", "--data", "digits", "--threads", "1"]
    argv += ["--recipe", str(tmp_path / "slow.yml"), "-o", str(tmp_path / "run")]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    state = tmp_path / "run" / "state.safetensors"
    for _ in range(3000):
        if state.exists() or process.poll() is not None:
            break
        time.sleep(0.1)
    before = state.stat().st_mtime_ns
    process.send_signal(number)
    _, told = process.communicate(timeout=300)
    assert process.returncode == code and "Traceback" not in told
    assert state.stat().st_mtime_ns >= before


def test_ctrl_c_while_the_verbs_are_imported_takes_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Pressed:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "intertwine.cli.program":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "intertwine.cli.program", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Pressed(), *sys.meta_path])
    assert verbs.main(["zoo", "list"]) == INTERRUPTED
    assert capsys.readouterr().err == "interrupted\n"


def test_ctrl_c_before_and_after_the_verb_takes_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def press() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(program, "guarded_streams", press)
    assert verbs.main(["zoo", "list"]) == INTERRUPTED
    assert capsys.readouterr().err == "interrupted\n"


def test_an_interrupted_run_goes_on_to_the_same_bits(tmp_path: Path, one_thread: None) -> None:
    """The signal comes in the middle of an epoch; what was saved is between two steps."""
    data = load_splits("digits", limit=200)
    recipe = parse_recipe("epochs: 2\nbatch: 20\noptimizer: {learning_rate: 0.1, momentum: 0.9}\n")
    model = build_model("digits-vgg", data)
    whole = train(model, data, recipe, tmp_path / "whole")
    seen = []

    def listener(row: dict[str, object]) -> None:
        seen.append(row)
        if len(seen) == 4:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(model, data, recipe, tmp_path / "cut", listener=listener)
    assert len(seen) == 4
    again = train(model, data, recipe, tmp_path / "cut")
    assert again.resumed
    from intertwine import zoo

    a, b = zoo.read_weights(whole.weights), zoo.read_weights(again.weights)
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    """A symmetry of another model, labels beyond the classes, an eval() that raises, too many classes."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    symmetry = intertwine.trace(net, torch.zeros(1, 4))
    other = torch.nn.Sequential(torch.nn.Linear(4, 9), torch.nn.ReLU(), torch.nn.Linear(9, 3))
    with pytest.raises(InputError, match="the traced model has"):
        intertwine.plan_merge(other, symmetry, target_params=0.5)
    data = torch.randn(20, 4), torch.arange(20) % 9
    with pytest.raises(DataError, match="labels go up to 8"):
        intertwine.rotate(net, data, data, at="1", epochs=0)
    below = torch.randn(20, 4), torch.arange(20) % 3 - 1
    with pytest.raises(DataError, match="a label is -1"):
        intertwine.rotate(net, below, below, at="1", epochs=0)
    with pytest.raises(ModelError, match="on the device meta"):
        intertwine.dimension(torch.nn.Linear(4, 3, device="meta"), torch.zeros(1, 4))
    net.weight = torch.nn.Parameter(torch.ones(2))  # a copy of a TorchScript module has none but such weights
    net._parameters["weight"] = net.weight * 2
    with pytest.raises(ModelError, match="computed from others"):
        make_optimizer(net, Optimizer())
    file = tmp_path / "net.py"
    file.write_text(
        "import torch\nclass M(torch.nn.Linear):\n    def eval(self):\n        raise KeyError('x')\n"
        "def f():\n    return M(3, 2), torch.zeros(1, 3)\n"
    )
    with pytest.raises(ModelError, match="KeyError"):
        resolve(f"{file}:f")
    with pytest.raises(InputError, match="5,000,000 classes"):
        resolve("zoo:mlp", classes=5_000_000)


def test_methods_of_results_refuse_things_of_another_kind() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    x = torch.randn(2, 3)
    symmetry = intertwine.trace(net, x)
    plan = intertwine.plan_merge(net, symmetry, beta=0.1)
    group, exact, data = symmetry.axes[0].group, copy.deepcopy(net).double(), (x, torch.tensor([0, 1]))
    for call, error in (
        (lambda: intertwine.inspect(net, x).save([x]), InputError),
        (lambda: symmetry.sample(0).save(3), InputError),
        (lambda: Page("a").write(None), InputError),
        (lambda: Page(net), InputError),
        (lambda: symmetry.weights("net"), ModelError),
        (lambda: symmetry.values[["0"]], NotFound),
        (lambda: plan.to_widths({"0": "narrow"}), InputError),
        (lambda: group | "sign", TypeError),
        (lambda: intertwine.combine([net, net], shares=[10**400, 1]), InputError),
        (lambda: intertwine.feature_complexity(net, symmetry, torch.zeros(0)), InputError),
        (lambda: intertwine.merge_betas(net, x, ratio={"0": "half"}), InputError),
        (lambda: intertwine.merge(net, x, target_params=0.8, finetune=lambda small: None), InputError),
        (lambda: intertwine.stitch(net, exact, data, data, at="1", kinds=("full",)), ModelError),
        (
            lambda: intertwine.collect(
                torch.nn.Conv1d(3, 2, 1), [x[..., None], x[..., None].repeat(1, 1, 4)]
            ),
            DataError,
        ),
    ):
        with pytest.raises(error):
            call()


def test_processes_of_training_import_nothing_from_the_working_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They are started by `python -m intertwine`, which looks there first."""
    seen = []

    def stop(*_: object, **__: object) -> None:
        seen.append(os.environ.get("PYTHONSAFEPATH"))
        raise InputError("seen")

    monkeypatch.setattr("intertwine.training.train", stop)
    argv = ["train", "mlp", "--data", "digits", "--recipe", "digits", "--devices", "2"]
    assert main([*argv, "-o", str(tmp_path / "run")]) == 2
    assert seen == ["1"] and "PYTHONSAFEPATH" not in os.environ
