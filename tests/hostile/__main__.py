"""python -m tests.hostile: all bad command lines and calls of functions, and mutated files of all readers.

It can be cut: `--parts calls` runs one table only, `--share 2/5` every fifth case from the second on; with
`--state FILE` a run that was stopped goes on where it was.
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
from hostile_payloads import Table as Payloads
from hostile_payloads import run_payloads
from hostile_run import run_command, warm
from hostile_state import State
from hostile_surroundings import SURROUNDINGS, UNHEARD
from hostile_table import FINE, Case, Table

PATIENCE = 300.0  # seconds, for what may only have waited for its turn on a busy machine
# In all surroundings: what prints, what writes, what fails.
LINES: tuple[tuple[str, ...], ...] = (
    ("inspect", "zoo:mlp", "--json"), ("inspect", "zoo:mlp", "-o", "page.html"), ("zoo", "list"),
    ("merge", "zoo:mlp", "--target-params", "0.8", "-o", "small"), ("doctor", "--json"), ("merge", "--help"),
    ("merge", "--nope"), ("completion", "bash"), ("activations", "relu"),
    ("merge", "zoo:mlp", "--target-params", "0.8", "--export", "torch", "-o", "small"),
)  # fmt: skip


def share(text: str) -> slice:
    first, _, step = text.partition("/")
    return slice(int(first) - 1, None, int(step))


def run_commands(folder: Path, args: argparse.Namespace, state: State) -> Iterator[str]:
    """What was wrong with the command lines, one by one."""
    yield from run_cases("commands", list(Table(folder / "bad").cases()), args, state)


def run_odd(folder: Path, args: argparse.Namespace, state: State) -> Iterator[str]:
    """The same for rare models."""
    yield from run_cases("odd", Table(folder / "bad").odd_cases(), args, state)


def run_cases(part: str, table: list[Case], args: argparse.Namespace, state: State) -> Iterator[str]:
    cases = [case for case in table if args.only in str(case)]
    for number, case in state.todo(part, cases, args.share):
        began = time.monotonic()
        trouble = case.trouble()
        if trouble.startswith("hangs"):  # or the machine is busy
            trouble = case.trouble(seconds=PATIENCE)
        if trouble:
            yield f"{case}\n        {trouble}"
        else:
            state.held(part, number, len(cases))
        if time.monotonic() - began > args.slow:
            print(f"    {case} took {time.monotonic() - began:.0f} s", flush=True)
    print(f"{len(cases[args.share])} command lines", flush=True)


def run_surroundings(folder: Path, args: argparse.Namespace, state: State) -> Iterator[str]:
    pairs = [(name, line) for name in SURROUNDINGS for line in LINES if args.only in f"{name} {line}"]
    for number, (name, line) in state.todo("surroundings", pairs, args.share):
        outcome = run_command(line, seconds=PATIENCE, before=SURROUNDINGS[name])
        trouble = (replace(outcome, left=()) if name in UNHEARD else outcome).wrong(FINE)
        if trouble:
            yield f"{name}: {' '.join(line)}\n        {trouble}"
        else:
            state.held("surroundings", number, len(pairs))
    print(f"{len(pairs[args.share])} commands in odd surroundings", flush=True)


def run_calls(folder: Path, args: argparse.Namespace, state: State) -> Iterator[str]:
    cases = [case for case in calls() if args.only in str(case)]
    todo = state.todo("calls", cases, args.share)
    for first in range(0, len(todo), 25):  # what was wrong is told as it is found
        some = todo[first : first + 25]
        found = try_all([case for _, case in some], folder)
        yield from found
        for number, case in some:
            if not any(line.startswith(f"{case}:") for line in found):
                state.held("calls", number, len(cases))
    print(f"{len(cases[args.share])} calls of functions", flush=True)


def run_files(folder: Path, args: argparse.Namespace, state: State) -> Iterator[str]:
    names, each = [name for name in READERS if args.only in name], args.mutations // len(READERS)
    for number, name in state.todo(f"files {args.seed} {each}", names, args.share):
        found = fuzz(name, each, args.seed, folder)
        yield from found
        if not found:
            state.held(f"files {args.seed} {each}", number, len(names))
    print(f"{each} files for each of {len(names[args.share])} readers", flush=True)


def run_code(folder: Path, args: argparse.Namespace, state: State) -> Iterator[str]:
    """Payloads that ran."""
    tried, ran = run_payloads(Payloads(folder / "payloads"))
    yield from (f"{name} ran" for name in ran)
    print(f"{tried} payloads", flush=True)


PARTS = {
    "commands": run_commands, "odd": run_odd, "surroundings": run_surroundings, "calls": run_calls,
    "files": run_files, "payloads": run_code,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutations", type=int, default=1000, help="in all, dealt out to the readers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="cases that contain this text")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument(
        "--share", type=share, default=share("1/1"), metavar="I/N", help="every N-th from the I-th on"
    )
    parser.add_argument("--state", type=Path, help="a file that remembers which cases held")
    parser.add_argument("--slow", type=float, default=10.0, help="seconds from which a command is reported")
    args = parser.parse_args()
    warm()
    state = State(args.state)
    wrong = 0
    for part in args.parts:
        with tempfile.TemporaryDirectory() as name:
            began = _cpu()
            found = PARTS[part](Path(name), args, state)
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
