"""intertwine dimension MODEL: is there a symmetry that was missed?"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

EXAMPLES = """\
examples:
  intertwine dimension zoo:digits-vgg --weights shipped:0 --data digits --limit 400 --at features.3
  intertwine dimension model.py:net -o dimension.html
  intertwine dimension hf:llama --at "*.mlp.*" --json

The rank of the Jacobian is at most parameters - dim(orbit). If they are equal, no continuous symmetry was
missed at these weights; if not, the deficit is located and named: dead units, equal features, constants that
a norm takes out again, ... Exit code 1 where something is left without a name.
"""


def add_parser(subparsers: Any) -> None:
    """Declare the arguments."""
    from intertwine.cli.arguments import (
        add_data_arguments,
        add_model_arguments,
        any_text,
        most,
        output_path,
    )

    parser = subparsers.add_parser(
        "dimension",
        help="the functional dimension beside the orbit's: was a symmetry missed?",
        description="Rank of the Jacobian beside the dimension of the orbit: what was missed, and where?",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model_arguments(parser)
    parser.add_argument(
        "--at", type=any_text, metavar="AXES", help="only channels of these axes, all other weights held"
    )
    parser.add_argument(
        "--dense", type=most(60_000), default=20_000, metavar="N",
        help="weights up to which all are looked at together; beyond, axis by axis (default: 20000)",
    )  # fmt: skip
    add_data_arguments(parser)
    parser.add_argument("-o", "--out", type=output_path, metavar="FILE.html", help="also write a page")
    parser.add_argument("--json", action="store_true", help="print plain data")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure and print; 1 where a direction has no explanation."""
    from intertwine import dimension
    from intertwine.cli.arguments import load_dataset, load_model
    from intertwine.cli.output import log, print_json, print_table, progress
    from intertwine.pages.dimension_page import COLUMNS, VERDICTS, direction_rows, number_rows

    source = load_model(args)
    data = load_dataset(args) if args.data is not None else None
    with progress("rows of the Jacobian") as advance:
        found = dimension(
            source.model, source.example, source.kwargs, data=data, limit=args.limit, at=args.at,
            dense=args.dense, seed=args.seed, progress=advance,
        )  # fmt: skip
    if args.out:
        weights = Path(args.weights or "random").name
        facts = {"model": source.name, "weights": weights, "inputs": args.data or "random"}
        log().print(f"wrote {found.page(facts=facts).write(args.out)}", markup=False)
    if args.json:
        print_json({"model": source.name, **found.to_dict()})
        return int(found.verdict == "open")
    print_table(f"{source.name}: {found.verdict}", ["what", "value"], number_rows(found), right=("value",))
    if found.directions:
        print_table("directions that change nothing and are not in the group", COLUMNS, direction_rows(found))
    log().print(VERDICTS[found.verdict], markup=False)
    return int(found.verdict == "open")
