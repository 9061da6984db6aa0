"""intertwine train MODEL: train by a recipe, and go on where a killed run stopped."""

from __future__ import annotations

import argparse
from typing import Any

from intertwine.terminal import types
from intertwine.terminal.declare import Subparsers, json, out, value, verb
from intertwine.terminal.loading import parse_device
from intertwine.terminal.runs import add_training_data_arguments, progress_line
from intertwine.terminal.showing import show, write_page

_OPTIONS = (
    "out", "train_data", "train_limit", "normalize", "size", "memory", "classes", "seed", "device", "devices",
    "threads",
)  # fmt: skip


def add_parser(subparsers: Subparsers[Any]) -> None:
    """Declare the verb."""
    parser = verb(subparsers, "train", run, "train a model by a recipe; the same command resumes",
        "Train MODEL on DATA by a recipe and write everything to RUN.")  # fmt: skip
    value(parser, "model", types.model_spec, "MODEL", "NAME of the zoo, or any MODEL, see below")
    add_training_data_arguments(parser)
    value(parser, "--size", types.side, "N", "resize and crop image files to NxN")
    value(parser, "--memory", types.memory, "BYTES", "images that would take more are read from their files, "
        "batch by batch (default: half of the machine's)")  # fmt: skip
    out(parser, "RUN", "the folder of the run", required=True)
    value(parser, "--seed", types.any_seed, "N", "initial weights, order, augmentation (default: 0)",
        default=0)  # fmt: skip
    value(parser, "--devices", types.processes, "N", "processes, one a device (default: 1)", default=1)
    value(parser, "--device", types.any_text, "DEV", "cpu, cuda, cuda:1 (default: cpu)", default="cpu")
    value(parser, "--threads", types.processes, "N", "CPU threads (1: bit-equal runs)")
    json(parser, "print the result as JSON")
    value(parser, "--page", types.output_path, "FILE.html", "write a page here")


def run(args: argparse.Namespace) -> int | None:
    """Train and print."""
    from intertwine.foreign import safe_workers
    from intertwine.training import read_recipe, train
    from intertwine.training.processes import is_first

    recipe = read_recipe(args.recipe)
    parse_device(args.device)
    # other processes (--devices) are started by this same command, which they must find where we found it
    with safe_workers(), progress_line(args.model, recipe) as listener:
        result = train(
            args.model, args.data, recipe, listener=listener, **{n: getattr(args, n) for n in _OPTIONS}
        )  # fmt: skip
    if is_first(args.devices):
        facts = {name: getattr(args, name) for name in ("model", "data", "recipe", "seed")}
        show(args, result, facts, tables=False)
        write_page(args, result, facts)
    return 0
