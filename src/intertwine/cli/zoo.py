"""intertwine zoo: list the nets of the source papers, or train one of them with many seeds."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intertwine.terminal import types
from intertwine.terminal.declare import Subparsers, json, out, several, value, verb
from intertwine.terminal.runs import add_backend_arguments, add_training_data_arguments, progress_notes
from intertwine.terminal.showing import show

if TYPE_CHECKING:
    from intertwine.sweeping import Sweep


def add_parser(subparsers: Subparsers[Any]) -> None:
    """Declare the verb and its two commands."""
    commands = several(subparsers, "zoo", "list the nets of the sources, train many seeds")
    listing = verb(commands, "list", run_list, "the nets by name", text="zoo")
    json(listing, "print JSON")
    training = verb(commands, "train", run_train, "train one net with many seeds", text="zoo")
    value(training, "model", types.model_spec, "MODEL", "NAME of the zoo, or any MODEL")
    value(training, "--seeds", types.any_text, "SEEDS", "0-99, 7 or 0-2,5 (default: 0)", default="0")
    add_training_data_arguments(training)
    out(training, "DIR", "weights, results and table", required=True)
    add_backend_arguments(training)


def run_list(args: argparse.Namespace) -> int | None:
    """Names, inputs and one line about each net."""
    from intertwine import zoo
    from intertwine.terminal.output import print_json, print_table

    entries = [zoo.entry(name) for name in zoo.names()]
    if args.json:
        print_json(
            [
                {"name": e.name, "shape": e.shape, "classes": e.classes, "description": e.description}
                for e in entries
            ]
        )
        return 0
    rows = [(e.name, "x".join(map(str, e.shape)), e.classes, e.description) for e in entries]
    print_table("zoo", ("name", "input", "classes", "what"), rows, right=("classes",))
    return 0


def run_train(args: argparse.Namespace) -> int | None:
    """A sweep of one model; exit code 1 if a seed failed, 2 if by bad input."""
    from intertwine.sweeping import parse_seeds, run_sweep
    from intertwine.sweeping.kinds import WEIGHTS
    from intertwine.sweeping.plan import plan_sweep
    from intertwine.sweeping.store import ResultStore

    sweep = _sweep(args)
    store, folder = ResultStore(Path(args.out)), Path(args.out)
    short = args.model.rpartition(":")[2]
    names = [f"{short}-seed{seed}.safetensors" for seed in parse_seeds(args.seeds)]
    store.assert_ours(*names)
    with progress_notes() as progress:
        report = run_sweep(sweep, args.out, backend=args.backend, jobs=args.jobs, progress=progress)
    for name, task in zip(names, plan_sweep(sweep)[0], strict=True):
        if store.is_done(task):
            _copy(store.need(task).file(WEIGHTS), folder / name)
    show(args, report, tables=False)
    return report.exit_code


def _copy(source: Path, target: Path) -> None:
    from intertwine.files import replacing

    with replacing(target) as beside:
        shutil.copyfile(source, beside)


def _sweep(args: argparse.Namespace) -> Sweep:
    from intertwine.sweeping import Sweep
    from intertwine.sweeping.spec import TrainPart

    part = TrainPart((args.model,), args.seeds, args.recipe, args.classes, args.train_limit)
    test = args.data if args.train_data else None
    sweep = Sweep(args.train_data or args.data, part, test=test, normalize=args.normalize)
    sweep.recipe()  # a wrong recipe is told before anything runs
    return sweep
