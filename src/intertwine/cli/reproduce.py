"""intertwine reproduce: make a figure of a source paper again."""

from __future__ import annotations

import argparse
import time
from typing import Any

from intertwine.errors import InputError
from intertwine.terminal import types
from intertwine.terminal.declare import Subparsers, choice, flag, json, out, value, verb


def add_parser(subparsers: Subparsers[Any]) -> None:
    """Declare the verb."""
    parser = verb(subparsers, "reproduce", run, "make a figure of a source paper again",
        "Run the recipe of a figure: the source's setting, or a small one that takes minutes.")  # fmt: skip
    value(parser, "name", types.any_text, "RECIPE", "a name from --list", nargs="?")
    flag(parser, "--list", "list the recipes and stop")
    choice(parser, "--preset", ("quick", "cifar", "paper"), "default: as --list says")
    value(parser, "--data", types.any_text, "DIR", "for cifar: the folder of cifar10/, ...")
    value(parser, "--weights", types.any_text, "DIR", "for cifar: the checkpoints' folder")
    parser.add_argument("--quick", action="store_const", const="quick", dest="preset", help="--preset quick")
    out(parser, "DIR", "folder (default: reproduced)", default="reproduced")
    json(parser, "print JSON")


def run(args: argparse.Namespace) -> None:
    """List, or run one recipe."""
    from intertwine.recipes import recipes
    from intertwine.recipes.reproducing import reproduce
    from intertwine.terminal.output import log, print_json, print_table
    from intertwine.terminal.showing import show

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
