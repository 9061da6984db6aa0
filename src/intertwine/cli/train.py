"""intertwine train MODEL: train by a recipe, and go on where a killed run stopped."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from intertwine.cli.arguments import (
    any_seed,
    any_text,
    data_spec,
    gigabytes,
    input_path,
    model_spec,
    most,
    normalization,
    output_path,
    parse_device,
    positive_int,
    processes,
    side,
)
from intertwine.cli.registered import registered

if TYPE_CHECKING:
    from intertwine.training import Recipe, Run, Splits
    from intertwine.training.journal import Listener

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
        "--memory", type=gigabytes, metavar="GB",
        help="images that would take more are read from their files, batch by batch (default: half of the "
        "machine's)",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", type=output_path, metavar="RUN", required=True, help="the folder of the run"
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
    parser.set_defaults(run=run)


def add_training_data_arguments(parser: argparse.ArgumentParser) -> None:
    """--data, --test, --recipe and what belongs to them: what `train` and `zoo train` share."""
    parser.add_argument(
        "--data", type=data_spec, metavar="DATA", required=True, help="the data set, see below"
    )
    parser.add_argument(
        "--test", type=data_spec, metavar="DATA", help="the test data, where DATA has no test split"
    )
    parser.add_argument(
        "--recipe",
        type=input_path,
        default="fast",
        metavar="RECIPE",
        help="FILE.yml, or a name of the package (default: fast)",
    )
    parser.add_argument(
        "--normalize", type=normalization, metavar="HOW",
        help="cifar10, imagenet, none, ... (default: what the recipe says, for colour images)",
    )  # fmt: skip
    parser.add_argument("--limit", type=positive_int, metavar="N", help="train on the first N examples only")
    parser.add_argument("--classes", type=most(1_000_000), metavar="N", help="outputs (default: the data's)")


def run(args: argparse.Namespace) -> int | None:
    """Read, train, print."""
    from intertwine.training import build_model, read_recipe, train

    recipe = read_recipe(args.recipe)
    set_threads(args.threads)
    parse_device(args.device)
    data = load_training_data(args, recipe)
    model = build_model(args.model, data, seed=args.seed, classes=args.classes)
    with progress_line(args.model, recipe) as listener:
        result = train(
            model, data, recipe, args.output, seed=args.seed, name=args.model, device=args.device,
            devices=args.devices, listener=listener,
        )  # fmt: skip
    if os.environ.get("LOCAL_RANK", "0") == "0":  # of several processes, one speaks
        _print(args, result)
    return 0


def set_threads(threads: int | None) -> None:
    """Limit torch to `threads` CPU threads."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def load_training_data(args: argparse.Namespace, recipe: Recipe) -> Splits:
    """Both splits, normalised as --normalize or else the recipe says."""
    from intertwine.training import load_splits

    normalize = args.normalize or recipe.normalize or "none"
    if args.normalize is None and args.data.partition(":")[0] in ("digits", "fashion-mnist"):
        normalize = "none"  # a recipe's normalisation is that of its colour images
    return load_splits(
        args.data, test=args.test, normalize=normalize, limit=args.limit, size=args.size,
        memory=args.memory and 1e9 * args.memory,
    )  # fmt: skip


@contextmanager
def progress_line(label: str, recipe: Recipe) -> Iterator[Listener]:
    """Accuracy, loss and learning rate: one live line on a terminal, one line an epoch elsewhere (stderr)."""
    from rich.live import Live
    from rich.text import Text

    from intertwine.cli.output import log
    from intertwine.text import shown

    console = log()

    def text(row: dict[str, Any]) -> str:
        parts = [f"{label}  epoch {row['epoch']:.2f}/{recipe.epochs}", f"loss {row['loss']:.4f}"]
        parts += [f"accuracy {row['accuracy']:.2%}", f"lr {row['learning_rate']:.4g}"]
        if row.get("test_accuracy") is not None:
            parts.append(f"test {row['test_accuracy']:.2%}")
        if row.get("images_per_second"):
            parts.append(f"{row['images_per_second']:,.0f} images/s")
        return "  ".join(parts)

    if not console.is_terminal:

        def note(row: dict[str, Any]) -> None:
            if "images_per_second" in row:
                console.print(text(row), markup=False, highlight=False, soft_wrap=True)

        yield note
        return
    with Live(console=console, refresh_per_second=4) as live:
        yield lambda row: live.update(Text(shown(text(row))))


def _print(args: argparse.Namespace, result: Run) -> None:
    from intertwine.cli.output import print_json, say

    if args.json:
        print_json(
            {
                "model": args.model, "data": args.data, "recipe": args.recipe, "seed": args.seed,
                "accuracy": result.accuracy, "loss": result.loss, "epoch": result.epoch,
                "resumed": result.resumed, "weights": result.weights, "history": result.history,
            }
        )  # fmt: skip
        return
    again = "resumed and " if result.resumed else ""
    say(f"{args.model}: {again}finished at epoch {result.epoch}: test accuracy {result.accuracy:.2%}")
    say(f"wrote {result.weights}")
