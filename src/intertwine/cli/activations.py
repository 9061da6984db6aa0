"""intertwine activations: the groups of scalar functions (Table 1 of Godfrey et al. 2022, and more)."""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict
from typing import Any

from intertwine.terminal import types
from intertwine.terminal.declare import Subparsers, json, value, verb
from intertwine.terminal.output import print_json


def add_parser(subparsers: Subparsers[Any]) -> None:
    """Declare the verb."""
    parser = verb(
        subparsers,
        "activations",
        run,
        "which scalings pass through an activation function, and as what",
        "Print the intertwiner group G_sigma and phi_sigma of activation functions,\n"
        "decided by evaluating them, with a proof for what fails.",
    )
    value(parser, "names", types.any_text, "NAME", "a function, or x**D (default: all known)", nargs="*")
    json(parser, "print JSON")


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
