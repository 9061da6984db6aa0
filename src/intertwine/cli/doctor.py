"""`intertwine doctor`: versions, devices, extras, and how to get what is missing."""

from __future__ import annotations

import argparse

_EPILOG = """examples:
  intertwine doctor
  intertwine doctor --json      # to paste into a report of a bug

Exit code 1 where a package that every verb needs is missing or too old.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser(
        "doctor",
        help="what is installed here, what is missing, and how to get it",
        description="Look at this installation: versions, devices, extras. Nothing is changed.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Look and print."""
    from intertwine import doctor
    from intertwine.cli.output import print_json, print_table, say

    found = doctor()
    if args.json:
        print_json(found.to_dict())
        return int(not found.healthy)
    say(f"intertwine {found.version}, Python {found.python}, torch {found.torch or 'missing'}")
    say(f"{found.system}, {found.processors} processors, devices: {', '.join(found.devices) or 'none'}")
    print_table("extras", ["extra", "gives", "here", "how to get it"], found.extras())
    return int(not found.healthy)
