"""`intertwine demo`: the main job on the embedded default; no network, no files needed."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Declare the arguments."""
    parser = subparsers.add_parser(
        "demo",
        help="run the main job on data and weights that ship with the package",
        description="Inspect a small net, prove its symmetries, and write report.html.",
        epilog="examples:\n  intertwine demo\n  intertwine demo -o somewhere.html --json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-o", "--out", default="report.html", metavar="FILE", help="(default: report.html)")
    parser.add_argument("--json", action="store_true", help="print plain data")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run and print the summary."""
    from intertwine.cli.output import log, print_json, print_table
    from intertwine.demo import run_demo

    console = log()
    with console.status("starting") as status:
        lines = run_demo(args.out, status.update)
    if args.json:
        print_json({line.step: line.result for line in lines})
    else:
        print_table("intertwine demo", ["step", "result"], [[line.step, line.result] for line in lines])
    console.print(f"wrote {args.out}", markup=False, highlight=False)
    return 0
