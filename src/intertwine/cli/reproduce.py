"""intertwine reproduce: make a figure of a source paper again."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from intertwine.errors import InputError

_EPILOG = """examples:
  intertwine reproduce --list
  intertwine reproduce genni-fig1 --quick
  intertwine reproduce genni-fig4 -o figures
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser(
        "reproduce",
        help="make a figure of a source paper again",
        description="Run the recipe of a figure: the paper's settings, or --quick for a look in seconds.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", metavar="RECIPE", help="a name from --list")
    parser.add_argument("--list", action="store_true", help="list the recipes and stop")
    parser.add_argument("--quick", action="store_true", help="fewer inputs and grid points, seconds")
    parser.add_argument(
        "-o", "--output", metavar="DIR", default="reproduced", help="folder (default: reproduced)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """List, or run one recipe."""
    from intertwine.cli.output import log, print_json, print_table
    from intertwine.recipes import find_recipe, recipes

    if args.list:
        rows = [(r.name, r.title, r.source) for r in recipes().values()]
        if args.json:
            print_json([dict(zip(("name", "title", "source"), row, strict=True)) for row in rows])
        else:
            print_table("recipes", ("name", "title", "source"), rows)
        return
    if args.name is None:
        raise InputError("which figure?", do="give the name of a recipe, or --list")
    recipe = find_recipe(args.name)
    folder = Path(args.output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {args.output}: {error.strerror}") from error
    console, began, last = log(), time.perf_counter(), [0.0]

    def progress(done: int, total: int, message: str) -> None:
        now = time.perf_counter()
        if now - last[0] > 5:
            last[0] = now
            console.print(
                f"{now - began:6.0f} s  {done:,} of {total:,}  {message}", markup=False, highlight=False
            )

    outcome = recipe.run(folder, args.quick, progress)
    facts = {**outcome.facts, "quick": args.quick, "seconds": round(time.perf_counter() - began, 1)}
    if args.json:
        print_json({"recipe": recipe.name, "files": [str(f) for f in outcome.files], **facts})
        return
    print_table(f"{recipe.name}: {recipe.title}", ["", ""], list(facts.items()))
    print(f"wrote {', '.join(str(f) for f in outcome.files)}")
