"""intertwine sweep SWEEP.yml: many runs, pairs and layers, on this machine or on a cluster."""

from __future__ import annotations

import argparse

from intertwine.cli.arguments import input_path, output_path
from intertwine.cli.runs import add_backend_arguments, progress_notes
from intertwine.cli.showing import show, write_page

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
        "-o", "--out", type=output_path, metavar="DIR", required=True, help="results and table"
    )
    add_backend_arguments(parser)
    parser.add_argument("--page", type=output_path, metavar="FILE.html", help="write a page here")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int | None:
    """Read, run, print; exit code 1 if a task failed, 2 if by bad input."""
    from intertwine.sweeping import sweep

    with progress_notes() as progress:
        report = sweep(args.sweep, args.out, backend=args.backend, jobs=args.jobs, progress=progress)
    show(args, report, tables=False)
    write_page(args, report, {"sweep": args.sweep})
    return report.exit_code
