"""intertwine stitch A B: the first layers of one network, a simple map, the last layers of the other."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from intertwine import numbers
from intertwine.cli.arguments import (
    Checked,
    add_data_arguments,
    add_device_arguments,
    add_pair_arguments,
    any_text,
    load_pair,
    most,
    nonnegative_float,
    normalization,
    output_path,
    positive_float,
)
from intertwine.cli.registered import registered
from intertwine.cli.showing import bar, parts, write_and_show
from intertwine.cli.splits import add_training_data, training_and_test
from intertwine.errors import InputError

_EPILOG = """examples:
  intertwine stitch zoo:digits-vgg zoo:digits-vgg --weights-a shipped:0 --weights-b shipped:1 --data digits \\
      --kinds full,group --at all -o stitch.html
  intertwine stitch zoo:resnet20 zoo:resnet20 --weights-a a.safetensors --weights-b b.safetensors \\
      --data parquet:test.parquet --train-data parquet:train.parquet --normalize cifar10-legacy \\
      --augment 4 --flip --at outside --kinds identity,group,rank:4,full
  intertwine stitch zoo:tiny10 zoo:resnet20 --at relu_3 --at-b layer2.0.relu_1 --kinds full --data ...

--at: all, outside (of residual blocks), or comma-separated names and patterns such as 'layer1.*'
penalty = mean accuracy of A and B minus that of the stitched network, in points
"""
_TRAINING = ("epochs", "learning_rate", "alpha", "method", "loss", "seed")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser(
        "stitch",
        help="how well do the first layers of A serve the last layers of B",
        description="The stitching penalty at one or all layers, from a closed form and after training.",
        epilog=f"{_EPILOG}\n{_kinds_help()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_pair_arguments(parser, "the MODEL whose first layers are used", "the MODEL whose last ones are")
    parser.add_argument("--at", type=any_text, default="all", metavar="LAYER", help="where (default: all)")
    parser.add_argument("--at-b", type=any_text, metavar="LAYER", help="the layer of B, where it differs")
    parser.add_argument(
        "--kinds", type=any_text, default="full,group", metavar="KINDS", help="(default: full,group)"
    )
    parser.add_argument(
        "--skip", choices=["a", "b"], default="a",
        help="whose skip passes a cut inside a residual block (default: a, eq. E.54)",
    )  # fmt: skip
    _add_training(parser)
    parser.add_argument(
        "--normalize-b",
        type=normalization,
        metavar="HOW",
        help="normalisation of B's inputs, where it differs",
    )
    parser.add_argument("-o", "--out", type=output_path, metavar="FILE", help="write the page here")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    add_device_arguments(parser)
    add_data_arguments(parser, required=True)
    parser.set_defaults(run=run, input=None, batch=100)


def _kinds_help() -> str:
    lines = [f"  {usage:<12}{text}" for usage, text in registered()["stitches"].items()]
    return "kinds, comma-separated:\n" + "\n".join(lines)


def _add_training(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--as", dest="manner", choices=["source"],
        help="train as appendix D.2 of source 002: labels, SGD 1e-3, 20 epochs, random start, batches of 32",
    )  # fmt: skip
    parser.add_argument(
        "--epochs", type=most(100_000, 0), metavar="N", help="0: closed form only (default: 2)"
    )
    parser.add_argument(
        "--learning-rate", type=positive_float, metavar="RATE", help="(default: that of the kind)"
    )
    parser.add_argument(
        "--alpha",
        type=Checked(alpha),
        default=0.1,
        metavar="A",
        help="of -alpha |P|_2; cv chooses it (default: 0.1)",
    )
    parser.add_argument("--method", choices=["birkhoff", "softsort"], default="birkhoff", help="for P")
    parser.add_argument(
        "--loss", choices=["distill", "labels"],
        help="train on the outputs of B, or on labels as in the source (default: distill)",
    )  # fmt: skip
    parser.add_argument(
        "--enough", type=nonnegative_float, default=1.0, metavar="POINTS",
        help="no training within this many points of the networks on training inputs (default: 1)",
    )  # fmt: skip
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
