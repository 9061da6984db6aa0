"""intertwine compare A B: how alike are two networks, layer by layer and as functions."""

from __future__ import annotations

import argparse
import textwrap

from intertwine.cli.arguments import (
    add_data_arguments,
    add_device_arguments,
    add_pair_arguments,
    any_text,
    load_dataset,
    load_pair,
    normalization,
    output_path,
    positive_int,
)
from intertwine.cli.registered import registered
from intertwine.cli.showing import bar, parts, write_and_show
from intertwine.errors import InputError

_DEFAULT = "cka,procrustes,procrustes-grelu,cka-grelu"
_EPILOG = """examples:
  intertwine compare zoo:digits-vgg zoo:digits-vgg --weights-a shipped:0 --weights-b shipped:1 --data digits
  intertwine compare zoo:resnet20 zoo:vgg16 --weights-a a.safetensors --weights-b b.safetensors \\
      --data parquet:test.parquet --normalize cifar10-legacy --normalize-b cifar10 -o compare.html
  intertwine compare zoo:tiny10 zoo:tiny10 --data parquet:test.parquet --measures cka,svcca --json

"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser(
        "compare",
        help="how alike are two networks, in representation and in function",
        description="Compare every layer of A with every layer of B, and the two as functions.",
        epilog=f"{_EPILOG}\n{_measures_help()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_pair_arguments(parser, "the first MODEL", "the second MODEL, of any architecture")
    parser.add_argument(
        "--measures",
        type=any_text,
        default=_DEFAULT,
        metavar="NAMES",
        help=f"comma-separated, or all (default: {_DEFAULT})",
    )
    parser.add_argument(
        "--at", type=any_text, default="layers", metavar="WHERE",
        help="layers (default), all, or comma-separated names and patterns such as 'layer1.*'",
    )  # fmt: skip
    parser.add_argument("--at-b", type=any_text, metavar="WHERE", help="the same for B, where it differs")
    parser.add_argument(
        "--pixels", choices=("pool", "samples", "flatten"),
        help="what becomes of pixels (default: CKA and CCA pool, Procrustes samples, kernels flatten)",
    )  # fmt: skip
    parser.add_argument(
        "--kernel-inputs", type=positive_int, default=1000, metavar="N",
        help="inputs for measures that need an N x N kernel (default: 1000)",
    )  # fmt: skip
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
    parser.set_defaults(run=run, input=None)


def _measures_help() -> str:
    names = textwrap.fill(
        " ".join([*registered()["measures"], "all"]), 100, initial_indent="measures: ",
        subsequent_indent="  ", break_on_hyphens=False,
    )  # fmt: skip
    return names + "\n  auto: for each layer of A the measure of the group that acts there"


def run(args: argparse.Namespace) -> int | None:
    """Load, compare, write the page, print."""
    from intertwine.comparing import compare

    measures = _measures(args.measures)
    a, b = load_pair(args)
    data = load_dataset(args)
    data_b = None
    if args.normalize_b:
        data_b = load_dataset(argparse.Namespace(**{**vars(args), "normalize": args.normalize_b}))
    with bar() as progress:
        result = compare(
            a.model, b.model, data, measures, at=_at(args.at), at_b=_at(args.at_b) if args.at_b else None,
            data_b=data_b, pixels=args.pixels, kernel_inputs=args.kernel_inputs,
            seed=args.seed, progress=progress,
        )  # fmt: skip
    facts = {"a": args.a, "b": args.b, "data": args.data, "inputs": len(data),
             "weights of A": args.weights_a, "weights of B": args.weights_b}  # fmt: skip
    write_and_show(args, result, facts)
    return 0


def _measures(text: str) -> list[str]:
    from intertwine.comparing.measures import MEASURES, find_measure

    names = list(MEASURES) if text == "all" else parts(text)
    if not names:
        raise InputError("no measure is named", do=f"give --measures {_DEFAULT}")
    for name in names:
        if name != "auto":
            find_measure(name)
    return list(dict.fromkeys(names))


def _at(text: str) -> str | list[str]:
    return text if text in ("layers", "all") else parts(text)
