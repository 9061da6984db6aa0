"""Plotly figures of an equivalence class: surface, contour, epsilon-set, iso-surface, embedding, topology."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from intertwine.errors import InputError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from intertwine.exploring import Landscape, Topology
    from intertwine.exploring.orbit import Orbit

# The colours of theta_0 ... theta_4 (captions of figures 1, 3 and 4 of GENNI), then one for what comes after.
MARK_COLOURS = ("#d62728", "#9467bd", "#e6b800", "#8c564b", "#1f77b4", "#444444")
SCALE = "Viridis"
# Far enough back that the corners of the box are in the picture.
CAMERA = {"eye": {"x": 1.6, "y": 1.6, "z": 1.1}}
# More points than this make a browser slow and a picture no clearer.
MAX_DRAWN = 60_000
_BAR = {"thickness": 14, "exponentformat": "power"}  # narrow, so that a telephone shows more of the picture


def surface_figure(landscape: Landscape) -> Figure:
    """The value over a two-dimensional plane as a surface, linear scale (figure 1a)."""
    import plotly.graph_objects as go

    _need_dim(landscape, 2)
    c1, c2 = landscape.grid.axes
    top = float(np.quantile(landscape.values, 0.9))
    # The surface is cut at the 90th percentile: J grows with a power of the distance and hides the valley.
    heights = np.minimum(landscape.values, top).T.astype(np.float32)
    figure = go.Figure(
        go.Surface(x=c1, y=c2, z=heights, colorscale=SCALE, colorbar={"title": landscape.name, **_BAR})
    )
    lift = 0.02 * top
    for index, (name, at) in enumerate(zip(landscape.mark_names, landscape.marks, strict=True)):
        figure.add_trace(
            go.Scatter3d(
                x=[at[0]], y=[at[1]], z=[landscape.mark_values[index] + lift], name=name, mode="markers",
                marker={"size": 6, "color": _colour(index)},
            )
        )  # fmt: skip
    scene = {"xaxis_title": "c1", "yaxis_title": "c2", "camera": CAMERA}
    scene["zaxis"] = {"title": landscape.name, "exponentformat": "power"}
    return figure.update_layout(scene=scene, legend={"x": 0, "y": 1}, **_frame(560))


def contour_figure(landscape: Landscape, orbit: Orbit | None = None, epsilon: float | None = None) -> Figure:
    """log10 of the value over a plane, with the epsilon-levels, the marks and the orbit (figure 1b).

    epsilon: a level to draw beside those at which the grid was refined; a grid that is cheap has none.
    """
    import plotly.graph_objects as go

    _need_dim(landscape, 2)
    c1, c2 = landscape.grid.axes
    logs = _logs(landscape).T
    figure = go.Figure(
        go.Contour(
            x=c1, y=c2, z=logs, colorscale=SCALE, ncontours=24, line={"width": 0},
            colorbar={"title": f"log10 {landscape.name}", **_BAR},
        )
    )  # fmt: skip
    for level in sorted({*landscape.levels, *([] if epsilon is None else [epsilon])}):
        figure.add_trace(
            go.Contour(
                x=c1, y=c2, z=logs, showscale=False, name=f"epsilon = {level:.3g}", showlegend=True,
                contours={
                    "type": "constraint", "operation": "=", "value": float(np.log10(level)),
                },
                line={"color": "black", "width": 2},
            )
        )  # fmt: skip
    if orbit is not None:
        _add_orbit(figure, landscape, orbit)
    for index, (name, at) in enumerate(zip(landscape.mark_names, landscape.marks, strict=True)):
        marker = {"size": 11, "color": _colour(index), "line": {"color": "white", "width": 1.5}}
        figure.add_trace(go.Scatter(x=[at[0]], y=[at[1]], name=name, mode="markers", marker=marker))
    ranges = [_range(landscape, axis) for axis in (0, 1)]
    figure.update_xaxes(title="c1", range=ranges[0])
    figure.update_yaxes(title="c2", range=ranges[1])
    return figure.update_layout(legend={"orientation": "h", "y": -0.15}, **_frame(640))


def line_figure(landscape: Landscape) -> Figure:
    """The value along a one-dimensional plane, log scale."""
    import plotly.graph_objects as go

    _need_dim(landscape, 1)
    floor = 10 ** float(_logs(landscape).min())
    figure = go.Figure(
        go.Scatter(x=landscape.grid.axes[0], y=np.maximum(landscape.values, floor), name=landscape.name)
    )
    for index, (name, at) in enumerate(zip(landscape.mark_names, landscape.marks, strict=True)):
        height = max(landscape.mark_values[index], floor)
        marker = {"size": 10, "color": _colour(index)}
        figure.add_trace(go.Scatter(x=[at[0]], y=[height], name=name, mode="markers", marker=marker))
    for level in landscape.levels:
        figure.add_hline(y=level, line={"dash": "dot"}, annotation_text=f"epsilon = {level:.3g}")
    figure.update_yaxes(type="log", title=landscape.name)
    return figure.update_xaxes(title="c1").update_layout(**_frame(480))


def points_figure(landscape: Landscape, epsilon: float) -> Figure:
    """The epsilon-equivalent coefficient set in three dimensions, coloured by the value (figure 2)."""
    import plotly.graph_objects as go

    _need_dim(landscape, 3)
    rows, values = epsilon_set(landscape, epsilon)
    figure = go.Figure(
        go.Scatter3d(
            x=rows[:, 0], y=rows[:, 1], z=rows[:, 2], mode="markers",
            name=f"{landscape.name} < {epsilon:.3g}",
            marker={
                "size": 2.5, "color": values, "colorscale": SCALE, "cmin": 0, "cmax": epsilon,
                "colorbar": {"title": landscape.name}, "opacity": 0.7,
            },
        )
    )  # fmt: skip
    _add_marks_3d(figure, landscape)
    return figure.update_layout(scene=_scene(), legend={"x": 0, "y": 1}, **_frame(640))


def isosurface_figure(landscape: Landscape, epsilon: float) -> Figure:
    """The surface value = epsilon in three dimensions."""
    import plotly.graph_objects as go

    _need_dim(landscape, 3)
    mesh = np.meshgrid(*landscape.grid.axes, indexing="ij")
    level = float(np.log10(epsilon))
    figure = go.Figure(
        go.Isosurface(
            x=mesh[0].ravel().astype(np.float32), y=mesh[1].ravel().astype(np.float32),
            z=mesh[2].ravel().astype(np.float32), value=_logs(landscape).ravel(), isomin=level, isomax=level,
            surface_count=1, colorscale=[[0, "#2a788e"], [1, "#2a788e"]], showscale=False, opacity=0.6,
            caps={"x_show": False, "y_show": False, "z_show": False},
        )
    )  # fmt: skip
    _add_marks_3d(figure, landscape)
    return figure.update_layout(scene=_scene(), legend={"x": 0, "y": 1}, **_frame(640))


def embedding_figure(
    placed: NDArray[np.float64],
    values: NDArray[np.float64],
    names: Sequence[str],
    method: str,
    value_name: str = "J",
) -> Figure:
    """An embedding in two dimensions; the last len(names) rows of `placed` are the marks (figure 3)."""
    import plotly.graph_objects as go

    count = len(placed) - len(names)
    marker = {
        "size": 3,
        "color": values,
        "colorscale": SCALE,
        "colorbar": {"title": value_name},
        "opacity": 0.7,
    }
    figure = go.Figure(
        go.Scatter(
            x=placed[:count, 0], y=placed[:count, 1], mode="markers", name=f"{count} points", marker=marker
        )
    )
    for index, name in enumerate(names):
        at = placed[count + index]
        dot = {"size": 12, "color": _colour(index), "line": {"color": "black", "width": 1}}
        figure.add_trace(go.Scatter(x=[at[0]], y=[at[1]], name=name, mode="markers", marker=dot))
    figure.update_xaxes(title=f"{method} 1").update_yaxes(title=f"{method} 2")
    return figure.update_layout(legend={"orientation": "h", "y": -0.15}, **_frame(600))


def topology_figure(topologies: Sequence[Topology]) -> Figure:
    """Components and box-counting dimension of the epsilon-set as epsilon varies."""
    from plotly.subplots import make_subplots

    figure = make_subplots(specs=[[{"secondary_y": True}]])
    epsilons = [t.epsilon for t in topologies]
    figure.add_scatter(x=epsilons, y=[t.components for t in topologies], name="components", secondary_y=False)
    dimensions = [t.dimension for t in topologies]
    figure.add_scatter(x=epsilons, y=dimensions, name="box-counting dimension", secondary_y=True)
    figure.update_xaxes(type="log", title="epsilon")
    figure.update_yaxes(title="components", rangemode="tozero", secondary_y=False)
    figure.update_yaxes(title="dimension", rangemode="tozero", secondary_y=True)
    return figure.update_layout(legend={"orientation": "h", "y": -0.2}, **_frame(420))


def epsilon_set(
    landscape: Landscape, epsilon: float, limit: int = MAX_DRAWN
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Coordinates and values of the grid points below epsilon; an even selection when there are too many."""
    inside = np.flatnonzero(landscape.inside(epsilon))
    if len(inside) > limit:
        inside = inside[np.linspace(0, len(inside) - 1, limit).astype(np.int64)]
    return landscape.grid.coordinates(inside).numpy(), landscape.values.ravel()[inside]


