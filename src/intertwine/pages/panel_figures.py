"""A grid of scatter plots with common axes: one measure against another, best-fit line and rho in each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from intertwine.comparing.statistics import Interval
from intertwine.comparing.trend import Trend

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Points = Sequence[tuple[float, float, str]]


@dataclass(frozen=True)
class Cell:
    """One scatter plot: points by group, and their trend."""

    points: Mapping[str, Points]
    trend: Trend | None


def panel_figure(
    cells: Mapping[tuple[str, str], Cell],
    colours: Mapping[str, str],
    *,
    x_title: str,
    y_title: str,
    y_range: tuple[float, float] | None = None,
) -> Figure:
    """`cells[row, column]`; every group has its colour in all of them, and all share both axes."""
    from plotly.graph_objects import Scatter
    from plotly.subplots import make_subplots

    rows, columns = (list(dict.fromkeys(key[side] for key in cells)) for side in (0, 1))
    figure = make_subplots(
        len(rows), len(columns), shared_xaxes=True, shared_yaxes=True, column_titles=columns, row_titles=rows,
        x_title=x_title, y_title=y_title, horizontal_spacing=0.025, vertical_spacing=0.035,
    )  # fmt: skip
    named: set[str] = set()
    for (row, column), cell in cells.items():
        place = {"row": rows.index(row) + 1, "col": columns.index(column) + 1}
        for group, points in cell.points.items():
            if points:
                figure.add_trace(
                    Scatter(
                        x=[p[0] for p in points], y=[p[1] for p in points], text=[p[2] for p in points],
                        name=group, legendgroup=group, showlegend=group not in named, mode="markers",
                        marker={"color": colours[group], "size": 4, "opacity": 0.6},
                        hovertemplate="%{text}<br>%{x:.3f}, %{y:.3f}<extra></extra>",
                    ), **place,
                )  # fmt: skip
                named.add(group)
        if cell.trend is not None:
            xs = [p[0] for points in cell.points.values() for p in points]
            ends = [min(xs), max(xs)]
            line = [cell.trend.offset + cell.trend.slope.value * end for end in ends]
            figure.add_trace(
                Scatter(x=ends, y=line, mode="lines", name="best fit", legendgroup="best fit",
                        showlegend="best fit" not in named, line={"color": "#d62728", "width": 2}),
                **place,
            )  # fmt: skip
            named.add("best fit")
        figure.add_annotation(
            text=trend_text(cell.trend), showarrow=False, xref="x domain", yref="y domain", x=0.98, y=0.98,
            xanchor="right", yanchor="top", align="right", font={"size": 11},
            bgcolor="white", **place,
        )  # fmt: skip
    figure.update_xaxes(range=[0, 1])
    if y_range is not None:
        figure.update_yaxes(range=list(y_range))
    figure.update_layout(
        template="plotly_white", height=150 + 270 * len(rows), width=160 + 300 * len(columns),
        margin={"l": 80, "r": 50, "t": 50, "b": 100}, font={"family": "system-ui, sans-serif", "size": 12},
        legend={"orientation": "h", "y": 0.0, "yref": "container", "yanchor": "bottom", "x": 0.5,
                "xanchor": "center", "itemsizing": "constant"},
    )  # fmt: skip
    return figure


def trend_text(trend: Trend | None) -> str:
    """What stands in a panel: slope, rho with its interval, and how many pairs."""
    if trend is None:
        return "no trend: too few pairs, or all alike"
    return f"slope {trend.slope.value:.2f}<br>ρ = {interval_text(trend.rho)}<br>n = {trend.n:,}"


def interval_text(found: Interval | None) -> str:
    """A value with its interval, where there is one.

    >>> interval_text(Interval(-0.721, -0.8, -0.6)), interval_text(Interval(0.5, math.nan, math.nan))
    ('-0.72 [-0.80, -0.60]', '0.50')
    """
    if found is None:
        return "-"
    bounds = "" if math.isnan(found.low) else f" [{found.low:.2f}, {found.high:.2f}]"
    return f"{found.value:.2f}{bounds}"
