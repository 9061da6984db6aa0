"""Write what `benchmarks/dimension_nets.py` measured into docs/dimension.md.

python scripts/make_dimension_table.py            # rewrite the table
python scripts/make_dimension_table.py --check    # exit 1 if it is out of date
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, MEASURED = DOCS / "dimension.md", DOCS / "measured" / "dimension-nets.json"
START, END = "<!-- table: made by scripts/make_dimension_table.py -->", "<!-- end of table -->"
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
    lines += ["", "| kind | in nets | directions |", "|---|---|---|"]
    lines += [f"| `{kind}` | {count} | {directions[kind]:,} |" for kind, count in found.most_common()]
    lines += ["", "Not explained:", "", "| net | directions without a name |", "|---|---|"]
    for net in nets:
        left = [f"{count} `{kind}`" for kind, count, _ in net["directions"] if kind in MISSED]
        if net["verdict"] == "open":
            lines.append(f"| {net['net']} | {', '.join(left)} |")
    return "\n".join([*lines, ""])


def render(page: str) -> str:
    """The page with a fresh table."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    return f"{before}{START}\n{table(measured)}{END}{after}"


def main() -> int:
    """Rewrite or check."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--check", action="store_true")
    old = PAGE.read_text(encoding="utf-8")
    new = render(old)
    if parser.parse_args().check:
        return int(old != new)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
