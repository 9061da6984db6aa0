"""python -m tests.crash [--every N] [--only NAME]: kill each scenario at every (N-th) file event, and go on.

After each kill: what was there is whole, the same work ends with the same bits as undisturbed work, and
nothing temporary is left. One line of JSON a scenario.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from tests.crash.kill import KILLED, run
from tests.crash.scenarios import Scenario, make_scenarios, snapshot
from tests.crash.workers import adopt_orphans, wait_for_orphans


def check(scenario: Scenario, root: Path, every: int) -> dict[str, object]:
    """Kill one scenario; what went wrong, by event."""
    first = root / "undisturbed"
    first.mkdir()
    run(scenario.before, first)
    code, events = run(scenario.work, first)
    assert code == 0
    expected = snapshot(first)
    wrong: dict[int, str] = {}
    fatal_events = range(1, events + 1, every)
    for fatal in fatal_events:
        place = root / "killed"
        place.mkdir()
        try:
            run(scenario.before, place)
            code, _ = run(scenario.work, place, fatal)
            if code != KILLED:
                raise AssertionError(f"was not killed, but ended with {code}")
            run(scenario.whole, place)
            run(scenario.work, place)
            wait_for_orphans()
            _assert_same(snapshot(place), expected)
        except AssertionError as error:
            wrong[fatal] = str(error)
            wait_for_orphans()
        shutil.rmtree(place)
    shutil.rmtree(first)
    return {"scenario": scenario.name, "events": events, "kills": len(fatal_events), "wrong": wrong}


def _assert_same(found: dict[str, object], expected: dict[str, object]) -> None:
    left = sorted(found.keys() - expected.keys())
    lost = sorted(expected.keys() - found.keys())
    other = sorted(name for name in found.keys() & expected.keys() if found[name] != expected[name])
    assert not (left or lost or other), f"left behind: {left}; lost: {lost}; other bits: {other}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="kill at every N-th event only")
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    args = parser.parse_args()
    bad = 0
    adopt_orphans()
    for scenario in make_scenarios():
        if args.only in scenario.name:
            with tempfile.TemporaryDirectory() as folder:
                result = check(scenario, Path(folder), args.every)
            bad += bool(result["wrong"])
            print(json.dumps(result), flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
