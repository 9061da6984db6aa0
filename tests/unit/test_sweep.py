"""Sweeps: a task is named by its inputs, runs once, and the table does not depend on how it was run."""

from __future__ import annotations

import json
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from intertwine import zoo
from intertwine.cli import main
from intertwine.comparing import compare
from intertwine.errors import InputError
from intertwine.sweeping import Sweep, Task, parse_seeds, parse_sweep, read_table, run_sweep, task_kind
from intertwine.sweeping.plan import cut, plan_sweep
from intertwine.sweeping.spec import ComparePart, TrainPart
from intertwine.sweeping.store import ResultStore
from intertwine.sweeping.task import run_task
from intertwine.training import load_splits
from intertwine.training.models import build_model

RECIPE = "epochs: 2\nbatch: 64\noptimizer: {name: sgd, learning_rate: 0.05, momentum: 0.9}\n"
TEXT = """
data: digits
train: {models: [mlp], seeds: 0-1, recipe: r.yml, limit: 300}
compare: {measures: [cka, cka-debiased, procrustes-grelu], layers: all, inputs: 90, shards: 3}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recipe and the finished sweep of TEXT."""
    place = tmp_path_factory.mktemp("sweep")
    (place / "r.yml").write_text(RECIPE)
    report = run_sweep(parse_sweep(TEXT, folder=place), place / "out", jobs=1)
    assert not report.failed and report.ran == report.tasks == 2 + 3 + 1
    return place


def rows(folder: Path, **wanted: Any) -> list[dict[str, Any]]:
    table = read_table(folder).to_pylist()
    return [row for row in table if all(row[key] == value for key, value in wanted.items())]


def test_results_that_are_a_file_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("mine")
    with pytest.raises(InputError, match="results, which nothing of ours wrote"):
        run_sweep(parse_sweep("data: digits\ntrain: {models: [mlp]}\n"), tmp_path, jobs=1)
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_seeds_and_shards() -> None:
    assert parse_seeds("0-3") == [0, 1, 2, 3] and parse_seeds("7, 1-2") == [7, 1, 2]
    for text in ("", "a", "3-", "-3", "2-1", "1,1", "1.5"):
        with pytest.raises(InputError):
            parse_seeds(text)
    for count, parts in ((10, 1), (10, 3), (7, 7)):
        pieces = cut(count, parts)
        assert [i for start, stop in pieces for i in range(start, stop)] == list(range(count))
        assert len(pieces) == parts and all(start < stop for start, stop in pieces)


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ("data: digits\ntrain: {models: [mlp]}\nmerges: {}\n", "unknown key 'merges'", 3),
        ("data: digits\n", "has no 'train'", 1),
        ("data: digits\ntrain:\n  models: [mlp]\n  seeds: 3-1\n", "seeds", 4),
        ("data: digits\ntrain:\n  models: mlp\n", "models must be a list", 3),
        ("data: digits\ntrain:\n  models: [mlp]\n  recipe: none.yml\n", "no such file", 4),
        ("data: digits\ntrain:\n  models: [mlp]\ncompare:\n  measures: [cke]\n", "cke", 5),
        ("data: digits\ntrain:\n  models: [mlp]\ncompare:\n  shards: 0\n", "shards must be a whole", 5),
    ],
)
def test_mistakes_name_their_line(text: str, what: str, line: int, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        parse_sweep(text, "s.yml", tmp_path)
    assert what in caught.value.what and caught.value.where == f"s.yml, line {line}"


def test_a_mistake_in_the_recipe_names_the_line_of_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "r.yml").write_text(RECIPE + "speed: 3\n")
    with pytest.raises(InputError, match="unknown key 'speed'") as caught:
        parse_sweep(TEXT, folder=tmp_path)
    assert caught.value.where == f"{tmp_path / 'r.yml'}, line 4"


def test_a_finished_sweep_runs_nothing(folder: Path) -> None:
    sweep = parse_sweep(TEXT, folder=folder)
    before = {p: p.stat().st_mtime_ns for p in (folder / "out" / "results").rglob("*")}
    report = run_sweep(sweep, folder / "out", jobs=1)
    assert (report.ran, report.reused) == (0, 6)
    assert {p: p.stat().st_mtime_ns for p in (folder / "out" / "results").rglob("*")} == before


def keys(sweep: Sweep, kind: str) -> set[str]:
    return {task.key for wave in plan_sweep(sweep) for task in wave if task.kind == kind}


