"""Arguments that many verbs share: MODEL with weights and input, DATA with normalisation, the device."""

from __future__ import annotations

import argparse

from intertwine.terminal.declare import flag, value
from intertwine.terminal.registered import registered
from intertwine.terminal.types import (
    any_seed,
    any_text,
    data_spec,
    input_path,
    input_shape,
    model_spec,
    normalization,
    positive_int,
    side,
    tokenizer_path,
)


def add_device_arguments(parser: argparse.ArgumentParser) -> None:
    """--device and --seed."""
    value(parser, "--device", any_text, "DEV", "cpu, cuda, cuda:1, mps (default: cpu)", default="cpu")
    value(parser, "--seed", any_seed, "N", "fixes everything random (default: 0)", default=0)


def add_model_arguments(
    parser: argparse.ArgumentParser, *, weights: bool = True, classes: bool = True
) -> None:
    """MODEL, --weights, --input, --device, --seed; verbs with two sets of weights declare their own."""
    value(parser, "model", model_spec, "MODEL", f"{registered()['model_forms']}; see below")
    if weights:
        value(
            parser,
            "--weights",
            input_path,
            "FILE",
            ".safetensors or .pt/.pth/.th/.bin (never runs code); shipped:SEED for those in the package",
        )
    value(parser, "--input", input_shape, "SHAPE",
        "1x3x32x32; 2x16:int64 for token ids; commas separate inputs")  # fmt: skip
    add_source_arguments(parser, classes=classes)
    add_device_arguments(parser)
    parser.epilog = "\n".join(filter(None, [parser.epilog, registered()["model_help"]]))


def add_source_arguments(parser: argparse.ArgumentParser, *, classes: bool = True) -> None:
    """--classes, --pretrained, --run-code: what is asked of a MODEL beside its name."""
    if classes:
        value(parser, "--classes", positive_int, "N",
            "of the model's head (default: its own, or those of the last layer in --weights)",
            dest="model_classes")  # fmt: skip
    flag(parser, "--pretrained", "the library's trained weights")
    flag(parser, "--run-code", "run Python code that comes with a model's weights")


def add_several_arguments(parser: argparse.ArgumentParser) -> None:
    """MODEL twice or more, --weights once for each, --input, --device, --seed."""
    value(parser, "models", model_spec, "MODEL", "two or more models of one architecture", nargs="+")
    value(parser, "--weights", input_path, "FILE", "weights, once for each MODEL in order", action="append",
        default=[])  # fmt: skip
    value(parser, "--input", input_shape, "SHAPE", "example input, such as 1x3x32x32")
    add_device_arguments(parser)
    add_source_arguments(parser)
    parser.epilog = "\n".join(filter(None, [parser.epilog, registered()["model_help"]]))


def add_pair_arguments(parser: argparse.ArgumentParser, a: str, b: str) -> None:
    """A, B and their weights; `a` and `b` say what each is for."""
    value(parser, "a", model_spec, "A", a)
    value(parser, "b", model_spec, "B", b)
    for which in "ab":
        value(parser, f"--weights-{which}", input_path, "FILE", f"weights of {which.upper()}")
    add_source_arguments(parser)
    parser.epilog = "\n".join(filter(None, [parser.epilog, registered()["model_help"]]))


def add_data_arguments(
    parser: argparse.ArgumentParser, *, required: bool = False, default: str | None = None, batch: int = 256
) -> None:
    """--data, --normalize, --limit, --batch, --split, --size."""
    value(parser, "--data", data_spec, "DATA", "the data set, see below", required=required, default=default)
    value(
        parser,
        "--normalize",
        normalization,
        "HOW",
        "cifar10, cifar10-legacy, imagenet, none, or M,M,M/S,S,S (default: that of the model's weights)",
    )
    value(parser, "--limit", positive_int, "N", "use N examples only")
    value(parser, "--batch", positive_int, "N", f"batch size (default: {batch})", default=batch)
    value(parser, "--split", any_text, "NAME", "train or test, where the data has both (default: test)",
        default="test")  # fmt: skip
    value(parser, "--size", side, "N", "resize and crop image files to NxN")
    value(parser, "--context", positive_int, "N", "tokens of one window of text")
    value(parser, "--tokenizer", tokenizer_path, "PATH",
        "folder or tokenizer.json (default: the model's; characters without one)")  # fmt: skip
    parser.epilog = "\n".join(filter(None, [parser.epilog, registered()["data_help"]]))
