"""intertwine rotate MODEL: change the basis of one layer, fine-tune what comes after, see what is lost."""

from __future__ import annotations

import argparse

from intertwine.cli.arguments import (
    add_data_arguments,
    add_model_arguments,
    any_text,
    load_model,
    most,
    nonnegative_float,
    positive_float,
)
from intertwine.cli.showing import show
from intertwine.cli.splits import add_training_data, training_and_test

_EPILOG = """examples:
  intertwine rotate zoo:digits-vgg --weights shipped:0 --data digits --at features.4 --by group
  intertwine rotate zoo:digits-vgg --weights shipped:0 --data digits --at features.4 --by orthogonal --json

--at names a value before an activation (a convolution or its norm). group: a random member of the
group that acts there, which later layers can undo exactly; orthogonal: a random rotation, which they cannot;
identity: fine-tuning alone. penalty = accuracy before minus after fine-tuning, in points (section 3.3).
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser(
        "rotate",
        help="change the basis of a layer, freeze up to it, fine-tune the rest: the rotation penalty",
        description="Act on the channels of one layer, freeze everything up to it and fine-tune the rest.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model_arguments(parser)
    parser.add_argument("--at", type=any_text, required=True, metavar="LAYER", help="the value to act on")
    parser.add_argument(
        "--by", choices=["group", "orthogonal", "identity"], default="group", help="(default: group)"
    )
    parser.add_argument(
        "--epochs", type=most(100_000, 0), default=5, metavar="N", help="of fine-tuning (default: 5)"
    )
    parser.add_argument(
        "--learning-rate", type=positive_float, default=1e-3, metavar="RATE", help="of Adam (default: 0.001)"
    )
    parser.add_argument(
        "--spread",
        type=nonnegative_float,
        default=1.0,
        metavar="S",
        help="deviation of log-scales (default: 1)",
    )
    add_training_data(parser)
    add_data_arguments(parser, required=True)
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.set_defaults(run=run, batch=100)


def run(args: argparse.Namespace) -> int | None:
    """Load, rotate, print."""
    from intertwine.cli.showing import bar
    from intertwine.stitching import rotate

    source = load_model(args)
    train, test, how = training_and_test(args)
    with bar() as progress:
        found = rotate(
            source.model, train, test, at=args.at, by=args.by, epochs=args.epochs, batch=args.batch,
            learning_rate=args.learning_rate, spread=args.spread, seed=args.seed, progress=progress,
        )  # fmt: skip
    show(args, found, {"model": source.name, "training": how})
    return 0
