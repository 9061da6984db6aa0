"""`intertwine report`: pages that verbs wrote, as one file to send to a colleague."""

from __future__ import annotations

import argparse
from typing import Any

from intertwine.terminal import types
from intertwine.terminal.declare import Subparsers, json, out, value, verb
from intertwine.terminal.showing import write_and_show


def add_parser(subparsers: Subparsers[Any]) -> None:
    """Declare the verb."""
    parser = verb(subparsers, "report", run, "any number of pages in one file, with what each of them found",
        "Collect pages that other verbs wrote into one file with a table of contents.")  # fmt: skip
    value(parser, "pages", types.input_path, "PAGE.html", "what a verb wrote", nargs="+")
    parser.add_argument(
        "--title", type=types.any_text, default="Report", help="the heading (default: Report)"
    )
    out(parser, "FILE.html", "the one file", required=True)
    json(parser, "print titles and findings as JSON")


def run(args: argparse.Namespace) -> int:
    """Read, write, print."""
    from intertwine import report

    write_and_show(args, report(args.pages, title=args.title), {})
    return 0