def _add_orbit(figure: Figure, landscape: Landscape, orbit: Orbit) -> None:
    """Orbit points whose foot lies in the picture; the darker, the nearer the plane."""
    import plotly.graph_objects as go

    symbols = ("circle", "x", "diamond", "square", "cross")
    for number, kind in enumerate(orbit.kinds()):
        coordinates, residuals = orbit.of_kind(kind)
        low, high = np.array(landscape.grid.bounds).T
        shown = ((coordinates >= low) & (coordinates <= high)).all(1)
        marker = {
            "size": 7, "color": residuals[shown], "colorscale": [[0, "#ff2d2d"], [1, "#ffd9d9"]], "cmin": 0,
            "cmax": max(orbit.scale, 1e-12), "symbol": symbols[number % len(symbols)],
            "line": {"color": "#5a1010", "width": 0.7},
        }  # fmt: skip
        at = coordinates[shown]
        figure.add_trace(
            go.Scatter(x=at[:, 0], y=at[:, 1], mode="markers", name=f"orbit: {kind}", marker=marker)
        )


def _add_marks_3d(figure: Figure, landscape: Landscape) -> None:
    import plotly.graph_objects as go

    for index, (name, at) in enumerate(zip(landscape.mark_names, landscape.marks, strict=True)):
        marker = {"size": 7, "color": _colour(index)}
        figure.add_trace(
            go.Scatter3d(x=[at[0]], y=[at[1]], z=[at[2]], name=name, mode="markers", marker=marker)
        )