def test_a_change_reaches_what_depends_on_it_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    sweep = parse_sweep(TEXT, folder=folder)
    more = replace(sweep, train=replace(sweep.train, seeds="0-2"))
    assert keys(sweep, "train") < keys(more, "train") and keys(sweep, "compare") < keys(more, "compare")
    assert sweep.compare is not None
    other = replace(sweep, compare=replace(sweep.compare, measures=("cka", "cka-debiased")))
    assert keys(sweep, "train") == keys(other, "train") and not keys(sweep, "compare") & keys(
        other, "compare"
    )
    (tmp_path / "r.yml").write_text(RECIPE.replace("epochs: 2", "epochs: 3"))
    changed = replace(sweep, folder=str(tmp_path))
    for kind in ("train", "moments", "compare"):
        assert not keys(sweep, kind) & keys(changed, kind)
    (tmp_path / "r.yml").write_text("# a comment\nabout: the same numbers\n" + RECIPE)
    assert keys(sweep, "compare") == keys(changed, "compare")


def test_changed_measures_train_nothing_again(folder: Path) -> None:
    sweep = parse_sweep(TEXT.replace("cka-debiased, ", ""), folder=folder)
    report = run_sweep(sweep, folder / "out", jobs=1)
    assert not report.failed and report.ran == 4  # three shards without the debiased sums, and their reading
    assert {row["kind"] for row in rows(folder / "out")} == {"train", "compare"}


def test_shards_add_up_to_the_whole(folder: Path) -> None:
    """The table's numbers are those of one shard, and those of `compare` in one process."""
    run_sweep(parse_sweep(TEXT, folder=folder), folder / "out", jobs=1)
    one = parse_sweep(TEXT.replace("shards: 3", "shards: 1"), folder=folder)
    many = rows(folder / "out", kind="compare")
    run_sweep(one, folder / "one", jobs=1)
    single = rows(folder / "one", kind="compare")
    assert len(many) == len(single) == 3 * 4 * 4
    data = load_splits("digits")
    nets = []
    for task in plan_sweep(one)[0]:
        net = build_model("mlp", data)
        nets.append(
            zoo.load_weights(net, folder / "one" / "results" / task.key / "run" / "model.safetensors")
        )
    measures = ["cka", "cka-debiased", "procrustes-grelu"]
    with torch.no_grad():
        expected = compare(nets[0], nets[1], data.test.images[:90], measures, intervals=False, function=False)
    for a, b in zip(many, single, strict=True):
        assert a["quantity"] == b["quantity"] and (a["layer"], a["layer_b"]) == (b["layer"], b["layer_b"])
        assert a["value"] == pytest.approx(b["value"], abs=1e-10)
        where = expected.layers_a.index(a["layer"]), expected.layers_b.index(a["layer_b"])
        assert a["value"] == pytest.approx(expected.values[a["quantity"]][where], abs=1e-5)


def test_the_table_is_tidy(folder: Path) -> None:
    found = rows(folder / "out", kind="train", quantity="test_accuracy")
    assert sorted((row["seed"], row["epoch"]) for row in found) == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert all(0 <= row["value"] <= 1 and row["layer"] is None for row in found)
    assert len({row["value"] for row in found}) > 2  # the seeds are different networks


def test_one_failure_stops_only_what_needs_it(folder: Path, tmp_path: Path) -> None:
    sweep = Sweep(
        "digits", TrainPart(("mlp", "tiny10"), "0", "r.yml", limit=100), folder=str(folder),
        compare=ComparePart(pairs="all", inputs=20),
    )  # fmt: skip
    report = run_sweep(sweep, tmp_path, jobs=1)
    assert "cannot take images" in report.failed["train tiny10 seed 0"]
    dependent = [error for label, error in report.failed.items() if label.startswith(("moments", "compare"))]
    assert len(dependent) == 2 and all("which failed" in error for error in dependent)
    assert {row["model"] for row in rows(tmp_path)} == {"mlp"}
    again = run_sweep(sweep, tmp_path, jobs=1)
    assert again.ran == 1 and "train tiny10 seed 0" in again.failed


