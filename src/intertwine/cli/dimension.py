"""intertwine dimension MODEL: is there a symmetry that was missed?"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from intertwine.terminal.declare import json, out, value, verb


def add_parser(subparsers: Any) -> None:
    """Declare the arguments."""
    from intertwine.terminal import types
    from intertwine.terminal.arguments import add_data_arguments, add_model_arguments

    parser = verb(subparsers, "dimension", run,
        "the functional dimension beside the orbit's: was a symmetry missed?",
        "Rank of the Jacobian beside the dimension of the orbit: what was missed, and where?")  # fmt: skip
    add_model_arguments(parser)
    value(parser, "--at", types.any_text, "AXES", "only channels of these axes, all other weights held")
    value(parser, "--dense", types.most(60_000), "N",
        "weights up to which all are looked at together; beyond, axis by axis (default: 20000)",
        default=20_000)  # fmt: skip
    value(parser, "--sample", types.most(60_000), "N",
        "numbers of one axis that are looked at together; axes of no more whole (default: 2000)",
        default=2_000)  # fmt: skip
    value(parser, "--looks", types.positive_int, "N",
        "random sets of channels of a larger axis (default: 3)", default=3)  # fmt: skip
    add_data_arguments(parser)
    out(parser, "FILE.html", "also write a page")
    json(parser, "print plain data")


def run(args: argparse.Namespace) -> int:
    """Measure and print; 1 where a direction has no explanation."""
    from intertwine import dimension
    from intertwine.terminal.loading import load_dataset, load_model
    from intertwine.terminal.showing import bar, write_and_show

    source = load_model(args)
    data = load_dataset(args) if args.data is not None else None
    with bar() as progress:
        found = dimension(
            source.model, source.example, source.kwargs, data=data, limit=args.limit, at=args.at,
            dense=args.dense, sample=args.sample, looks=args.looks, seed=args.seed, progress=progress,
        )  # fmt: skip
    weights = Path(args.weights or "random").name
    write_and_show(args, found, {"model": source.name, "weights": weights, "inputs": args.data or "random"})
    return int(found.verdict == "open")
