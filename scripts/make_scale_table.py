"""Write what `benchmarks/scale.py` measured into docs/models.md.

python scripts/make_scale_table.py            # rewrite the table
python scripts/make_scale_table.py --check    # exit 1 if it is out of date
"""

from __future__ import annotations

import json
import sys
from typing import Any

from marked import DOCS, mark, parser, put, rewrite

PAGE, MEASURED = DOCS / "models.md", DOCS / "measured" / "scale.json"
START = mark("make_scale_table")
STEPS = ("load", "inspect", "verify", "act", "merge", "save", "align")
ASKED, LARGER = (0.01, 0.1, 1.1), 7.0


def table(rows: dict[str, Any]) -> str:
    """CPU seconds of each step and the peak of all; what 7 billion would take, by the two largest."""
    found = sorted(rows.values(), key=lambda row: float(row["billions"]))
    lines = ["| billions | " + " | ".join(f"{step}, CPU s" for step in STEPS) + " | peak GB | error |"]
    lines += ["|---" * (len(STEPS) + 3) + "|"]
    lines += [_line(f"{row['billions']:.2g}", row, f"{row['error']:.0e}") for row in found]
    if len(found) > 1 and found[-1]["billions"] > 1:  # from less, 7 would be a guess
        lines.append(_line(f"{LARGER:g}, extrapolated", _extrapolated(*found[-2:]), ""))
    missing = [f"{size:g}" for size in ASKED if "distance after" not in rows.get(str(size), {})]
    if missing:
        lines += ["", f"Not measured yet, or not to the end: {', '.join(missing)} billion parameters."]
    return "\n".join([*lines, ""])


def _line(name: str, row: dict[str, Any], error: str) -> str:
    seconds = [f"{row[f'CPU s {step}']:.1f}" if f"CPU s {step}" in row else "" for step in STEPS]
    peak = max(value for key, value in row.items() if key.startswith("GB "))
    return "| " + " | ".join([name, *seconds, f"{peak:.1f}", error]) + " |"


def _extrapolated(small: dict[str, Any], large: dict[str, Any]) -> dict[str, Any]:
    """Seconds and bytes on the line through two sizes, and no less than in proportion to the larger one.

    Below some size whole copies are kept, which take more bytes and fewer seconds than the line says.
    """
    share = (LARGER - small["billions"]) / (large["billions"] - small["billions"])
    times = LARGER / large["billions"]
    both = [key for key in small if key in large and key.startswith(("CPU s", "GB "))]
    return {key: max(small[key] + share * (large[key] - small[key]), times * large[key]) for key in both}


def render(page: str) -> str:
    """The page with a fresh table."""
    return put(page, START, table(json.loads(MEASURED.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    sys.exit(rewrite(PAGE, render, parser(__doc__).parse_args().check))
