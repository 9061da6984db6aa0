"""intertwine zoo: list the nets of the source papers, or train one of them with many seeds."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from intertwine.cli.arguments import any_text, model_spec, output_path
from intertwine.cli.registered import registered
from intertwine.cli.runs import add_backend_arguments, add_training_data_arguments, progress_notes
from intertwine.cli.showing import show

if TYPE_CHECKING:
    from intertwine.sweeping import Sweep

_EPILOG = """examples:
  intertwine zoo list
  intertwine zoo train digits-vgg --seeds 0-9 --data digits --recipe digits -o zoo
  intertwine zoo train myrtle --seeds 0-99 --data cifar10:DIR --recipe godfrey -o zoo --backend ray

DIR gets MODEL-seedN.safetensors for every seed, table.parquet with every epoch, and results/. The same
command goes on after an interruption; more seeds train only the new ones.

DATAS  cifar10[:DIR]            DIR/train.parquet and DIR/test.parquet, as is parquet:DIR
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb and its two commands."""
    epilog = _EPILOG.replace("DATAS", registered()["data_help"])
    form = argparse.RawDescriptionHelpFormatter
    parser = subparsers.add_parser(
        "zoo", help="list the nets of the sources, train many seeds", epilog=epilog, formatter_class=form
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    listing = commands.add_parser("list", help="the nets by name")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(run=run_list)
    training = commands.add_parser(
        "train", help="train one net with many seeds", epilog=epilog, formatter_class=form
    )
    training.add_argument("model", type=model_spec, metavar="MODEL", help="NAME of the zoo, or any MODEL")
    training.add_argument(
        "--seeds", type=any_text, default="0", metavar="SEEDS", help="0-99, 7 or 0-2,5 (default: 0)"
    )
    add_training_data_arguments(training)
    training.add_argument(
        "-o", "--out", type=output_path, metavar="DIR", required=True, help="weights, results and table"
    )
    add_backend_arguments(training)
    training.set_defaults(run=run_train)


def run_list(args: argparse.Namespace) -> int | None:
    """Names, inputs and one line about each net."""
    from intertwine import zoo
    from intertwine.cli.output import print_json, print_table

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
    from intertwine.sweeping.store import Store

    sweep = _sweep(args)
    store, folder = Store(Path(args.out)), Path(args.out)
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
