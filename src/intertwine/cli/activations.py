"""intertwine activations: the groups of scalar functions (Table 1 of Godfrey et al. 2022, and more)."""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict
from typing import Any

from intertwine.cli.arguments import any_text
from intertwine.cli.output import print_json

_EPILOG = """examples:
  intertwine activations                      the whole table
  intertwine activations relu gelu 'x**2.5'   three rows
  intertwine activations --json tanh          with every counterexample, to full precision

A counterexample names the candidate that fails (all positive scales, the sign, linearity), a scale a, the b
that one point forces on it, and an x at which sigma(a x) != b sigma(x).
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser(
        "activations",
        help="which scalings pass through an activation function, and as what",
        description="Print the intertwiner group G_sigma and phi_sigma of activation functions,\n"
        "decided by evaluating them, with a proof for what fails.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", type=any_text, nargs="*", metavar="NAME", help="a function, or x**D (default: all known)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Decide every function named and print the table."""
    from rich.console import Console
    from rich.table import Table

    from intertwine.activations import Intertwiner, intertwiner, names, xi_slope

    found: list[Intertwiner] = [intertwiner(name) for name in args.names or names()]
    if args.json:
        rows = [{**asdict(one), "group": one.group_text, "phi": one.phi_text} for one in found]
        print_json(_strict({"activations": rows, "gelu_xi_slope": xi_slope()}))
        return
    table = Table("activation", "group", "phi", "E.8", "counterexample", box=None, pad_edge=False)
    for one in found:
        proof = one.counterexamples[0] if one.counterexamples else None
        why = f"{proof.candidate}: {proof}" if proof else "none: all of GL(n) passes"
        table.add_row(one.name, one.group_text, one.phi_text, "yes" if one.condition_e8 else "no", why)
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = 180  # a pipe has no width of its own: one row a line, for grep
    console.print(table)


def _strict(value: Any) -> Any:
    """The same with "nan", "inf" and "-inf" as strings: JSON has no such numbers."""
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
