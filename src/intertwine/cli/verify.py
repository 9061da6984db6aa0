"""`intertwine verify`: prove a model's symmetries by acting with them."""

from __future__ import annotations

import argparse
from typing import Any

from intertwine.terminal.declare import json, out, value, verb


def add_parser(subparsers: Any) -> None:
    """Declare the arguments."""
    from intertwine.terminal import types
    from intertwine.terminal.arguments import add_model_arguments

    parser = verb(subparsers, "verify", run, "prove the inferred symmetries by acting with them",
        "Act with random elements of the whole group on the weights and compare the outputs.")  # fmt: skip
    add_model_arguments(parser)
    value(parser, "--samples", types.most(10_000), "N", "group elements to try (default: 1)", default=1)
    out(parser, "FILE", "write the page here (.html)")
    json(parser, "print plain data")


def run(args: argparse.Namespace) -> int:
    """Verify and print; 1 if a claimed symmetry does not hold."""
    from intertwine import verify
    from intertwine.terminal.loading import load_model
    from intertwine.terminal.showing import write_and_show

    source = load_model(args)
    report = verify(source.model, source.example, kwargs=source.kwargs, seed=args.seed, samples=args.samples)
    write_and_show(args, report, {"model": source.name})
    return 0 if report.exact else 1
