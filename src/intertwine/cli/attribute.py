"""intertwine attribute MODEL: which part of an image or a text a class of equivalent features sees."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from intertwine import numbers
from intertwine.terminal import types
from intertwine.terminal.arguments import add_data_arguments, add_model_arguments
from intertwine.terminal.declare import Subparsers, choice, flag, json, out, value, verb
from intertwine.terminal.loading import chosen_normalize, load_dataset, load_model
from intertwine.terminal.showing import bar, write_and_show


def add_parser(subparsers: Subparsers[Any]) -> None:
    """Declare the verb."""
    parser = verb(subparsers, "attribute", run, "what in its inputs a class of equivalent features sees",
        "The inputs that excite a class of equal features most, and what in them does.")  # fmt: skip
    add_model_arguments(parser, classes=False)
    value(parser, "--axis", types.any_text, "AXIS", "the axis whose features are meant", required=True)
    value(parser, "--at", types.any_text, "VALUE", "the value to read (default: after its last rectifier)")
    which = parser.add_mutually_exclusive_group()
    value(which, "--class", types.most(1_000_000, 0), "K", "only the K-th class, from 0", dest="number")
    value(which, "--channel", types.Checked(_numbers), "C,...", "these channels in place of classes")
    value(parser, "--beta", types.fraction, "B", "merge up to beta (default: equal features)", default=1e-9)
    choice(parser, "--by", ["ifm", "ward"], "how to merge (default: ifm)", default="ifm")
    choice(parser, "--order", ["size", "agreement"], "(default: size)", default="size")
    value(parser, "--method", types.Checked(_words), "M,...", "see below", default=["guided"])
    value(parser, "--labels", types.Checked(_words), "L,...", "the best inputs of each label")
    value(parser, "--inputs", types.positive_int, "N", "to show (default: 4)", default=4)
    value(parser, "--classes", types.positive_int, "N", "to show (default: 6)", default=6)
    flag(parser, "--sum", "sum members as they are (the source)")
    value(parser, "--text", types.input_path, "FILE", "a text in place of --data, for models of tokens")
    add_data_arguments(parser, batch=32)
    out(parser, "FILE", "write the page (.html) or all maps (.npz)")
    json(parser, "print the numbers as JSON")


def run(args: argparse.Namespace) -> int | None:
    """Load, attribute, print."""
    from intertwine.data import parse_normalize
    from intertwine.inside import attribute

    source = load_model(args)
    data, tokens = _data(args, source.example, source.kwargs)
    with bar() as progress:
        found = attribute(
            source.model, data, args.axis, at=args.at, beta=args.beta, by=args.by, channel=args.channel,
            number=args.number, methods=args.method, classes=args.classes, order=args.order,
            inputs=args.inputs, labels=args.labels, balance=not args.sum, batch=args.batch, seed=args.seed,
            tokens=tokens, example=source.example, kwargs=source.kwargs, progress=progress,
        )  # fmt: skip
    weights = Path(args.weights or "random").name
    facts = {"model": source.name, "weights": weights, "data": args.text or args.data}
    write_and_show(args, found, facts, statistics=parse_normalize(chosen_normalize(args)))
    return 0


def _data(args: argparse.Namespace, example: Any, kwargs: Any) -> tuple[Any, list[list[str]] | None]:
    from torch.utils._pytree import tree_flatten

    from intertwine.data.text import load_text

    if args.text is None:
        return load_dataset(args), None
    first = tree_flatten((tuple(example), dict(kwargs)))[0][0]
    return load_text(args.text, int(first.shape[-1]), tokenizer=args.tokenizer, limit=args.limit or 256)


def _words(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def _numbers(text: str) -> list[int]:
    return [numbers.whole(part) for part in _words(text)]
