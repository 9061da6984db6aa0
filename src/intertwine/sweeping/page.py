"""The page of a sweep: the spread of every quantity, and what failed."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, stdev
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from intertwine.checks import checked
from intertwine.pages.page import Page

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from intertwine.sweeping.run import SweepReport

_FRAME = {"template": "plotly_white", "margin": {"l": 60, "r": 20, "t": 30, "b": 50}, "height": 420}
_MOST, _TOLD, _COLUMNS = 12, 3, 3  # quantities that get a picture, that the finding names; pictures in a row


@checked
def sweep_page(report: SweepReport, facts: Mapping[str, Any] | None = None) -> Page:
    """The spread of every quantity, and what failed."""
    page = Page("A sweep")
    (table,) = report.tables()
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    failed = f", {len(report.failed)} failed" if report.failed else ", none failed"
    page.facts({**(facts or {}), "table": str(report.table)})
    if report.failed:
        page.section("What failed")
        page.table(["task", "why"], list(report.failed.items()))
    groups: dict[str, list[float]] = {}
    for row in _last_epochs(rows):
        value = row.get("value")
        if isinstance(value, (int, float)):
            groups.setdefault(_quantity(row), []).append(float(value))
    found = "; ".join(_in_words(name, values) for name, values in list(groups.items())[:_TOLD])
    page.finding(f"{report.tasks} tasks{failed}{': ' if found else ''}{found}.")
    if groups:
        page.section("Every quantity over all tasks")
        page.figure(_spread(groups), f"A point a number; the first {_MOST}, each on its own scale.")
        columns = ["quantity", "numbers", "mean", "standard deviation", "least", "most"]
        page.table(columns, [[name, *_summary(values)] for name, values in groups.items()])
    page.section("All numbers", folded=True)
    page.table(table)
    return page


def _last_epochs(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What came out of every task, not the way there."""
    last: dict[Any, int] = {}
    for row in rows:
        last[row.get("task")] = max(last.get(row.get("task"), 0), row.get("epoch") or 0)
    return [row for row in rows if not row.get("epoch") or row["epoch"] == last[row.get("task")]]


def _in_words(name: str, values: list[float]) -> str:
    spread = f" ± {stdev(values):.2g} (deviation of {len(values)})" if len(values) > 1 else ""
    return f"{name} {fmean(values):.3g}{spread}"


def _quantity(row: Mapping[str, Any]) -> str:
    return " ".join(str(row[name]) for name in ("kind", "quantity") if row.get(name)) or "value"


def _summary(values: list[float]) -> list[Any]:
    spread = stdev(values) if len(values) > 1 else None
    return [len(values), fmean(values), spread, min(values), max(values)]


def _spread(groups: Mapping[str, list[float]]) -> Figure:
    """A small picture for each, since a loss and an accuracy have no scale in common."""
    from plotly.subplots import make_subplots

    shown = list(groups.items())[:_MOST]
    rows = -(-len(shown) // _COLUMNS)
    # a column of a telephone takes ten letters
    titles = ["<br>".join(wrap(name.replace("_", " "), 10, break_long_words=False)) for name, _ in shown]
    columns = min(_COLUMNS, len(shown))
    figure = make_subplots(rows, columns, subplot_titles=titles, vertical_spacing=0.3 / rows)
    for k, (name, values) in enumerate(shown):
        place = {"row": k // _COLUMNS + 1, "col": k % _COLUMNS + 1}
        points = {"boxpoints": "all", "jitter": 0.4, "marker_color": "#2f6fde"}
        figure.add_box(y=values, name="", hovertext=name, **points, **place)
    figure.update_layout(**{**_FRAME, "height": 90 + 290 * rows}, showlegend=False)
    figure.update_annotations(font_size=12)
    return figure
