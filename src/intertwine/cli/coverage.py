"""`intertwine coverage`: verify a whole library of models."""

from __future__ import annotations

import argparse
from typing import Any

from intertwine.terminal.declare import flag, json, out, value, verb

_OPTIONS = ("filter", "all", "each_module", "shard", "dedupe", "jobs", "seconds", "memory")


def add_parser(subparsers: Any) -> None:
    """Declare the arguments."""
    from intertwine.terminal import types

    parser = verb(subparsers, "coverage", run, "verify a whole library of models",
        "Run verify over every model of a library with random weights; one row a model.")  # fmt: skip
    parser.add_argument("--library", required=True, choices=("zoo", "torchvision", "timm", "hf", "diffusers"))
    value(parser, "--filter", types.any_text, "GLOB", "only names that match (default: *)", default="*")
    flag(parser, "--all", "of hf every config type, not a sample of them")
    flag(parser, "--each-module", "only the smallest model of every module")
    value(parser, "--shard", types.any_text, "I/N", "the I-th of N parts of the list", default="1/1")
    flag(parser, "--dedupe", "of models with the same module and ops, run the smallest")
    value(parser, "--jobs", types.processes, "N", "processes (default: 1)", default=1)
    value(parser, "--seconds", types.seconds, "S", "of the CPU, for a model (default: 600)", default=600)
    value(parser, "--memory", types.memory, "BYTES", "limit a model (default: 10GB)", default=10**10)
    out(parser, "OUT", "JSON file of rows, kept after every model", required=True)
    value(parser, "--markdown", types.output_path, "FILE", "also write the table")
    json(parser, "print the rows")
    value(parser, "--page", types.output_path, "FILE.html", "write a page here")


def run(args: argparse.Namespace) -> int:
    """Survey and print totals."""
    from intertwine.surveying import Row, coverage
    from intertwine.terminal.output import log, write_text
    from intertwine.terminal.showing import bar, show, write_page

    console = log()

    def tell(row: Row) -> None:
        if row.status not in ("exact", "same"):
            console.print(f"{row.status}: {row.model} {row.error}", markup=False, highlight=False)

    with bar() as progress:
        found = coverage(
            args.library, args.out, progress=progress, each=tell, **{n: getattr(args, n) for n in _OPTIONS}
        )
    if args.markdown:
        write_text(args.markdown, found.markdown())
    show(args, found)
    write_page(args, found, {"library": args.library})
    return 1 if found.counts["wrong"] else 0
