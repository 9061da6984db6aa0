"""`intertwine verify`: prove a model's symmetries by acting with them."""

from __future__ import annotations

import argparse
from typing import Any

EXAMPLES = """\
examples:
  intertwine verify zoo:resnet20
  intertwine verify timm:convnext_tiny --json
  intertwine verify my_model.py:build --weights model.safetensors --input 1x3x64x64

Exit code 0 if the output stays the same to 1e-10 (float64), 1 if it does not.
"""


def add_parser(subparsers: Any) -> None:
    """Declare the arguments."""
    from intertwine.cli.arguments import add_model_arguments, most

    parser = subparsers.add_parser(
        "verify",
        help="prove the inferred symmetries by acting with them",
        description="Act with random elements of the whole group on the weights and compare the outputs.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model_arguments(parser)
    parser.add_argument(
        "--samples", type=most(10_000), default=1, metavar="N", help="group elements to try (default: 1)"
    )
    parser.add_argument("--json", action="store_true", help="print plain data")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Verify and print; 1 if a claimed symmetry does not hold."""
    from intertwine import verify
    from intertwine.cli.arguments import load_model
    from intertwine.cli.showing import show

    source = load_model(args)
    report = verify(source.model, source.example, kwargs=source.kwargs, seed=args.seed, samples=args.samples)
    show(args, report)
    return 0 if report.exact else 1
