"""python -m tests.crash.real BACKEND [--every N]: kill real workers of joblib or Ray at file events.

A sweep runs with two worker processes; the first of them that comes to its n-th file event dies there by
SIGKILL. The same command is given again where the first one ended with an error, and the folder then holds
what an undisturbed sweep leaves. It ends when no worker comes to an n-th event. One line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.crash.scenarios import snapshot

RECIPE = "epochs: 1\nbatch: 48\noptimizer: {name: sgd, learning_rate: 0.05}\n"
SWEEP = "data: digits\ntrain: {models: [mlp], seeds: 0-1, recipe: r.yml, limit: 96}\n"
SITE = Path(__file__).parent / "site"
# The driver names itself before anything is imported; its children inherit what it says.
RUN = (
    "import os, sys; os.environ['CRASH_DRIVER'] = str(os.getpid())\n"
    "from intertwine.cli import main; sys.exit(main(sys.argv[1:]))"
)


def sweep(folder: Path, backend: str, fatal: int = 0) -> int:
    """The exit code of `intertwine sweep`, in which a worker dies at its `fatal`-th event (never, if 0)."""
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join([str(SITE), os.environ.get("PYTHONPATH", "")]),
        "CRASH_ROOT": str(folder / "out"), "CRASH_FATAL": str(fatal), "CRASH_MARK": str(folder / "mark"),
        "RAY_worker_niceness": "0", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    words = ["sweep", "s.yml", "-o", str(folder / "out"), "--backend", backend, "--jobs", "2", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode


def prepare(folder: Path) -> Path:
    (folder / "r.yml").write_text(RECIPE)
    (folder / "s.yml").write_text(SWEEP)
    return folder


def check(backend: str, fatal: int, expected: dict[str, object]) -> str | None:
    """What was wrong after a kill at this event; None if no worker came to it."""
    with tempfile.TemporaryDirectory() as name:
        folder = prepare(Path(name).resolve())
        code = sweep(folder, backend, fatal)
        if not (folder / "mark").exists():
            return None
        if code not in ((0,) if backend == "ray" else (0, 3)):  # Ray starts the task again by itself
            return f"exit code {code}"
        if code:
            code = sweep(folder, backend)
        found = snapshot(folder / "out")
    different = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
    return f"exit code {code}, differs: {different}" if code or different else ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.real", description=__doc__)
    parser.add_argument("backend", choices=("joblib", "ray"))
    parser.add_argument("--every", type=int, default=1, help="kill at every N-th event only")
    parser.add_argument("--first", type=int, default=1, help="from this event on")
    parser.add_argument("--most", type=int, default=1000, help="kills at most")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = prepare(Path(name).resolve())
        assert sweep(folder, args.backend) == 0
        expected = snapshot(folder / "out")
    wrong: dict[int, str] = {}
    kills: list[int] = []
    for fatal in range(args.first, args.first + args.every * args.most, args.every):
        trouble = check(args.backend, fatal, expected)
        if trouble is None:
            break
        kills.append(fatal)
        if trouble:
            wrong[fatal] = trouble
        print(f"event {fatal}: {trouble or 'held'}", file=sys.stderr, flush=True)
    print(json.dumps({"backend": args.backend, "kills": kills, "wrong": wrong}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
