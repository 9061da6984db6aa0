"""Training inputs and test inputs that share none with them: what `stitch` and `rotate` ask for."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from intertwine.errors import InputError
from intertwine.terminal import types
from intertwine.terminal.declare import flag, value
from intertwine.terminal.loading import chosen_normalize, load_dataset

if TYPE_CHECKING:
    from intertwine.data import Dataset


def add_training_data(parser: argparse.ArgumentParser) -> None:
    """--train-data, --train-limit, --augment, --flip."""
    value(parser, "--train-data", types.data_spec, "DATA",
        "(default: the train split of --data, or half of it)")  # fmt: skip
    value(parser, "--train-limit", types.positive_int, "N", "training inputs (default: 2000)", default=2000)
    value(parser, "--augment", types.most(1024, 0), "PIXELS", "move training images by up to so many",
        default=0)  # fmt: skip
    flag(parser, "--flip", "mirror half of the training images")


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
            train = whole.drop(half).take(args.train_limit)
            test = whole.take(min(half, args.limit or half))
    return _augmented(args, train), test, f"{len(train):,} of {how}"


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
