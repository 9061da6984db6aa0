"""intertwine combine A B [C ...]: several networks into one."""

from __future__ import annotations

import argparse
from typing import Any

from intertwine import numbers
from intertwine.cli.arguments import (
    Checked,
    add_data_arguments,
    add_device_arguments,
    add_source_arguments,
    data_spec,
    fraction,
    input_path,
    input_shape,
    load_dataset,
    load_side,
    model_spec,
    most,
    nonnegative_float,
    output_path,
    positive_float,
    positive_int,
)
from intertwine.cli.registered import registered
from intertwine.errors import InputError

HOW = ("layerwise", "zip", "average", "slerp", "task", "ties", "fisher", "soup")
shares = Checked(numbers.Several(numbers.nonnegative))

_EPILOG = """examples:
  intertwine combine zoo:digits-vgg zoo:digits-vgg --weights shipped:0 --weights shipped:1 \\
      --data digits -o both.safetensors
  intertwine combine zoo:resnet20 zoo:resnet20 --weights a.safetensors --weights b.safetensors \\
      --data parquet:test.parquet --train-data parquet:train.parquet --normalize cifar10-legacy \\
      -o both.safetensors --page both.html

  intertwine combine zoo:nanogpt64 zoo:nanogpt64 --weights a.safetensors --weights b.safetensors --fold \
      --align loss --data text:held.txt --train-data text:train.txt --context 64 -o both.safetensors
  intertwine combine zoo:resnet20 zoo:resnet20 --weights ten.safetensors --weights hundred.safetensors \
      --how zip --target-params 0.6 --data parquet:ten.parquet --head-data parquet:hundred.parquet \
      --train-data parquet:train.parquet -o trunk.safetensors

how: layerwise solves for every layer by least squares on unlabelled inputs; average, slerp, fisher and (from
a common start, --base) task and ties average weights; soup keeps what raises the accuracy on --train-data;
zip lays networks of any widths or tasks side by side and merges channels, across networks and within
align: loss goes on from activations, by gradients on the networks' mean outputs; no labels
repair: reset measures batch-norm statistics again, rescale is REPAIR, least-squares is what layerwise does
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser(
        "combine",
        help="several networks into one",
        description="Align networks by their symmetries and make one network of the same shape of them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("models", type=model_spec, metavar="MODEL", nargs="+", help="two or more models of one architecture")
    add("--weights", type=input_path, metavar="FILE", action="append", default=[],
        help="weights, once for each MODEL in order")  # fmt: skip
    add("--input", type=input_shape, metavar="SHAPE", help="example input, such as 1x3x32x32")
    add("--how", choices=HOW, default="layerwise", help="see below (default: layerwise)")
    add("--align", choices=("activations", "weights", "loss", "none"),
        help="what channels are matched by (default: activations; none with a common start)")  # fmt: skip
    add("--repair", choices=("none", "reset", "rescale", "least-squares"),
        help="what is done about statistics (default: least-squares for layerwise, else reset)")  # fmt: skip
    add("--shares", type=shares, metavar="S,S", help="how much of each model (default: equal)")
    add("--base", type=input_path, metavar="FILE", help="weights that the models were trained from")
    add("--scale", type=nonnegative_float, default=1.0, metavar="X", help="of task and ties (default: 1)")
    add("--density", type=fraction, default=0.2, metavar="P", help="that ties keeps (default: 0.2)")
    add("--train-data", type=data_spec, metavar="DATA",
        help="inputs for alignment and least squares; labels are not read (default: --data)")  # fmt: skip
    add("--train-limit", type=positive_int, default=2000, metavar="N", help="inputs used (default: 2000)")
    add("--ridge", type=positive_float, default=0.01, metavar="X",
        help="pull of least squares towards the average (default: 0.01)")  # fmt: skip
    add("--steps", type=most(1_000_000), default=300, metavar="N", help="of --align loss (default: 300)")
    add("--permute", action="store_true", help="with --align loss: channels may change places too")
    add("--heads", choices=("one", "each"),
        help="of zip: one output for all, or each keeps its own (default: one if alike)")  # fmt: skip
    add("--head-data", type=data_spec, metavar="DATA", action="append", default=[],
        help="what the second, third ... network's outputs are measured on, with --heads each")  # fmt: skip
    add("--target-params", type=fraction, metavar="P",
        help="of zip: share of all networks' parameters together (default: widths of the first)")  # fmt: skip
    add("--calibrate", action=argparse.BooleanOptionalAction, default=None,
        help="one factor for the class scores, so that the result is as sure as it may be (default: with "
             "layerwise and zip)")  # fmt: skip
    add("--fold", action="store_true", help="make the stream of pre-norm networks free to rotate")
    add("--epochs", type=most(10_000, 0), default=0, metavar="N",
        help="passes in which the mean outputs are learned, without labels (default: 0)")  # fmt: skip
    add(
        "--learning-rate", type=positive_float, default=1e-3, metavar="X", help="of --epochs (default: 0.001)"
    )
    add("-o", "--out", type=output_path, metavar="FILE", help="write the weights here (.safetensors)")
    add("--page", type=output_path, metavar="FILE", help="write a page here (.html)")
    add("--json", action="store_true", help="print the numbers as JSON")
    add_device_arguments(parser)
    add_source_arguments(parser)
    add_data_arguments(parser)
    parser.epilog = "\n".join(filter(None, [parser.epilog, registered()["model_help"]]))
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int | None:
    """Load, combine, write, print."""
    from intertwine.cli.output import log, say
    from intertwine.cli.showing import show
    from intertwine.combining import combine

    if args.weights and len(args.weights) != len(args.models):
        raise InputError(
            f"{len(args.models)} models but {len(args.weights)} --weights", do="give --weights once for each"
        )
    if args.out and not args.out.endswith(".safetensors"):
        raise InputError(f"cannot write {args.out}", do="give a name that ends in .safetensors")
    if args.head_data and (args.how != "zip" or args.heads == "one"):
        raise InputError("--head-data is of networks that keep their outputs", do="use --how zip")
    weights = args.weights or [None] * len(args.models)
    sources = [load_side(args, m, w) for m, w in zip(args.models, weights, strict=True)]
    base = load_side(args, args.models[0], args.base).model if args.base else None
    data = _measured_on(args)
    train = _train_data(args)
    with log().status("combining") as status:
        result = combine(
            [s.model for s in sources], data, train_data=train, how=args.how, align=args.align,
            repair=args.repair, shares=args.shares, base=base, scale=args.scale, density=args.density,
            train_limit=args.train_limit, ridge=args.ridge, fold=args.fold, epochs=args.epochs,
            learning_rate=args.learning_rate, steps=args.steps, permute=args.permute, heads=args.heads,
            target_params=args.target_params, calibrate=args.calibrate, seed=args.seed,
            names=[f"{m} ({w})" if w else m for m, w in zip(args.models, weights, strict=True)],
            progress=status.update,
        )  # fmt: skip
    if args.out:
        result.save(args.out)
    if args.page:
        result.page().write(args.page)
    show(args, result, {"models": args.models, "weights": args.out, "page": args.page})
    for path in filter(None, (args.out, args.page)):
        if not args.json:
            say(f"wrote {path}")
    return 0


def _measured_on(args: argparse.Namespace) -> Any:
    """The data set of --data, or a list with those of --head-data behind it."""
    if args.data is None:
        return None
    others = [argparse.Namespace(**{**vars(args), "data": spec}) for spec in args.head_data]
    return [load_dataset(each) for each in (args, *others)] if others else load_dataset(args)


def _train_data(args: argparse.Namespace) -> Any:
    """The data set of --train-data; its training split, where it has one."""
    if args.train_data is None:
        return None
    other = {"data": args.train_data, "limit": args.train_limit}
    return load_dataset(argparse.Namespace(**{**vars(args), **other}), split="train")
