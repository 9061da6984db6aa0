"""`intertwine report`: pages that verbs wrote, as one file to send to a colleague."""

from __future__ import annotations

import argparse

from intertwine.cli.arguments import any_text, input_path, output_path
from intertwine.cli.showing import write_and_show

_EPILOG = """examples:
  intertwine merge zoo:digits-vgg --target-params 0.5 --data digits --page merge.html
  intertwine inspect zoo:digits-vgg -o inspect.html
  intertwine report inspect.html merge.html --title "A smaller digits-vgg" -o report.html

Every page is shown in a frame of its own, which can draw and nothing else: it reaches no network.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser(
        "report",
        help="any number of pages in one file, with what each of them found",
        description="Collect pages that other verbs wrote into one file with a table of contents.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pages", type=input_path, nargs="+", metavar="PAGE.html", help="what a verb wrote")
    parser.add_argument("--title", type=any_text, default="Report", help="the heading (default: Report)")
    parser.add_argument(
        "-o", "--out", type=output_path, metavar="FILE.html", required=True, help="the one file"
    )
    parser.add_argument("--json", action="store_true", help="print titles and findings as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Read, write, print."""
    from intertwine import report

    write_and_show(args, report(args.pages, title=args.title), {})
    return 0
