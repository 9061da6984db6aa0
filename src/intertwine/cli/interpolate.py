"""intertwine interpolate A B [C ...]: loss and accuracy along the line between models."""

from __future__ import annotations

import argparse

from intertwine.cli.arguments import (
    add_data_arguments,
    add_device_arguments,
    add_source_arguments,
    input_path,
    input_shape,
    load_dataset,
    load_side,
    model_spec,
    most,
    output_path,
    positive_int,
)
from intertwine.cli.registered import registered
from intertwine.cli.showing import bar, write_and_show
from intertwine.errors import InputError

_EPILOG = """examples:
  intertwine interpolate zoo:digits-vgg zoo:digits-vgg --weights shipped:0 --weights shipped:1 \\
      --data digits --align --repair -o lmc.html
  intertwine interpolate zoo:tiny10 zoo:tiny10 zoo:tiny10 --weights a.safetensors --weights b.safetensors \\
      --weights c.safetensors --data parquet:test.parquet --normalize cifar10-legacy --repair reset --json

  intertwine interpolate zoo:digits-vgg zoo:digits-vgg --weights shipped:0 --weights shipped:1 \
      --data digits --stages --points 5 -o stages.html

stages: as they are, aligned, statistics reset, rescaled, every layer solved for by least squares
repair: none interpolates batch-norm statistics, reset recomputes them on the data, repair sets the mean and
deviation of every layer to those interpolated between the end points (Jordan et al. 2022)
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser(
        "interpolate",
        help="loss, accuracy and barrier along the line between models, aligned or not",
        description="Walk the line from A to B (and to C, ...) and say how high the loss rises.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "models", type=model_spec, metavar="MODEL", nargs="+", help="two or more models of one architecture"
    )
    parser.add_argument(
        "--weights",
        type=input_path,
        metavar="FILE",
        action="append",
        default=[],
        help="weights, once for each MODEL in order",
    )
    parser.add_argument("--input", type=input_shape, metavar="SHAPE", help="example input, such as 1x3x32x32")
    parser.add_argument(
        "--align", action="store_true", help="also after aligning by permutations and by the whole group"
    )
    parser.add_argument(
        "--by", choices=("weights", "activations", "both", "loss"), default="activations",
        help="what channels are compared by (default: activations on the data; loss: with --stages)",
    )  # fmt: skip
    parser.add_argument(
        "--stages", action="store_true", help="a curve after each stage of `intertwine combine`, see below"
    )
    parser.add_argument(
        "--fold", action="store_true", help="with --stages: make the stream of pre-norm networks rotate"
    )
    parser.add_argument(
        "--repair", nargs="?", const="repair", default="none", choices=("none", "reset", "repair"),
        help="what is done about statistics, see below (alone: repair; default: none)",
    )  # fmt: skip
    parser.add_argument("--points", type=most(10_000), default=11, metavar="N", help="points (default: 11)")
    parser.add_argument(
        "--train-limit", type=positive_int, default=1000, metavar="N",
        help="inputs for statistics and activations (default: 1000)",
    )  # fmt: skip
    parser.add_argument("-o", "--out", type=output_path, metavar="FILE", help="write the page here")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    add_device_arguments(parser)
    add_source_arguments(parser)
    add_data_arguments(parser, required=True)
    parser.epilog = "\n".join(filter(None, [parser.epilog, registered()["model_help"]]))
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int | None:
    """Load, walk, write the page, print."""
    from intertwine.combining import interpolate

    if len(args.models) < 2:
        raise InputError("one model makes no line", do="give two or more models")
    if args.weights and len(args.weights) != len(args.models):
        raise InputError(
            f"{len(args.models)} models but {len(args.weights)} --weights", do="give --weights once for each"
        )
    weights = args.weights or [None] * len(args.models)
    sources = [load_side(args, m, w) for m, w in zip(args.models, weights, strict=True)]
    data = load_dataset(args)
    with bar() as progress:
        found = interpolate(
            [source.model for source in sources], data, train_data=data.take(args.train_limit),
            align=args.align, by=args.by, stages=args.stages, fold=args.fold, repair=args.repair,
            points=args.points, inputs=sources[0].example,
            kwargs=sources[0].kwargs, seed=args.seed, progress=progress,
        )  # fmt: skip
    names = [f"{m} ({w})" if w else m for m, w in zip(args.models, weights, strict=True)]
    facts = {"models": ", ".join(names), "data": args.data, "inputs": len(data), "aligned by": args.by}
    write_and_show(args, found, facts)
    return 0