def test_kernels_and_merge(folder: Path, tmp_path: Path) -> None:
    text = TEXT.replace("[cka, cka-debiased, procrustes-grelu], layers: all", "[cka-rbf]")
    sweep = parse_sweep(text + "merge: {betas: [0.0, 0.3], inputs: 100}\n", folder=folder)
    report = run_sweep(sweep, folder / "out", jobs=1)
    assert not report.failed
    kernels = rows(folder / "out", kind="kernels")
    assert kernels and all(row["layer"] == row["layer_b"] and 0 < row["value"] <= 1 for row in kernels)
    kept = {row["setting"]: row["value"] for row in rows(folder / "out", seed=0, quantity="parameters_kept")}
    assert kept[0.3] <= kept[0.0] <= 1


def test_stitch_and_align(folder: Path, tmp_path: Path) -> None:
    """Both directions of a stitch, one barrier a pair, at the numbers that the functions give."""
    text = TEXT.split("compare:")[0] + "stitch: {kinds: [identity, full], inputs: 100, train_inputs: 100}\n"
    text += "align: {by: weights, inputs: 100, points: 3}\n"
    (tmp_path / "r.yml").write_text(RECIPE)
    report = run_sweep(parse_sweep(text, folder=tmp_path), tmp_path / "out", jobs=1)
    assert not report.failed and report.tasks == 2 + 2 + 1
    stitched = rows(tmp_path / "out", kind="stitch")
    assert {(row["seed"], row["seed_b"]) for row in stitched} == {(0, 1), (1, 0)}
    mean = {
        name: sum(row["value"] for row in stitched if row["quantity"] == name)
        for name in ("penalty_identity", "penalty_full")
    }
    assert mean["penalty_full"] < mean["penalty_identity"]
    aligned = {row["quantity"]: row["value"] for row in rows(tmp_path / "out", kind="align")}
    assert aligned["distance_full"] <= aligned["distance_permutation"] < aligned["distance_none"]
    assert set(aligned) >= {"barrier_none", "barrier_permutation", "barrier_full"}
    with pytest.raises(InputError, match="no kind of stitch named 'wide'"):
        parse_sweep(text.replace("identity", "wide"), folder=tmp_path)


def test_other_kinds_can_join(tmp_path: Path) -> None:
    @task_kind("double", version=1)
    def double(inputs: Any, needs: Any, folder: Path) -> list[dict[str, Any]]:
        return [{"quantity": "double", "value": 2.0 * inputs["x"]}]

    task = Task.of("double", {"x": 4})
    assert not run_task(task, str(tmp_path)).error
    assert ResultStore(tmp_path).rows(task) == [{"quantity": "double", "value": 8.0}]
    with pytest.raises(InputError, match="exists already"):
        task_kind("double", version=2)(double)
    with pytest.raises(InputError, match="no task kind"):
        Task.of("triple", {}).key  # noqa: B018


