"""Figures of the demo's story."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from intertwine.aligning import Alignment

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_BLUE, _RED, _GREY = "#2f6fde", "#d1495b", "#8a94a3"
_FRAME = {"template": "plotly_white", "margin": {"l": 60, "r": 20, "t": 40, "b": 50}}
_MOST_POINTS = 1500


def before_and_after(weights: tuple[Tensor, Tensor], outputs: tuple[Tensor, Tensor]) -> Figure:
    """Two panels: weights, and outputs, before against after."""
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=1, cols=2, subplot_titles=("weights", "outputs"))
    for column, (pair, colour) in enumerate(((weights, _RED), (outputs, _BLUE)), 1):
        x, y = (each.flatten().double() for each in pair)
        step = max(1, len(x) // _MOST_POINTS)
        figure.add_scatter(
            x=x[::step].tolist(), y=y[::step].tolist(), mode="markers", row=1, col=column, showlegend=False,
            marker={"color": colour, "size": 5, "opacity": 0.5},
        )  # fmt: skip
        figure.update_xaxes(title="before", row=1, col=column)
        figure.update_yaxes(title="after", row=1, col=column)
    return figure.update_layout(height=420, **_FRAME)


def add_point(figure: Figure, x: float, y: float, name: str) -> None:
    """A cross."""
    marker = {"symbol": "x", "size": 11, "color": _RED}
    figure.add_scatter(x=[x], y=[y], name=name, mode="markers", marker=marker)


def cosines(found: Alignment) -> Figure:
    """Two bars an axis: cosine of the channels before and after."""
    import plotly.graph_objects as go

    names = [axis.name for axis in found.axes]
    figure = go.Figure()
    figure.add_bar(x=names, y=[axis.cosine_before for axis in found.axes], name="before", marker_color=_GREY)
    figure.add_bar(x=names, y=[axis.cosine_after for axis in found.axes], name="after", marker_color=_BLUE)
    return figure.update_layout(barmode="group", yaxis_title="cosine", height=400, **_FRAME)
