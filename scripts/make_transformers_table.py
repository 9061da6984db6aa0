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
OURS = "all kinds"
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
    lines += [f"| | {' | '.join(percent(s) for s in shares)} | CPU s |"]
    lines += ["|---" * (len(shares) + 2) + "|"]
    for method in dict.fromkeys(r["method"] for r in rows):
        own = {r["share"]: r for r in rows if r["method"] == method}
        seconds = sum(r.get("seconds", 0.0) for r in own.values())
        cells = [cell(own.get(s)) for s in shares]
        if set(cells) != {"cannot"}:
            lines.append(f"| {method} | {' | '.join(cells)} | {seconds:.0f} |")
    return [*lines, "", *against_ours(name, rows, shares), *against_whole(name, rows, shares)]


def against_ours(name: str, rows: list[dict[str, Any]], shares: list[float]) -> list[str]:
    """How much more others lose than all kinds do on the same inputs, and how often that is chance."""
    known = {(r["method"], r["share"]): r["behind"] for r in rows if "behind" in r}
    others = {key: found for key, found in known.items() if not key[0].startswith(OURS)}
    if not others:
        return []
    ahead = [f"{m} at {percent(s)}" for (m, s), (more, half) in others.items() if more < -half]
    chance = [f"{m} at {percent(s)}" for (m, s), (more, half) in others.items() if abs(more) <= half]
    better = len(others) - len(ahead) - len(chance)
    counted = f"Of {len(others)} others all kinds are better than {better}"
    counted += f", as good as {len(chance)} ({', '.join(chance)})" if chance else ""
    counted += f", worse than {len(ahead)} ({', '.join(ahead)})" if ahead else ""
    what = f"`{name}`, what is lost more than with all kinds on the same inputs, ± 95 %. {counted}."
    texts = {key: f"{more:+.5f} ± {half:.5f}" for key, (more, half) in known.items()}
    return [what, "", *grid(texts, shares), ""]


def against_whole(name: str, rows: list[dict[str, Any]], shares: list[float]) -> list[str]:
    """How far losses are from the whole model's on the same windows, held out and seen in training."""
    known = {(r["method"], r["share"]): r["off"] for r in rows if "off" in r}
    if not known:
        return []
    texts = {
        key: " / ".join(f"{off:+.5f} ± {half:.5f}" for off, half in (found["held"], found["seen"]))
        for key, found in known.items()
    }
    what = f"`{name}`, loss less that of the whole model on the same windows, ± 95 %: held out / trained on."
    return [what, "", *grid(texts, shares), ""]


def grid(texts: dict[tuple[str, float], str], shares: list[float]) -> list[str]:
    """A line a method, a column a share."""
    methods = dict.fromkeys(method for method, _ in texts)
    lines = (f"| {m} | {' | '.join(texts.get((m, s), '') for s in shares)} |" for m in methods)
    head = f"| | {' | '.join(percent(s) for s in shares)} |"
    return [head, "|---" * (len(shares) + 1) + "|", *lines]


def percent(share: float) -> str:
    """Without a zero behind the point."""
    return f"{share:.1%}".replace(".0%", "%")


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
