"""Fuzz on and on: `python -m tests.fuzz --programs 20000 --seed 1 --workers 2 --state fuzz.json`.

Program number i of a seed is always the same one. With a state file the run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from .chunk import Job, run_chunk

CHUNK = 25
RENEWED = 40  # chunks after which the processes are


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--state", type=Path, help="resume from this file, and keep it up to date")
    parser.add_argument("--markdown", type=Path, help="write the distinct failures here")
    parser.add_argument(
        "--without", default="", metavar="REGEX", help="leave out these templates of the table"
    )
    parser.add_argument("--show", type=int, metavar="INDEX", help="print one program, check it and shrink it")
    return parser.parse_args()


def main() -> int:
    """Run, print what fails, and a summary; the exit code says whether anything failed."""
    args = parse()
    if args.show is not None:
        return show(args.seed, args.show, args.without)
    state: dict[str, Any] = {"seed": args.seed, "done": 0, "counts": {}, "seconds": {}, "findings": {}}
    if args.state and args.state.is_file():
        state = json.loads(args.state.read_text())
        if state["seed"] != args.seed:
            sys.exit(f"{args.state} holds the run of seed {state['seed']}")
    jobs = [
        (args.seed, first, min(first + CHUNK, args.programs), args.without)
        for first in range(state["done"], args.programs, CHUNK)
    ]
    for chunk in chunks(jobs, args.workers):
        merge(state, chunk)
        if args.state:
            args.state.write_text(json.dumps(state, indent=1))
        if args.markdown:
            args.markdown.write_text(markdown(state))
        print(f"{state['done']} programs: {_line(state['counts']['verdict'])}", file=sys.stderr, flush=True)
    print(summary(state))
    return 1 if state["findings"] else 0


def chunks(jobs: list[Job], workers: int) -> Iterator[dict[str, Any]]:
    """The chunks in order. Processes are renewed now and then: torch.export keeps some memory each time."""
    if not jobs:
        return
    context = multiprocessing.get_context("spawn")
    while jobs:
        with ProcessPoolExecutor(workers, context) as pool:  # max_tasks_per_child stops for ever in 3.11
            futures = [pool.submit(run_chunk, job) for job in jobs[: RENEWED * workers]]
            try:
                for future in futures:
                    yield future.result()
                    jobs = jobs[1:]
            except BrokenProcessPool:
                seed, first, last, _ = jobs.pop(0)
                verdicts = Counter({"worker died": last - first})
                print(f"a worker died in the programs {first} to {last} of seed {seed}", file=sys.stderr)
                yield {"counts": {"verdict": verdicts}, "seconds": Counter(), "findings": [], "last": last}


def merge(state: dict[str, Any], chunk: dict[str, Any]) -> None:
    """Add a chunk to the state; a failure that is not known yet is printed."""
    state["done"] = chunk["last"]
    for kind, counter in chunk["counts"].items():
        state["counts"][kind] = dict(Counter(state["counts"].get(kind, {})) + counter)
    state["seconds"] = dict(Counter(state["seconds"]) + chunk["seconds"])
    for finding in chunk["findings"]:
        known = state["findings"].setdefault(finding["signature"], {**finding, "times": 0})
        if not known["times"]:
            print(report(finding), flush=True)
        known["times"] += 1


def report(finding: dict[str, Any]) -> str:
    """One failure, as text that can be pasted."""
    head = f"{finding['verdict']}, traced at {tuple(finding['traced at'])}"
    if finding["fails at"]:
        head += f", fails at {tuple(finding['fails at'])} by {finding['error']:.1e} ({finding['detail']})"
    else:
        head += f": {finding['detail']}"
    return f"# {head}; seed {finding['seed']}, program {finding['index']}\n{finding['source']}"


def markdown(state: dict[str, Any]) -> str:
    """All distinct failures, the most frequent first."""
    found = sorted(state["findings"].values(), key=lambda f: (f["verdict"] != "wrong", -f["times"]))
    parts = [
        f"# {len(found)} distinct failures of {state['done']} programs (seed {state['seed']})\n",
        summary(state),
    ]
    for k, f in enumerate(found):
        parts.append(
            f"## {k + 1}. {f['verdict']} x{f['times']}: `{f['short']}`\n\n```python\n{report(f)}```\n"
        )
    return "\n".join(parts)


def summary(state: dict[str, Any]) -> str:
    """Counts by verdict, what was covered, and where the time went."""
    counts = {kind: Counter(c) for kind, c in state["counts"].items()}
    for kind in ("verdict", "op", "moved op", "group", "sizes"):
        counts.setdefault(kind, Counter())
    verdicts = counts["verdict"]
    moved = verdicts["ok"] + verdicts["wrong"] + verdicts["unstable"]
    ops, moving = counts["op"], counts["moved op"]
    never = sorted(op for op in ops if not moving[op])
    return "\n".join(
        [
            f"{state['done']} programs: {_line(verdicts)}; {len(state['findings'])} distinct failures",
            f"something moves in {moved / max(state['done'], 1):.0%}; groups: {_line(counts['group'])}",
            f"sizes run: {_line(counts['sizes'])}",
            f"{len(ops)} ops, programs that use each and keep a symmetry: {_line(moving)}",
            f"never with a symmetry: {', '.join(never)}",
            f"seconds: {', '.join(f'{k} {v:.0f}' for k, v in state['seconds'].items())}",
            "",
        ]
    )


def _line(counter: dict[str, int]) -> str:
    return ", ".join(f"{k} {v}" for k, v in sorted(counter.items(), key=lambda kv: -kv[1]))


def show(seed: int, index: int, without: str) -> int:
    """Look at one program."""
    from .generate import generate
    from .program import Model
    from .shrink import judge, shrink
    from .table import leave_out

    leave_out(without)
    program = generate(random.Random(f"{seed}-{index}").choice)
    result = judge(program)
    print(program.source(Model(program).constructors), result, sep="\n")
    if result.failed:
        small, result = shrink(program, result)
        print(small.source(Model(small).constructors), result, sep="\n")
    return int(result.failed)


if __name__ == "__main__":
    sys.exit(main())
