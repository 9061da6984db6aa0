"""`intertwine coverage`: verify a whole library of models."""

from __future__ import annotations

import argparse
from typing import Any

EXAMPLES = """\
examples:
  intertwine coverage --library zoo -o coverage.json
  intertwine coverage --library torchvision --filter 'resnet*' --jobs 2 -o coverage.json
  intertwine coverage --library timm --each-module -o timm.json --markdown timm.md
  intertwine coverage --library timm --shard 1/8 --dedupe -o timm-1.json

A run that was stopped goes on where it was: models that OUT holds already are not run again.
Exit code 1 if a claimed symmetry does not hold for some model.
"""
_OPTIONS = ("filter", "each_module", "shard", "dedupe", "jobs", "seconds", "memory")


def add_parser(subparsers: Any) -> None:
    """Declare the arguments."""
    from intertwine.cli.arguments import any_text, memory, output_path, processes, seconds

    parser = subparsers.add_parser(
        "coverage",
        help="verify a whole library of models",
        description="Run verify over every model of a library with random weights; one row a model.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--library", required=True, choices=("zoo", "torchvision", "timm", "hf", "diffusers"))
    parser.add_argument(
        "--filter", type=any_text, default="*", metavar="GLOB", help="only names that match (default: *)"
    )
    parser.add_argument("--each-module", action="store_true", help="only the smallest model of every module")
    parser.add_argument(
        "--shard", type=any_text, default="1/1", metavar="I/N", help="the I-th of N parts of the list"
    )
    parser.add_argument(
        "--dedupe", action="store_true", help="of models with the same module and ops, run the smallest"
    )
    parser.add_argument("--jobs", type=processes, default=1, metavar="N", help="processes (default: 1)")
    parser.add_argument(
        "--seconds", type=seconds, default=600, metavar="S", help="time limit a model (default: 600)"
    )
    parser.add_argument(
        "--memory", type=memory, default=10**10, metavar="BYTES", help="limit a model (default: 10GB)"
    )
    parser.add_argument(
        "-o",
        "--out",
        type=output_path,
        required=True,
        metavar="OUT",
        help="JSON file of rows, kept after every model",
    )
    parser.add_argument("--markdown", type=output_path, metavar="FILE", help="also write the table")
    parser.add_argument("--json", action="store_true", help="print the rows")
    parser.add_argument("--page", type=output_path, metavar="FILE.html", help="write a page here")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Survey and print totals."""
    from intertwine.cli.output import log, write_text
    from intertwine.cli.showing import bar, show, write_page
    from intertwine.surveying import Row, coverage

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
