"""The command line: parse, call one function, print.

Each verb is a module of this package with two functions: `add_parser(subparsers)` declares the arguments
(heavy imports stay out of it), `run(args, console)` calls the Python API and prints. Results go to stdout,
progress and logs to stderr. Every option has a type of `arguments`, which refuses what cannot be right. Exit
codes: 0 fine, 1 a verification or a task failed, 2 bad usage or bad input, 3 unsupported, 70 a bug of ours,
130 interrupted, 143 terminated, 129 hung up.
"""

from __future__ import annotations

from intertwine.cli.program import main

__all__ = ["main"]
