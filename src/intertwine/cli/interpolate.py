"""intertwine interpolate A B [C ...]: loss and accuracy along the line between models."""

from __future__ import annotations

import argparse
from typing import Any

from intertwine.errors import InputError
from intertwine.terminal import types
from intertwine.terminal.arguments import add_data_arguments, add_several_arguments
from intertwine.terminal.declare import Subparsers, choice, either, flag, json, out, value, verb
from intertwine.terminal.loading import load_dataset, load_several
from intertwine.terminal.showing import bar, write_and_show


def add_parser(subparsers: Subparsers[Any]) -> None:
    """Declare the verb."""
    parser = verb(subparsers, "interpolate", run,
        "loss, accuracy and barrier along the line between models, aligned or not",
        "Walk the line from A to B (and to C, ...) and say how high the loss rises.")  # fmt: skip
    add_several_arguments(parser)
    flag(parser, "--align", "also after aligning by permutations and by the whole group")
    choice(parser, "--by", ("weights", "activations", "both", "loss"),
        "what channels are compared by (default: activations on the data; loss: with --stages)",
        default="activations")  # fmt: skip
    flag(parser, "--stages", "a curve after each stage of `intertwine combine`, see below")
    either(
        parser, "--fold", "with --stages: make the stream of pre-norm networks rotate (default: where it can)"
    )
    choice(parser, "--repair", ("none", "reset", "repair"),
        "what is done about statistics, see below (alone: repair; default: none)", nargs="?", const="repair",
        default="none")  # fmt: skip
    value(parser, "--points", types.most(10_000), "N", "points (default: 11)", default=11)
    value(parser, "--train-limit", types.positive_int, "N",
        "inputs for statistics and activations (default: 1000)", default=1000)  # fmt: skip
    out(parser, "FILE", "write the page here")
    json(parser, "print the numbers as JSON")
    add_data_arguments(parser, required=True)


def run(args: argparse.Namespace) -> int | None:
    """Load, walk, write the page, print."""
    from intertwine.combining import interpolate

    if len(args.models) < 2:
        raise InputError("one model makes no line", do="give two or more models")
    sources, names = load_several(args)
    data = load_dataset(args)
    with bar() as progress:
        found = interpolate(
            [source.model for source in sources], data, train_data=data.take(args.train_limit),
            align=args.align, by=args.by, stages=args.stages, fold=args.fold, repair=args.repair,
            points=args.points, inputs=sources[0].example,
            kwargs=sources[0].kwargs, seed=args.seed, progress=progress,
        )  # fmt: skip
    facts = {"models": ", ".join(names), "data": args.data, "inputs": len(data), "aligned by": args.by}
    write_and_show(args, found, facts)
    return 0
