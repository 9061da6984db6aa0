"""intertwine train MODEL: train by a recipe, and go on where a killed run stopped."""

from __future__ import annotations

import argparse
import os

from intertwine.cli.arguments import (
    any_seed,
    any_text,
    memory,
    model_spec,
    output_path,
    parse_device,
    processes,
    side,
)
from intertwine.cli.registered import registered
from intertwine.cli.runs import add_training_data_arguments, progress_line
from intertwine.cli.showing import show, write_page

_OPTIONS = (
    "out", "train_data", "train_limit", "normalize", "size", "memory", "classes", "seed", "device", "devices",
    "threads",
)  # fmt: skip
_EPILOG = """examples:
  intertwine train digits-vgg --data digits --recipe digits -o runs/digits
  intertwine train resnet20 --data cifar10:DIR --recipe fast -o runs/resnet20 --seed 1
  intertwine train zoo:vgg16 --data parquet:DIR --recipe ifm -o runs/vgg16

The same command goes on with a run that was interrupted. RUN holds model.safetensors (the result),
metrics.jsonl, checkpoints/ at the epochs that the recipe names, and TensorBoard events where it is installed.

recipes in the package: digits, fast, godfrey, ifm, lenet-genni; docs/train.md explains the file format

MODELS  NAME                     short for zoo:NAME; classes and channels follow the data

DATAS  cifar10[:DIR]            DIR/train.parquet and DIR/test.parquet, as is parquet:DIR
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb."""
    epilog = _EPILOG.replace("MODELS", registered()["model_help"])
    epilog = epilog.replace("DATAS", registered()["data_help"])
    parser = subparsers.add_parser(
        "train",
        help="train a model by a recipe; the same command resumes",
        description="Train MODEL on DATA by a recipe and write everything to RUN.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "model", type=model_spec, metavar="MODEL", help="NAME of the zoo, or any MODEL, see below"
    )
    add_training_data_arguments(parser)
    parser.add_argument("--size", type=side, metavar="N", help="resize and crop image files to NxN")
    parser.add_argument(
        "--memory", type=memory, metavar="BYTES",
        help="images that would take more are read from their files, batch by batch (default: half of the "
        "machine's)",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--out", type=output_path, metavar="RUN", required=True, help="the folder of the run"
    )
    parser.add_argument(
        "--seed",
        type=any_seed,
        default=0,
        metavar="N",
        help="initial weights, order, augmentation (default: 0)",
    )
    parser.add_argument(
        "--devices", type=processes, default=1, metavar="N", help="processes, one a device (default: 1)"
    )
    parser.add_argument(
        "--device", type=any_text, default="cpu", metavar="DEV", help="cpu, cuda, cuda:1 (default: cpu)"
    )
    parser.add_argument("--threads", type=processes, metavar="N", help="CPU threads (1: bit-equal runs)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--page", type=output_path, metavar="FILE.html", help="write a page here")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int | None:
    """Train and print."""
    from intertwine.training import read_recipe, train

    recipe = read_recipe(args.recipe)
    parse_device(args.device)
    with progress_line(args.model, recipe) as listener:
        result = train(
            args.model, args.data, recipe, listener=listener, **{n: getattr(args, n) for n in _OPTIONS}
        )  # fmt: skip
    if os.environ.get("LOCAL_RANK", "0") == "0":  # of several processes, one speaks
        facts = {name: getattr(args, name) for name in ("model", "data", "recipe", "seed")}
        show(args, result, facts, tables=False)
        write_page(args, result, facts)
    return 0
