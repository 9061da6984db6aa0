"""Training: what a batch is, what a run leaves on disk, and what it says when something is wrong."""

from __future__ import annotations

import errno
import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from intertwine import zoo
from intertwine.cli import main
from intertwine.data import evaluate
from intertwine.errors import DataError, InputError, ModelError
from intertwine.training import Recipe, Run, Splits, build_model, load_splits, read_metrics, train
from intertwine.training import loop as loop_module
from intertwine.training import state as state_module
from intertwine.training.data import Gather, shrink
from intertwine.training.loop import find_scales, generator
from intertwine.training.recipe import Augment, Optimizer, Resolution

SGD = Optimizer("sgd", 0.1, momentum=0.9, weight_decay=1e-3)
SMALL = Recipe(epochs=2, batch=128, optimizer=SGD, checkpoints=(0, 1))


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def digits() -> Splits:
    return load_splits("digits")


def weights(path: Path) -> dict[str, Tensor]:
    return zoo.read_weights(path)


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize("translate", [0, 2])
@pytest.mark.parametrize("flip", [False, True])
def test_gather_shifts_and_flips_each_image(flip: bool, translate: int) -> None:
    """Every image of a batch is one of the shifted and flipped ones made the slow way, and all occur."""
    torch.manual_seed(0)
    images = torch.rand(3, 2, 5, 6)
    chosen = torch.arange(600) % 3
    got = Gather(images, Augment(flip, translate)).batch(chosen, torch.Generator().manual_seed(1))
    assert got.is_contiguous(memory_format=torch.channels_last)
    p = translate
    padded = nn.functional.pad(images, (p, p, p, p))
    span = range(2 * p + 1)
    variants = torch.stack(
        [
            cut.flip(3) if mirrored else cut
            for y in span for x in span for mirrored in ((False, True) if flip else (False,))
            for cut in [padded[:, :, y : y + 5, x : x + 6]]
        ]
    )  # fmt: skip
    which = [
        (variants[:, c] == image).flatten(1).all(1).nonzero() for c, image in zip(chosen, got, strict=True)
    ]
    assert all(len(found) == 1 for found in which)
    assert {int(found) for found in which} == set(range(len(variants)))


def test_translations_end_before_the_run_does() -> None:
    images = torch.rand(40, 1, 6, 6)
    gather = Gather(images, Augment(translate=2, until=0.75))
    early, late = (gather.batch(torch.arange(40), torch.Generator(), share) for share in (0.74, 0.75))
    assert torch.equal(late, images) and not torch.equal(early, images)


def test_vectors_are_not_flipped() -> None:
    assert torch.equal(
        Gather(torch.eye(3), Augment()).batch(torch.tensor([2]), torch.Generator()), torch.eye(3)[2:]
    )
    with pytest.raises(DataError, match="neither flipped"):
        Gather(torch.eye(3), Augment(flip=True))


def test_shrink_averages() -> None:
    image = torch.rand(1, 1, 8, 8)
    assert shrink(image, 0.5).mean() == pytest.approx(float(image.mean()), abs=0.05)
    assert torch.allclose(shrink(torch.full((1, 3, 8, 8), 7.0), 0.75), torch.tensor(7.0))
    assert shrink(image, 1.0) is image


def test_a_size_the_model_cannot_take_becomes_the_next_larger() -> None:
    recipe = replace(SMALL, resolution=(Resolution(0, 0.5), Resolution(0.5, 0.875)))
    scales = find_scales(zoo.build("tiny10"), torch.rand(2, 3, 32, 32), recipe)
    assert scales == {0.5: 0.875, 0.875: 0.875, 1.0: 1.0}
    assert find_scales(zoo.build("vgg11"), torch.rand(2, 3, 32, 32), recipe)[0.5] == 1.0


