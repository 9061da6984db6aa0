"""intertwine stitch A B: the first layers of one network, a simple map, the last layers of the other."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from intertwine import numbers
from intertwine.errors import InputError
from intertwine.terminal import types
from intertwine.terminal.arguments import add_data_arguments, add_device_arguments, add_pair_arguments
from intertwine.terminal.declare import Subparsers, choice, json, out, value, verb
from intertwine.terminal.loading import load_pair
from intertwine.terminal.registered import registered
from intertwine.terminal.showing import bar, parts, write_and_show
from intertwine.terminal.splits import add_training_data, training_and_test

_TRAINING = ("epochs", "learning_rate", "alpha", "method", "loss", "seed")


def add_parser(subparsers: Subparsers[Any]) -> None:
    """Declare the verb."""
    parser = verb(subparsers, "stitch", run, "how well do the first layers of A serve the last layers of B",
        "The stitching penalty at one or all layers, from a closed form and after training.",
        more=_kinds_help(), input=None)  # fmt: skip
    add_pair_arguments(parser, "the MODEL whose first layers are used", "the MODEL whose last ones are")
    value(parser, "--at", types.any_text, "LAYER", "where (default: all)", default="all")
    value(parser, "--at-b", types.any_text, "LAYER", "the layer of B, where it differs")
    value(parser, "--kinds", types.any_text, "KINDS", "(default: full,group)", default="full,group")
    choice(parser, "--skip", ["a", "b"],
        "whose skip passes a cut inside a residual block (default: a, eq. E.54)", default="a")  # fmt: skip
    _add_training(parser)
    value(parser, "--normalize-b", types.normalization, "HOW",
        "normalisation of B's inputs, where it differs")  # fmt: skip
    out(parser, "FILE", "write the page here")
    json(parser, "print the numbers as JSON")
    add_device_arguments(parser)
    add_data_arguments(parser, required=True, batch=100)


def _kinds_help() -> str:
    lines = [f"  {usage:<12}{text}" for usage, text in registered()["stitches"].items()]
    return "kinds, comma-separated:\n" + "\n".join(lines)


def _add_training(parser: argparse.ArgumentParser) -> None:
    choice(parser, "--as", ["source"],
        "train as appendix D.2 of source 002: labels, SGD 1e-3, 20 epochs, random start, batches of 32",
        dest="manner")  # fmt: skip
    value(parser, "--epochs", types.most(100_000, 0), "N", "0: closed form only (default: 2)")
    value(parser, "--learning-rate", types.positive_float, "RATE", "(default: that of the kind)")
    value(parser, "--alpha", types.Checked(alpha), "A", "of -alpha |P|_2; cv chooses it (default: 0.1)",
        default=0.1)  # fmt: skip
    choice(parser, "--method", ["birkhoff", "softsort"], "for P", default="birkhoff")
    choice(parser, "--loss", ["distill", "labels"],
        "train on the outputs of B, or on labels as in the source (default: distill)")  # fmt: skip
    value(parser, "--enough", types.nonnegative_float, "POINTS",
        "no training within this many points of the networks on training inputs (default: 1)",
        default=1.0)  # fmt: skip
    add_training_data(parser)


def alpha(text: str) -> Any:
    """A number of at least 0, or cv."""
    return "cv" if text == "cv" else numbers.nonnegative(text)


def run(args: argparse.Namespace) -> int | None:
    """Load, stitch, write the page, print."""
    from intertwine.stitching import Training, parse_kind, stitch
    from intertwine.stitching.fit import SOURCE_BATCH

    kinds = [parse_kind(text) for text in parts(args.kinds)]
    if not kinds:
        raise InputError("no kind of stitch is named", do="give --kinds full,group")
    source = args.manner == "source"
    given = {name: value for name in _TRAINING if (value := getattr(args, name)) is not None}
    training = replace(Training.as_source() if source else Training(), **given)
    a, b = load_pair(args)
    train, test, how = training_and_test(args)
    inputs_b = None
    if args.normalize_b:
        other = training_and_test(argparse.Namespace(**{**vars(args), "normalize": args.normalize_b}))
        inputs_b = (other[0].images, other[1].images)
    with bar() as progress:
        report = stitch(
            a.model, b.model, train, test, at=_at(args.at), at_b=_at(args.at_b) if args.at_b else None,
            kinds=kinds, training=training, skip=args.skip, enough=args.enough,
            batch=SOURCE_BATCH if source else args.batch, inputs_b=inputs_b, progress=progress,
        )  # fmt: skip
    facts = {"A": a.name, "B": b.name, "weights of A": args.weights_a, "weights of B": args.weights_b,
             "data": args.data, "training inputs": how}  # fmt: skip
    write_and_show(args, report, facts)
    return 0


def _at(text: str) -> str | list[str]:
    return text if text in ("all", "outside") else parts(text)
