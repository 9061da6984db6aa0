"""The command line: parse, call one function, print.

Each verb is a module of this package with two functions: `add_parser(subparsers)` declares the arguments
(heavy imports stay out of it), `run(args, console)` calls the Python API and prints. Results go to stdout,
progress and logs to stderr. Every option has a type of `arguments`, which refuses what cannot be right. Exit
codes: 0 fine, 1 a verification or a task failed, 2 bad usage or bad input, 3 unsupported, 70 a bug of ours,
130 interrupted, 143 terminated, 129 hung up.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ["main"]

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    # Values of many megabytes come and go with every op: in pages of 4 KB, this takes as long as the op.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    try:  # the verbs are imported here, so that Ctrl-C meanwhile takes a line, too
        from intertwine.cli.program import main as run

        return run(argv)
    except KeyboardInterrupt:
        if sys.stderr is not None:
            sys.stderr.write("interrupted\n")
        return _INTERRUPTED
