"""Figures of a comparison: heat maps of layers, curves over matched layers, scatter with a fitted line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intertwine.comparing.comparison import Comparison
from intertwine.comparing.measures import MEASURES

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_COLOURS = ("#0b6e99", "#d1495b", "#3a7d44", "#8f5fbf", "#c77d0a", "#4a5568", "#009e8e", "#b5179e")


def title_of(measure: str) -> str:
    """The name people know a measure by."""
    return MEASURES[measure].title if measure in MEASURES else measure


def heat_map(
    grid: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str = "",
    row_title: str = "",
    column_title: str = "",
    value_title: str = "",
    low: float | None = 0.0,
    high: float | None = 1.0,
) -> Figure:
    """A matrix of similarities; rows run downwards, `value_title` names what the colours are.

    An undefined entry is left blank.
    """
    from plotly.graph_objects import Figure, Heatmap

    trace = Heatmap(
        z=[[None if np.isnan(v) else float(v) for v in row] for row in grid],
        x=list(range(len(columns))),
        y=list(range(len(rows))),
        customdata=[[[p, q] for q in columns] for p in rows],
        hovertemplate="%{customdata[0]} with %{customdata[1]}: %{z:.4f}<extra></extra>",
        colorscale="Viridis",
        colorbar={"title": {"text": value_title}},
        zmin=low,
        zmax=high,
    )
    figure = Figure(trace)
    ticks = {"tickmode": "array", "tickfont": {"size": 10}, "showgrid": False, "zeroline": False}
    figure.update_xaxes(
        tickvals=list(range(len(columns))), ticktext=list(columns), tickangle=-60, title=column_title
    )
    figure.update_yaxes(
        tickvals=list(range(len(rows))), ticktext=list(rows), autorange="reversed", title=row_title
    )
    figure.update_xaxes(**ticks)
    figure.update_yaxes(**ticks)
    side = max(420, min(900, 22 * max(len(rows), len(columns)) + 200))
    figure.update_layout(width=side + 140)
    return _styled(figure, title, height=side)


def curves(series: Mapping[str, Sequence[float]], labels: Sequence[str], **options: Any) -> Figure:
    """Lines over layers or steps; `bands` maps a series to (lows, highs), `title`, `x_title`, `y_title`."""
    from plotly.graph_objects import Figure, Scatter

    figure = Figure()
    bands: Mapping[str, tuple[Sequence[float], Sequence[float]]] = options.get("bands") or {}
    for i, (name, values) in enumerate(series.items()):
        colour = _COLOURS[i % len(_COLOURS)]
        error = None
        if name in bands:
            lows, highs = bands[name]
            up = [h - v for h, v in zip(highs, values, strict=True)]
            down = [v - l for v, l in zip(values, lows, strict=True)]
            error = {"type": "data", "array": up, "arrayminus": down, "symmetric": False, "thickness": 1.2}
        line = {"color": colour, "width": 2}
        figure.add_trace(
            Scatter(x=list(labels), y=list(values), name=name, mode="lines+markers", line=line, error_y=error)
        )
    figure.update_xaxes(title=options.get("x_title", ""), tickangle=-60, type="category")
    figure.update_yaxes(title=options.get("y_title", "similarity"))
    return _styled(figure, options.get("title", ""), height=440)


def lines(
    series: Mapping[str, tuple[Sequence[float] | np.ndarray, Sequence[float] | np.ndarray]],
    *,
    x_title: str,
    y_title: str,
    log: bool = False,
    bands: Mapping[str, tuple[Sequence[float], Sequence[float]]] | None = None,
) -> Figure:
    """Lines over a quantity that is a number; `log` for a logarithmic axis, `bands` as in `curves`."""
    from plotly.graph_objects import Figure, Scatter

    figure = Figure()
    for i, (name, (xs, ys)) in enumerate(series.items()):
        line = {"color": _COLOURS[i % len(_COLOURS)], "width": 2}
        error = None
        if bands and name in bands:
            lows, highs = (np.asarray(bound) for bound in bands[name])
            up, down = (highs - np.asarray(ys)).tolist(), (np.asarray(ys) - lows).tolist()
            error = {"type": "data", "array": up, "arrayminus": down, "symmetric": False, "thickness": 1.2}
        points = {"x": list(map(float, xs)), "y": list(map(float, ys))}
        figure.add_trace(Scatter(**points, name=name, mode="lines+markers", line=line, error_y=error))
    figure.update_xaxes(title=x_title, type="log" if log else "linear")
    figure.update_yaxes(title=y_title)
    return _styled(figure, "", height=440)


def bars(
    counts: Mapping[str, Sequence[float]], labels: Sequence[str], *, x_title: str, y_title: str
) -> Figure:
    """Bars side by side, one colour a series."""
    from plotly.graph_objects import Bar, Figure

    colours = [_COLOURS[i % len(_COLOURS)] for i in range(len(counts))]
    figure = Figure([
        Bar(x=list(labels), y=list(values), name=name, marker={"color": colour})
        for (name, values), colour in zip(counts.items(), colours, strict=True)
    ])  # fmt: skip
    figure.update_xaxes(title=x_title, type="category")
    figure.update_yaxes(title=y_title)
    return _styled(figure, "", height=440)


def scatter(
    groups: Mapping[str, Sequence[tuple[float, float, str]]],
    *,
    x_title: str,
    y_title: str,
    fit: str | None = None,
    halves: Mapping[str, Sequence[float]] | None = None,
) -> Figure:
    """Points (x, y, label) by group; a least-squares line through the group `fit`.

    halves: by group, half of the interval of every y.
    """
    from plotly.graph_objects import Figure, Scatter

    figure = Figure()
    for i, (name, points) in enumerate(groups.items()):
        xs, ys, labels = [p[0] for p in points], [p[1] for p in points], [p[2] for p in points]
        marker = {"color": _COLOURS[i % len(_COLOURS)], "size": 8, "opacity": 0.8}
        bars = halves.get(name) if halves else None
        error = {"type": "data", "array": list(bars), "thickness": 1.2} if bars else None
        figure.add_trace(
            Scatter(x=xs, y=ys, text=labels, name=name, mode="markers", marker=marker, error_y=error)
        )
        if name == fit and len(set(xs)) > 1:
            slope, offset = np.polyfit(xs, ys, 1)
            ends = [min(xs), max(xs)]
            line = {"color": "#d1495b", "width": 1.5}
            figure.add_trace(
                Scatter(
                    x=ends,
                    y=[slope * e + offset for e in ends],
                    mode="lines",
                    name=f"slope {slope:.2f}",
                    line=line,
                )
            )
    figure.update_xaxes(title=x_title)
    figure.update_yaxes(title=y_title)
    return _styled(figure, "", height=460)


def comparison_heat_map(comparison: Comparison, measure: str, name_a: str = "A", name_b: str = "B") -> Figure:
    """Layers of A (down) against layers of B (across) under one measure."""
    low, high = MEASURES[measure].range if measure in MEASURES else (0, 1)
    return heat_map(
        comparison.values[measure],
        comparison.layers_a,
        comparison.layers_b,
        row_title=name_a,
        column_title=name_b,
        low=max(low, 0),
        high=high,
    )


def matched_curves(comparison: Comparison) -> Figure:
    """Every measure over matched layers, with intervals where they exist."""
    series, bands = {}, {}
    for measure in comparison.measures:
        matched = comparison.matched(measure)
        values = [value for _, _, value in matched]
        series[title_of(measure)] = values
        known = comparison.intervals.get(measure, {})
        if known:
            lows = [known[p].low if p in known else v for p, _, v in matched]
            highs = [known[p].high if p in known else v for p, _, v in matched]
            bands[title_of(measure)] = (lows, highs)
    return curves(series, comparison.layers_a, bands=bands, x_title="layer of A")


def _styled(figure: Figure, title: str, *, height: int) -> Figure:
    figure.update_layout(
        title={"text": title, "font": {"size": 15}},
        template="plotly_white",
        height=height,
        margin={"l": 80, "r": 30, "t": 50 if title else 40, "b": 80},
        font={"family": "system-ui, sans-serif", "size": 12},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 1, "xanchor": "right"},
    )
    figure.update_xaxes(automargin=True)
    figure.update_yaxes(automargin=True)
    return figure
