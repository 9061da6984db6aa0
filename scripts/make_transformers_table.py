"""Write the tables of docs/merge.md about transformers, from docs/measured/merge_transformers.json.

python scripts/make_transformers_table.py            # rewrite the tables
python scripts/make_transformers_table.py --check    # exit 1 if they are out of date
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, MEASURED = DOCS / "merge.md", DOCS / "measured" / "merge_transformers.json"
START, END = "<!-- table: made by scripts/make_transformers_table.py -->", "<!-- end of table -->"
FORMS = {"loss": "{:.4f}", "accuracy": "{:.2%}", "cosine": "{:.3f}", "rank": "{:.3f}"}


def cell(row: dict[str, Any] | None) -> str:
    """What was measured, or why there is nothing."""
    if row is None:
        return ""
    if "cannot" in row:
        return "cannot"
    return " / ".join(form.format(row[name]) for name, form in FORMS.items() if name in row)


def table(name: str, whole: dict[str, Any], rows: list[dict[str, Any]]) -> list[str]:
    """One model: a line a method, a column a share."""
    shares = sorted({r["share"] for r in rows}, reverse=True)
    kinds = " / ".join(kind for kind in FORMS if kind in whole)
    lines = [f"`{name}`, {kinds}: {cell(whole)} whole, {whole['parameters']:,} parameters.", ""]
    lines += [f"| | {' | '.join(f'{s:.1%}'.replace('.0%', '%') for s in shares)} | CPU s |"]
    lines += ["|---" * (len(shares) + 2) + "|"]
    for method in dict.fromkeys(r["method"] for r in rows):
        own = {r["share"]: r for r in rows if r["method"] == method}
        seconds = sum(r.get("seconds", 0.0) for r in own.values())
        cells = [cell(own.get(s)) for s in shares]
        if set(cells) != {"cannot"}:
            lines.append(f"| {method} | {' | '.join(cells)} | {seconds:.0f} |")
    return [*lines, ""]


def tables(measured: dict[str, Any]) -> str:
    """Every model that was measured."""
    lines: list[str] = []
    for name, whole in measured["whole"].items():
        rows = [r for r in measured["rows"].values() if r["model"] == name]
        if rows:
            lines += table(name, whole, rows)
    return "\n".join(lines)


def render(page: str) -> str:
    """The page with fresh tables."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    none: dict[str, Any] = {"whole": {}, "rows": {}}
    measured = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.is_file() else none
    return f"{before}{START}\n\n{tables(measured)}{END}{after}"


def main() -> int:
    """Rewrite, or check."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit 1 if the page is out of date")
    args = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    fresh = render(page)
    if args.check:
        return int(fresh != page)
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
