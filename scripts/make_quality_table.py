"""Write what `benchmarks/merge_quality.py` measured into docs/merge.md.

python scripts/make_quality_table.py            # rewrite the tables
python scripts/make_quality_table.py --check    # exit 1 if they are out of date
"""

from __future__ import annotations

import json
import sys
from typing import Any

from marked import DOCS, mark, parser, put, rewrite

PAGE, MEASURED = DOCS / "merge.md", DOCS / "measured" / "merge_quality.json"
START = mark("make_quality_table")


def table(models: dict[str, Any]) -> str:
    """One for each model: the accuracy of every method and repair at every share."""
    parts = [""]
    for name, found in sorted(models.items(), key=lambda item: int(item[1]["parameters"])):
        parts += [
            f"{name}: {found['accuracy']:.2%} of {found['images']:,} images, {found['parameters']:,} "
            f"parameters (repair from {found['unlabelled']:,} other images).",
            "",
            "| method | repair | " + " | ".join(f"{s:.0%}" for s in found["shares"]) + " | plan, CPU s |",
            "|---" * (len(found["shares"]) + 3) + "|",
        ]
        for combination, row in found["rows"].items():
            cells = [*combination.split("+"), *(f"{a:.2%}" for a in row["accuracy"]), f"{row['seconds']:.1f}"]
            parts.append(f"| {' | '.join(cells)} |")
        parts.append("")
    return "\n".join(parts)


def render(page: str) -> str:
    """The page with fresh tables."""
    return put(page, START, table(json.loads(MEASURED.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    sys.exit(rewrite(PAGE, render, parser(__doc__).parse_args().check))