def test_the_command_lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "s.yml").write_text(TEXT)
    assert main(["sweep", str(folder / "s.yml"), "-o", str(folder / "out"), "--jobs", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tasks"] == 6
    command = ["zoo", "train", "mlp", "--seeds", "0-1", "--data", "digits", "--train-limit", "300"]
    command += ["--jobs", "1"]
    assert main([*command, "--recipe", str(folder / "r.yml"), "-o", str(folder / "out")]) == 0
    assert "2 were done before" in capsys.readouterr().out  # the sweep has trained the very same networks
    zoo.read_weights(folder / "out" / "mlp-seed1.safetensors")
    assert main([*command, "--recipe", "none", "-o", str(folder / "x")]) == 2
    assert "no recipe is called" in capsys.readouterr().err and not (folder / "x").exists()
    assert main(["zoo", "list", "--json"]) == 0
    assert {"name": "mlp", "classes": 10} in [
        {key: entry[key] for key in ("name", "classes")} for entry in json.loads(capsys.readouterr().out)
    ]


def copied(folder: Path, tmp_path: Path) -> Path:
    """The folder of the finished sweep, to be spoilt."""
    run_sweep(parse_sweep(TEXT, folder=folder), folder / "out", jobs=1)
    shutil.copytree(folder / "out", tmp_path / "out")
    return tmp_path / "out"


def test_what_a_results_folder_says_never_decides_what_runs(folder: Path, tmp_path: Path) -> None:
    """Every result names a file with a trap; the next sweep computes them again, and nothing is sprung."""
    out = copied(folder, tmp_path)
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\ndef make(): pass\n")
    good = read_table(out)
    for path in out.glob("results/*/result.json"):
        content = json.loads(path.read_text())
        for key in ("model", "model_b"):
            if key in content["inputs"]:
                content["inputs"][key] = f"{trap}:make"
        path.write_text(json.dumps(content))
    report = run_sweep(parse_sweep(TEXT, folder=folder), out, jobs=1)
    assert not report.failed and report.ran == 6 and not (tmp_path / "sprung").exists()
    assert read_table(out).equals(good)


@pytest.mark.parametrize(
    "damage", ["", "null", "[1]", "{", "[" * 100_000, '{"rows": 5}', "rows", "row", "files", "folder", "pipe"]
)
def test_a_result_that_is_none_is_computed_again(damage: str, folder: Path, tmp_path: Path) -> None:
    out, sweep = copied(folder, tmp_path), parse_sweep(TEXT, folder=folder)
    task = plan_sweep(sweep)[0][0]
    path = out / "results" / task.key / "result.json"
    content = json.loads(path.read_text())
    if damage in ("folder", "pipe"):
        path.unlink()
        path.mkdir() if damage == "folder" else os.mkfifo(path)
    elif damage in ("rows", "row", "files"):
        spoilt = {"rows": {"rows": "x"}, "row": {"rows": [{"value": "x"}]}, "files": {"files": {}}}[damage]
        path.write_text(json.dumps({**content, **spoilt}))
    else:
        path.write_text(damage)
    assert not ResultStore(out).is_done(task)
    if damage not in ("folder", "pipe"):
        run_task(task, str(out))
        assert json.loads(path.read_text()) == content


def test_an_emptied_model_is_not_a_finished_run(folder: Path, tmp_path: Path) -> None:
    out, sweep = copied(folder, tmp_path), parse_sweep(TEXT, folder=folder)
    task = plan_sweep(sweep)[0][0]
    weights = out / "results" / task.key / "run" / "model.safetensors"
    good = weights.read_bytes()
    weights.write_bytes(b"")
    assert not ResultStore(out).is_done(task) and run_sweep(sweep, out, jobs=1).ran == 1
    assert weights.read_bytes() == good
    weights.write_bytes(good[:-4] + bytes(4))  # the same size, other numbers: who reads them says so
    assert ResultStore(out).is_done(task)
    with pytest.raises(InputError, match="is not what train mlp seed 0 wrote"):
        ResultStore(out).need(task).file("run/model.safetensors")


def test_bad_input_writes_nothing_and_exits_2(folder: Path, tmp_path: Path) -> None:
    for text in (
        TEXT.replace("digits", "npz:none.npz"), TEXT.replace("digits", "nonsense"),
        TEXT.replace("mlp", "nothing"), TEXT.replace("mlp", "none.py:make"),
    ):  # fmt: skip
        (tmp_path / "s.yml").write_text(text)
        (tmp_path / "r.yml").write_text(RECIPE)
        assert main(["sweep", str(tmp_path / "s.yml"), "-o", str(tmp_path / "out"), "--jobs", "1"]) == 2
        assert not (tmp_path / "out").exists()


def test_many_seeds_hash_recipe_and_data_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    real = Sweep.recipe
    monkeypatch.setattr(Sweep, "recipe", lambda self: reads.append(1) or real(self))
    sweep = Sweep("digits", TrainPart(("mlp",), "0-9999", "r.yml"), folder=str(folder))
    (wave,) = plan_sweep(sweep)
    assert len({task.key for task in wave}) == 10_000 and len(reads) == 1


def test_two_sweeps_share_a_folder(folder: Path, tmp_path: Path) -> None:
    """A task that another process holds is waited for, and its result is used."""
    out, sweep = copied(folder, tmp_path), parse_sweep(TEXT, folder=folder)
    task, store = plan_sweep(sweep)[0][0], ResultStore(out)
    kept = (store.folder(task) / "result.json").read_bytes()
    (store.folder(task) / "result.json").unlink()
    reports: list[Any] = []
    with store.locked(task):
        other = threading.Thread(target=lambda: reports.append(run_sweep(sweep, out, jobs=1)))
        other.start()
        other.join(0.5)
        assert other.is_alive()
        (store.folder(task) / "result.json").write_bytes(kept)
    other.join()
    assert not reports[0].failed and (store.folder(task) / "result.json").read_bytes() == kept
    assert not list(out.rglob(".*"))
