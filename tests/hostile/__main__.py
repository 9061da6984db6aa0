"""python -m tests.hostile: all bad command lines and calls of functions, and mutated files of all readers.

It can be cut: `--parts calls` runs one table only, `--share 2/5` every fifth case from the second on.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from hostile_api import calls, try_all
from hostile_bytes import READERS, fuzz
from hostile_run import run_command, warm
from hostile_surroundings import SURROUNDINGS, UNHEARD
from hostile_table import FINE, Table

PARTS = ("commands", "surroundings", "calls", "files")
# In all surroundings: what prints, what writes, what fails.
LINES: tuple[tuple[str, ...], ...] = (
    ("inspect", "zoo:mlp", "--json"), ("inspect", "zoo:mlp", "-o", "page.html"), ("zoo", "list"),
    ("merge", "zoo:mlp", "--target-params", "0.8", "-o", "small"), ("doctor", "--json"), ("merge", "--help"),
    ("merge", "--nope"), ("completion", "bash"), ("activations", "relu"),
)  # fmt: skip


def share(text: str) -> slice:
    first, _, step = text.partition("/")
    return slice(int(first) - 1, None, int(step))


def run_commands(folder: Path, only: str, part: slice, slow: float) -> Iterator[str]:
    """What was wrong with the command lines, one by one."""
    cases = [case for case in Table(folder / "bad").cases() if only in str(case)][part]
    for case in cases:
        began = time.monotonic()
        trouble = case.trouble()
        if trouble:
            yield f"{case}\n        {trouble}"
        if time.monotonic() - began > slow:
            print(f"    {case} took {time.monotonic() - began:.0f} s", flush=True)
    print(f"{len(cases)} command lines", flush=True)


def run_surroundings(only: str, part: slice) -> Iterator[str]:
    pairs = [(name, line) for name in SURROUNDINGS for line in LINES if only in f"{name} {line}"][part]
    for name, line in pairs:
        outcome = run_command(line, before=SURROUNDINGS[name])
        trouble = (replace(outcome, left=()) if name in UNHEARD else outcome).wrong(FINE)
        if trouble:
            yield f"{name}: {' '.join(line)}\n        {trouble}"
    print(f"{len(pairs)} commands in odd surroundings", flush=True)


def run_calls(folder: Path, only: str, part: slice) -> Iterator[str]:
    cases = [case for case in calls() if only in str(case)][part]
    for first in range(0, len(cases), 100):  # what was wrong is told as it is found
        yield from try_all(cases[first : first + 100], folder)
    print(f"{len(cases)} calls of functions", flush=True)


def run_files(folder: Path, only: str, mutations: int, seed: int) -> Iterator[str]:
    names = [name for name in READERS if only in name]
    for name in names:
        yield from fuzz(name, mutations // len(READERS), seed, folder)
    print(f"{mutations // len(READERS)} files for each of {len(names)} readers", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutations", type=int, default=1000, help="in all, dealt out to the readers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="cases that contain this text")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument(
        "--share", type=share, default=share("1/1"), metavar="I/N", help="every N-th from the I-th on"
    )
    parser.add_argument("--slow", type=float, default=10.0, help="seconds from which a command is reported")
    args = parser.parse_args()
    warm()
    wrong = 0
    for part in args.parts:
        with tempfile.TemporaryDirectory() as name:
            folder, began = Path(name), _cpu()
            if part == "commands":
                found = run_commands(folder, args.only, args.share, args.slow)
            elif part == "surroundings":
                found = run_surroundings(args.only, args.share)
            elif part == "calls":
                found = run_calls(folder, args.only, args.share)
            else:
                found = run_files(folder, args.only, args.mutations, args.seed)
            before = wrong
            for line in found:
                wrong += 1
                print(f"    {line}", flush=True)
            print(f"{part}: {wrong - before} wrong, {_cpu() - began:.0f} CPU s", flush=True)
    return 1 if wrong else 0


def _cpu() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


if __name__ == "__main__":
    sys.exit(main())
