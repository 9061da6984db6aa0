"""intertwine attribute MODEL: which part of an image or a text a class of equivalent features sees."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from intertwine import numbers
from intertwine.cli.arguments import (
    Checked,
    add_data_arguments,
    add_model_arguments,
    any_text,
    chosen_normalize,
    fraction,
    input_path,
    load_dataset,
    load_model,
    most,
    output_path,
    positive_int,
)

_EPILOG = """examples:
  intertwine attribute zoo:digits-vgg --weights shipped:0 --data digits --axis features.3 --beta 0.3 -o p.html
  intertwine attribute zoo:digits-vgg --weights shipped:0 --data digits --axis features.3 --channel 3,5 --json
  intertwine attribute zoo:vgg16 --weights W --data parquet:test.parquet --normalize cifar10 \\
      --axis features.20 --by ward --beta 0.3 --labels truck --method guided,occlusion -o trucks.html
  intertwine attribute model.py:gpt --weights W --text a.txt --axis h.2.mlp.c_fc --channel 7 -o text.html

AXIS is a name that `intertwine inspect` lists. Without --class and --channel the largest classes of features
that merging up to --beta finds are shown. Methods: guided, gradient, input (gradient times input),
integrated, occlusion. Text models are attributed with respect to their embeddings, a strip of tokens a row.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser(
        "attribute",
        help="what in its inputs a class of equivalent features sees",
        description="The inputs that excite a class of equal features most, and what in them does.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model_arguments(parser, classes=False)
    parser.add_argument(
        "--axis", type=any_text, required=True, metavar="AXIS", help="the axis whose features are meant"
    )
    parser.add_argument(
        "--at", type=any_text, metavar="VALUE", help="the value to read (default: after its last rectifier)"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--class", type=most(1_000_000, 0), dest="number", metavar="K", help="only the K-th class, from 0"
    )
    which.add_argument(
        "--channel", type=Checked(_numbers), metavar="C,...", help="these channels in place of classes"
    )
    parser.add_argument(
        "--beta", type=fraction, default=1e-9, metavar="B", help="merge up to beta (default: equal features)"
    )
    parser.add_argument("--by", choices=["ifm", "ward"], default="ifm", help="how to merge (default: ifm)")
    parser.add_argument("--order", choices=["size", "agreement"], default="size", help="(default: size)")
    parser.add_argument(
        "--method", type=Checked(_words), default=["guided"], metavar="M,...", help="see below"
    )
    parser.add_argument(
        "--labels", type=Checked(_words), metavar="L,...", help="the best inputs of each label"
    )
    parser.add_argument("--inputs", type=positive_int, default=4, metavar="N", help="to show (default: 4)")
    parser.add_argument("--classes", type=positive_int, default=6, metavar="N", help="to show (default: 6)")
    parser.add_argument("--sum", action="store_true", help="sum members as they are (the source)")
    parser.add_argument(
        "--text", type=input_path, metavar="FILE", help="a text in place of --data, for models of tokens"
    )
    add_data_arguments(parser)
    parser.add_argument(
        "-o", "--out", type=output_path, metavar="FILE", help="write the page (.html) or all maps (.npz)"
    )
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.set_defaults(run=run, batch=32)


def run(args: argparse.Namespace) -> int | None:
    """Load, attribute, print."""
    from intertwine.cli.output import print_json, print_table, progress, say
    from intertwine.data import parse_normalize
    from intertwine.inside import attribute
    from intertwine.pages.attribute_page import COLUMNS, class_rows

    source = load_model(args)
    data, tokens = _data(args, source.example, source.kwargs)
    with progress("looking", len(data)) as advance:
        found = attribute(
            source.model, data, args.axis, at=args.at, beta=args.beta, by=args.by, channel=args.channel,
            number=args.number, methods=args.method, classes=args.classes, order=args.order,
            inputs=args.inputs, labels=args.labels, balance=not args.sum, batch=args.batch, seed=args.seed,
            tokens=tokens,
            example=source.example, kwargs=source.kwargs, progress=advance,
        )  # fmt: skip
    if args.out:
        statistics = parse_normalize(chosen_normalize(args))
        weights = Path(args.weights or "random").name
        facts = {"model": source.name, "weights": weights, "data": args.text or args.data}
        page = args.out.endswith(".html")
        found.page(statistics=statistics, facts=facts).write(args.out) if page else found.save(args.out)
    if args.json:
        print_json({"model": source.name, **found.to_dict()})
        return 0
    print_table(f"{found.axis} ({found.group}) at {found.at}", COLUMNS, class_rows(found))
    if args.out:
        say(f"wrote {args.out}")
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
