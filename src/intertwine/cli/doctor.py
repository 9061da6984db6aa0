"""`intertwine doctor`: versions, devices, extras, and how to get what is missing."""

from __future__ import annotations

import argparse
from typing import Any

from intertwine.terminal.declare import Subparsers, json, verb


def add_parser(subparsers: Subparsers[Any]) -> None:
    """Declare the verb."""
    parser = verb(subparsers, "doctor", run, "what is installed here, what is missing, and how to get it",
        "Look at this installation: versions, devices, extras. Nothing is changed.")  # fmt: skip
    json(parser, "print JSON")


def run(args: argparse.Namespace) -> int:
    """Look and print."""
    from intertwine import doctor
    from intertwine.terminal.showing import show

    found = doctor()
    show(args, found)
    return int(not found.healthy)
