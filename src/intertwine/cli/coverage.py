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


def add_parser(subparsers: Any) -> None:
    """Declare the arguments."""
    from intertwine.cli.arguments import any_text, gigabytes, output_path, processes, seconds

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
        "--gigabytes", type=gigabytes, default=10, metavar="GB", help="memory limit a model (default: 10)"
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
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Survey and print totals."""
    from dataclasses import asdict

    from intertwine.cli.output import log, print_json, print_table, progress, write_text
    from intertwine.surveying import render, survey

    specs, like = _choose(args)
    console = log()
    runs = len(set(like.values()) if like else specs)
    with progress(f"{args.library}: {runs} models", runs) as advance:

        def tell(row: Any) -> None:
            advance()
            if row.status not in ("exact", "same"):
                console.print(f"{row.status}: {row.model} {row.error}", markup=False, highlight=False)

        rows = survey(
            specs,
            args.out,
            jobs=args.jobs,
            seconds=args.seconds,
            gigabytes=args.gigabytes,
            like=like,
            progress=tell,
        )
    if args.markdown:
        write_text(args.markdown, render(args.library, rows))
    counts = {s: sum(r.status == s for r in rows) for s in ("exact", "same", "wrong", "unproved", "failed")}
    if args.json:
        print_json({"library": args.library, "counts": counts, "rows": [asdict(r) for r in rows]})
    else:
        print_table(f"{args.library}: {len(rows)} models", list(counts), [list(counts.values())])
    return 1 if counts["wrong"] else 0


def _choose(args: argparse.Namespace) -> tuple[list[str], dict[str, str]]:
    """The models of this shard, and for --dedupe the model that stands for each."""
    from pathlib import Path

    from intertwine.cli.output import progress
    from intertwine.surveying import catalogue, smallest_of_each, targets

    specs = targets(args.library, args.filter)
    if not (args.each_module or args.dedupe):
        return _shard(specs, args.shard), {}
    kept = Path(args.out).with_suffix(".catalogue.json")
    with progress(f"{args.library}: modules and ops", len(specs)) as advance:
        entries = catalogue(specs, kept, advance)
    if args.each_module:
        return _shard(sorted(set(smallest_of_each(entries, lambda e: e.module).values())), args.shard), {}
    like = smallest_of_each(entries, lambda e: e.architecture)
    mine = set(_shard(sorted(set(like.values())), args.shard))
    # By size, as `smallest_of_each` leaves them: a run that is stopped has most of its rows.
    like = {spec: first for spec, first in like.items() if first in mine}
    return list(like), like


def _shard(specs: list[str], text: str) -> list[str]:
    from intertwine.errors import InputError
    from intertwine.numbers import count
    from intertwine.text import quoted

    try:
        part, whole = map(count, text.split("/"))
        if part > whole:
            raise ValueError
    except ValueError as error:
        raise InputError(
            f"cannot read the shard {quoted(text)}", do="write I/N with 1 <= I <= N, as in 1/4"
        ) from error
    return specs[part - 1 :: whole]
