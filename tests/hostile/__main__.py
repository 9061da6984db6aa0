"""python -m tests.hostile [--mutations N]: both tables, and N mutated files of all readers (nightly)."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from hostile_api import calls, try_all
from hostile_bytes import READERS, fuzz
from hostile_run import run_command, warm
from hostile_table import Table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutations", type=int, default=1000, help="in all, dealt out to the readers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="cases that contain this text")
    parser.add_argument("--slow", type=float, default=10.0, help="seconds from which a case is reported")
    args = parser.parse_args()
    warm()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        cases = [case for case in Table(Path(folder) / "bad").cases() if args.only in str(case)]
        for case in cases:
            began = time.monotonic()
            trouble = run_command(case.argv).wrong(case.allowed)
            if trouble:
                wrong += 1
                print(f"{case}\n    {trouble}", flush=True)
            if time.monotonic() - began > args.slow:
                print(f"{case}\n    took {time.monotonic() - began:.0f} s", flush=True)
        print(f"{len(cases)} command lines, {wrong} wrong", flush=True)
        if not args.only:
            odd = list(calls())
            found = try_all(odd, Path(folder))
            wrong += len(found)
            print(f"{len(odd)} calls of functions, {len(found)} wrong", *found, sep="\n    ", flush=True)
        for name in READERS if not args.only else ():
            found = fuzz(name, args.mutations // len(READERS), args.seed, Path(folder))
            wrong += len(found)
            print(f"{name}: {len(found)} wrong", *found[:20], sep="\n    ", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
