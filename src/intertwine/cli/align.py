"""intertwine align A B: the group element that brings B onto A."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from intertwine.cli.arguments import (
    add_data_arguments,
    add_device_arguments,
    add_pair_arguments,
    input_shape,
    load_dataset,
    load_pair,
    most,
    output_path,
)
from intertwine.cli.showing import show
from intertwine.errors import InputError

_EPILOG = """examples:
  intertwine align zoo:digits-vgg zoo:digits-vgg --weights-a shipped:0 --weights-b shipped:1 -o b.safetensors
  intertwine align zoo:resnet20 zoo:resnet20 --weights-a a.safetensors --weights-b b.safetensors \\
      --by activations --data parquet:train.parquet --normalize cifar10-legacy --limit 1000 -o out.safetensors
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser(
        "align",
        help="bring one model onto another by permutations, rescalings, signs and matrices",
        description="Find the group element that brings B onto A. The aligned B computes what B computes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_pair_arguments(parser, "the MODEL that stays", "the MODEL that moves; same architecture")
    parser.add_argument("--input", type=input_shape, metavar="SHAPE", help="example input, such as 1x3x32x32")
    parser.add_argument(
        "--by", choices=("weights", "activations", "both"), default="weights",
        help="compare channels by weights, by activations on --data, or by both (default: weights)",
    )  # fmt: skip
    parser.add_argument(
        "--group", choices=("full", "permutation"), default="full",
        help="the whole symmetry group, or its permutations only (default: full)",
    )  # fmt: skip
    parser.add_argument(
        "--restarts", type=most(10_000, 0), default=3, metavar="N", help="random starts (default: 3)"
    )
    parser.add_argument(
        "-o",
        "--out",
        type=output_path,
        metavar="FILE",
        help="write the weights of the aligned B here (.safetensors)",
    )
    parser.add_argument(
        "--element", type=output_path, metavar="FILE", help="write the group element here (.safetensors)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_device_arguments(parser)
    add_data_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int | None:
    """Load, align, write, print."""
    from intertwine import zoo
    from intertwine.aligning import align
    from intertwine.cli.output import log, say
    from intertwine.files import is_special
    from intertwine.symmetry import act, trace

    written = [path for path in (args.out, args.element) if path]
    for path in written:
        if Path(path).suffix != ".safetensors" and not is_special(path):
            raise InputError(f"cannot write {path}", do="give a name that ends in .safetensors")
    a, b = load_pair(args)
    data: Any = load_dataset(args) if args.data is not None or args.by != "weights" else None
    symmetry = trace(a.model, a.example, a.kwargs)
    with log().status("aligning"):
        result = align(
            a.model, b.model, symmetry, by=args.by, group=args.group,
            data=data if args.by != "weights" else None, restarts=args.restarts, seed=args.seed,
        )  # fmt: skip
    if args.out:
        zoo.save_weights(act(b.model, result.element), args.out)
    if args.element:
        result.element.save(args.element)
    show(args, result, {"a": args.a, "b": args.b, "weights": args.out, "element": args.element})
    if written and not args.json:
        say(f"wrote {', '.join(written)}")
    return 0