def _logs(landscape: Landscape) -> NDArray[np.float32]:
    """log10 of the values; zeros become a hundredth of the least positive value, or of the levels."""
    values = landscape.values
    positive = values[values > 0]
    floor = float(positive.min()) if len(positive) else 1e-12
    if landscape.levels:
        floor = max(floor, landscape.levels[0] * 1e-4)
    return np.log10(np.clip(values, floor, 1e30)).astype(np.float32)


def _range(landscape: Landscape, axis: int) -> list[float]:
    """The bounds of the grid, widened to show the marks."""
    low, high = landscape.grid.bounds[axis]
    margin = 0.03 * (high - low)
    return [
        min(low, landscape.marks[:, axis].min() - margin),
        max(high, landscape.marks[:, axis].max() + margin),
    ]


def _scene() -> dict[str, Any]:
    titles = {f"{letter}axis": {"title": {"text": f"c{i + 1}"}} for i, letter in enumerate("xyz")}
    return {**titles, "aspectmode": "cube", "camera": CAMERA}


def _frame(height: int) -> dict[str, Any]:
    return {"height": height, "margin": {"l": 60, "r": 20, "t": 20, "b": 50}, "template": "plotly_white"}


def _colour(index: int) -> str:
    return MARK_COLOURS[min(index, len(MARK_COLOURS) - 1)]


def _need_dim(landscape: Landscape, dim: int) -> None:
    if landscape.grid.dim != dim:
        raise InputError(f"this figure needs a {dim}-dimensional landscape, not {landscape.grid.dim}")
