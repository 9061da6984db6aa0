"""Rows -> Markdown: totals, then one line a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from intertwine.surveying.surveys import Row


def render(title: str, rows: Sequence[Row]) -> str:
    """A section with totals and a table.

    >>> print(render("zoo", [Row("zoo:mlp", "exact", 10, 1e-16, 0.5, 1.0, 2)]).splitlines()[2])
    1 of 1 models exact, 0 failed; median parameter coverage 1.000.
    """
    good = [r for r in rows if r.status in ("exact", "same")]
    seen = [r.parameter_coverage for r in rows if r.parameter_coverage is not None]
    failed = [r for r in rows if r.status == "failed"]
    wrong = [r for r in rows if r.status == "wrong"]
    unproved = [r for r in rows if r.status == "unproved"]
    lines = [f"## {title}", ""]
    text = f"{len(good)} of {len(rows)} models exact, {len(failed)} failed"
    text += f", {len(unproved)} unproved" if unproved else ""
    text += f", {len(wrong)} WRONG" if wrong else ""
    text += f"; median parameter coverage {median(seen):.3f}." if seen else "."
    lines += [text, ""]
    if any(r.status == "same" for r in rows):
        same = sum(r.status == "same" for r in rows)
        lines += [f"{same} of them have the module and the ops of another row and were not run.", ""]
    seconds = [r.seconds for r in rows if r.seconds]
    if seconds:
        whole = median(sum(s.values()) for s in seconds)
        share = median(s["infer"] / max(sum(s.values()), 1e-9) for s in seconds)
        lines += [f"Median seconds a model: {whole:.1f}, of which inference {share:.1%}.", ""]
    ops = Counter(op for r in rows for op in r.unknown_ops)
    if ops:
        lines += [
            "Ops without a rule: " + ", ".join(f"`{op}` ({n})" for op, n in ops.most_common()) + ".",
            "",
        ]
    lines += [
        "| model | status | error | control | coverage | axes | notes |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_line(r) for r in rows]
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    notes = [row.error] if row.error else []
    if row.like:
        notes.append(f"same ops as {row.like}")
    notes += [f"no rule for {op}" for op in row.unknown_ops]
    reasons = Counter(reason.split(" (")[0] for reason in row.frozen.values())
    notes += [f"{n} frozen: {reason}" for reason, n in reasons.most_common(2)]
    cells = [
        row.model,
        row.status,
        "" if row.max_error is None else f"{row.max_error:.0e}",
        "" if row.control_error is None else f"{row.control_error:.0e}",
        "" if row.parameter_coverage is None else f"{row.parameter_coverage:.3f}",
        str(row.axes or ""),
        "; ".join(notes).replace("|", "/"),
    ]
    return "| " + " | ".join(cells) + " |"
