"""Plotly figures of merging: distances, swaps, accuracy against size, complexity against depth, time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from intertwine.merging.experiments import CurvePoint, SwapPath

SCALE = "Viridis"
_FRAME = {"template": "plotly_white", "margin": {"l": 60, "r": 20, "t": 40, "b": 50}}


def distance_figure(table: np.ndarray, axis: str) -> Figure:
    """Normalised distances between the features of an axis (Fig. 2a and 7 of IFM)."""
    import plotly.graph_objects as go

    figure = go.Figure(go.Heatmap(z=table, colorscale=SCALE, zmin=0, zmax=1, colorbar={"title": "D / max D"}))
    figure.update_yaxes(autorange="reversed", scaleanchor="x", constrain="domain")
    figure.update_xaxes(constrain="domain")
    return figure.update_layout(
        title=axis, xaxis_title="feature", yaxis_title="feature", height=560, **_FRAME
    )


def swap_figure(
    paths: Mapping[str, SwapPath], what: str = "accuracy", *, tested: int | None = None
) -> Figure:
    """Along the line from theta to pi(theta): equivalent features solid, random ones dashed (Fig. 2b).

    tested: the number of test inputs, for 95 % intervals of every point.
    """
    import plotly.graph_objects as go
    from plotly.colors import qualitative

    figure = go.Figure()
    for colour, (name, path) in zip(cycle(qualitative.Safe), paths.items(), strict=False):
        for values, dash, kind in ((path.equivalent, "solid", "equivalent"), (path.random, "dash", "random")):
            label = f"{name}: {path.swapped} {kind} swaps"
            figure.add_trace(
                go.Scatter(
                    x=path.steps, y=values, name=label, line={"dash": dash, "color": colour},
                    error_y=_intervals(values, tested),
                )
            )  # fmt: skip
    return figure.update_layout(xaxis_title="lambda", yaxis_title=what, height=420, **_FRAME)


def _intervals(shares: Sequence[float], tested: int | None) -> dict[str, object] | None:
    """95 % error bars of shares of `tested` inputs."""
    if tested is None:
        return None
    half = [1.96 * (max(share * (1 - share), 0.0) / tested) ** 0.5 for share in shares]
    return {"type": "data", "array": half, "thickness": 1}


def curve_figure(
    curves: Mapping[str, Sequence[CurvePoint]], what: str = "accuracy", *, tested: int | None = None
) -> Figure:
    """Accuracy against the share of parameters kept, several models or methods on one plot (Fig. 3, 4, 6).

    tested: the number of test inputs, for 95 % intervals of every point.
    """
    import plotly.graph_objects as go

    figure = go.Figure()
    for name, points in curves.items():
        ordered = sorted(points, key=lambda p: p.kept)
        figure.add_trace(
            go.Scatter(
                x=[100 * p.kept for p in ordered],
                y=[p.score for p in ordered],
                text=[f"{p.setting:g}" for p in ordered],
                name=name,
                mode="lines+markers",
                error_y=_intervals([p.score for p in ordered], tested),
            )
        )
    return figure.update_layout(xaxis_title="parameters kept, %", yaxis_title=what, height=460, **_FRAME)


def complexity_figure(complexity: Mapping[str, Mapping[str, int]], sizes: Mapping[str, int]) -> Figure:
    """Feature complexity of each axis in the order of depth, a line for every model or beta (Fig. 5a)."""
    import plotly.graph_objects as go

    figure = go.Figure(go.Scatter(x=list(sizes), y=list(sizes.values()), name="width", line={"dash": "dot"}))
    for name, widths in complexity.items():
        figure.add_trace(go.Scatter(x=list(widths), y=list(widths.values()), name=name, mode="lines+markers"))
    return figure.update_layout(xaxis_title="axis", yaxis_title="feature complexity", height=440, **_FRAME)


def time_rows(seconds: Mapping[str, Sequence[float]]) -> list[tuple[str, str]]:
    """(model, mean and standard deviation of an iteration), the rows of Table 2.

    >>> time_rows({"vgg16": [0.01, 0.03]})
    [('vgg16', '0.0200 ± 0.0100')]
    """
    return [(name, f"{np.mean(times):.4f} ± {np.std(times):.4f}") for name, times in seconds.items()]
