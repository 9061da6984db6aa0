"""intertwine reproduce: make a figure of a source paper again."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

from intertwine.errors import InputError

_EPILOG = """examples:
  intertwine reproduce --list
  intertwine reproduce ifm-fig3a -o figures                 # quick: minutes, on small data
  intertwine reproduce ifm-fig3a --preset paper -o figures  # the source's setting: needs CIFAR-10 and a GPU
  intertwine reproduce genni-fig1 --quick

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
    parser.add_argument("name", nargs="?", metavar="RECIPE", help="a name from --list")
    parser.add_argument("--list", action="store_true", help="list the recipes and stop")
    parser.add_argument("--preset", choices=("quick", "paper"), help="default: as --list says")
    parser.add_argument("--quick", action="store_const", const="quick", dest="preset", help="--preset quick")
    parser.add_argument(
        "-o", "--output", metavar="DIR", default="reproduced", help="folder (default: reproduced)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """List, or run one recipe."""
    from intertwine.cli.output import log, print_json, print_table, write_text
    from intertwine.recipes import find_recipe, recipes

    if args.list:
        columns = ("name", "title", "source", "preset")
        rows = [(r.name, r.title, r.source, r.preset) for r in recipes().values()]
        if args.json:
            print_json([dict(zip(columns, row, strict=True)) for row in rows])
        else:
            print_table("recipes", columns, rows)
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

    preset = args.preset or recipe.preset
    outcome = recipe.run(folder, preset == "quick", progress)
    facts = {**outcome.facts, "preset": preset, "seconds": round(time.perf_counter() - began, 1)}
    claims = [asdict(claim) for claim in outcome.claims]
    numbers = {"recipe": recipe.name, "source": recipe.source, **facts, "claims": claims}
    numbers["differs"] = outcome.differs
    written = [*outcome.files, folder / f"{recipe.name}.json"]
    write_text(written[-1], json.dumps(numbers, indent=1, default=str) + "\n")
    if args.json:
        print_json({**numbers, "files": [str(f) for f in written]})
        return
    shown = {key: value for key, value in facts.items() if not isinstance(value, (list, dict))}
    print_table(f"{recipe.name}: {recipe.title}", ["", ""], list(shown.items()))
    if claims:
        print_table("against the source", ["", "source", "here"], [list(c.values()) for c in claims])
    if outcome.differs:
        log().print(f"What differs: {outcome.differs}", markup=False, highlight=False)
    print(f"wrote {', '.join(str(f) for f in written)}")
