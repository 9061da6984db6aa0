"""Is anything slower than before? CPU seconds of the same calls on an older commit and on this checkout.

python benchmarks/against_before.py --old ce78d66 -o docs/measured/against_before.json

Each call runs three times in a process of its own, after one that warms it up; the least of all rounds
counts: other processes on the machine can only add.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
START = """
import time, torch
torch.set_num_threads(1)
import intertwine
from intertwine import act, align, apply_merge, compare, plan_merge, stitch, trace, zoo
def net(seed):
    torch.manual_seed(seed)
    return zoo.build("resnet20").eval()
x = torch.randn(64, 3, 32, 32, generator=torch.Generator().manual_seed(0))
y = net(0)(x).argmax(1).detach()
def timed(call):
    call()
    spent = []
    for _ in range(3):
        start = time.process_time()
        call()
        spent.append(time.process_time() - start)
    print(min(spent))
"""
CALLS = {
    "trace and prove": "a = net(0)\ntimed(lambda: trace(a, x[:1]))",
    "compare, CKA": "a, b = net(0), net(1)\ntimed(lambda: compare(a, b, x, 'cka', intervals=False))",
    "align by weights": (
        "a, b = net(0), net(1)\ns = trace(a, x[:1])\ntimed(lambda: align(a, b, s, restarts=0))"
    ),
    "merge to half": (
        "a = net(0)\ns = trace(a, x[:1])\ntimed(lambda: apply_merge(a, plan_merge(a, s, target_params=0.5)))"
    ),
    "stitch, group": (
        "a, b = net(0), net(1)\n"
        "timed(lambda: stitch(a, b, (x, y), (x, y), at='layer2.1.bn2', kinds=['group']))"
    ),
}


def seconds(call: str, sources: Path) -> float:
    """CPU seconds of one call with the package of `sources`."""
    environment = {**os.environ, "PYTHONPATH": str(sources), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-c", START + call]
    done = subprocess.run(command, env=environment, cwd=sources, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{sources}: {done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", default="ce78d66", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-o", "--out", type=Path)
    args = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        packed = subprocess.run(
            ["git", "archive", args.old, "src"], cwd=ROOT, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", name], input=packed.stdout, check=True)
        for what, call in CALLS.items():
            rounds = [
                (seconds(call, Path(name) / "src"), seconds(call, ROOT / "src")) for _ in range(args.rounds)
            ]
            before, now = (min(each) for each in zip(*rounds, strict=True))
            found[what] = {"before": round(before, 3), "now": round(now, 3), "ratio": round(now / before, 2)}
            print(what, found[what], flush=True)
    if args.out:
        args.out.write_text(
            json.dumps({"old": args.old, "rounds": args.rounds, "calls": found}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
