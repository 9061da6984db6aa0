"""`intertwine demo`: the main job on the embedded default; no network, no files needed."""

from __future__ import annotations

import argparse
from typing import Any

from intertwine.terminal.declare import json, out, verb


def add_parser(subparsers: Any) -> None:
    """Declare the arguments."""
    parser = verb(subparsers, "demo", run, "run the main job on data and weights that ship with the package",
        "Inspect a small net, prove its symmetries, and write report.html.")  # fmt: skip
    out(parser, "FILE", "(default: report.html)", default="report.html")
    json(parser, "print plain data")


def run(args: argparse.Namespace) -> int:
    """Run and print the summary."""
    from intertwine.demo import run_demo
    from intertwine.terminal.output import log, print_json, print_table

    console = log()
    with console.status("starting") as status:
        lines = run_demo(args.out, status.update)
    if args.json:
        print_json({line.step: line.result for line in lines})
    else:
        print_table("intertwine demo", ["step", "result"], [[line.step, line.result] for line in lines])
    console.print(f"wrote {args.out}", markup=False, highlight=False)
    return 0
