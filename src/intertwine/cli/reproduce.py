"""intertwine reproduce: make a figure of a source paper again."""

from __future__ import annotations

import argparse
import time

from intertwine.cli.arguments import any_text, output_path
from intertwine.errors import InputError

_EPILOG = """examples:
  intertwine reproduce --list
  intertwine reproduce ifm-fig3a -o figures                 # quick: minutes, on small data
  intertwine reproduce ifm-fig3a --preset paper -o figures  # the source's setting: needs CIFAR-10 and a GPU
  intertwine reproduce genni-fig1 --quick
  intertwine reproduce symmetry-table2 --preset cifar --data data --weights data/checkpoints

DIR gets a page, NAME.json with every number, and PNG files where kaleido is installed. A recipe that trains
keeps its runs in DIR/runs and goes on with them when it is started again.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser(
        "reproduce",
        help="make a figure of a source paper again",
        description="Run the recipe of a figure: the source's setting, or a small one that takes minutes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", type=any_text, nargs="?", metavar="RECIPE", help="a name from --list")
    parser.add_argument("--list", action="store_true", help="list the recipes and stop")
    parser.add_argument("--preset", choices=("quick", "cifar", "paper"), help="default: as --list says")
    parser.add_argument("--data", type=any_text, metavar="DIR", help="for cifar: the folder of cifar10/, ...")
    parser.add_argument("--weights", type=any_text, metavar="DIR", help="for cifar: the checkpoints' folder")
    parser.add_argument("--quick", action="store_const", const="quick", dest="preset", help="--preset quick")
    parser.add_argument(
        "-o",
        "--out",
        type=output_path,
        metavar="DIR",
        default="reproduced",
        help="folder (default: reproduced)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """List, or run one recipe."""
    from intertwine.cli.output import log, print_json, print_table
    from intertwine.cli.showing import show
    from intertwine.recipes import recipes
    from intertwine.recipes.reproducing import reproduce

    if args.list:
        columns = ("name", "title", "source", "preset", "presets")
        rows = [(r.name, r.title, r.source, r.preset, ", ".join(r.presets)) for r in recipes().values()]
        if args.json:
            print_json([dict(zip(columns, row, strict=True)) for row in rows])
        else:
            print_table("recipes", columns, rows)
        return
    if args.name is None:
        raise InputError("which figure?", do="give the name of a recipe, or --list")
    console, began, last = log(), time.perf_counter(), [0.0]

    def progress(done: int, total: int, message: str) -> None:
        now = time.perf_counter()
        if now - last[0] > 5:
            last[0] = now
            text = f"{now - began:6.0f} s  {done:,} of {total:,}  {message}"
            console.print(text, markup=False, highlight=False)

    found = reproduce(
        args.name, args.out, preset=args.preset, data=args.data, weights=args.weights, progress=progress
    )
    show(args, found)
