"""intertwine dissect MODEL: which units of a layer detect a concept, and what a rotation does to them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from intertwine.numbers import Several, finite
from intertwine.terminal import types
from intertwine.terminal.arguments import add_model_arguments
from intertwine.terminal.declare import Subparsers, choice, flag, json, out, value, verb
from intertwine.terminal.loading import load_model
from intertwine.terminal.showing import bar, write_and_show


def add_parser(subparsers: Subparsers[Any]) -> None:
    """Declare the verb."""
    parser = verb(subparsers, "dissect", run,
        "which units detect a concept, and whether a rotation keeps them",
        "Network dissection of a layer, in its own basis and in others.")  # fmt: skip
    add_model_arguments(parser)
    value(parser, "--at", types.any_text, "LAYER", "the value whose channels are units", required=True)
    value(parser, "--concepts", types.any_text, "CONCEPTS", "see below (default: shapes)", default="shapes")
    choice(parser, "--rotate", ["none", "orthogonal", "group"], "(default: none)", default="none")
    value(parser, "--powers", types.Checked(_powers), "A:B:STEP", "of rotations", default=_powers("0:1:0.2"))
    value(parser, "--draws", types.most(10_000), "N", "random rotations (default: 1)", default=1)
    flag(parser, "--inside", "also inside the residual block that LAYER ends")
    value(parser, "--quantile", types.fraction, "Q", "(default: 0.995)", default=0.995)
    value(parser, "--iou", types.fraction, "T", "of a detector (default: 0.04)", default=0.04)
    value(parser, "--normalize", types.normalization, "HOW", "as for --data", default="none")
    value(parser, "--size", types.side, "N", "resize and crop images and masks to NxN")
    value(parser, "--limit", types.positive_int, "N", "use N images of each set only")
    value(parser, "--batch", types.positive_int, "N", "batch size (default: 32)", default=32)
    out(parser, "FILE", "write the page (.html) or the numbers (.json)")
    json(parser, "print the numbers as JSON")


def run(args: argparse.Namespace) -> int | None:
    """Load, dissect, print."""
    from intertwine.data.concepts import load_concepts
    from intertwine.inside import dissect

    source = load_model(args)
    concepts = load_concepts(args.concepts, normalize=args.normalize, size=args.size, limit=args.limit)
    with bar() as progress:
        found = dissect(
            source.model, concepts, args.at, rotate=args.rotate, powers=args.powers, draws=args.draws,
            inside=args.inside, quantile=args.quantile, threshold=args.iou, batch=args.batch, seed=args.seed,
            example=source.example, kwargs=source.kwargs, progress=progress,
        )  # fmt: skip
    write_and_show(args, found, {"model": source.name, "weights": Path(args.weights or "random").name})
    return 0


def _powers(text: str) -> list[float]:
    """0:1:0.2, or numbers separated by commas."""
    try:
        if ":" not in text:
            return list(Several(finite)(text))
        first, last, step = map(finite, text.split(":"))
        count = round((last - first) / step)
        if step <= 0 or not 0 <= count <= 10_000:
            raise ValueError(text)
        return [round(first + k * step, 10) for k in range(count + 1)]
    except (ValueError, ArithmeticError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is neither 0:1:0.2 nor 0,0.5,1") from error
