"""intertwine combine A B [C ...]: several networks into one."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import Any

from intertwine.cli.combine_options import add_learning, add_solving, add_ways, add_zip
from intertwine.errors import InputError
from intertwine.terminal import types
from intertwine.terminal.arguments import add_data_arguments, add_several_arguments
from intertwine.terminal.declare import Subparsers, either, flag, json, out, value, verb
from intertwine.terminal.loading import load_dataset, load_several, load_side, with_data

_OPTIONS = (
    "how", "align", "repair", "shares", "scale", "density", "train_limit", "ridge", "sweeps", "follow",
    "together", "flip", "fold", "epochs", "augment", "hidden", "seed", "learning_rate", "steps", "permute",
    "heads", "target_params", "trunk", "calibrate",
)  # fmt: skip


def add_parser(subparsers: Subparsers[Any]) -> None:
    """Declare the verb."""
    parser = verb(subparsers, "combine", run, "several networks into one",
        "Align networks by their symmetries and make one network of the same shape of them.")  # fmt: skip
    add_several_arguments(parser)
    add_ways(parser)
    add_solving(parser)
    flag(parser, "--flip", "mirror images of the training images serve as inputs too")
    value(parser, "--steps", types.most(1_000_000), "N", "of --align loss (default: 300)", default=300)
    flag(parser, "--permute", "with --align loss: channels may change places too")
    add_zip(parser)
    flag(parser, "--calibrate", "one factor for the class scores, so that the result is as sure as it may be")
    either(parser, "--fold", "make the stream of pre-norm networks free to rotate (default: where it can be)")
    add_learning(parser.add_argument_group("learning"))
    out(parser, "OUT", "write the weights (OUT.safetensors), or a folder that loads as a model")
    value(parser, "--page", types.output_path, "FILE", "write a page here (.html)")
    json(parser, "print the numbers as JSON")
    add_data_arguments(parser)


def run(args: argparse.Namespace) -> int | None:
    """Load, combine, write, print."""
    from intertwine.combining import combine
    from intertwine.files import assert_folder_replaceable, write_into
    from intertwine.merging.storage import why_not_replace
    from intertwine.symmetry import trace
    from intertwine.terminal.output import say
    from intertwine.terminal.showing import bar, show
    from intertwine.zoo import save_model
    from intertwine.zoo.saving import assert_savable

    if args.out and not _is_file(args.out):
        assert_folder_replaceable(args.out, why_not_replace)
    if args.head_data and (args.how != "zip" or args.heads == "one"):
        raise InputError("--head-data is of networks that keep their outputs", do="use --how zip")
    sources, names = load_several(args)
    if args.out and not _is_file(args.out):
        assert_savable(sources[0])
    base = load_side(args, args.models[0], args.base).model if args.base else None
    data = _measured_on(args)
    train = _train_data(args)
    first, symmetry = sources[0], None
    if args.align == "weights" and data is None and train is None:  # an example is enough
        symmetry = trace(first.model, first.example, first.kwargs)
    with bar() as progress:
        result = combine(
            [s.model for s in sources], data, train_data=train, base=base, names=names, symmetry=symmetry,
            progress=progress, **{name: getattr(args, name) for name in _OPTIONS},
        )  # fmt: skip
    with ExitStack() as written:  # the page takes its place once the weights are there
        if args.page:
            page = result.page(facts={"models": ", ".join(args.models), "data": args.data})
            write_into(written, args.page, page.write)
        if args.out and _is_file(args.out):
            result.save(args.out)
        elif args.out:
            save_model(result.model, sources[result.like], args.out, result.details(args.input, sources))
    show(args, result, {"models": args.models, "weights": args.out, "page": args.page})
    for path in filter(None, () if args.json else (args.out, args.page)):
        say(f"wrote {path}")
    return 0


def _is_file(out: str) -> bool:
    """Whether the weights alone are to be written."""
    return out.endswith(".safetensors")


def _measured_on(args: argparse.Namespace) -> Any:
    """The data set of --data, or a list with those of --head-data behind it."""
    if args.data is None:
        return None
    others = [with_data(args, spec) for spec in args.head_data]
    return [load_dataset(each) for each in (args, *others)] if others else load_dataset(args)


def _train_data(args: argparse.Namespace) -> Any:
    """The data sets of --train-data, of each as much; their training splits, where they have one."""
    from intertwine.data.batches import Batches

    each = -(-args.train_limit // max(1, len(args.train_data)))
    found = [load_dataset(with_data(args, spec, limit=each), split="train") for spec in args.train_data]
    if len(found) > 1:
        return [batch for data in found for batch in Batches(data)]
    return found[0] if found else None
