"""Write what `benchmarks/dimension_nets.py` and `dimension_checkpoints.py` measured into docs/dimension.md.

python scripts/make_dimension_table.py            # rewrite the table
python scripts/make_dimension_table.py --check    # exit 1 if it is out of date
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

from marked import DOCS, mark, parser, put, rewrite

PAGE, MEASURED = DOCS / "dimension.md", DOCS / "measured" / "dimension-nets.json"
START = mark("make_dimension_table")
CHECKPOINTS = DOCS / "measured" / "dimension-checkpoints.json"
REAL = mark("make_dimension_table", "checkpoints")
MISSED = ("channel", "axis", "open")
VERDICTS = ("complete", "explained", "open", "unsure")


def table(measured: dict[str, Any]) -> str:
    """Verdicts, then in how many nets each kind of direction was found, and how many directions in all."""
    nets = list(measured["nets"].values())
    verdicts = Counter(net["verdict"] for net in nets)
    lines = ["| nets | " + " | ".join(VERDICTS) + " |", "|---" * (len(VERDICTS) + 1) + "|"]
    lines += [f"| {len(nets)} | " + " | ".join(str(verdicts[v]) for v in VERDICTS) + " |"]
    found, directions = Counter[str](), Counter[str]()
    for net in nets:
        found.update({kind for kind, _, _ in net["directions"]})
        for kind, count, _ in net["directions"]:
            directions[kind] += count
    ranked = sorted(found.items(), key=lambda row: (-row[1], row[0]))  # a set has no order of its own
    lines += ["", "| kind | in nets | directions |", "|---|---|---|"]
    lines += [f"| `{kind}` | {count} | {directions[kind]:,} |" for kind, count in ranked]
    lines += ["", "Not explained:", "", "| net | directions without a name |", "|---|---|"]
    for net in nets:
        left = [f"{count} `{kind}`" for kind, count, _ in net["directions"] if kind in MISSED]
        if net["verdict"] == "open":
            lines.append(f"| {net['net']} | {', '.join(left)} |")
    return "\n".join([*lines, ""])


def checkpoints(measured: dict[str, Any]) -> str:
    """Axes of each checkpoint, trained and as it was drawn."""
    columns = (
        "checkpoint",
        "axis (group)",
        "weights",
        "channels",
        "missed below",
        "numbers",
        "orbit",
        "rank",
    )
    columns += ("verdict", "directions")
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for name, axes in measured.items():
        for axis, found in axes.items():
            rows = {kind: found[kind] for kind in ("trained", "drawn") if kind in found}
            lines += [
                f"| {name} | {axis} ({row['group']}) | {kind} | {cells(row)} |" for kind, row in rows.items()
            ]
    return "\n".join([*lines, ""])


def cells(row: dict[str, Any]) -> str:
    """What was looked at, and what was found."""
    kinds = Counter[str]()
    for kind, count, _ in row["directions"]:
        kinds[kind] += count
    named = ", ".join(f"{count:,} `{kind}`" for kind, count in kinds.items()) or "-"
    numbers = [f"{row[cell]:,}" for cell in ("parameters", "orbit", "rank")]
    seen = [f"{row['channels']} of {row['of']}", f"{row['missed_below']:.0%}"]
    return " | ".join([*seen, *numbers, row["verdict"], named])


def render(page: str) -> str:
    """The page with fresh tables."""
    page = put(page, START, table(json.loads(MEASURED.read_text(encoding="utf-8"))))
    return put(page, REAL, checkpoints(json.loads(CHECKPOINTS.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    sys.exit(rewrite(PAGE, render, parser(__doc__).parse_args().check))
