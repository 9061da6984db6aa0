"""intertwine sweep SWEEP.yml: many runs, pairs and layers, on this machine or on a cluster."""

from __future__ import annotations

import argparse
from typing import Any

from intertwine.terminal import types
from intertwine.terminal.declare import Subparsers, out, value, verb
from intertwine.terminal.runs import add_backend_arguments, progress_notes
from intertwine.terminal.showing import show, write_page


def add_parser(subparsers: Subparsers[Any]) -> None:
    """Declare the verb."""
    parser = verb(subparsers, "sweep", run, "train, compare and merge many networks; results in one table",
        "Run the tasks of SWEEP.yml that are not done and write DIR/table.parquet.")  # fmt: skip
    value(parser, "sweep", types.input_path, "SWEEP.yml", "what to run")
    out(parser, "DIR", "results and table", required=True)
    add_backend_arguments(parser)
    value(parser, "--page", types.output_path, "FILE.html", "write a page here")


def run(args: argparse.Namespace) -> int | None:
    """Read, run, print; exit code 1 if a task failed, 2 if by bad input."""
    from intertwine.sweeping import sweep

    with progress_notes() as progress:
        report = sweep(args.sweep, args.out, backend=args.backend, jobs=args.jobs, progress=progress)
    show(args, report, tables=False)
    write_page(args, report, {"sweep": args.sweep})
    return report.exit_code
