"""intertwine stitch A B: the first layers of one network, a simple map, the last layers of the other."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from intertwine import numbers
from intertwine.cli.arguments import (
    Checked,
    add_data_arguments,
    add_device_arguments,
    add_pair_arguments,
    any_text,
    chosen_normalize,
    data_spec,
    load_dataset,
    load_pair,
    most,
    nonnegative_float,
    normalization,
    output_path,
    positive_float,
    positive_int,
)
from intertwine.cli.registered import registered
from intertwine.errors import InputError

if TYPE_CHECKING:
    from intertwine.data import Dataset
    from intertwine.stitching import StitchReport, Training

_EPILOG = """examples:
  intertwine stitch zoo:digits-vgg zoo:digits-vgg --weights-a shipped:0 --weights-b shipped:1 --data digits \\
      --kind full,group --at all -o stitch.html
  intertwine stitch zoo:resnet20 zoo:resnet20 --weights-a a.safetensors --weights-b b.safetensors \\
      --data parquet:test.parquet --train-data parquet:train.parquet --normalize cifar10-legacy \\
      --augment 4 --flip --at outside --kind identity,group,rank:4,full
  intertwine stitch zoo:tiny10 zoo:resnet20 --at relu_3 --at-b layer2.0.relu_1 --kind full --data ...

--at: all, outside (of residual blocks), or comma-separated names and patterns such as 'layer1.*'
penalty = mean accuracy of A and B minus that of the stitched network, in points
"""


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
        "--kind", type=any_text, default="full,group", metavar="KINDS", help="(default: full,group)"
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
    parser.add_argument("-o", "--output", type=output_path, metavar="FILE", help="write the page here")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    add_device_arguments(parser)
    add_data_arguments(parser, required=True)
    parser.set_defaults(run=run, input=None, batch=100)


def _kinds_help() -> str:
    lines = [f"  {usage:<12}{text}" for usage, text in registered()["stitches"].items()]
    return "kinds, comma-separated:\n" + "\n".join(lines)


def _add_training(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--epochs", type=most(100_000, 0), default=2, metavar="N", help="0: closed form only (default: 2)"
    )
    parser.add_argument(
        "--lr", type=positive_float, metavar="RATE", help="learning rate (default: that of the kind)"
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
        "--loss", choices=["distill", "labels"], default="distill",
        help="train on the outputs of B, or on labels as in the source (default: distill)",
    )  # fmt: skip
    parser.add_argument(
        "--enough", type=nonnegative_float, default=1.0, metavar="POINTS",
        help="no training within this many points of the networks on training inputs (default: 1)",
    )  # fmt: skip
    add_training_data(parser)


def add_training_data(parser: argparse.ArgumentParser) -> None:
    """--train-data, --train-limit, --augment, --flip."""
    parser.add_argument(
        "--train-data",
        type=data_spec,
        metavar="DATA",
        help="(default: the train split of --data, or half of it)",
    )
    parser.add_argument(
        "--train-limit", type=positive_int, default=2000, metavar="N", help="training inputs (default: 2000)"
    )
    parser.add_argument(
        "--augment",
        type=most(1024, 0),
        default=0,
        metavar="PIXELS",
        help="move training images by up to so many",
    )
    parser.add_argument("--flip", action="store_true", help="mirror half of the training images")


def alpha(text: str) -> Any:
    """A number of at least 0, or cv."""
    return "cv" if text == "cv" else numbers.nonnegative(text)


def run(args: argparse.Namespace) -> int | None:
    """Load, stitch, write the page, print."""
    from intertwine.cli.output import now_and_then
    from intertwine.stitching import parse_kind, stitch

    kinds = [parse_kind(text) for text in args.kind.split(",") if text.strip()]
    if not kinds:
        raise InputError("no kind of stitch is named", do="give --kind full,group")
    training = _training(args)
    a, b = load_pair(args)
    train, test, how = training_and_test(args)
    inputs_b = None
    if args.normalize_b:
        changed = argparse.Namespace(**{**vars(args), "normalize": args.normalize_b})
        other = training_and_test(changed)
        inputs_b = (other[0].images, other[1].images)
    said = now_and_then()
    report = stitch(
        a.model, b.model, train, test, at=_at(args.at), at_b=_at(args.at_b) if args.at_b else None,
        kinds=kinds, training=training, skip=args.skip, enough=args.enough, batch=args.batch,
        inputs_b=inputs_b, progress=lambda what, done: said(what),
    )  # fmt: skip
    facts = {"A": a.name, "B": b.name, "weights of A": args.weights_a, "weights of B": args.weights_b,
             "data": args.data, "training inputs": how}  # fmt: skip
    if args.output:
        from intertwine.report.stitch_page import stitch_page

        stitch_page(report, facts).write(args.output)
    _print(args, report, facts)
    return 0


def training_and_test(args: argparse.Namespace) -> tuple[Dataset, Dataset, str]:
    """Training inputs, test inputs that share none with them, and where the training inputs come from."""
    import torch

    test = load_dataset(args)
    limited = argparse.Namespace(**{**vars(args), "limit": args.train_limit})
    if args.train_data:
        limited.data, how = args.train_data, f"{args.train_data}"
        train = load_dataset(limited, split="train")
    else:
        how = f"the train split of {args.data}"
        train = load_dataset(limited, split="train")
        few = min(len(train), len(test))
        if torch.equal(train.images[:few], test.images[:few]):  # a file without splits
            whole, how = load_dataset(argparse.Namespace(**{**vars(args), "limit": None})), "its second half"
            half = len(whole) // 2
            if half < 1:
                raise InputError("one example cannot be halved", do="give --train-data")
            train = _second_half(whole, half).take(args.train_limit)
            test = whole.take(min(half, args.limit or half))
    return _augmented(args, train), test, f"{len(train):,} of {how}"


def _second_half(data: Dataset, half: int) -> Dataset:
    from dataclasses import replace

    return replace(data, images=data.images[half:], labels=data.labels[half:])


def _augmented(args: argparse.Namespace, data: Dataset) -> Dataset:
    from dataclasses import replace

    from intertwine.data import parse_normalize
    from intertwine.stitching.augment import augment

    if not args.augment and not args.flip:
        return data
    statistics = parse_normalize(chosen_normalize(args))
    black = [0.0] if statistics is None else [-m / s for m, s in zip(*statistics, strict=True)]
    moved = augment(data.images, args.augment, flip=args.flip, black=black, seed=args.seed)
    return replace(data, images=moved)


def _training(args: argparse.Namespace) -> Training:
    from intertwine.stitching import Training

    return Training(
        epochs=args.epochs, rate=args.lr, alpha=args.alpha, method=args.method, loss=args.loss, seed=args.seed
    )  # fmt: skip


def _at(text: str) -> str | list[str]:
    return text if text in ("all", "outside") else [part.strip() for part in text.split(",") if part.strip()]


def _print(args: argparse.Namespace, report: StitchReport, facts: dict[str, object]) -> None:
    from intertwine.cli.output import print_json, print_table, say
    from intertwine.report.stitch_page import COLUMNS, stitch_rows

    if args.json:
        print_json({**facts, **report.to_dict(), "page": args.output})
        return
    title = f"penalties in points; A {report.accuracy_a:.2%}, B {report.accuracy_b:.2%}"
    print_table(title, COLUMNS, stitch_rows(report), right=COLUMNS[3:7])
    if args.output:
        say(f"wrote {args.output}")
