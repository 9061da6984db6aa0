"""The page of a sweep: the spread of every quantity, and what failed."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from intertwine.pages.page import Page

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from intertwine.sweeping.run import SweepReport

_FRAME = {"template": "plotly_white", "margin": {"l": 60, "r": 20, "t": 30, "b": 50}, "height": 420}
_MOST = 12  # quantities that get a picture


def sweep_page(report: SweepReport, facts: Mapping[str, Any] | None = None) -> Page:
    """The spread of every quantity, and what failed."""
    page = Page("A sweep")
    (table,) = report.tables()
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    failed = f", {len(report.failed)} failed" if report.failed else ", none failed"
    page.finding(f"{report.tasks} tasks{failed}: {len(rows):,} numbers.")
    page.facts({**(facts or {}), "table": str(report.table)})
    if report.failed:
        page.section("What failed")
        page.table(["task", "why"], list(report.failed.items()))
    groups: dict[str, list[float]] = {}
    for row in rows:
        value = row.get("value")
        if isinstance(value, (int, float)):
            groups.setdefault(_quantity(row), []).append(float(value))
    if groups:
        page.section("Every quantity over all tasks")
        page.figure(_spread(groups), f"A point a number; the first {_MOST} quantities.")
        columns = ["quantity", "numbers", "mean", "standard deviation", "least", "most"]
        page.table(columns, [[name, *_summary(values)] for name, values in groups.items()])
    page.section("All numbers", folded=True)
    page.table(table.columns, table.rows)
    return page


def _quantity(row: Mapping[str, Any]) -> str:
    return " ".join(str(row[name]) for name in ("kind", "quantity") if row.get(name)) or "value"


def _summary(values: list[float]) -> list[Any]:
    spread = stdev(values) if len(values) > 1 else None
    return [len(values), fmean(values), spread, min(values), max(values)]


def _spread(groups: Mapping[str, list[float]]) -> Figure:
    import plotly.graph_objects as go

    figure = go.Figure(layout=_FRAME)
    for name, values in list(groups.items())[:_MOST]:
        figure.add_box(y=values, name=name, boxpoints="all", jitter=0.4)
    figure.update_layout(showlegend=False, yaxis_title="value")
    return figure
