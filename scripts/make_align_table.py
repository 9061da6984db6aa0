"""Write what `benchmarks/align.py` measured of speed and growth into docs/align.md.

python scripts/make_align_table.py            # rewrite the tables
python scripts/make_align_table.py --check    # exit 1 if they are out of date
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from statistics import median

from marked import DOCS, mark, parser, put, rewrite

PAGE, MEASURED = DOCS / "align.md", DOCS / "measured" / "align.json"
START = mark("make_align_table", "speed")
GROWTH = mark("make_align_table", "growth")


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """As Markdown has it."""
    columns = list(columns)
    lines = [columns, ["---"] * len(columns), *map(list, rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def render(page: str) -> str:
    """The page with fresh tables."""
    found = json.loads(MEASURED.read_text(encoding="utf-8"))
    speed = [
        [
            row["what"],
            f"{median(row['CPU seconds']):.2f}",
            f"{min(row['CPU seconds']):.2f} to {max(row['CPU seconds']):.2f}",
        ]
        for row in found["speed"]
    ]
    growth = [
        [str(row["width"]), f"{row['permutations']:.2f}", f"{row['whole group, planted']:.2f}"]
        for row in found["growth"]
    ]
    page = put(page, START, table(["ResNet20", "CPU seconds, the middle of three", "all three"], speed))
    columns = ["width", "permutations, unrelated models, CPU seconds", "whole group, planted, CPU seconds"]
    return put(page, GROWTH, table(columns, growth))


if __name__ == "__main__":
    sys.exit(rewrite(PAGE, render, parser(__doc__).parse_args().check))
