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
    from intertwine.terminal.output import print_json, print_table, say

    found = doctor()
    if args.json:
        print_json(found.to_dict())
        return int(not found.healthy)
    say(f"intertwine {found.version}, Python {found.python}, torch {found.torch or 'missing'}")
    say(f"{found.system}, {found.processors} processors, devices: {', '.join(found.devices) or 'none'}")
    print_table("extras", ["extra", "gives", "here", "how to get it"], found.extras())
    return int(not found.healthy)
