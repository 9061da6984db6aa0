"""intertwine compare A B: how alike are two networks, layer by layer and as functions."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any

from intertwine.errors import InputError
from intertwine.terminal import types
from intertwine.terminal.arguments import add_data_arguments, add_device_arguments, add_pair_arguments
from intertwine.terminal.declare import Subparsers, choice, json, out, value, verb
from intertwine.terminal.loading import load_dataset, load_pair
from intertwine.terminal.registered import registered
from intertwine.terminal.showing import bar, parts, write_and_show

_DEFAULT = "cka,procrustes,procrustes-grelu,cka-grelu"


def add_parser(subparsers: Subparsers[Any]) -> None:
    """Declare the verb."""
    parser = verb(subparsers, "compare", run, "how alike are two networks, in representation and in function",
        "Compare every layer of A with every layer of B, and the two as functions.", more=_measures_help(),
        input=None)  # fmt: skip
    add_pair_arguments(parser, "the first MODEL", "the second MODEL, of any architecture")
    value(parser, "--measures", types.any_text, "NAMES", f"comma-separated, or all (default: {_DEFAULT})",
        default=_DEFAULT)  # fmt: skip
    value(parser, "--at", types.any_text, "WHERE",
        "layers (default), all, or comma-separated names and patterns such as 'layer1.*'",
        default="layers")  # fmt: skip
    value(parser, "--at-b", types.any_text, "WHERE", "the same for B, where it differs")
    choice(
        parser,
        "--pixels",
        ("pool", "samples", "flatten"),
        "what becomes of pixels (default: CKA and CCA pool, Procrustes samples, kernels flatten)",
    )
    value(parser, "--kernel-inputs", types.positive_int, "N",
        "inputs for measures that need an N x N kernel (default: 1000)", default=1000)  # fmt: skip
    value(parser, "--normalize-b", types.normalization, "HOW",
        "normalisation of B's inputs, where it differs")  # fmt: skip
    out(parser, "FILE", "write the page here")
    json(parser, "print the numbers as JSON")
    add_device_arguments(parser)
    add_data_arguments(parser, required=True)


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
