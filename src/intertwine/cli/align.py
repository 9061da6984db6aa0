"""intertwine align A B: the group element that brings B onto A."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from intertwine.errors import InputError
from intertwine.terminal import types
from intertwine.terminal.arguments import add_data_arguments, add_device_arguments, add_pair_arguments
from intertwine.terminal.declare import Subparsers, choice, json, out, value, verb
from intertwine.terminal.loading import load_dataset, load_pair
from intertwine.terminal.showing import show, write_page


def add_parser(subparsers: Subparsers[Any]) -> None:
    """Declare the verb."""
    parser = verb(subparsers, "align", run,
        "bring one model onto another by permutations, rescalings, signs and matrices",
        "Find the group element that brings B onto A. The aligned B computes what B computes.")  # fmt: skip
    add_pair_arguments(parser, "the MODEL that stays", "the MODEL that moves; same architecture")
    value(parser, "--input", types.input_shape, "SHAPE", "example input, such as 1x3x32x32")
    choice(parser, "--by", ("weights", "activations", "both"),
        "compare channels by weights, by activations on --data, or by both (default: weights)",
        default="weights")  # fmt: skip
    choice(parser, "--group", ("full", "permutation"),
        "the whole symmetry group, or its permutations only (default: full)", default="full")  # fmt: skip
    value(parser, "--restarts", types.most(10_000, 0), "N", "random starts (default: 3)", default=3)
    out(parser, "FILE", "write the weights of the aligned B here (.safetensors)")
    value(parser, "--element", types.output_path, "FILE", "write the group element here (.safetensors)")
    value(parser, "--page", types.output_path, "FILE", "write a page here (.html)")
    json(parser, "print the result as JSON")
    add_device_arguments(parser)
    add_data_arguments(parser)


def run(args: argparse.Namespace) -> int | None:
    """Load, align, write, print."""
    from intertwine import zoo
    from intertwine.aligning import align
    from intertwine.files import is_special, write_into
    from intertwine.symmetry import act, trace
    from intertwine.terminal.output import log, say

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
    with ExitStack() as places:  # files take theirs once all of them are there
        if args.out:
            moved = act(b.model, result.element)
            write_into(places, args.out, partial(zoo.save_weights, moved))
        if args.element:
            write_into(places, args.element, result.element.save)
        write_page(args, result, {"A": args.a, "B": args.b})
    show(args, result, {"a": args.a, "b": args.b, "weights": args.out, "element": args.element})
    if written and not args.json:
        say(f"wrote {', '.join(written)}")
    return 0