def test_bf16_where_the_machine_has_it(
    digits: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Emulated here: activations in bfloat16, weights and state in float32, and the net still learns."""
    recipe = replace(SMALL, epochs=4, precision="bf16-where-fast")
    seen: set[torch.dtype] = set()

    def run(name: str, fast: bool) -> float:
        monkeypatch.setattr(loop_module, "bf16_is_fast", lambda device: fast)
        model = build_model("digits-vgg", digits)
        last = [m for m in model.modules() if isinstance(m, nn.Linear)][-1]
        last.register_forward_hook(lambda module, args, output: seen.add(output.dtype))
        found = train(model, digits, recipe, tmp_path / name)
        assert all(t.dtype != torch.bfloat16 for t in weights(found.weights).values())
        return found.accuracy

    assert run("plain", False) > 0.9 and seen == {torch.float32}
    assert run("half", True) > 0.9 and torch.bfloat16 in seen


def test_the_same_seed_gives_the_same_bits(digits: Splits, tmp_path: Path) -> None:
    """Also with another state of the global generator, which is left alone."""
    model = build_model("digits-vgg", digits)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    a = train(model, digits, SMALL, tmp_path / "a")
    torch.manual_seed(99)
    expected = torch.rand(1)
    torch.manual_seed(99)
    b = train(model, digits, SMALL, tmp_path / "b")
    assert torch.equal(torch.rand(1), expected)
    other = train(model, digits, SMALL, tmp_path / "c", seed=1)
    assert same(weights(a.weights), weights(b.weights))
    assert not same(weights(a.weights), weights(other.weights))
    assert same(before, model.state_dict()) and not model.training


def test_what_a_run_leaves(digits: Splits, tmp_path: Path) -> None:
    model = build_model("digits-vgg", digits)
    run = train(model, digits, SMALL, tmp_path / "run", name="digits-vgg")
    rows = read_metrics(run.folder)
    assert [row["epoch"] for row in rows] == [1, 2] and rows == run.history
    assert run.accuracy == rows[-1]["test_accuracy"] > 0.5
    zero = weights(run.folder / "checkpoints" / "epoch-0000.safetensors")
    assert same(zero, dict(model.state_dict()))
    assert not same(zero, weights(run.folder / "checkpoints" / "epoch-0001.safetensors"))
    loaded = zoo.load_weights(build_model("digits-vgg", digits, seed=5), run.weights)
    found = evaluate(loaded, digits.test)
    assert (found.accuracy, found.loss) == pytest.approx((run.accuracy, run.loss))
    assert sorted(p.name for p in run.folder.iterdir() if not p.name.startswith(".")) == sorted(
        ["checkpoints", "metrics.jsonl", "model.safetensors", "run.json", "state.safetensors"]
        + (["tensorboard"] if (run.folder / "tensorboard").exists() else [])
    )


def test_tensorboard_events(digits: Splits, tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = train(build_model("mlp", digits), digits, SMALL, tmp_path / "run")
    found = events.EventAccumulator(str(run.folder / "tensorboard"))
    found.Reload()
    values = [event.value for event in found.Scalars("test_accuracy")]
    assert values == pytest.approx([row["test_accuracy"] for row in run.history])


def test_a_finished_run_is_not_run_again(digits: Splits, tmp_path: Path) -> None:
    model = build_model("mlp", digits)
    first = train(model, digits, SMALL, tmp_path / "run")
    changed = first.weights.stat().st_mtime_ns
    steps: list[dict[str, object]] = []
    second = train(model, digits, SMALL, tmp_path / "run", listener=steps.append)
    assert second.resumed and not steps and second.weights.stat().st_mtime_ns == changed
    assert second.accuracy == first.accuracy


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"seed": 1}, "seed is 0 there and 1 here"),
        ({"recipe": replace(SMALL, epochs=3)}, "recipe.epochs is 2"),
    ],
)
def test_a_folder_holds_one_run(change: dict[str, object], what: str, digits: Splits, tmp_path: Path) -> None:
    model = build_model("mlp", digits)
    train(model, digits, SMALL, tmp_path / "run")
    arguments = {"recipe": SMALL, "out": tmp_path / "run"} | change
    with pytest.raises(InputError, match="another run") as caught:
        train(model, digits, **arguments)  # type: ignore[arg-type]
    assert what in caught.value.what


def test_a_folder_of_other_things_is_left_alone(digits: Splits, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="not empty"):
        train(build_model("mlp", digits), digits, SMALL, tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_only_one_process_trains_in_a_folder(
    digits: Splits, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The second waits, says for whom, and finds the result of the first."""
    model, began = build_model("mlp", digits), threading.Event()
    found: list[Run] = []

    def second() -> None:
        began.set()
        found.append(train(model, digits, SMALL, tmp_path / "run"))

    waiting = threading.Thread(target=second)
    with state_module.locked(tmp_path / "run"):
        waiting.start()
        began.wait()
        waiting.join(1.5)
        assert waiting.is_alive() and not (tmp_path / "run" / "run.json").exists()
        assert f"waiting for process {os.getpid()}, which trains in" in caplog.text
    waiting.join()
    assert found and not (tmp_path / "run" / ".lock").exists()
    assert train(model, digits, SMALL, tmp_path / "run").resumed


def test_a_full_disk_keeps_the_last_state(
    digits: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third state does not fit; the second stays, and the run goes on from it to the same bits."""
    model = build_model("digits-vgg", digits)
    recipe = replace(SMALL, epochs=3, checkpoints=())
    whole = train(model, digits, recipe, tmp_path / "whole")
    writes = 0
    real = os.fsync

    def full(handle: int) -> None:
        nonlocal writes
        writes += os.fstat(handle).st_size > 10_000  # a state: all else is small
        if writes == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match="No space left"):
            train(model, digits, recipe, tmp_path / "run")
    state = tmp_path / "run" / "state.safetensors"
    kept = state.read_bytes()
    assert [p.name for p in state.parent.glob(".*")] == []
    zoo.read_weights(state)
    again = train(model, digits, recipe, tmp_path / "run")
    assert again.resumed and state.read_bytes() != kept
    assert same(weights(whole.weights), weights(again.weights))
    timeless = [[{**row, "images_per_second": 0} for row in run.history] for run in (whole, again)]
    assert timeless[0] == timeless[1]


def test_a_corrupt_state_is_named(digits: Splits, tmp_path: Path) -> None:
    model = build_model("mlp", digits)
    train(model, digits, SMALL, tmp_path / "run")
    (tmp_path / "run" / "state.safetensors").write_bytes(b"nonsense")
    with pytest.raises(InputError, match="cannot read"):
        train(model, digits, SMALL, tmp_path / "run")


def test_the_callers_threads_come_back(digits: Splits, tmp_path: Path) -> None:
    """After a run with another number of threads, and after one that fails in the middle."""
    before, seen = torch.get_num_threads(), []
    wanted = before + 1
    net, short = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), replace(SMALL, limit=128, epochs=1)

    def note(_: dict[str, float]) -> None:
        seen.append(torch.get_num_threads())

    def fail(_: dict[str, float]) -> None:
        raise KeyError(torch.get_num_threads())

    train(net, digits, short, tmp_path / "a", threads=wanted, listener=note)
    assert torch.get_num_threads() == before and set(seen) == {wanted}
    with pytest.raises(KeyError, match=str(wanted)):
        train(net, digits, short, tmp_path / "b", threads=wanted, listener=fail)
    assert torch.get_num_threads() == before


def test_divergence_is_told(digits: Splits, tmp_path: Path) -> None:
    recipe = replace(SMALL, optimizer=Optimizer("sgd", 1e30))
    with pytest.raises(InputError, match="the loss is") as caught:
        train(build_model("mlp", digits), digits, recipe, tmp_path / "run")
    assert "learning_rate" in caught.value.do


def test_a_run_that_fails_before_its_first_state_leaves_nothing(digits: Splits, tmp_path: Path) -> None:
    """A new folder goes; one that was there stays, empty as it was."""
    recipe, standing = replace(SMALL, optimizer=Optimizer("sgd", 1e30)), tmp_path / "standing"
    standing.mkdir()
    for folder in (tmp_path / "new", standing):
        with pytest.raises(InputError, match="the loss is"):
            train(build_model("mlp", digits), digits, recipe, folder)
    assert list(tmp_path.iterdir()) == [standing] and not list(standing.iterdir())


def test_the_best_is_kept(digits: Splits, tmp_path: Path) -> None:
    """With a learning rate that wrecks the net, the best epoch is not the last."""
    recipe = replace(SMALL, epochs=4, keep="best", optimizer=Optimizer("sgd", 3.0, momentum=0.9))
    run = train(build_model("digits-vgg", digits), digits, recipe, tmp_path / "run")
    best = max(row["test_accuracy"] for row in run.history)
    assert run.accuracy == best and run.history[run.epoch - 1]["test_accuracy"] == best
    net = zoo.load_weights(build_model("digits-vgg", digits), run.weights)
    assert evaluate(net, digits.test).accuracy == pytest.approx(best)


@pytest.mark.parametrize("classes", [1, 10])
def test_least_squares(classes: int, digits: Splits, tmp_path: Path) -> None:
    """Source 004 fits the label itself with one output."""
    recipe = replace(SMALL, loss="mse", limit=500, epochs=3, optimizer=Optimizer("adam", 1e-3))
    model = build_model("mlp", digits, classes=classes)
    run = train(model, digits, recipe, tmp_path / "run")
    losses = [row["test_loss"] for row in run.history]
    assert losses[-1] < losses[0]
    with torch.no_grad():
        output = zoo.load_weights(model, run.weights)(digits.test.images).double()
    wanted = digits.test.labels[:, None] if classes == 1 else nn.functional.one_hot(digits.test.labels)
    assert losses[-1] == pytest.approx(float((output - wanted).square().mean()))


def test_dropout_is_part_of_the_run(digits: Splits, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Dropout(0.5), nn.Linear(32, 10))
    runs = [train(net, digits, SMALL, tmp_path / name) for name in "ab"]
    assert same(*(weights(run.weights) for run in runs))


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        ("mlp", Optimizer("adamw", 1e-3, weight_decay=0.01)),
        ("digits-vgg", Optimizer("muon", 0.1, turn=0.02, momentum=0.9)),
    ],
)
def test_other_optimizers_resume_to_the_same_bits(
    name: str, optimizer: Optimizer, digits: Splits, tmp_path: Path
) -> None:
    """A listener that raises in the middle of the second epoch stands for an interruption."""
    model = build_model(name, digits)
    recipe = replace(SMALL, optimizer=optimizer, limit=600, channels_last=True)
    whole = train(model, digits, recipe, tmp_path / "whole")

    def stop(row: dict[str, float]) -> None:
        if row["epoch"] > 1.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(model, digits, recipe, tmp_path / "run", listener=stop, save_seconds=0)
    again = train(model, digits, recipe, tmp_path / "run")
    assert again.resumed and same(weights(whole.weights), weights(again.weights))


@pytest.mark.parametrize(("width", "last"), [(7, False), (8, True)])
def test_a_narrow_strided_shortcut_never_sees_channels_last(width, last, digits, tmp_path) -> None:
    """There torch's backward pass on one thread writes beyond its buffer, and the process aborts later."""
    layouts = []

    class Shortcut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, width, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            layouts.append(x.is_contiguous(memory_format=torch.channels_last))
            return nn.functional.conv2d(x, self.weight, stride=2)

    net = nn.Sequential(nn.Conv2d(1, width, 3), nn.ReLU(), Shortcut(), nn.Flatten(), nn.Linear(36, 10))
    train(net, digits, replace(SMALL, limit=256, channels_last=True), tmp_path / "run")
    trained = layouts[-4:]  # of the copy that was trained and measured
    assert trained and all(found == last for found in trained)


def test_generators_belong_to_places() -> None:
    seeds = {generator(s, e, t).initial_seed() for s in range(4) for e in range(4) for t in range(4)}
    assert len(seeds) == 64


def test_data_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(DataError, match="CIFAR-10 is not here") as caught:
        load_splits("cifar10")
    assert str(tmp_path) in caught.value.where and "cifar10:DIR" in caught.value.do
    with pytest.raises(DataError, match="one file") as one:
        load_splits("parquet:train.parquet")
    assert "--train-data" in one.value.do


def test_data_without_a_test_split(tmp_path: Path) -> None:
    import numpy as np

    np.savez(tmp_path / "d.npz", images=np.zeros((6, 1, 8, 8), np.uint8), labels=np.arange(6))
    with pytest.raises(DataError, match="no test split"):
        load_splits(f"npz:{tmp_path / 'd.npz'}")
    splits = load_splits(f"npz:{tmp_path / 'd.npz'}", test=f"npz:{tmp_path / 'd.npz'}")
    assert len(splits.test) == 6


def test_the_digest_of_data_is_its_content(digits: Splits) -> None:
    changed = digits.test.labels.clone()
    changed[0] += 1
    other = Splits("other name", digits.train, replace(digits.test, labels=changed))
    assert Splits("other name", digits.train, digits.test).digest == digits.digest != other.digest


def test_models_fit_the_data(digits: Splits) -> None:
    assert build_model("mlp", digits)[1].in_features == 64
    assert build_model("zoo:resnet20", digits).conv1.in_channels == 1
    with pytest.raises(ModelError, match="cannot take images"):
        build_model("tiny10", digits)


def test_too_few_outputs(digits: Splits, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="only 3 outputs"):
        train(build_model("mlp", digits, classes=3), digits, SMALL, tmp_path / "run")


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "r.yml"
    recipe.write_text("epochs: 1\nbatch: 64\noptimizer: {name: adam, learning_rate: 0.001}\n")
    command = [
        "train",
        "mlp",
        "--data",
        "digits",
        "--recipe",
        str(recipe),
        "-o",
        str(tmp_path / "run"),
        "--json",
    ]
    assert main(command) == 0
    out = json.loads(capsys.readouterr().out)
    assert out["accuracy"] > 0.3 and not out["resumed"] and Path(out["weights"]).is_file()
    assert main(command) == 0 and json.loads(capsys.readouterr().out)["resumed"]
    assert main([*command, "--seed", "3"]) == 2
    assert "another run" in capsys.readouterr().err
    recipe.write_text("epochs: 1\nbatch: 64\nspeed: 9\n")
    assert main(command) == 2
    assert "r.yml, line 3" in capsys.readouterr().err
    assert main(["train", "mlp", "--data", "cifar10:nowhere", "-o", str(tmp_path / "x")]) == 2
    assert "nowhere" in capsys.readouterr().err and not (tmp_path / "x").exists()
