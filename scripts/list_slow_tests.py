"""Write tests/slow.txt from what `pytest --durations=0` printed: the tests that `make check` leaves out.

make test ARGS=--durations=0 | python scripts/list_slow_tests.py           # anew
make quick ARGS=--durations=0 | python scripts/list_slow_tests.py --more   # those too that became slow since

What a module sets up once is charged to the first of its tests that runs, so after a listing the next one may
be slow: `--more` until it finds none.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

SECONDS = 0.5  # all cases of a test together, with what is set up for it


def slow_tests(lines: list[str]) -> list[str]:
    """Tests that take longer, without the names of their cases."""
    spent = Counter[str]()
    for line in lines:
        if found := re.match(r"([\d.]+)s (?:call|setup|teardown)\s+(tests/[^\s\[]+)", line):
            spent[found[2]] += float(found[1])
    return sorted(name for name, seconds in spent.items() if seconds > SECONDS)


if __name__ == "__main__":
    slow = slow_tests(sys.stdin.readlines())
    target = Path(__file__).parents[1] / "tests" / "slow.txt"
    if "--more" in sys.argv:
        slow = sorted({*slow, *target.read_text(encoding="utf-8").split()})
    target.write_text("\n".join(slow) + "\n", encoding="utf-8")
    print(f"{len(slow)} slow tests")
