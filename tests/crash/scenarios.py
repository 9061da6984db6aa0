"""What is killed: train, merge, merge over an old model, combine, align, sweeps, coverage, reproduce.

What costs time and writes nothing (imports, the parser, data, traces, plans) is done once, before the
processes are forked.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from tests.crash.workers import fork_workers

from intertwine import combine, recipes, trace, zoo
from intertwine.cli import main, program
from intertwine.files import folder as folder_module
from intertwine.merging import apply_merge, plan_merge, save_merged
from intertwine.merging.storage import read_recipe
from intertwine.recipes import claims
from intertwine.recipes.pages import write_outcome
from intertwine.surveying import Row, survey
from intertwine.surveying import surveys as survey_module
from intertwine.sweeping import Sweep, run_sweep
from intertwine.sweeping.spec import TrainPart
from intertwine.training import build_model, load_splits, train
from intertwine.training.recipe import Optimizer, Recipe

TIMES = ("images_per_second", "seconds")  # the only numbers that may differ from run to run


@dataclass(frozen=True)
class Scenario:
    """Work on a folder; `before` is done first, undisturbed; `whole` looks at what a killed process left."""

    name: str
    work: Callable[[Path], Any]
    before: Callable[[Path], Any] = lambda root: None
    whole: Callable[[Path], Any] = lambda root: None


def snapshot(root: Path) -> dict[str, Any]:
    """Every file below a folder, bit by bit, without the times that JSON files tell."""
    return {str(p.relative_to(root)): _content(p, root) for p in sorted(root.rglob("*")) if p.is_file()}


def _content(path: Path, root: Path) -> Any:
    data = path.read_bytes()
    if path.suffix == ".html":  # it ends with the command that made it
        return data.replace(str(root).encode(), b"ROOT")
    if path.suffix == ".json":
        return _timeless(json.loads(data))
    if path.suffix == ".jsonl":
        return [_timeless(json.loads(line)) for line in data.splitlines()]
    return data


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _timeless(v) for k, v in value.items() if k not in TIMES}
    return [_timeless(v) for v in value] if isinstance(value, list) else value


def make_scenarios() -> list[Scenario]:
    """All of them, with their data and plans."""
    torch.set_num_threads(1)
    import_module("lightning_fabric")  # which a training imports late
    parser = program.build_parser()
    splits = load_splits("digits", limit=96)
    sgd = Optimizer("sgd", 0.05, momentum=0.9)
    recipe = Recipe(epochs=2, batch=48, optimizer=sgd, checkpoints=(0, 1), keep="best")
    fresh = build_model("mlp", splits)
    example = splits.test.images[:2]
    models = [zoo.build("mlp", widths=(64, width, 10)).eval() for width in (24, 12)]
    symmetry = trace(models[0], example)
    small = [
        apply_merge(m, plan_merge(m, trace(m, example), method="magnitude", target_params=0.6, check=False))
        for m in models
    ]
    elements = [symmetry.sample(seed) for seed in (0, 1)]
    plan = Sweep("digits", TrainPart(("mlp",), "0-1", "digits", limit=96))
    object.__setattr__(plan, "recipe", lambda: recipe)  # small, and no file to hash

    def do_train(root: Path) -> None:
        train(fresh, splits, recipe, root / "run", seed=0, name="mlp", save_seconds=0.0)

    def do_merge(number: int) -> Callable[[Path], Any]:
        return lambda root: save_merged(small[number], root / "small", "zoo:mlp", {"number": number})

    def do_merge_in_steps(root: Path) -> None:
        folder_module.exchange = lambda a, b: False
        do_merge(1)(root)

    def merge_is_whole(root: Path) -> None:
        read_recipe(root / "small")  # finishes what was begun
        found = snapshot(root / "small")
        assert {"recipe.json", "weights.safetensors"} == found.keys()
        shapes = found["recipe.json"]["shapes"]
        stored = zoo.read_weights(root / "small" / "weights.safetensors")
        assert {name: list(t.shape) for name, t in stored.items()} == shapes

    def do_align(number: int) -> Callable[[Path], Any]:
        def work(root: Path) -> None:
            zoo.save_weights(models[0] if number else models[1], root / "aligned.safetensors")
            elements[number].save(root / "element.safetensors")

        return work

    def align_is_whole(root: Path) -> None:
        zoo.read_weights(root / "aligned.safetensors")
        symmetry.load(root / "element.safetensors")

    both = [combine([models[number]] * 2, align="none", repair="none", how="average") for number in (0, 1)]

    def do_combine(number: int) -> Callable[[Path], Any]:
        def work(root: Path) -> None:
            both[number].save(root / "both.safetensors")
            both[number].page().write(root / "both.html")

        return work

    def combine_is_whole(root: Path) -> None:
        zoo.read_weights(root / "both.safetensors")
        assert (root / "both.html").read_text().rstrip().endswith("</html>")

    def do_sweep(root: Path) -> None:
        report = run_sweep(plan, root / "out", jobs=1)
        assert not report.failed, report.failed

    def do_sweep_with_workers(root: Path) -> None:
        fork_workers()
        do_sweep(root)

    def do_coverage(root: Path) -> None:
        survey_module._isolated = lambda context, spec, *limits: Row(spec, "exact", 1, 1e-16)
        survey(["zoo:a", "zoo:b", "zoo:c"], root / "rows.json")

    def coverage_is_whole(root: Path) -> None:
        survey_module.read_rows(root / "rows.json")

    def toy(folder: Path, setting: Any, progress: Any) -> recipes.Outcome:
        run = train(fresh, splits, recipe, folder / "runs" / "a", seed=1, name="mlp")
        claim = claims.holds("accuracy", "a number", f"{run.accuracy}", "any", True)
        tables = {"epochs": [{"accuracy": run.accuracy}]}
        return write_outcome(
            folder, "toy", "a toy", {}, setting=setting, claims=[claim], differs="all of it", tables=tables
        )

    def do_reproduce(root: Path) -> None:
        program.build_parser = lambda: parser
        recipes.find_recipe = lambda name: recipes.Reproduction("toy", "a toy", "here", toy)
        assert main(["reproduce", "toy", "-o", str(root / "figures")]) == 0

    return [
        Scenario("train", do_train),
        Scenario("merge", do_merge(0)),
        Scenario("merge over old", do_merge(1), do_merge(0), merge_is_whole),
        Scenario("merge over old, in steps", do_merge_in_steps, do_merge(0), merge_is_whole),
        Scenario("combine over old", do_combine(1), do_combine(0), combine_is_whole),
        Scenario("align over old", do_align(1), do_align(0), align_is_whole),
        Scenario("sweep", do_sweep),
        Scenario("sweep, its workers go on", do_sweep_with_workers),
        Scenario("coverage", do_coverage, whole=coverage_is_whole),
        Scenario("reproduce", do_reproduce),
    ]
