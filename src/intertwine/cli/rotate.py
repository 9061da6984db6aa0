"""intertwine rotate MODEL: change the basis of one layer, fine-tune what comes after, see what is lost."""

from __future__ import annotations

import argparse
from typing import Any

from intertwine.terminal import types
from intertwine.terminal.arguments import add_data_arguments, add_model_arguments
from intertwine.terminal.declare import Subparsers, choice, json, out, value, verb
from intertwine.terminal.loading import load_model
from intertwine.terminal.showing import bar, write_and_show
from intertwine.terminal.splits import add_training_data, training_and_test


def add_parser(subparsers: Subparsers[Any]) -> None:
    """Declare the verb."""
    parser = verb(subparsers, "rotate", run,
        "change the basis of a layer, freeze up to it, fine-tune the rest: the rotation penalty",
        "Act on the channels of one layer, freeze everything up to it and fine-tune the rest.")  # fmt: skip
    add_model_arguments(parser)
    value(parser, "--at", types.any_text, "LAYER", "the value to act on", required=True)
    choice(parser, "--by", ["group", "orthogonal", "identity"], "(default: group)", default="group")
    value(parser, "--epochs", types.most(100_000, 0), "N", "of fine-tuning (default: 5)", default=5)
    value(parser, "--learning-rate", types.positive_float, "RATE", "of Adam (default: 0.001)", default=1e-3)
    value(parser, "--spread", types.nonnegative_float, "S", "deviation of log-scales (default: 1)",
        default=1.0)  # fmt: skip
    add_training_data(parser)
    add_data_arguments(parser, required=True, batch=100)
    out(parser, "FILE", "write the page here (.html)")
    json(parser, "print the numbers as JSON")


def run(args: argparse.Namespace) -> int | None:
    """Load, rotate, print."""
    from intertwine.stitching import rotate

    source = load_model(args)
    train, test, how = training_and_test(args)
    with bar() as progress:
        found = rotate(
            source.model, train, test, at=args.at, by=args.by, epochs=args.epochs, batch=args.batch,
            learning_rate=args.learning_rate, spread=args.spread, seed=args.seed, progress=progress,
        )  # fmt: skip
    write_and_show(args, found, {"model": source.name, "training": how})
    return 0
