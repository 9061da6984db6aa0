"""intertwine align A B: the group element that brings B onto A."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from intertwine.errors import InputError

if TYPE_CHECKING:
    from intertwine.aligning import Alignment
    from intertwine.symmetry import Symmetry
    from intertwine.zoo import Source

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
    add_align_arguments(parser)
    parser.add_argument(
        "-o",
        "--output",
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


def add_align_arguments(parser: argparse.ArgumentParser) -> None:
    """--by, --group, --restarts."""
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


def check_same_graph(names: Sequence[str], sources: Sequence[Source]) -> None:
    """Refuse models whose graphs differ."""
    from intertwine.orbit.same_graph import assert_same_ops, exported

    first = sources[0]
    for name, source in zip(names[1:], sources[1:], strict=True):
        pair = (names[0], name)
        graphs = exported((first.model, source.model), first.example, first.kwargs, names=pair)
        if graphs is not None:
            assert_same_ops(graphs, names=pair)


def run(args: argparse.Namespace) -> int | None:
    """Load, align, write, print."""
    from intertwine.aligning import align
    from intertwine.cli.output import log
    from intertwine.files import is_special
    from intertwine.symmetry import trace

    for path in filter(None, (args.output, args.element)):
        if Path(path).suffix != ".safetensors" and not is_special(path):
            raise InputError(f"cannot write {path}", do="give a name that ends in .safetensors")
    a, b = load_pair(args)
    data: Any = load_dataset(args) if args.data is not None or args.by != "weights" else None
    symmetry = trace(a.model, a.example, a.kwargs)
    with log().status("aligning"):
        result = align(
            a.model, b.model, symmetry, by=args.by, group=args.group,
            data=data if args.by != "weights" else None, restarts=args.restarts,
            seed=args.seed,
        )  # fmt: skip
    _write(args, symmetry, b, result)
    _print(args, result)
    return 0


def _write(args: argparse.Namespace, symmetry: Symmetry, b: Source, result: Alignment) -> None:
    from intertwine import zoo
    from intertwine.symmetry import act

    if args.output:
        zoo.save_weights(act(b.model, result.element), args.output)
    if args.element:
        result.element.save(args.element)


def _print(args: argparse.Namespace, result: Alignment) -> None:
    from intertwine.cli.output import print_json, print_table, say

    if args.json:
        files = {"weights": args.output, "element": args.element}
        print_json({"a": args.a, "b": args.b, **result.to_dict(), **files})
        return
    rows = [[a.name, a.size, a.group, a.moved, a.cosine_before, a.cosine_after] for a in result.axes]
    columns = ["axis", "channels", "group", "moved", "cosine before", "after"]
    print_table(f"{args.b} onto {args.a}, by {result.by}", columns, rows, right=columns[1:2] + columns[3:])
    say(f"distance relative to A: {result.distance_before:.4g} before, {result.distance_after:.4g} after")
    for name, distance in result.candidates:
        say(f"  by {name}: {distance:.4g}")
    for path in filter(None, (args.output, args.element)):
        say(f"wrote {path}")
