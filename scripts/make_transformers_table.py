"""Write the tables of docs/merge.md about transformers, from docs/measured/merge_transformers.json.

python scripts/make_transformers_table.py            # rewrite the tables
python scripts/make_transformers_table.py --check    # exit 1 if they are out of date
"""

from __future__ import annotations

import json
import sys
from typing import Any

from marked import DOCS, mark, parser, put, rewrite

PAGE, MEASURED = DOCS / "merge.md", DOCS / "measured" / "merge_transformers.json"
WIDE = DOCS / "measured" / "eliminate.json"
START = mark("make_transformers_table")
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
    return [*lines, "", *differences(name, rows, shares)]


def differences(name: str, rows: list[dict[str, Any]], shares: list[float]) -> list[str]:
    """How far losses are from the whole model's on the same windows, held out and seen in training."""
    known = {(r["method"], r["share"]): r["off"] for r in rows if "off" in r}
    if not known:
        return []

    def text(key: tuple[str, float]) -> str:
        found = [known[key][text] for text in ("held", "seen")] if key in known else []
        return " / ".join(f"{off:+.5f} ± {half:.5f}" for off, half in found)

    lines = [
        f"`{name}`, loss less that of the whole model on the same windows, ± 95 %: held out / trained on.",
        "",
    ]
    lines += [f"| | {' | '.join(f'{s:.0%}' for s in shares)} |", "|---" * (len(shares) + 1) + "|"]
    for method in dict.fromkeys(method for method, _ in known):
        lines.append(f"| {method} | {' | '.join(text((method, s)) for s in shares)} |")
    return [*lines, ""]


def tables(measured: dict[str, Any]) -> str:
    """Every model that was measured."""
    lines: list[str] = []
    for name, whole in measured["whole"].items():
        rows = [r for r in measured["rows"].values() if r["model"] == name]
        if rows:
            lines += table(name, whole, rows)
    return "\n".join(lines)


def elimination(measured: dict[str, Any]) -> str:
    """What one wide axis costs."""
    widths = " | ".join(f"{row['width']:,}" for row in measured["rows"])
    seconds = " | ".join(f"{row['seconds']:.1f}" for row in measured["rows"])
    lines = [f"| channels | {widths} |", "|---" * (len(measured["rows"]) + 1) + "|"]
    text = "Eliminating all channels of one axis (`python benchmarks/eliminate.py`), one thread:"
    return "\n".join([text, "", *lines, f"| CPU s | {seconds} |", ""])


def render(page: str) -> str:
    """The page with fresh tables."""
    found, wide = (json.loads(file.read_text(encoding="utf-8")) for file in (MEASURED, WIDE))
    return put(page, START, "\n" + tables(found) + "\n" + elimination(wide))


if __name__ == "__main__":
    sys.exit(rewrite(PAGE, render, parser(__doc__).parse_args().check))
