"""intertwine sweep SWEEP.yml: many runs, pairs and layers, on this machine or on a cluster."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from intertwine.cli.arguments import input_path, output_path, processes

if TYPE_CHECKING:
    from intertwine.sweeping import Report
    from intertwine.sweeping.run import Progress

_EPILOG = """examples:
  intertwine sweep sweep.yml -o out --jobs 2
  intertwine sweep sweep.yml -o /shared/out --backend ray

SWEEP.yml says what to train and what to ask of the trained networks:
  data: digits
  train: {models: [digits-vgg, mlp], seeds: 0-3, recipe: digits}
  compare: {measures: [cka, procrustes-grelu], pairs: same, inputs: 500, shards: 2}
  merge: {betas: [0.1, 0.2], inputs: 500}

A finished task never runs again, so the same command goes on after an interruption and, after a change, runs
only what changed. DIR/table.parquet holds one number a row. With --backend ray, RAY_ADDRESS names a running
cluster (DIR must be visible to every machine); without it a local one is started.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser(
        "sweep",
        help="train, compare and merge many networks; results in one table",
        description="Run the tasks of SWEEP.yml that are not done and write DIR/table.parquet.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sweep", type=input_path, metavar="SWEEP.yml", help="what to run")
    parser.add_argument(
        "-o", "--output", type=output_path, metavar="DIR", required=True, help="results and table"
    )
    add_backend_arguments(parser)
    parser.set_defaults(run=run)


def add_backend_arguments(parser: argparse.ArgumentParser) -> None:
    """--backend, --jobs and --json: what `sweep` and `zoo train` share."""
    parser.add_argument(
        "--backend", choices=("joblib", "ray"), default="joblib",
        help="processes of this machine, or a Ray cluster (default: joblib)",
    )  # fmt: skip
    parser.add_argument("--jobs", type=processes, metavar="N", help="tasks at once (default: the cores)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(args: argparse.Namespace) -> int | None:
    """Read, run, print; exit code 1 if a task failed, 2 if by bad input."""
    from intertwine.sweeping import read_sweep, run_sweep

    sweep = read_sweep(args.sweep)
    with progress_notes() as progress:
        report = run_sweep(sweep, args.output, backend=args.backend, jobs=args.jobs, progress=progress)
    print_report(args, report)
    return report.exit_code


@contextmanager
def progress_notes() -> Iterator[Progress]:
    """One line on stderr for each task that ends."""
    from intertwine.cli.output import log

    console = log()

    def note(what: str, done: int, total: int) -> None:
        console.print(f"{done} of {total}  {what}", markup=False, highlight=False, soft_wrap=True)

    yield note


def print_report(args: argparse.Namespace, report: Report) -> None:
    """Counts, failures and where the table is."""
    from intertwine.cli.output import print_json, say

    if args.json:
        print_json({"table": report.table, "tasks": report.tasks, "ran": report.ran, "failed": report.failed})
        return
    say(f"{report.tasks} tasks: {report.reused} were done before, {report.ran} ran now")
    for label, error in report.failed.items():
        say(f"failed: {label}: {error}")
    say(f"wrote {report.table}")
